//! How tenants that are derived from credentials are named in the ledger.

use http::Response;
use onceward::core::hash::digest;

use super::test_gateway::TestGateway;
use super::upstream::{Body, TestUpstream};
use crate::test_folder::TestFolder;

const SECRET: &str = "a-secret-of-the-operator";

/// The tenant of the only intent in the ledger, after a charge and its retry.
fn tenant(gateway: &TestGateway) -> String {
    for _ in 0..2 {
        let charge = ureq::post(format!("{}/v1/charges", gateway.url)).header("authorization", "Bearer sk_7");
        assert_eq!(charge.header("idempotency-key", "order-17").send("{}").unwrap().status(), 200);
    }
    let listed = gateway.folder.json(&["list", "--json"]);
    assert_eq!(listed["intents"].as_array().unwrap().len(), 1, "{listed:#}");
    listed["intents"][0]["tenant"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_secret_a_guess_of_a_credential_cannot_be_confirmed() {
    let upstream = TestUpstream::start(|_| async { Response::new(Body::default()) }).await;
    let route = format!("[gateway]\nlisten = \"127.0.0.1:0\"\n[[gateway.route]]\nupstream = \"{}\"\n", upstream.url());
    let plain = format!("auth:{}", &digest(b"bearer sk_7").to_hex()[..32]);
    let without = TestGateway::configured(TestFolder::new(), &route);
    assert_eq!(tenant(&without), plain);
    let folder = TestFolder::new();
    folder.write("secret", SECRET);
    let keyed = TestGateway::configured(folder, &format!("tenant_secret = \"file:secret\"\n{route}"));
    let name = tenant(&keyed);
    assert!(name.starts_with("auth:") && name != plain, "{name}");
    assert_eq!(upstream.effects(), 2);
}
