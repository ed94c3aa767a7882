//! A proxy in front that ends TLS: what it says of its client is passed on if it is trusted.

use std::convert::Infallible;

use http::Response;
use http_body_util::{BodyExt, Full};

use super::started::Gateway;
use super::upstream::Upstream;
use crate::place::Place;

/// What the other side is told of the protocol and the host that the client used.
fn told(gateway: &Gateway) -> String {
    let request =
        ureq::get(&gateway.url).header("x-forwarded-proto", "https").header("x-forwarded-host", "shop.example");
    request.call().unwrap().body_mut().read_to_string().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_on_this_machine_is_believed_unless_others_are_named() {
    let upstream = Upstream::start(|request| async move {
        let text = |name: &str| request.headers()[name].to_str().unwrap().to_owned();
        let body = Full::from(format!("{} {}", text("x-forwarded-proto"), text("x-forwarded-host")));
        Response::new(body.map_err(|never: Infallible| match never {}).boxed_unsync())
    })
    .await;
    let started = |peers: &str| {
        let (listen, url) = ("listen = \"127.0.0.1:0\"", upstream.url());
        let route = format!("[gateway]\n{listen}\n[[gateway.route]]\nupstream = {url:?}\n{peers}");
        Gateway::configured(Place::new(), &format!("[api]\n{listen}\n{route}"))
    };
    assert_eq!(told(&started("")), "https shop.example");
    let others = started("trusted_peers = [\"10.0.0.0/8\"]");
    assert_eq!(told(&others), format!("http {}", others.address()));
}
