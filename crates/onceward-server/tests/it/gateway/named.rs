//! How tenants that are made from credentials are named in the ledger.

use http::Response;
use onceward::core::hash::digest;

use super::started::Gateway;
use super::upstream::{Body, Upstream};
use crate::place::Place;

const SECRET: &str = "a-secret-of-the-operator";

/// The tenant of the one intent in the ledger, after a charge and its retry.
fn tenant(gateway: &Gateway) -> String {
    for _ in 0..2 {
        let charge = ureq::post(format!("{}/v1/charges", gateway.url)).header("authorization", "Bearer sk_7");
        assert_eq!(charge.header("idempotency-key", "order-17").send("{}").unwrap().status(), 200);
    }
    let listed = gateway.place.json(&["list", "--json"]);
    assert_eq!(listed["intents"].as_array().unwrap().len(), 1, "{listed:#}");
    listed["intents"][0]["tenant"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_secret_nobody_can_confirm_a_guess_of_a_credential() {
    let upstream = Upstream::start(|_| async { Response::new(Body::default()) }).await;
    let route = format!("[gateway]\nlisten = \"127.0.0.1:0\"\n[[gateway.route]]\nupstream = \"{}\"\n", upstream.url());
    let plain = format!("auth:{}", &digest(b"bearer sk_7").to_hex()[..32]);
    let without = Gateway::configured(Place::new(), &route);
    assert_eq!(tenant(&without), plain);
    let place = Place::new();
    place.write("secret", SECRET);
    let keyed = Gateway::configured(place, &format!("tenant_secret = \"file:secret\"\n{route}"));
    let name = tenant(&keyed);
    assert!(name.starts_with("auth:") && name != plain, "{name}");
    assert_eq!(upstream.effects(), 2);
}
