//! What is kept of which answer: every row of the table of statuses, for every profile.

use onceward::http::{Kind, Profile};

use super::case::{Case, Expect, Reply, Step, again, case, fresh, post, problem, replies};

/// What the second request under the same key gets.
#[derive(Clone, Copy)]
enum Second {
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
            "what the other side lists proves that nothing happened",
            vec![replies(503, "no"), replies(201, "yes")],
            vec![post("k").gets(fresh(503, "no")), post("k").gets(fresh(201, "yes"))],
        )
        .set(|setting| setting.refusals = vec![503]),
    );
    cases.push(
        case(
            "a 408 frees the key only where the route lists it as a refusal",
            vec![replies(408, "no"), replies(201, "yes")],
            vec![post("k").gets(fresh(408, "no")), post("k").gets(fresh(201, "yes"))],
        )
        .set(|setting| setting.refusals = vec![408]),
    );
    cases.push(
        case(
            "a 500 under acp is sent again only where the upstream honours the key",
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
        "what is kept does not ask to be asked again",
        vec![replies(500, "broken").header("retry-after", "1").header("x-should-retry", "true")],
        vec![
            post("k").gets(fresh(500, "broken").header("retry-after", "1")),
            post("k").gets(again(500, "broken").no_header("retry-after").no_header("x-should-retry")),
        ],
    ));
    cases.push(
        case(
            "what is unknown is sent again where the other side knows the key",
            vec![replies(502, "lost"), Reply::Nothing, replies(201, "yes")],
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
    let server_error = if profile == Profile::Acp { Second::Doubt } else { Second::Replay };
    let rows: [(u16, Second); 29] = [
        (200, Second::Replay),
        (201, Second::Replay),
        (202, Second::Replay),
        (302, Second::Replay),
        (400, Second::Replay),
        (402, Second::Replay),
        (404, Second::Replay),
        (410, Second::Replay),
        (422, Second::Replay),
        (401, Second::Runs),
        (529, Second::Doubt),
        (499, Second::Doubt),
        (524, Second::Doubt),
        (599, Second::Doubt),
        (403, Second::Runs),
        (407, Second::Runs),
        (409, Second::Runs),
        (425, Second::Runs),
        (408, Second::Doubt),
        (429, Second::Runs),
        (500, server_error),
        (501, server_error),
        (505, server_error),
        (502, Second::Doubt),
        (503, Second::Doubt),
        (504, Second::Doubt),
        (429, Second::Later),
        (503, Second::Later),
        (529, Second::Later),
    ];
    let (mut script, mut steps) = (Vec::new(), Vec::new());
    for (index, (status, second)) in rows.into_iter().enumerate() {
        let key = format!("k{index}");
        let first = format!("first {status}");
        let reply = replies(status, first.clone());
        let (reply, expect): (Reply, Expect) = match second {
            Second::Later => (
                reply.header("retry-after", "60"),
                problem(Kind::InFlight).header("retry-after", "60").header("x-should-retry", "true"),
            ),
            Second::Replay => (reply, again(status, first.clone())),
            Second::Runs => (reply, fresh(201, "second")),
            Second::Doubt => (reply, in_doubt(profile)),
        };
        script.push(reply);
        if matches!(second, Second::Runs) {
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

/// A step that is sent twice, and answered from the ledger the second time.
pub(super) fn twice(sent: super::case::Sent, status: u16, body: &[u8]) -> Vec<Step> {
    vec![sent.clone().gets(fresh(status, body)), sent.gets(again(status, body))]
}
