//! Faults: no response, a truncated response, an unreachable upstream, time-outs, and an unreachable ledger.

use std::time::Duration;

use onceward::http::Kind;

use super::case::{Case, On, Step, UpstreamReply, again, bare, broken, case, fresh, post, problem, replies};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case(
            "a missing response is in doubt",
            vec![UpstreamReply::NoResponse],
            vec![
                post("k").gets(problem(Kind::NoAnswer).header("x-should-retry", "false")),
                post("k").gets(problem(Kind::InDoubt).member("since", "*").header("x-should-retry", "false")),
                post("k").body("{}").gets(problem(Kind::Mismatch)),
            ],
        ),
        case(
            "callers that waited for an attempt without a response are told of the doubt",
            vec![replies(504, "lost").after(400)],
            vec![Step::Together(vec![(post("k"), fresh(504, "lost")), (post("k"), problem(Kind::InDoubt))])],
        ),
        case(
            "a truncated response is not replayed, and is in doubt",
            vec![UpstreamReply::BreaksOff("half")],
            vec![post("k").gets(broken(200)), post("k").gets(problem(Kind::InDoubt))],
        ),
        case(
            "a client that gave up on a request without a response is told of the doubt",
            vec![replies(502, "lost").after(300)],
            vec![Step::GivesUp(post("k")), post("k").gets(problem(Kind::InDoubt))],
        ),
        case(
            "without its ledger nothing runs, but cached outcomes are replayed",
            vec![replies(201, "one"), replies(200, "read")],
            vec![
                post("k").gets(fresh(201, "one")),
                Step::LedgerBreaks,
                post("other")
                    .gets(problem(Kind::StoreDown).header("retry-after", "1").header("x-should-retry", "true")),
                post("k").gets(again(201, "one")),
                bare("GET").body("").gets(fresh(200, "read")),
            ],
        ),
        case(
            "a new key over the quota of its tenant is refused, and everything else keeps working",
            vec![replies(201, "one"), replies(201, "two"), replies(201, "of another"), replies(200, "read")],
            vec![
                post("a").gets(fresh(201, "one")),
                post("b").gets(fresh(201, "two")),
                post("c")
                    .gets(problem(Kind::Quota).status(429).header("retry-after", "60").member("retry_after", "60")),
                post("a").gets(again(201, "one")),
                post("b").body("{}").gets(problem(Kind::Mismatch)),
                post("c").without("authorization").with("authorization", "Bearer other").gets(fresh(201, "of another")),
                bare("GET").body("").gets(fresh(200, "read")),
                post("c").gets(problem(Kind::Quota)),
            ],
        )
        .set(|setting| setting.records_per_tenant = Some(2)),
        case(
            "a request that did not reach the upstream did nothing, and the retry runs",
            vec![replies(201, "one")],
            vec![
                post("k").gets(problem(Kind::Unreachable).header("retry-after", "1").header("x-should-retry", "true")),
                Step::UpstreamComesUp,
                post("k").gets(fresh(201, "one")),
                post("k").gets(again(201, "one")),
            ],
        )
        .set(|setting| setting.upstream_is_down = true)
        .on(On::Gateway),
        case(
            "a request body that does not arrive times out, and nothing runs",
            vec![replies(201, "one")],
            vec![
                Step::Unfinished(post("k"), problem(Kind::TooSlow).header("x-should-retry", "true")),
                post("k").gets(fresh(201, "one")),
            ],
        )
        .set(|setting| setting.body_timeout = Some(Duration::from_millis(300))),
        case(
            "a response that pauses for too long is in doubt",
            vec![UpstreamReply::Stops("half")],
            vec![post("k").gets(broken(200)), post("k").gets(problem(Kind::InDoubt))],
        )
        // The first half has to arrive in this time, also on a busy machine.
        .set(|setting| setting.timeout = Some(Duration::from_secs(2)))
        .on(On::Gateway),
        case(
            "a response that takes too long is in doubt",
            vec![replies(201, "late").after(2000)],
            vec![
                post("k").gets(problem(Kind::TimedOut)),
                Step::Wait(Duration::from_millis(50)),
                post("k").gets(problem(Kind::InDoubt)),
            ],
        )
        .set(|setting| setting.timeout = Some(Duration::from_millis(300)))
        .on(On::Gateway),
        case(
            "a response that starts and does not continue is in doubt",
            vec![UpstreamReply::Stalls],
            vec![post("k").gets(problem(Kind::NoAnswer)), post("k").gets(problem(Kind::InDoubt))],
        )
        .set(|setting| setting.timeout = Some(Duration::from_millis(300)))
        .on(On::Gateway),
    ]
}
