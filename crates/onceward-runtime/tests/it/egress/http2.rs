//! What is known after each fault of a server that speaks HTTP/2. The servers write their frames by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::StatusCode;
use onceward_runtime::egress::{Client, Lost, NotSent, Request, Sent, Unknown};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::certificates::accept;
use super::servers::{Scripted, read_to_end};
use super::tls::secure;
use super::{PATIENCE, SHORT, answered, get, not_sent, post, unknown};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// `:status: 200` in HPACK.
const STATUS_200: &[u8] = &[0x88];

/// The last stream in the first GOAWAY of a server that shuts down gracefully.
const ANY_STREAM: u32 = u32::MAX >> 1;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn rst(stream: u32, code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &code.to_be_bytes())
}

fn goaway(last: u32, code: u32) -> Vec<u8> {
    frame(GOAWAY, 0, 0, &[&last.to_be_bytes()[..], &code.to_be_bytes(), b"hunter2"].concat())
}

fn ok(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, STATUS_200)
}

struct Peer {
    stream: TlsStream<TcpStream>,
}

impl Peer {
    /// Performs the handshakes of TLS and HTTP/2.
    async fn accept(stream: TcpStream) -> Self {
        let mut stream = accept(stream, "h2").await.unwrap();
        stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
        let mut preface = [0; 24];
        stream.read_exact(&mut preface).await.unwrap();
        assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        Self { stream }
    }

    /// Reads until a request begins, and returns its stream. `None` if the connection ends.
    async fn request(&mut self) -> Option<u32> {
        loop {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head).await.ok()?;
            let [a, b, c, kind, _, stream @ ..] = head;
            let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
            self.stream.read_exact(&mut payload).await.ok()?;
            if kind == HEADERS {
                return Some(u32::from_be_bytes(stream));
            }
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }
}

/// Answers the first request of each connection with these bytes; then closes the connection, or keeps it.
async fn server(bytes: impl Fn(u32) -> Vec<u8> + Send + Sync + 'static, closes: bool) -> Scripted {
    let bytes = Arc::new(bytes);
    Scripted::start(move |_, stream| {
        let bytes = Arc::clone(&bytes);
        async move {
            let mut peer = Peer::accept(stream).await;
            let Some(stream) = peer.request().await else { return };
            _ = peer.write(&bytes(stream)).await;
            if !closes {
                read_to_end(&mut peer.stream).await;
            }
        }
    })
    .await
}

fn url(server: &Scripted) -> String {
    format!("https://localhost:{}/v1", server.address.port())
}

async fn send(server: &Scripted) -> Sent {
    Client::new(secure()).unwrap().send(post(url(server), "body")).await
}

#[tokio::test]
async fn what_the_server_says_it_did_not_process_was_not_sent() {
    for (name, bytes, what) in [
        ("refused", (|stream| rst(stream, 7)) as fn(u32) -> Vec<u8>, "refused stream"),
        ("an earlier last stream", |_| goaway(0, 0), "GOAWAY"),
        ("an earlier last stream, with an error", |_| goaway(0, 11), "GOAWAY"),
        ("any stream at first, then an earlier one", |_| [goaway(ANY_STREAM, 0), goaway(0, 0)].concat(), "GOAWAY"),
    ] {
        for closes in [false, true] {
            let server = server(bytes, closes).await;
            let why = not_sent(send(&server).await);
            assert!(matches!(why, NotSent::Unprocessed { .. }), "{name}: {why}");
            let told = why.to_string();
            assert!(
                told.contains(what.trim_start_matches("refused stream")) && !told.contains("hunter2"),
                "{name}: {told}"
            );
        }
    }
}

#[tokio::test]
async fn every_other_end_of_a_stream_proves_nothing() {
    for (name, bytes) in [
        ("closed", (|_| Vec::new()) as fn(u32) -> Vec<u8>),
        ("cancelled", |stream| rst(stream, 8)),
        ("reset without an error", |stream| rst(stream, 0)),
        ("reset with an internal error", |stream| rst(stream, 2)),
        ("reset with an unknown code", |stream| rst(stream, 999)),
        ("wants HTTP/1.1", |stream| rst(stream, 13)),
        ("last stream is this one", |stream| goaway(stream, 0)),
        ("last stream is this one, with an error", |stream| goaway(stream, 2)),
        ("last stream is a later one", |_| goaway(ANY_STREAM, 0)),
        ("refused for another stream", |stream| goaway(stream, 7)),
        ("half a frame", |stream| ok(stream)[..5].to_vec()),
        ("not HTTP/2", |_| b"HTTP/1.1 200 OK\r\n\r\n".to_vec()),
        ("an answer without a status", |stream| frame(HEADERS, END_HEADERS | END_STREAM, stream, &[])),
        ("data without a head", |stream| frame(DATA, END_STREAM, stream, b"x")),
    ] {
        let server = server(bytes, true).await;
        let lost = unknown(send(&server).await);
        assert!(matches!(lost.why, Lost::Connection(_)) && lost.status.is_none(), "{name}: {lost}");
        assert!(!lost.to_string().contains("hunter2"), "{name}: {lost}");
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_proves_nothing_also_if_it_ends_with_a_refusal() {
    let head = |stream| frame(HEADERS, END_HEADERS, stream, STATUS_200);
    for code in [None, Some(7), Some(8)] {
        let server = server(
            move |stream| {
                [head(stream), frame(DATA, 0, stream, b"abc"), code.map_or(Vec::new(), |code| rst(stream, code))]
                    .concat()
            },
            true,
        )
        .await;
        let lost = unknown(send(&server).await);
        assert!(matches!(lost.why, Lost::Body(_)), "{code:?} {lost}");
        assert_eq!(lost.status, Some(StatusCode::OK));
    }
}

#[tokio::test]
async fn an_answer_that_does_not_come_in_time_proves_nothing() {
    let mut settings = secure();
    settings.limits.total = SHORT;
    let client = Client::new(settings).unwrap();
    let silent = server(|_| Vec::new(), false).await;
    let stuck = server(|stream| frame(HEADERS, END_HEADERS, stream, STATUS_200), false).await;
    for (server, why, status) in [(&silent, Lost::TimedOut, None), (&stuck, Lost::BodyTimedOut, Some(StatusCode::OK))] {
        let lost = unknown(client.send(Request { timeout: Some(PATIENCE), ..get(url(server)) }).await);
        assert!(
            matches!(&lost, Unknown { why: found, status: known, .. } if *found == why && *known == status),
            "{lost}"
        );
    }
}

#[tokio::test]
async fn a_head_over_the_limit_is_not_an_answer() {
    // A literal header, again and again.
    let header = [&[0x00, 1, b'x', 100][..], &[b'a'; 100]].concat();
    let many =
        move |stream| frame(HEADERS, END_HEADERS | END_STREAM, stream, &[STATUS_200, &header.repeat(150)].concat());
    let server = server(many, false).await;
    let mut settings = secure();
    settings.limits.head_bytes = 8 * 1024;
    unknown(Client::new(settings).unwrap().send(get(url(&server))).await);
}

#[tokio::test]
async fn a_body_is_read_up_to_the_limit_and_the_rest_is_cut() {
    let server = Scripted::start(|_, stream| async move {
        let mut peer = Peer::accept(stream).await;
        let stream = peer.request().await.unwrap();
        _ = peer.write(&frame(HEADERS, END_HEADERS, stream, STATUS_200)).await;
        while peer.write(&frame(DATA, 0, stream, &[b'a'; 100])).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let mut settings = secure();
    settings.limits.response_bytes = 1_050;
    let answer = answered(Client::new(settings).unwrap().send(get(url(&server))).await);
    assert_eq!((answer.body.len(), answer.cut), (1_050, true));
}

#[tokio::test]
async fn requests_share_a_connection_until_the_server_ends_it() {
    let connections = Arc::new(AtomicUsize::new(0));
    let server = Scripted::start({
        let connections = Arc::clone(&connections);
        move |_, stream| {
            connections.fetch_add(1, Ordering::SeqCst);
            async move {
                let mut peer = Peer::accept(stream).await;
                for _ in 0..5 {
                    let Some(stream) = peer.request().await else { return };
                    peer.write(&ok(stream)).await.unwrap();
                }
                // Answers the sixth request after a graceful GOAWAY, which is not a refusal.
                let Some(stream) = peer.request().await else { return };
                peer.write(&goaway(ANY_STREAM, 0)).await.unwrap();
                peer.write(&ok(stream)).await.unwrap();
                read_to_end(&mut peer.stream).await;
            }
        }
    })
    .await;
    let mut settings = secure();
    settings.limits.idle = PATIENCE;
    let client = Client::new(settings).unwrap();
    for number in 0..18 {
        answered(client.send(post(url(&server), "body")).await);
        assert_eq!(connections.load(Ordering::SeqCst), 1 + number / 6);
    }
}

#[tokio::test]
async fn a_request_after_a_lost_one_gets_a_new_connection() {
    let server = Scripted::start(|number, stream| async move {
        let mut peer = Peer::accept(stream).await;
        while let Some(stream) = peer.request().await {
            if number > 0 {
                peer.write(&ok(stream)).await.unwrap();
            }
        }
    })
    .await;
    let client = Client::new(secure()).unwrap();
    unknown(client.send(Request { timeout: Some(SHORT), ..get(url(&server)) }).await);
    answered(client.send(get(url(&server))).await);
}

#[tokio::test]
async fn a_body_larger_than_the_window_waits_for_the_server() {
    // The server never opens the window beyond its first 65,535 bytes.
    let server = server(|_| Vec::new(), false).await;
    let mut settings = secure();
    settings.limits.total = SHORT;
    let lost = unknown(Client::new(settings).unwrap().send(post(url(&server), vec![b'a'; 100_000])).await);
    assert_eq!(lost.why, Lost::TimedOut);
}

/// GOAWAY arrives while requests are being sent from other threads. What counts as not sent was above the last stream.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_graceful_shutdown_during_many_requests_refuses_only_what_was_not_read() {
    let processed = Arc::new(AtomicUsize::new(0));
    let server = Scripted::start({
        let processed = Arc::clone(&processed);
        move |number, stream| {
            let processed = Arc::clone(&processed);
            async move {
                let mut peer = Peer::accept(stream).await;
                let mut read = 0;
                while let Some(stream) = peer.request().await {
                    processed.fetch_add(1, Ordering::SeqCst);
                    if read == number % 5 {
                        _ = peer.write(&goaway(ANY_STREAM, 0)).await;
                    }
                    read += 1;
                    _ = peer.write(&ok(stream)).await;
                }
            }
        }
    })
    .await;
    let client = Client::new(secure()).unwrap();
    let (mut answers, mut refusals, mut doubts) = (0, 0, 0);
    for _ in 0..40 {
        let requests: Vec<_> = (0..8)
            .map(|_| {
                tokio::spawn({
                    let (client, url) = (client.clone(), url(&server));
                    async move { client.send(post(url, "body")).await }
                })
            })
            .collect();
        for request in requests {
            match request.await.unwrap() {
                Sent::Answered(_) => answers += 1,
                Sent::NotSent(_) => refusals += 1,
                Sent::Unknown(_) => doubts += 1,
            }
        }
    }
    // The server processed everything that it read: a request that counts as not sent must not be among that.
    let processed = processed.load(Ordering::SeqCst);
    assert!(answers <= processed && processed <= answers + doubts, "{answers} {refusals} {doubts} {processed}");
}
