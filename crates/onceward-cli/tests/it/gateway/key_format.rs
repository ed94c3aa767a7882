//! The key format of a route is checked, named in the problem, and published.

use std::convert::Infallible;

use http::Response;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use super::test_gateway::TestGateway;
use super::upstream::TestUpstream;

async fn upstream() -> TestUpstream {
    TestUpstream::start(|_| async {
        Response::new(Full::from("charged").map_err(|never: Infallible| match never {}).boxed_unsync())
    })
    .await
}

/// The status and the body.
fn charged(gateway: &TestGateway, key: &str) -> (u16, String) {
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let charge = agent.post(format!("{}/v1/charges", gateway.url)).header("authorization", "Bearer sk_7");
    let mut answer = charge.header("idempotency-key", key).send("{}").unwrap();
    (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_in_the_wrong_format_is_refused_and_the_format_is_published() {
    let upstream = upstream().await;
    let uuid = "8e03978e-40d5-43e8-bc93-6894a57f9324";
    for (rule, published, good) in [
        ("uuid", json!("uuid"), uuid),
        ("ulid", json!("ulid"), "01ARZ3NDEKTSV4RRFFQ69G5FAV"),
        ("pattern:ord_[0-9]+", json!({"pattern": "ord_[0-9]+"}), "ord_17"),
        ("entropy:64", json!({"min_entropy_bits": 64}), uuid),
    ] {
        let gateway = TestGateway::start(&["--upstream", &upstream.url(), "--key-format", rule]);
        let before = upstream.effects();
        let (status, body) = charged(&gateway, "order-17");
        let problem: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &problem["key_format"]), (400, &published), "{body}");
        assert!(body.contains("key-malformed") && !body.contains("order-17"), "{body}");
        assert_eq!(upstream.effects(), before);
        assert_eq!(charged(&gateway, good), (200, "charged".to_owned()), "{rule}");
        assert_eq!(charged(&gateway, &format!("\"{good}\"")), (200, "charged".to_owned()), "{rule}");
        assert_eq!(upstream.effects(), before + 1);
        let policy = ureq::get(format!("{}/.well-known/idempotency", gateway.url)).call().unwrap();
        let policy: Value = serde_json::from_str(&policy.into_body().read_to_string().unwrap()).unwrap();
        assert_eq!(policy["routes"][0]["key"]["format"], published);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_looks_like_a_timestamp_causes_one_warning() {
    let upstream = upstream().await;
    let gateway = TestGateway::start(&["--upstream", &upstream.url()]);
    charged(&gateway, "order-17");
    let warnings = || gateway.folder.read("log").matches("looks like a timestamp").count();
    assert_eq!(warnings(), 0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    for number in 0..3 {
        assert_eq!(charged(&gateway, &(now + number).to_string()).0, 200);
    }
    assert_eq!(warnings(), 1);
    assert!(!gateway.folder.read("log").contains(&now.to_string()));
}
