//! Trailers of guarded requests, with HTTP/2 on both sides.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use tokio::net::{TcpListener, TcpStream};

use super::test_gateway::TestGateway;

/// The trailers of every request that reached the upstream.
type SeenTrailers = Arc<Mutex<Vec<Option<HeaderMap>>>>;

/// Starts the upstream. Returns its address.
async fn upstream(seen: SeenTrailers) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let seen = Arc::clone(&seen);
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((request, mut respond))) = connection.accept().await {
                    let seen = Arc::clone(&seen);
                    tokio::spawn(async move {
                        let mut body = request.into_body();
                        let mut heard = Vec::new();
                        while let Some(data) = body.data().await {
                            heard.extend_from_slice(&data.unwrap());
                        }
                        assert_eq!(heard, b"4200");
                        let trailers = body.trailers().await.unwrap();
                        seen.lock().unwrap().push(trailers);
                        respond.send_response(Response::new(()), true).unwrap();
                    });
                }
            });
        }
    });
    format!("h2c://{address}")
}

/// Sends a request. Returns the status, and whether it is a replay.
async fn ask(gateway: &TestGateway, key: &str, trailers: HeaderMap) -> (u16, bool) {
    ask_with(gateway, Method::POST, key, trailers).await
}

async fn ask_with(gateway: &TestGateway, method: Method, key: &str, trailers: HeaderMap) -> (u16, bool) {
    let stream = TcpStream::connect(gateway.address()).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = Request::builder().method(method).uri(format!("{}/v1/charges", gateway.url));
    let request = request.header("authorization", "Bearer sk_7").header("idempotency-key", key).body(()).unwrap();
    let (answer, mut body) = client.ready().await.unwrap().send_request(request, false).unwrap();
    body.send_data(Bytes::from_static(b"4200"), false).unwrap();
    body.send_trailers(trailers).unwrap();
    let answer = tokio::time::timeout(Duration::from_secs(30), answer).await.unwrap().unwrap();
    (answer.status().as_u16(), answer.headers().contains_key("idempotent-replayed"))
}

fn trailers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn trailers_of_a_guarded_request_are_forwarded_unless_they_change_the_request() {
    let seen = SeenTrailers::default();
    let gateway = TestGateway::start(&["--upstream", &upstream(Arc::clone(&seen)).await]);
    let told = trailers(&[("x-sum", "42"), ("authorization", "Bearer sk_8"), ("idempotency-key", "other")]);
    assert_eq!(ask(&gateway, "k", told.clone()).await, (200, false));
    assert_eq!(ask(&gateway, "k", told).await, (200, true));
    assert_eq!(ask(&gateway, "l", trailers(&[("authorization", "Bearer sk_8")])).await, (200, false));
    assert_eq!(*seen.lock().unwrap(), [Some(trailers(&[("x-sum", "42")])), None]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_token_is_never_forwarded_as_a_trailer() {
    let seen = SeenTrailers::default();
    let gateway = TestGateway::start(&["--upstream", &upstream(Arc::clone(&seen)).await]);
    let told = trailers(&[("x-sum", "42"), ("onceward-token", "a-secret")]);
    assert_eq!(ask_with(&gateway, Method::POST, "k", told.clone()).await, (200, false));
    assert_eq!(ask_with(&gateway, Method::PUT, "k", told).await, (200, false));
    let left = Some(trailers(&[("x-sum", "42")]));
    assert_eq!(*seen.lock().unwrap(), [left.clone(), left]);
}
