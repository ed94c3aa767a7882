//! Cookies with derived keys: equal requests of two users must be two intents.

use onceward::http::{KeyMode, Kind};

use super::case::{Case, TestRequest, again, bare, case, fresh, post, problem, replies};

fn of(cookie: &str) -> TestRequest {
    bare("POST").with("cookie", cookie)
}

fn derived(case: Case) -> Case {
    case.set(|setting| setting.key_mode = KeyMode::Derived)
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        derived(case(
            "with derived keys, a cookie is refused until it is listed",
            vec![replies(201, "one"), replies(201, "two")],
            vec![
                of("session=ann").gets(problem(Kind::CookieNotListed)),
                of("session=bob").gets(problem(Kind::CookieNotListed)),
                bare("POST").gets(fresh(201, "one")),
                post("k").with("cookie", "session=ann").gets(fresh(201, "two")),
                post("k").with("cookie", "session=bob").gets(again(201, "two")),
            ],
        )),
        derived(case(
            "a cookie in identity_headers distinguishes users",
            vec![replies(201, "ann's"), replies(201, "bob's"), replies(201, "of no session")],
            vec![
                of("session=ann; lang=en").gets(fresh(201, "ann's")),
                of("session=bob; lang=en").gets(fresh(201, "bob's")),
                of("session=ann; lang=en").gets(again(201, "ann's")),
                of("session=ann").with("cookie", "lang=en").gets(again(201, "ann's")),
                bare("POST").gets(fresh(201, "of no session")),
            ],
        ))
        .set(|setting| setting.identity_headers = vec!["Cookie"]),
        derived(case(
            "a cookie in ignored_headers does not distinguish users",
            vec![replies(201, "one")],
            vec![of("lb=1").gets(fresh(201, "one")), of("lb=2").gets(again(201, "one"))],
        ))
        .set(|setting| setting.ignored_headers = vec!["cookie"]),
        derived(case(
            "with a recipe too, a cookie is refused until it is listed",
            vec![],
            vec![of("session=ann").body(r#"{"invoice":7,"amount":1}"#).gets(problem(Kind::CookieNotListed))],
        ))
        .set(|setting| setting.recipe = Some(("/invoice", "/amount"))),
        case(
            "identity headers are part of the tenant if clients send keys",
            vec![replies(201, "one"), replies(201, "two")],
            vec![
                post("k").with("x-user", "ann").gets(fresh(201, "one")),
                post("k").with("x-user", "bob").gets(fresh(201, "two")),
                post("k").with("x-user", "ann").gets(again(201, "one")),
                post("k").with("x-user", "ann").with("connection", "x-user").gets(problem(Kind::KeyMalformed)),
            ],
        )
        .set(|setting| setting.identity_headers = vec!["x-user"]),
    ]
}
