//! A proxy in front of the gateway that ends TLS: its forwarding headers are passed on if it is trusted.

use std::convert::Infallible;

use http::Response;
use http_body_util::{BodyExt, Full};

use super::test_gateway::TestGateway;
use super::upstream::TestUpstream;
use crate::test_folder::TestFolder;

/// The protocol and the host of the client, as the upstream sees them.
fn told(gateway: &TestGateway) -> String {
    let request =
        ureq::get(&gateway.url).header("x-forwarded-proto", "https").header("x-forwarded-host", "shop.example");
    request.call().unwrap().body_mut().read_to_string().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_on_this_machine_is_trusted_unless_others_are_listed() {
    let upstream = TestUpstream::start(|request| async move {
        let text = |name: &str| request.headers()[name].to_str().unwrap().to_owned();
        let body = Full::from(format!("{} {}", text("x-forwarded-proto"), text("x-forwarded-host")));
        Response::new(body.map_err(|never: Infallible| match never {}).boxed_unsync())
    })
    .await;
    let started = |peers: &str| {
        let (listen, url) = ("listen = \"127.0.0.1:0\"", upstream.url());
        let route = format!("[gateway]\n{listen}\n[[gateway.route]]\nupstream = {url:?}\n{peers}");
        TestGateway::configured(TestFolder::new(), &format!("[api]\n{listen}\n{route}"))
    };
    assert_eq!(told(&started("")), "https shop.example");
    let others = started("trusted_peers = [\"10.0.0.0/8\"]");
    assert_eq!(told(&others), format!("http {}", others.address()));
}
