//! Keys: where they are, how they are written, which tenant they belong to, and which requests need one.

use std::time::Duration;

use onceward::http::{KeyMode, Kind, Profile};

use super::case::{Case, On, Step, UpstreamReply, again, bare, case, fresh, post, problem, replies};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = written();
    cases.extend(modes());
    cases.extend(places());
    cases.extend(accounts());
    cases.extend(recipes());
    cases.extend(owners());
    cases
}

fn written() -> Vec<Case> {
    let malformed: [(&str, Vec<u8>); 6] = [
        ("empty", b"".to_vec()),
        ("an empty string", b"\"\"".to_vec()),
        ("an open quote", b"\"k".to_vec()),
        ("a space", b"a b".to_vec()),
        ("not ASCII", "schl\u{fc}ssel".as_bytes().to_vec()),
        ("256 characters", vec![b'k'; 256]),
    ];
    let refused = |key: &Vec<u8>| bare("POST").with("idempotency-key", key).gets(problem(Kind::KeyMalformed));
    let mut steps: Vec<Step> = malformed.iter().map(|(_, key)| refused(key)).collect();
    steps.push(post("a").with("idempotency-key", "b").gets(problem(Kind::KeyMalformed)));
    vec![
        case(
            "a quoted key and a bare one are the same",
            vec![replies(201, "one")],
            vec![post("\"8e03-40d5\"").gets(fresh(201, "one")), post("8e03-40d5").gets(again(201, "one"))],
        ),
        retried_as("a retry of a quoted key goes upstream quoted", "\"abc\"", "abc"),
        retried_as("a retry of a bare key goes upstream bare", "abc", "\"abc\""),
        case(
            "a key in another spelling is still compared with its request",
            vec![replies(201, "one")],
            vec![
                post("\"abc\"").gets(fresh(201, "one")),
                post("abc").body("{}").gets(problem(Kind::Mismatch)),
                post("\"abc\"").body("{}").gets(problem(Kind::Mismatch)),
                post("abc").gets(again(201, "one")),
            ],
        ),
        case(
            "255 characters are a key",
            vec![replies(201, "one")],
            vec![post(&"k".repeat(255)).gets(fresh(201, "one")), post(&"k".repeat(255)).gets(again(201, "one"))],
        ),
        case("an invalid key is refused, and nothing runs", vec![], steps),
    ]
}

/// An upstream that honours keys gets the same bytes on every attempt.
fn retried_as(name: &str, first: &'static str, other: &str) -> Case {
    let tells = || UpstreamReply::EchoesHeader("idempotency-key");
    case(
        name,
        vec![replies(502, "lost"), replies(502, "lost again"), tells()],
        vec![
            post(first).gets(fresh(502, "lost")),
            post(other).gets(fresh(502, "lost again")),
            post(other).gets(fresh(201, first)),
            post(first).gets(again(201, first)),
            post(other).gets(again(201, first)),
        ],
    )
    .set(|setting| setting.honours_key = true)
}

fn modes() -> Vec<Case> {
    let missing = |name: &str, profile, expect| {
        case(name, vec![], vec![bare("POST").gets(expect)]).set(|setting| setting.profile = profile)
    };
    vec![
        missing("no key where one is required", Profile::Ietf, problem(Kind::KeyMissing)),
        missing(
            "no key, under the profile stripe",
            Profile::Stripe,
            problem(Kind::KeyMissing).member("code", "idempotency_error"),
        ),
        missing(
            "no key, under the profile acp",
            Profile::Acp,
            problem(Kind::KeyMissing).member("code", "idempotency_key_required"),
        ),
        case(
            "with optional keys, only requests with a key are guarded",
            vec![replies(201, "one"), replies(201, "two"), replies(201, "three")],
            vec![
                bare("POST").gets(fresh(201, "one").no_header("idempotency-expires")),
                bare("POST").gets(fresh(201, "two")),
                post("k").gets(fresh(201, "three").header("idempotency-expires", "*")),
                post("k").gets(again(201, "three")),
            ],
        )
        .set(|setting| setting.key_mode = KeyMode::Optional),
        case(
            "a derived key does not depend on the spelling of the request",
            vec![replies(201, "one"), replies(201, "two")],
            vec![
                bare("POST").body(r#"{"amount":1,"to":"a"}"#).gets(fresh(201, "one")),
                bare("POST").body(r#"{ "to" : "a", "amount" : 1 }"#).gets(again(201, "one")),
                bare("POST").body(r#"{"amount":2,"to":"a"}"#).gets(fresh(201, "two")),
            ],
        )
        .set(|setting| setting.key_mode = KeyMode::Derived),
        case(
            "a key of the client takes precedence over a derived one",
            vec![replies(201, "one"), replies(201, "two")],
            vec![
                post("a").gets(fresh(201, "one")),
                post("b").gets(fresh(201, "two")),
                post("a").gets(again(201, "one")),
            ],
        )
        .set(|setting| setting.key_mode = KeyMode::Derived),
        case(
            "with derived keys, a key of the client is held as long as usual, and is forwarded unchanged",
            vec![UpstreamReply::EchoesHeader("idempotency-key"), UpstreamReply::EchoesHeader("idempotency-key")],
            vec![
                post("order-7").gets(fresh(201, "order-7")),
                bare("POST").gets(fresh(201, "ours")),
                Step::Wait(Duration::from_millis(600)),
                post("order-7").gets(again(201, "order-7")),
            ],
        )
        .set(|setting| {
            setting.key_mode = KeyMode::Derived;
            setting.honours_key = true;
            setting.window = Some(Duration::from_millis(300));
        }),
        case(
            "after its window, a request with a derived key is new",
            vec![replies(201, "one"), replies(201, "two")],
            vec![
                bare("POST").gets(fresh(201, "one")),
                bare("POST").gets(again(201, "one")),
                Step::Wait(Duration::from_millis(3300)),
                bare("POST").gets(fresh(201, "two")),
            ],
        )
        .set(|setting| {
            setting.key_mode = KeyMode::Derived;
            // Long enough for a repeat on a busy machine.
            setting.window = Some(Duration::from_secs(3));
        }),
        case(
            "PATCH is guarded, and idempotent methods are not",
            vec![replies(200, "patched"), replies(200, "1"), replies(200, "2"), replies(200, "3"), replies(204, "")],
            vec![
                bare("PATCH").with("idempotency-key", "k").gets(fresh(200, "patched")),
                bare("PATCH").with("idempotency-key", "k").gets(again(200, "patched")),
                bare("GET").with("idempotency-key", "k").body("").gets(fresh(200, "1")),
                bare("GET").without("authorization").body("").gets(fresh(200, "2")),
                bare("PUT").gets(fresh(200, "3")),
                bare("DELETE").with("idempotency-key", "k").body("").gets(fresh(204, "")),
            ],
        ),
        case(
            "one key is a different intent for each path and method",
            vec![replies(201, "one"), replies(201, "two"), replies(201, "three")],
            vec![
                post("k").gets(fresh(201, "one")),
                post("k").to("/v1/%63harges").gets(again(201, "one")),
                post("k").to("/v1/refunds").gets(fresh(201, "two")),
                bare("PATCH").with("idempotency-key", "k").gets(fresh(201, "three")),
                post("k").gets(again(201, "one")),
            ],
        ),
    ]
}

fn places() -> Vec<Case> {
    let paypal = |key: &str| bare("POST").with("paypal-request-id", key);
    let square = |body: &str| bare("POST").body(body);
    vec![
        case(
            "the key is in PayPal's header",
            vec![replies(201, "one")],
            vec![
                paypal("k").gets(fresh(201, "one")),
                paypal("k").gets(again(201, "one")),
                post("k").gets(problem(Kind::KeyMissing)),
            ],
        )
        .set(|setting| setting.key_from = Some("header:PayPal-Request-Id")),
        case(
            "the key is in the body, as with Square",
            vec![replies(201, "one"), replies(201, "two")],
            vec![
                square(r#"{"idempotency_key":"k","amount":1}"#).gets(fresh(201, "one")),
                square(r#"{"amount":1,"idempotency_key":"k"}"#).gets(again(201, "one")),
                square(r#"{"idempotency_key":"k","amount":2}"#).gets(problem(Kind::Mismatch)),
                square(r#"{"idempotency_key":17,"amount":1}"#).gets(fresh(201, "two")),
                square(r#"{"amount":1}"#).gets(problem(Kind::KeyMissing)),
                square(r#"{"idempotency_key":["k"]}"#).gets(problem(Kind::KeyMalformed)),
                square("{").gets(problem(Kind::BodyMalformed)),
                square("{}").without("content-type").gets(problem(Kind::BodyMalformed)),
            ],
        )
        .set(|setting| setting.key_from = Some("body:/idempotency_key")),
    ]
}

fn accounts() -> Vec<Case> {
    let of = |account: &str| post("k").with("stripe-account", account);
    vec![
        case(
            "a key of one Stripe account is separate from that of another",
            vec![replies(201, "one")],
            vec![
                of("acct_1").gets(fresh(201, "one")),
                of("acct_2").gets(problem(Kind::Mismatch)),
                post("k").gets(problem(Kind::Mismatch)),
                of("acct_1").gets(again(201, "one")),
                of("acct_1").with("connection", "stripe-account").gets(problem(Kind::KeyMalformed)),
            ],
        )
        .set(|setting| setting.profile = Profile::Stripe),
        case(
            "equal requests for two Stripe accounts are two intents",
            vec![replies(201, "one"), replies(201, "two")],
            vec![
                bare("POST").with("stripe-account", "acct_1").gets(fresh(201, "one")),
                bare("POST").with("stripe-account", "acct_2").gets(fresh(201, "two")),
            ],
        )
        .set(|setting| (setting.profile, setting.key_mode) = (Profile::Stripe, KeyMode::Derived)),
        case(
            "a derived key is sent in the configured header",
            vec![UpstreamReply::EchoesHeader("paypal-request-id")],
            vec![bare("POST").gets(fresh(201, "ours"))],
        )
        .set(|setting| {
            setting.key_from = Some("header:PayPal-Request-Id");
            setting.key_mode = KeyMode::Derived;
            setting.honours_key = true;
        }),
    ]
}

/// A recipe is about the body. The rest of the request counts as without a recipe.
fn recipes() -> Vec<Case> {
    let body = r#"{"invoice":7,"amount":1,"memo":"a"}"#;
    let other_memo = r#"{"memo":"b","amount":1,"invoice":7}"#;
    let other_amount = r#"{"invoice":7,"amount":2,"memo":"a"}"#;
    let recipe = Some(("/invoice", "/amount"));
    let (keyed, derived) = (post("k").body(body), bare("POST").body(body));
    let typed = |kind: &str| derived.clone().without("content-type").with("content-type", kind);
    vec![
        case(
            "with a recipe, query and content type must match too",
            vec![replies(201, "dry")],
            vec![
                keyed.clone().to("/v1/charges?dry_run=true").gets(fresh(201, "dry")),
                keyed.clone().to("/v1/charges").gets(problem(Kind::Mismatch)),
                keyed.clone().to("/v1/charges?dry_run=false").gets(problem(Kind::Mismatch)),
                keyed.clone().to("/v1/charges?dry_run=true").body(other_memo).gets(again(201, "dry")),
                keyed
                    .to("/v1/charges?dry_run=true")
                    .without("content-type")
                    .with("content-type", "application/merge-patch+json")
                    .gets(problem(Kind::Mismatch)),
            ],
        )
        .set(|setting| setting.recipe = recipe),
        case(
            "a key derived by a recipe includes the query, and the content type must match",
            vec![replies(201, "dry"), replies(201, "paid"), replies(201, "other")],
            vec![
                derived.clone().to("/v1/charges?dry_run=true").gets(fresh(201, "dry")),
                derived.clone().gets(fresh(201, "paid")),
                derived.clone().to("/v1/charges?account=2").gets(fresh(201, "other")),
                derived.clone().to("/v1/charges?").body(other_memo).gets(again(201, "paid")),
                derived.clone().to("/v1/charges?dry_run=true").body(other_amount).gets(problem(Kind::Mismatch)),
                typed("application/json; charset=utf-8").gets(again(201, "paid")),
                typed("application/merge-patch+json").gets(problem(Kind::Mismatch)),
            ],
        )
        .set(|setting| (setting.recipe, setting.key_mode) = (recipe, KeyMode::Derived)),
    ]
}

fn owners() -> Vec<Case> {
    let of = |credential: &str| post("k").without("authorization").with("authorization", credential);
    let named = |name: &str| post("k").with("x-tenant", name);
    vec![
        case(
            "customers neither affect nor see each other",
            vec![replies(201, "one"), replies(201, "two")],
            vec![
                of("Bearer sk_1").gets(fresh(201, "one")),
                of("Bearer sk_2").body("{}").gets(fresh(201, "two")),
                of("bearer  sk_1").gets(again(201, "one")),
            ],
        ),
        case(
            "a request without valid credentials is refused, and nothing runs",
            vec![],
            vec![
                post("k").without("authorization").gets(problem(Kind::NoCredential)),
                post("k").with("authorization", "Bearer other").gets(problem(Kind::BadCredential)),
                of("Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln").gets(problem(Kind::BadCredential)),
            ],
        ),
        case(
            "a proxy on this machine names the tenant",
            vec![replies(201, "one"), replies(201, "two")],
            vec![
                named("acme").gets(fresh(201, "one")),
                named("globex").gets(fresh(201, "two")),
                named("acme").gets(again(201, "one")),
                post("k").gets(problem(Kind::NoCredential)),
                named(&"t".repeat(300)).gets(problem(Kind::BadRequest)),
            ],
        )
        .set(|setting| setting.tenant = "header:x-tenant"),
        case(
            "all callers are one tenant if configured so",
            vec![replies(201, "one")],
            vec![
                of("Bearer sk_1").gets(fresh(201, "one")),
                of("Bearer sk_2").gets(again(201, "one")),
                post("k").without("authorization").gets(again(201, "one")),
            ],
        )
        .set(|setting| setting.tenant = "fixed:hooks"),
        case(
            "a web page of another origin is refused",
            vec![],
            vec![
                bare("GET").with("origin", "https://evil.example").body("").gets(problem(Kind::WrongHost)),
                post("k").with("origin", "null").gets(problem(Kind::WrongHost)),
            ],
        )
        .on(On::Gateway),
        case(
            "paths of the gateway itself, and paths with dot segments",
            vec![],
            vec![
                bare("GET").to("/.well-known/onceward/problems/nothing").gets(problem(Kind::NoRoute)),
                bare("POST").to("/.well-known/idempotency").gets(problem(Kind::BadRequest)),
                post("k").to("/v1/../admin").gets(problem(Kind::BadRequest)),
            ],
        )
        .on(On::Gateway),
    ]
}
