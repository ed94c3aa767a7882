//! Repeats: concurrent, with a different request, after the client disconnected.

use std::time::Duration;

use onceward::http::{Kind, Profile};

use super::case::{Case, Step, again, case, fresh, post, problem, replies};

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        case(
            "two spellings of one request are the same, and another amount is a mismatch",
            vec![replies(201, "one")],
            vec![
                post("k").body(r#"{"a":1,"b":2}"#).gets(fresh(201, "one")),
                post("k").body(r#"{ "b": 2, "a": 1 }"#).gets(again(201, "one")),
                post("k").body(r#"{"a":1,"b":3}"#).gets(
                    problem(Kind::Mismatch).header("stripe-should-retry", "false").header("x-should-retry", "false"),
                ),
                post("k").to("/v1/charges?dry=1").body(r#"{"a":1,"b":2}"#).gets(problem(Kind::Mismatch)),
            ],
        ),
        case(
            "repeats of a running request wait and get its response",
            vec![replies(201, "one").after(400)],
            vec![Step::Together(vec![
                (post("k"), fresh(201, "one")),
                (post("k"), again(201, "one")),
                (post("k"), again(201, "one")),
                (post("k").body("{}"), problem(Kind::Mismatch)),
            ])],
        ),
        case(
            "a repeat that has waited long enough is told when to retry",
            vec![replies(201, "one").after(3000)],
            vec![Step::Together(vec![
                (post("k"), fresh(201, "one")),
                (
                    post("k"),
                    problem(Kind::InFlight)
                        .header("retry-after", "*")
                        .member("retry_after", "*")
                        .header("stripe-should-retry", "true")
                        .header("x-should-retry", "true"),
                ),
            ])],
        )
        .set(|setting| setting.wait = Some(Duration::from_millis(300))),
        case(
            "a request in flight has the status that the route configures",
            vec![replies(201, "one").after(3000)],
            vec![Step::Together(vec![
                (post("k"), fresh(201, "one")),
                (post("k"), problem(Kind::InFlight).status(425).member("retry_after", "*").header("retry-after", "*")),
            ])],
        )
        .set(|setting| (setting.wait, setting.in_flight_status) = (Some(Duration::from_millis(300)), Some(425))),
        case(
            "callers that waited for a released attempt do not run one after the other",
            vec![replies(429, "later").after(400)],
            vec![Step::Together(vec![
                (post("k"), fresh(429, "later")),
                (post("k"), problem(Kind::AttemptFailed).header("retry-after", "1")),
                (post("k"), problem(Kind::AttemptFailed).header("x-should-retry", "true")),
            ])],
        ),
        case(
            "a request runs to its end after its client gave up, and the retry gets its response",
            vec![replies(201, "one").after(400)],
            vec![Step::GivesUp(post("k")), post("k").gets(again(201, "one"))],
        ),
        case(
            "a key that a stream uses is refused",
            vec![],
            vec![Step::StreamTakes("s"), post("s/head").gets(problem(Kind::Collision))],
        )
        .set(|setting| setting.tenant = "fixed:acme"),
    ];
    for (profile, code) in [(Profile::Stripe, "idempotency_error"), (Profile::Acp, "idempotency_conflict")] {
        let steps = vec![
            post("k").gets(fresh(201, "one")),
            post("k").body("{}").gets(problem(Kind::Mismatch).member("code", code).member("message", "*")),
        ];
        let mismatch = case(format!("a mismatch under the profile {profile:?}"), vec![replies(201, "one")], steps);
        cases.push(mismatch.set(|setting| setting.profile = profile));
    }
    cases
}
