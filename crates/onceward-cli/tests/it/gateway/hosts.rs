//! The host check of the gateway against DNS rebinding: a web page in a browser on the same machine must not reach it
//! through a domain that points to this machine.

use std::convert::Infallible;

use http::Response;
use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::test_gateway::TestGateway;
use super::upstream::TestUpstream;
use crate::test_folder::TestFolder;

async fn upstream() -> TestUpstream {
    TestUpstream::start(|_| async {
        Response::new(Full::from("charged").map_err(|never: Infallible| match never {}).boxed_unsync())
    })
    .await
}

/// Sends these lines as the head of a request. Returns the whole response.
async fn told(gateway: &TestGateway, lines: &[&str]) -> String {
    let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
    let head = format!("{}\r\nconnection: close\r\n\r\n", lines.join("\r\n"));
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard).await.unwrap();
    String::from_utf8_lossy(&heard).into_owned()
}

async fn status(gateway: &TestGateway, lines: &[&str]) -> u16 {
    told(gateway, lines).await[9..12].parse().unwrap()
}

const GET: &str = "GET /v1/charges HTTP/1.1";

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_on_loopback_accepts_only_names_of_this_machine() {
    let upstream = upstream().await;
    let gateway = TestGateway::start(&["--upstream", &upstream.url()]);
    for host in
        ["localhost", "LocalHost:1", "localhost.", "127.0.0.1", "127.0.0.1:8080", "127.9.9.9", "[::1]", "[::1]:80"]
    {
        assert_eq!(status(&gateway, &[GET, &format!("host: {host}")]).await, 200, "{host}");
    }
    let served = upstream.effects();
    for lines in [
        &[GET, "host: evil.example"][..],
        &[GET, "host: 127.0.0.1.evil.example:8080"],
        &[GET, "host: localhost.evil.example"],
        &[GET, "host: 10.0.0.1"],
        &[GET, "host: 0.0.0.0"],
        &["GET /.well-known/onceward/ready HTTP/1.1", "host: evil.example"],
        &["GET http://evil.example/v1/charges HTTP/1.1", "host: localhost"],
        &["GET http://localhost/v1/charges HTTP/1.1", "host: evil.example"],
        &[GET, "host: localhost", "origin: https://evil.example"],
        &[GET, "host: localhost", "origin: null"],
        &[GET, "host: localhost", "origin: http://localhost", "origin: https://evil.example"],
        &["POST /v1/charges HTTP/1.1", "host: evil.example", "authorization: Bearer sk_7", "idempotency-key: k"],
        &["GET /v1/charges HTTP/1.0", "host: evil.example"],
    ] {
        let told = told(&gateway, lines).await;
        assert!(told.starts_with("HTTP/1.1 421") || told.starts_with("HTTP/1.0 421"), "{lines:?} {told}");
        assert!(told.contains("/problems/wrong-host") && told.contains("--allow-host"), "{told}");
    }
    assert_eq!(upstream.effects(), served);
    for lines in [
        &[GET, "host: localhost", "origin: http://localhost:3000"][..],
        &[GET, "host: 127.0.0.1", "origin: https://[::1]"],
        &["GET http://127.0.0.1/v1/charges HTTP/1.1", "host: 127.0.0.1"],
        // Browsers do not use HTTP/1.0 without a host; some health checks do.
        &["GET /v1/charges HTTP/1.0"],
    ] {
        assert_eq!(status(&gateway, lines).await, 200, "{lines:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn allowed_hosts_and_origins_are_accepted() {
    let upstream = upstream().await;
    let gateway = TestGateway::start(&[
        "--upstream",
        &upstream.url(),
        "--allow-host",
        "Shop.example",
        "--allow-host",
        "api.test",
    ]);
    for lines in [
        &[GET, "host: shop.example"][..],
        &[GET, "host: SHOP.EXAMPLE.:443"],
        &[GET, "host: api.test:8080", "origin: https://shop.example"],
        &[GET, "host: localhost", "origin: https://shop.example:8443"],
    ] {
        assert_eq!(status(&gateway, lines).await, 200, "{lines:?}");
    }
    for lines in [
        &[GET, "host: evil.example"][..],
        &[GET, "host: sub.shop.example"],
        &[GET, "host: shop.example", "origin: https://evil.example"],
    ] {
        assert_eq!(status(&gateway, lines).await, 421, "{lines:?}");
    }
}

#[test]
fn an_invalid_host_is_refused_at_start() {
    for wrong in ["https://shop.example", "shop.example:80", "", "a b", "shop.example/x"] {
        let fixed = ["gateway", "--listen", "127.0.0.1:0", "--upstream", "http://127.0.0.1:9", "--allow-host", wrong];
        TestFolder::new().onceward(&fixed).says(64, &["--allow-host"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_other_addresses_hosts_are_checked_only_if_some_are_listed() {
    let upstream = upstream().await;
    let started = |hosts: &str| {
        let route = format!("[[gateway.route]]\nupstream = {:?}", upstream.url());
        TestGateway::configured(TestFolder::new(), &format!("[gateway]\nlisten = \"0.0.0.0:0\"\n{hosts}\n{route}"))
    };
    let open = started("");
    assert_eq!(status(&open, &[GET, "host: evil.example", "origin: https://evil.example"]).await, 200);
    let listed = started("allow_hosts = [\"shop.example\"]");
    assert_eq!(status(&listed, &[GET, "host: shop.example"]).await, 200);
    assert_eq!(status(&listed, &[GET, "host: 127.0.0.1"]).await, 200);
    assert_eq!(status(&listed, &[GET, "host: evil.example"]).await, 421);
    assert_eq!(status(&listed, &[GET, "host: shop.example", "origin: https://evil.example"]).await, 421);
    let any = started("allow_hosts = [\"*\"]");
    assert_eq!(status(&any, &[GET, "host: evil.example", "origin: null"]).await, 200);
}
