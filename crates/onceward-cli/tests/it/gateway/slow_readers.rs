//! Clients that stay connected but do not read.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Response;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::test_gateway::TestGateway;
use super::upstream::{TestUpstream, pieces};

/// Far more than the buffers of the kernel hold.
const PIECES: usize = 1024;

fn charge(key: &str) -> String {
    format!(
        "POST /v1/charges HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer sk_7\r\nidempotency-key: {key}\r\n\
         content-length: 2\r\n\r\n{{}}"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_nothing_does_not_prevent_its_outcome_from_being_recorded() {
    let piece = Bytes::from(vec![b'x'; 64 * 1024]);
    let upstream = TestUpstream::start(move |_| {
        let body = pieces(piece.clone(), PIECES);
        async { Response::new(body) }
    })
    .await;
    let gateway = TestGateway::start(&["--upstream", &upstream.url(), "--wait", "1m"]);
    let mut deaf = TcpStream::connect(gateway.address()).await.unwrap();
    deaf.write_all(charge("k").as_bytes()).await.unwrap();
    upstream.wait_for(1).await;
    let from = Instant::now();
    // The repeat waits for as long as the gateway waits for the first client.
    let mut again = TcpStream::connect(gateway.address()).await.unwrap();
    again.write_all(charge("k").as_bytes()).await.unwrap();
    let mut heard = vec![0; 4096];
    let read = tokio::time::timeout(Duration::from_secs(55), again.read(&mut heard)).await.unwrap().unwrap();
    let told = String::from_utf8_lossy(&heard[..read]);
    assert!(told.starts_with("HTTP/1.1 410") && told.contains("\"original_status\":200"), "{told}");
    assert!(from.elapsed() > Duration::from_secs(25), "a slow reader gets time: {:?}", from.elapsed());
    assert_eq!(upstream.effects(), 1);
    // Its response is incomplete, and looks incomplete.
    let mut rest = Vec::new();
    let ended = tokio::time::timeout(Duration::from_secs(20), deaf.read_to_end(&mut rest)).await.unwrap();
    assert!(ended.is_err() || !rest.ends_with(b"0\r\n\r\n"));
    assert!(rest.len() < PIECES * 64 * 1024);
}
