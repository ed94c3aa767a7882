//! From a doubt to an outcome: the problem contains enough to find the intent and settle it, and the client then gets the
//! operator's outcome.

use http::Response;
use serde_json::Value;

use super::test_gateway::TestGateway;
use super::upstream::{Body, TestUpstream};

/// The status, the content type, whether it is a replay, and the body.
fn charged(gateway: &TestGateway, key: &str) -> (u16, Option<String>, bool, String) {
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let charge = agent.post(format!("{}/v1/charges", gateway.url)).header("authorization", "Bearer sk_7");
    let mut answer = charge.header("idempotency-key", key).send("{}").unwrap();
    let kind = answer.headers().get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
    let replayed = answer.headers().contains_key("idempotent-replayed");
    (answer.status().as_u16(), kind, replayed, answer.body_mut().read_to_string().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_doubt_is_found_with_the_text_of_its_problem_and_settled_with_a_response_for_the_client() {
    let upstream =
        TestUpstream::start(|_| async { Response::builder().status(502).body(Body::default()).unwrap() }).await;
    let gateway = TestGateway::start(&["--upstream", &upstream.url()]);
    for (key, flags, expected) in [
        (
            "order-17",
            &["--status", "201", "--value", r#"{"id":"ch_1"}"#][..],
            (201, Some("application/json"), r#"{"id":"ch_1"}"#),
        ),
        (
            "order-18",
            &["--status", "402", "--value", r#"{"error":"declined"}"#],
            (402, Some("application/json"), r#"{"error":"declined"}"#),
        ),
        ("order-19", &["--status", "204"], (204, None, "")),
        ("order-20", &["--value", "7"], (200, Some("application/json"), "7")),
        ("order-21", &[], (200, None, "")),
    ] {
        assert_eq!(charged(&gateway, key).0, 502);
        let (status, _, _, text) = charged(&gateway, key);
        let problem: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(status, 409, "{text}");
        assert!(!text.contains(key) && !text.contains("sk_7"), "{text}");
        let of = |name: &str| problem[name].as_str().unwrap().to_owned();
        let (tenant, operation) = (of("tenant"), of("operation"));
        let which = ["--tenant", &tenant, "--operation", &operation, "--store", "ledger.db"];
        let list = ["list", "--state", "in_doubt", "--json"];
        let listed = gateway.folder.json(&[&list[..], &which].concat());
        let found = listed["intents"].as_array().unwrap().iter().find(|intent| intent["id"] == of("intent"));
        assert_eq!(found.unwrap()["key"], key, "{listed}");
        let settled = gateway.folder.onceward(&[&["resolve", "--key", key, "--happened"], &which[..], flags].concat());
        assert_eq!(settled.code, 0, "{settled:?}");
        let (status, kind, text) = expected;
        assert_eq!(charged(&gateway, key), (status, kind.map(str::to_owned), true, text.to_owned()));
    }
    assert_eq!(upstream.effects(), 5);
    let refused = ["resolve", "--operation", "o", "--key", "k", "--happened", "--status", "101"];
    gateway.folder.onceward(&refused).says(64, &["--status"]);
}
