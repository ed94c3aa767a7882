//! What is known after each fault of a server that speaks HTTP/1.1.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, StatusCode};
use onceward_runtime::egress::{Client, Limits, Lost, NotSent, Request, Resolve, Resolving, Sent};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::servers::{Scripted, read_request, read_to_end, reset};
use super::{Names, PATIENCE, SHORT, answered, client, get, impatient, not_sent, post, settings, unknown};

fn limited(change: impl FnOnce(&mut Limits)) -> Client {
    let mut settings = settings();
    change(&mut settings.limits);
    Client::new(settings).unwrap()
}

// Proven not sent.

#[tokio::test]
async fn a_refused_connection_proves_that_nothing_was_sent() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let why = not_sent(client().send(post(format!("http://{closed}/"), "x")).await);
    assert!(matches!(why, NotSent::Unreachable { .. }) && !why.is_refused(), "{why}");
}

#[tokio::test]
async fn a_connect_that_times_out_proves_that_nothing_was_sent() {
    // Once the queue of a listener that accepts nothing is full, further connects wait.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(Ok(stream)) = tokio::time::timeout(SHORT, TcpStream::connect(address)).await {
        waiting.push(stream);
        assert!(waiting.len() < 100);
    }
    for client in [limited(|limits| limits.connect = SHORT), impatient()] {
        let why = not_sent(client.send(post(format!("http://{address}/"), "x")).await);
        assert!(why.to_string().contains("timed out"), "{why}");
    }
}

/// Never answers.
struct Silent;

impl Resolve for Silent {
    fn resolve<'a>(&'a self, _: &'a str) -> Resolving<'a> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn a_name_without_an_address_proves_that_nothing_was_sent() {
    let mut unresolved = Vec::new();
    let resolvers: [Arc<dyn Resolve>; 3] = [Arc::new(Silent), Names::new(&[]), Names::new(&[("name.test", &[&[]])])];
    for resolver in resolvers {
        let mut settings = settings();
        settings.resolver = resolver;
        settings.limits.connect = SHORT;
        unresolved
            .push(not_sent(Client::new(settings).unwrap().send(post("http://name.test/", "x")).await).to_string());
    }
    for (told, what) in unresolved.iter().zip(["timed out", "unknown name", "no address"]) {
        assert!(told.contains(what) && told.contains("name.test"), "{told}");
    }
}

#[tokio::test]
async fn the_resolver_of_the_system_knows_this_machine() {
    let mut settings = settings();
    settings.resolver = Arc::new(onceward_runtime::egress::SystemResolver::default());
    let server = Scripted::answering("HTTP/1.1 204 No Content\r\n\r\n").await;
    let url = format!("http://localhost:{}/", server.address.port());
    let answer = answered(Client::new(settings).unwrap().send(get(url)).await);
    assert_eq!((answer.status, answer.unframed), (StatusCode::NO_CONTENT, false));
}

#[tokio::test]
async fn a_request_that_breaks_a_rule_is_not_sent() {
    let server = Scripted::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let with = |name: &'static str| {
        let mut request = post(server.url("/"), "x");
        request.headers.insert(name, HeaderValue::from_static("a"));
        request
    };
    let mut refused: Vec<_> = [
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "upgrade",
        "te",
        "trailer",
        "expect",
        "proxy-connection",
        "proxy-authorization",
        "http2-settings",
    ]
    .map(with)
    .into();
    refused.extend([Method::CONNECT, Method::TRACE].map(|method| Request { method, ..get(server.url("/")) }));
    let mut large = HeaderMap::new();
    large.insert("x-large", "a".repeat(65 * 1024).parse().unwrap());
    refused.push(Request { headers: large, ..get(server.url("/")) });
    refused.push(post(server.url("/"), "12345"));
    for request in refused {
        let shown = format!("{request:?} {:?}", request.headers.keys());
        let why = not_sent(limited(|limits| limits.request_bytes = 4).send(request).await);
        assert!(matches!(why, NotSent::Invalid(_)) && why.is_refused(), "{shown}");
    }
    answered(limited(|limits| limits.request_bytes = 4).send(post(server.url("/"), "1234")).await);
}

#[tokio::test]
async fn a_request_that_waits_for_its_turn_until_its_time_is_over_is_not_sent() {
    let server = Scripted::start(|_, mut stream| async move { _ = read_to_end(&mut stream).await }).await;
    let client = limited(|limits| limits.concurrent = 1);
    let first = tokio::spawn({
        let (client, url) = (client.clone(), server.url("/"));
        async move { client.send(post(url, "x")).await }
    });
    tokio::time::sleep(SHORT).await;
    let second = Request { timeout: Some(SHORT), ..post(server.url("/"), "x") };
    assert_eq!(not_sent(client.send(second).await), NotSent::Busy);
    first.abort();
    _ = first.await;
    // And one whose time is over at once.
    let late = Request { timeout: Some(Duration::ZERO), ..post(server.url("/"), "x") };
    not_sent(client.send(late).await);
}

// Unknown.

#[tokio::test]
async fn a_connection_that_ends_before_the_answer_proves_nothing() {
    for (name, answer, resets) in [
        ("closed without an answer", "", false),
        ("reset without an answer", "", true),
        ("closed in the status line", "HTTP/1.1 20", false),
        ("closed in the head", "HTTP/1.1 200 OK\r\ncontent-le", false),
        ("closed before the end of the head", "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n", false),
        ("reset in the head", "HTTP/1.1 200 OK\r\n", true),
        ("closed after an interim answer", "HTTP/1.1 100 Continue\r\n\r\n", false),
        ("no HTTP", "220 smtp ready\r\n", false),
        ("HTTP/0.9", "<html>", false),
        ("a bad status", "HTTP/1.1 2x0 OK\r\n\r\n", false),
        ("a bad header", "HTTP/1.1 200 OK\r\na b: c\r\n\r\n", false),
        ("two lengths", "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab", false),
        ("no length", "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", false),
    ] {
        let server = Scripted::start(move |_, mut stream| async move {
            read_request(&mut stream).await.unwrap();
            _ = stream.write_all(answer.as_bytes()).await;
            if resets {
                reset(stream);
            }
        })
        .await;
        let lost = unknown(client().send(post(server.url("/"), "x")).await);
        assert!(matches!(lost.why, Lost::Connection(_)) && lost.status.is_none(), "{name}: {lost}");
    }
}

#[tokio::test]
async fn an_answer_that_does_not_come_in_time_proves_nothing() {
    let silent = Scripted::start(|_, mut stream| async move { _ = read_to_end(&mut stream).await }).await;
    let slow = Scripted::start(|_, mut stream| async move {
        read_request(&mut stream).await;
        for byte in b"HTTP/1.1 200 OK\r\nx-slow: ".iter().chain(std::iter::repeat(&b'a')) {
            if stream.write_all(&[*byte]).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let interim = Scripted::start(|_, mut stream| async move {
        read_request(&mut stream).await;
        while stream.write_all(b"HTTP/1.1 103 Early Hints\r\n\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    for server in [silent, slow, interim] {
        let lost = unknown(impatient().send(post(server.url("/"), "x")).await);
        assert_eq!((lost.why, lost.status), (Lost::TimedOut, None));
    }
}

#[tokio::test]
async fn a_shorter_time_of_the_request_counts_and_a_longer_one_does_not() {
    let server = Scripted::start(|_, mut stream| async move { _ = read_to_end(&mut stream).await }).await;
    let short = Request { timeout: Some(SHORT), ..get(server.url("/")) };
    let long = Request { timeout: Some(Duration::from_secs(3_600)), ..get(server.url("/")) };
    unknown(tokio::time::timeout(PATIENCE / 2, client().send(short)).await.unwrap());
    unknown(tokio::time::timeout(PATIENCE, impatient().send(long)).await.unwrap());
}

#[tokio::test]
async fn a_body_that_breaks_off_proves_nothing_and_the_status_is_known() {
    for (name, answer) in [
        ("shorter than its length", "HTTP/1.1 429 Too Many\r\ncontent-length: 10\r\n\r\nabc"),
        ("without its last chunk", "HTTP/1.1 429 Too Many\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n"),
        ("with a bad chunk", "HTTP/1.1 429 Too Many\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n"),
    ] {
        let server = Scripted::answering(answer).await;
        let lost = unknown(client().send(post(server.url("/"), "x")).await);
        assert!(matches!(lost.why, Lost::Body(_)), "{name}: {lost}");
        assert_eq!(lost.status, Some(StatusCode::TOO_MANY_REQUESTS), "{name}");
    }
}

#[tokio::test]
async fn a_body_that_does_not_end_in_time_proves_nothing() {
    let server = Scripted::start(|_, mut stream| async move {
        read_request(&mut stream).await;
        _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n").await;
        while stream.write_all(b"a").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let lost = unknown(impatient().send(post(server.url("/"), "x")).await);
    assert_eq!((lost.why, lost.status), (Lost::BodyTimedOut, Some(StatusCode::OK)));
}

#[tokio::test]
async fn a_head_over_the_limit_is_not_an_answer() {
    let large = format!("HTTP/1.1 200 OK\r\nx-large: {}\r\ncontent-length: 0\r\n\r\n", "a".repeat(9_000));
    let many = format!("HTTP/1.1 200 OK\r\n{}content-length: 0\r\n\r\n", "x-many: a\r\n".repeat(200));
    for answer in [&large, &many] {
        let server = Scripted::answering(answer.as_str()).await;
        let lost = unknown(limited(|limits| limits.head_bytes = 8 * 1024).send(get(server.url("/"))).await);
        assert!(matches!(lost.why, Lost::Connection(_)), "{lost}");
    }
    let server = Scripted::answering(large).await;
    answered(limited(|limits| limits.head_bytes = 16 * 1024).send(get(server.url("/"))).await);
}

#[tokio::test]
async fn a_switched_protocol_is_not_an_answer() {
    let server =
        Scripted::answering("HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n").await;
    assert_eq!(unknown(client().send(get(server.url("/"))).await).why, Lost::Switched);
}

#[tokio::test]
async fn a_request_that_is_half_written_when_the_server_leaves_may_have_been_processed() {
    let server = Scripted::start(|_, mut stream| async move {
        let mut some = [0; 1_000];
        _ = stream.read_exact(&mut some).await;
        reset(stream);
    })
    .await;
    unknown(client().send(post(server.url("/"), vec![b'a'; 8 * 1024 * 1024])).await);
}

#[tokio::test]
async fn a_server_that_closes_every_connection_at_once_is_never_taken_for_one_that_answered() {
    let read = Arc::new(AtomicUsize::new(0));
    let server = Scripted::start({
        let read = Arc::clone(&read);
        move |_, mut stream| {
            let read = Arc::clone(&read);
            async move {
                stream.shutdown().await.unwrap();
                read.fetch_add(read_to_end(&mut stream).await, Ordering::SeqCst);
            }
        }
    })
    .await;
    for _ in 0..50 {
        match client().send(post(server.url("/"), "x")).await {
            Sent::Unknown(_) | Sent::NotSent(NotSent::Closed { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}

// Answered.

#[tokio::test]
async fn the_server_gets_the_request_as_it_was_given() {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let server = Scripted::start(move |_, mut stream| {
        let tell = tell.clone();
        async move {
            tell.send(read_request(&mut stream).await.unwrap()).unwrap();
            _ = stream.write_all(b"HTTP/1.1 201 Created\r\nx-id: 7\r\ncontent-length: 4\r\n\r\ndone").await;
        }
    })
    .await;
    let mut request = post(server.url("/v1/x?y=%20z"), "body");
    request.headers.insert("idempotency-key", HeaderValue::from_static("k-1"));
    let answer = answered(client().send(request).await);
    assert_eq!(
        (answer.status, &answer.headers["x-id"], &answer.body[..]),
        (StatusCode::CREATED, &HeaderValue::from(7), &b"done"[..])
    );
    assert!(!answer.cut && !answer.unframed);
    let seen = told.recv().await.unwrap();
    assert!(seen.starts_with("POST /v1/x?y=%20z HTTP/1.1\r\n") && seen.ends_with("\r\n\r\nbody"), "{seen}");
    let host = format!("\r\nhost: {}\r\n", server.address);
    for header in [
        host.as_str(),
        "\r\nidempotency-key: k-1\r\n",
        "\r\nuser-agent: onceward/",
        "\r\naccept-encoding: identity\r\n",
    ] {
        assert!(seen.contains(header), "{header} {seen}");
    }
}

#[tokio::test]
async fn interim_answers_are_skipped() {
    let server = Scripted::answering(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na",
    )
    .await;
    assert_eq!(answered(client().send(post(server.url("/"), "x")).await).body, "a");
}

#[tokio::test]
async fn a_body_is_read_up_to_the_limit_and_the_rest_is_cut() {
    let whole = Scripted::answering("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nabcde").await;
    for (limit, body, cut) in [(4, "abcd", true), (5, "abcde", false), (6, "abcde", false)] {
        let answer = answered(limited(|limits| limits.response_bytes = limit).send(get(whole.url("/"))).await);
        assert_eq!((&answer.body[..], answer.cut), (body.as_bytes(), cut), "{limit}");
    }
    let (tell, mut ended) = tokio::sync::mpsc::unbounded_channel();
    let endless = Scripted::start(move |_, mut stream| {
        let tell = tell.clone();
        async move {
            read_request(&mut stream).await;
            _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
            while stream.write_all(b"5\r\nabcde\r\n").await.is_ok() {}
            tell.send(()).unwrap();
        }
    })
    .await;
    let answer = answered(limited(|limits| limits.response_bytes = 1_000).send(get(endless.url("/"))).await);
    assert_eq!((answer.body.len(), answer.cut), (1_000, true));
    // The connection is closed at once.
    ended.recv().await.unwrap();
}

#[tokio::test]
async fn a_compressed_body_is_not_decompressed() {
    let server =
        Scripted::answering("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\n\x1fabc").await;
    let answer = answered(client().send(get(server.url("/"))).await);
    assert_eq!(
        (&answer.body[..], &answer.headers["content-encoding"]),
        (&b"\x1fabc"[..], &HeaderValue::from_static("gzip"))
    );
}

#[tokio::test]
async fn a_body_that_ends_with_its_connection_is_marked() {
    let server = Scripted::answering("HTTP/1.1 200 OK\r\n\r\nabc").await;
    let answer = answered(client().send(get(server.url("/"))).await);
    assert!(answer.unframed && !answer.cut && answer.body == "abc");
}

#[tokio::test]
async fn an_answer_that_comes_before_the_body_was_read_is_an_answer() {
    let server = Scripted::start(|_, mut stream| async move {
        let mut head = [0; 100];
        _ = stream.read_exact(&mut head).await;
        _ = stream.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n").await;
        _ = read_to_end(&mut stream).await;
    })
    .await;
    let answer = answered(client().send(post(server.url("/"), vec![b'a'; 8 * 1024 * 1024])).await);
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn every_status_is_an_answer() {
    for status in [200, 204, 302, 304, 400, 401, 408, 409, 425, 429, 500, 502, 503, 504, 529, 599] {
        let server = Scripted::answering(format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n")).await;
        assert_eq!(answered(client().send(post(server.url("/"), "x")).await).status.as_u16(), status);
    }
}

#[tokio::test]
async fn dropping_the_request_closes_the_connection() {
    let (tell, mut ended) = tokio::sync::mpsc::unbounded_channel();
    let server = Scripted::start(move |_, mut stream| {
        let tell = tell.clone();
        async move {
            read_request(&mut stream).await.unwrap();
            tell.send(()).unwrap();
            read_to_end(&mut stream).await;
            tell.send(()).unwrap();
        }
    })
    .await;
    let client = client();
    let sending = tokio::spawn({
        let (client, url) = (client.clone(), server.url("/"));
        async move { client.send(post(url, "x")).await }
    });
    ended.recv().await.unwrap();
    sending.abort();
    ended.recv().await.unwrap();
}

#[test]
fn limits_that_cannot_work_are_refused() {
    for (change, name) in [
        ((|limits| limits.connect = Duration::ZERO) as fn(&mut Limits), "connect"),
        (|limits| limits.total = Duration::MAX, "total"),
        (|limits| limits.idle = Duration::ZERO, "idle"),
        (|limits| limits.concurrent = 0, "concurrent"),
        (|limits| limits.concurrent = usize::MAX, "concurrent"),
        (|limits| limits.head_bytes = 8_191, "head_bytes"),
        (|limits| limits.response_bytes = usize::MAX, "response_bytes"),
        (|limits| limits.request_bytes = usize::MAX, "request_bytes"),
    ] {
        let mut settings = settings();
        change(&mut settings.limits);
        let told = Client::new(settings).unwrap_err().message;
        assert!(told.contains(&format!("`{name}`")), "{told}");
    }
}
