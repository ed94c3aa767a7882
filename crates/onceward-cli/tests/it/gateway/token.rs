//! `Onceward-Token` is a secret between a client and the gateway: it is never sent to an upstream, on any route.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::{HeaderMap, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::test_gateway::TestGateway;
use super::upstream::TestUpstream;

/// The headers of every request that reached the upstream.
type SeenHeaders = Arc<Mutex<Vec<HeaderMap>>>;

async fn upstream(seen: SeenHeaders) -> TestUpstream {
    TestUpstream::start(move |request| {
        seen.lock().unwrap().push(request.headers().clone());
        let upgrade = request.headers().contains_key("upgrade");
        let body = Full::from("done").map_err(|never: Infallible| match never {}).boxed_unsync();
        let mut response = Response::new(body);
        if upgrade {
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            response.headers_mut().insert("connection", "upgrade".parse().unwrap());
            response.headers_mut().insert("upgrade", "chat".parse().unwrap());
        }
        async { response }
    })
    .await
}

/// Sends a request head with a token. Returns the status of the response.
async fn asked(gateway: &TestGateway, line: &str, more: &str) -> u16 {
    let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
    let head = format!(
        "{line} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer sk_7\r\nonceward-token: a-secret\r\n\
         OnceWard-Token: another\r\n{more}\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut heard = [0; 12];
    stream.read_exact(&mut heard).await.unwrap();
    String::from_utf8_lossy(&heard[9..]).parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_token_reaches_no_upstream() {
    let seen = SeenHeaders::default();
    let upstream = upstream(Arc::clone(&seen)).await;
    let gateway = TestGateway::start(&["--upstream", &upstream.url(), "--key-mode", "optional"]);
    for (line, more, status) in [
        ("POST /v1/charges", "idempotency-key: k\r\ncontent-length: 0\r\n", 200),
        ("POST /v1/charges", "content-length: 0\r\n", 200),
        ("GET /v1/charges", "", 200),
        ("GET /v1/chat", "connection: upgrade\r\nupgrade: chat\r\n", 101),
    ] {
        assert_eq!(asked(&gateway, line, more).await, status, "{line}");
    }
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 4);
    for headers in seen.iter() {
        assert_eq!(headers["authorization"], "Bearer sk_7", "the upstream's own credential stays");
        assert!(!headers.contains_key("onceward-token"), "{headers:?}");
    }
}
