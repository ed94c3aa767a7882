//! HTTP/2 upstreams that close a stream or their connection: which of these prove that nothing happened.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::{Reason, server};
use http::Response;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::test_gateway::TestGateway;

/// Frame types.
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

/// A server that ends the first request as `how` says, and charges for every later one.
struct ClosingUpstream {
    address: SocketAddr,
}

#[derive(Clone, Copy, Debug)]
enum How {
    /// The stream is reset before the response.
    Reset(Reason),
    /// The stream is reset in the middle of the response.
    ResetAfterItsHead(Reason),
    /// GOAWAY, with the last stream that may have been processed.
    GoAway { last: u32, reason: Reason },
}

impl ClosingUpstream {
    async fn start(how: How) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let first = Arc::new(AtomicBool::new(true));
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let first = Arc::clone(&first);
                tokio::spawn(async move {
                    match how {
                        How::GoAway { last, reason } if first.swap(false, Ordering::Relaxed) => {
                            by_hand(stream, &go_away(last, reason)).await;
                        }
                        _ => serve(stream, how, &first).await,
                    }
                });
            }
        });
        Self { address }
    }
}

/// A server made with the library: charges, unless the first request is reset.
async fn serve(stream: TcpStream, how: How, first: &AtomicBool) {
    let mut connection = server::handshake(stream).await.unwrap();
    while let Some(Ok((_, mut respond))) = connection.accept().await {
        let charged = Response::builder().header("content-length", "7").body(()).unwrap();
        match how {
            How::Reset(reason) if first.swap(false, Ordering::Relaxed) => respond.send_reset(reason),
            How::ResetAfterItsHead(reason) if first.swap(false, Ordering::Relaxed) => {
                let mut body = respond.send_response(charged, false).unwrap();
                tokio::spawn(async move {
                    // The head must have been sent, or it never will be.
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    body.send_reset(reason);
                });
            }
            _ => {
                let mut body = respond.send_response(charged, false).unwrap();
                body.send_data(Bytes::from_static(b"charged"), true).unwrap();
            }
        }
    }
}

/// Sends what a library would not send: reads until a request has come, and responds with this frame.
async fn by_hand(mut stream: TcpStream, answer: &[u8]) {
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await.unwrap();
    stream.write_all(&frame(SETTINGS, 0, &[])).await.unwrap();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        stream.read_exact(&mut vec![0; length as usize]).await.unwrap();
        if head[3] == HEADERS {
            break;
        }
    }
    stream.write_all(answer).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
}

fn frame(kind: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, 0], &stream.to_be_bytes(), payload].concat()
}

fn go_away(last: u32, reason: Reason) -> Vec<u8> {
    frame(GOAWAY, 0, &[last.to_be_bytes(), u32::from(reason).to_be_bytes()].concat())
}

/// The status for the client, and its `Retry-After`.
fn told(gateway: &TestGateway, body: &'static [u8]) -> (u16, String) {
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let charge = agent.post(format!("{}/v1/charges", gateway.url)).header("authorization", "Bearer sk_7");
    let mut answer = charge.header("idempotency-key", "k").send(body).unwrap();
    let text = answer.body_mut().read_to_string().unwrap();
    let problem = serde_json::from_str::<Value>(&text).ok();
    let kind = problem.and_then(|problem| Some(problem["type"].as_str()?.rsplit('/').next()?.to_owned()));
    assert_eq!(answer.headers().contains_key("retry-after"), kind.as_deref() == Some("unreachable"), "{text}");
    (answer.status().as_u16(), kind.unwrap_or(text))
}

/// The responses to the first request and to its repeat.
async fn asked_twice(how: How, body: &'static [u8]) -> [(u16, String); 2] {
    let upstream = ClosingUpstream::start(how).await;
    let gateway = TestGateway::start(&["--upstream", &format!("h2c://{}", upstream.address)]);
    let asked = tokio::task::spawn_blocking(move || [told(&gateway, body), told(&gateway, body)]);
    tokio::time::timeout(Duration::from_secs(30), asked).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_stream_did_not_happen_and_the_retry_runs() {
    for how in [
        How::Reset(Reason::REFUSED_STREAM),
        How::GoAway { last: 0, reason: Reason::NO_ERROR },
        How::GoAway { last: 0, reason: Reason::INTERNAL_ERROR },
    ] {
        for body in [&b"{}"[..], b""] {
            let expected = [(502, "unreachable".to_owned()), (200, "charged".to_owned())];
            assert_eq!(asked_twice(how, body).await, expected, "{how:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn any_other_end_of_a_stream_is_in_doubt() {
    for how in [
        How::Reset(Reason::NO_ERROR),
        How::Reset(Reason::CANCEL),
        How::Reset(Reason::INTERNAL_ERROR),
        How::Reset(Reason::ENHANCE_YOUR_CALM),
        How::ResetAfterItsHead(Reason::REFUSED_STREAM),
        How::GoAway { last: 1, reason: Reason::NO_ERROR },
        // The error code of the connection says nothing about this stream.
        How::GoAway { last: 1, reason: Reason::REFUSED_STREAM },
    ] {
        let expected = [(502, "no-answer".to_owned()), (409, "in-doubt".to_owned())];
        assert_eq!(asked_twice(how, b"{}").await, expected, "{how:?}");
    }
}
