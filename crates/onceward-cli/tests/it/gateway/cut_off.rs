//! Responses without a length and without chunks, which end with their connection: a truncated one is in doubt.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::test_gateway::TestGateway;

/// Writes the same bytes to every request and closes the connection. Returns its URL, and how often it was reached.
async fn upstream(answer: &'static str) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let reached = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&reached);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut heard = Vec::new();
            while !heard.ends_with(b"{}") {
                assert_ne!(stream.read_buf(&mut heard).await.unwrap(), 0);
            }
            counted.fetch_add(1, Ordering::SeqCst);
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    (url, reached)
}

/// Sends a charge. Returns the status and all bytes of the response.
async fn charged(gateway: &TestGateway) -> (u16, String) {
    let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
    let request = "POST /v1/charges HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer sk_7\r\nidempotency-key: k\r\n\
                   connection: close\r\ncontent-length: 2\r\n\r\n{}";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut heard = Vec::new();
    let _ = stream.read_to_end(&mut heard).await;
    let heard = String::from_utf8_lossy(&heard).into_owned();
    (heard[9..12].parse().unwrap(), heard)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_response_is_in_doubt_and_never_replayed() {
    for head in [
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{\"id\": \"ch_1\", \"am",
        "HTTP/1.0 200 OK\r\n\r\n{\"id\": ",
    ] {
        let (url, reached) = upstream(head).await;
        let gateway = TestGateway::start(&["--upstream", &url]);
        let (status, first) = charged(&gateway).await;
        assert_eq!(status, 200);
        assert!(!first.ends_with("0\r\n\r\n"), "the response does not look complete to its client: {first}");
        let (status, again) = charged(&gateway).await;
        assert_eq!((status, again.contains("in-doubt")), (409, true), "{again}");
        assert_eq!(reached.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_ends_every_response_with_its_connection_is_not_in_doubt() {
    for answer in [
        "HTTP/1.0 201 Created\r\nContent-Type: application/json\r\n\r\n{\"id\": \"ch_1\"}",
        "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\ncharged {",
        "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\ncharged",
        "HTTP/1.0 204 No Content\r\nContent-Type: application/json\r\n\r\n",
    ] {
        let (url, reached) = upstream(answer).await;
        let gateway = TestGateway::start(&["--upstream", &url]);
        let (first, _) = charged(&gateway).await;
        let (status, again) = charged(&gateway).await;
        assert_eq!(status, first, "{again}");
        assert!(again.contains("idempotent-replayed: true"), "{again}");
        assert_eq!(reached.load(Ordering::SeqCst), 1);
    }
}
