//! Which responses are kept: every row of the table of statuses, for every profile.

use onceward::http::{Kind, Profile};

use super::case::{Case, Expect, Step, UpstreamReply, again, case, fresh, post, problem, replies};

/// The result of the second request with the same key.
#[derive(Clone, Copy)]
enum SecondResult {
    Replay,
    Runs,
    Doubt,
    Later,
}

const PROFILES: [Profile; 3] = [Profile::Ietf, Profile::Stripe, Profile::Acp];

pub(super) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = PROFILES.into_iter().map(every_row).collect();
    cases.push(
        case(
            "a status in refusals proves that nothing happened",
            vec![replies(503, "no"), replies(201, "yes")],
            vec![post("k").gets(fresh(503, "no")), post("k").gets(fresh(201, "yes"))],
        )
        .set(|setting| setting.refusals = vec![503]),
    );
    cases.push(
        case(
            "a 408 frees the key only if the route lists it as a refusal",
            vec![replies(408, "no"), replies(201, "yes")],
            vec![post("k").gets(fresh(408, "no")), post("k").gets(fresh(201, "yes"))],
        )
        .set(|setting| setting.refusals = vec![408]),
    );
    cases.push(
        case(
            "a 500 under acp is sent again only if the upstream honours the key",
            vec![replies(500, "broken"), replies(201, "yes")],
            vec![
                post("k").gets(fresh(500, "broken")),
                post("k").gets(fresh(201, "yes")),
                post("k").gets(again(201, "yes")),
            ],
        )
        .set(|setting| (setting.profile, setting.honours_key) = (Profile::Acp, true)),
    );
    cases.push(case(
        "a kept response has no Retry-After",
        vec![replies(500, "broken").header("retry-after", "1").header("x-should-retry", "true")],
        vec![
            post("k").gets(fresh(500, "broken").header("retry-after", "1")),
            post("k").gets(again(500, "broken").no_header("retry-after").no_header("x-should-retry")),
        ],
    ));
    cases.push(
        case(
            "a request with an unknown outcome is sent again if the upstream honours the key",
            vec![replies(502, "lost"), UpstreamReply::NoResponse, replies(201, "yes")],
            vec![
                post("k").gets(fresh(502, "lost")),
                post("k").gets(problem(Kind::NoAnswer).header("x-should-retry", "true")),
                post("k").gets(fresh(201, "yes")),
                post("k").gets(again(201, "yes")),
            ],
        )
        .set(|setting| setting.honours_key = true),
    );
    cases
}

fn every_row(profile: Profile) -> Case {
    // ACP forbids keeping a 5xx, which does not prove that nothing happened.
    let server_error = if profile == Profile::Acp { SecondResult::Doubt } else { SecondResult::Replay };
    let rows: [(u16, SecondResult); 29] = [
        (200, SecondResult::Replay),
        (201, SecondResult::Replay),
        (202, SecondResult::Replay),
        (302, SecondResult::Replay),
        (400, SecondResult::Replay),
        (402, SecondResult::Replay),
        (404, SecondResult::Replay),
        (410, SecondResult::Replay),
        (422, SecondResult::Replay),
        (401, SecondResult::Runs),
        (529, SecondResult::Doubt),
        (499, SecondResult::Doubt),
        (524, SecondResult::Doubt),
        (599, SecondResult::Doubt),
        (403, SecondResult::Runs),
        (407, SecondResult::Runs),
        (409, SecondResult::Runs),
        (425, SecondResult::Runs),
        (408, SecondResult::Doubt),
        (429, SecondResult::Runs),
        (500, server_error),
        (501, server_error),
        (505, server_error),
        (502, SecondResult::Doubt),
        (503, SecondResult::Doubt),
        (504, SecondResult::Doubt),
        (429, SecondResult::Later),
        (503, SecondResult::Later),
        (529, SecondResult::Later),
    ];
    let (mut script, mut steps) = (Vec::new(), Vec::new());
    for (index, (status, second)) in rows.into_iter().enumerate() {
        let key = format!("k{index}");
        let first = format!("first {status}");
        let reply = replies(status, first.clone());
        let (reply, expect): (UpstreamReply, Expect) = match second {
            SecondResult::Later => (
                reply.header("retry-after", "60"),
                problem(Kind::InFlight).header("retry-after", "60").header("x-should-retry", "true"),
            ),
            SecondResult::Replay => (reply, again(status, first.clone())),
            SecondResult::Runs => (reply, fresh(201, "second")),
            SecondResult::Doubt => (reply, in_doubt(profile)),
        };
        script.push(reply);
        if matches!(second, SecondResult::Runs) {
            script.push(replies(201, "second"));
        }
        steps.push(post(&key).gets(fresh(status, first)));
        steps.push(post(&key).gets(expect));
    }
    case(format!("every status, {profile:?}"), script, steps).set(|setting| setting.profile = profile)
}

fn in_doubt(profile: Profile) -> Expect {
    let told = problem(Kind::InDoubt).member("since", "*").header("stripe-should-retry", "false");
    let told = told.member("operation", "POST /v1/charges").member("tenant", "*").member("intent", "*");
    let told = told.header("x-should-retry", "false");
    if profile == Profile::Acp { told.member("code", "idempotency_in_flight") } else { told }
}

/// A request that is sent twice, with a replay the second time.
pub(super) fn twice(sent: super::case::TestRequest, status: u16, body: &[u8]) -> Vec<Step> {
    vec![sent.clone().gets(fresh(status, body)), sent.gets(again(status, body))]
}
