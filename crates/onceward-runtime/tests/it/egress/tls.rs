//! TLS: a server that cannot prove its name gets no byte of the request.

use onceward_runtime::egress::{Client, NotSent, Settings, Trust};
use tokio::io::AsyncWriteExt;

use super::certificates::{accept, trust};
use super::servers::{Scripted, read_request, read_to_end};
use super::{NO_TRUST, Names, SHORT, answered, not_sent, post, settings};

/// Trusts the private authority, and finds `localhost` and `other.test` on this machine.
pub(super) fn secure() -> Settings {
    let resolver = Names::new(&[("localhost", &[&["127.0.0.1"]]), ("other.test", &[&["127.0.0.1"]])]);
    Settings { trust: trust(), resolver, ..settings() }
}

#[tokio::test]
async fn a_server_with_a_valid_certificate_gets_the_request() {
    let server = Scripted::start(|_, stream| async move {
        let mut stream = accept(stream, "http/1.1").await.unwrap();
        let request = read_request(&mut stream).await.unwrap();
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{request}", request.len());
        stream.write_all(answer.as_bytes()).await.unwrap();
        read_to_end(&mut stream).await;
    })
    .await;
    let client = Client::new(secure()).unwrap();
    let port = server.address.port();
    for host in ["localhost", "127.0.0.1"] {
        let answer = answered(client.send(post(format!("https://{host}:{port}/x"), "body")).await);
        let seen = String::from_utf8(answer.body.to_vec()).unwrap();
        assert!(seen.contains(&format!("\r\nhost: {host}:{port}\r\n")) && seen.ends_with("body"), "{seen}");
    }
}

#[tokio::test]
async fn a_server_with_a_wrong_certificate_gets_nothing() {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let server = Scripted::start(move |_, stream| {
        let tell = tell.clone();
        async move {
            let read = match accept(stream, "http/1.1").await {
                Ok(mut stream) => read_to_end(&mut stream).await,
                Err(_) => 0,
            };
            tell.send(read).unwrap();
        }
    })
    .await;
    let port = server.address.port();
    let system = Trust::load(true, None).unwrap();
    for (host, trust) in [
        // The name of the URL counts, not the address, nor the other name for it.
        ("other.test", trust()),
        ("localhost", NO_TRUST.clone()),
        ("localhost", system),
    ] {
        let settings = Settings { trust, ..secure() };
        let why = not_sent(Client::new(settings).unwrap().send(post(format!("https://{host}:{port}/"), "x")).await);
        assert!(matches!(&why, NotSent::Unreachable { why, .. } if why.contains("certificate")), "{why}");
        assert_eq!(told.recv().await, Some(0));
    }
}

#[tokio::test]
async fn a_handshake_that_fails_or_does_not_end_proves_that_nothing_was_sent() {
    let plain = Scripted::start(|_, mut stream| async move {
        _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    })
    .await;
    let closing = Scripted::start(|_, stream| async move { drop(stream) }).await;
    let silent = Scripted::start(|_, mut stream| async move { _ = read_to_end(&mut stream).await }).await;
    for server in [plain, closing, silent] {
        let mut settings = secure();
        settings.limits.connect = SHORT;
        let url = format!("https://localhost:{}/", server.address.port());
        let why = not_sent(Client::new(settings).unwrap().send(post(url, "x")).await);
        assert!(matches!(why, NotSent::Unreachable { .. }), "{why}");
    }
}

#[tokio::test]
async fn a_request_without_tls_does_not_become_one_with_tls_nor_the_reverse() {
    let server = Scripted::answering("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let client = Client::new(secure()).unwrap();
    answered(client.send(post(server.url("/"), "x")).await);
    not_sent(client.send(post(server.url("/").replace("http:", "https:"), "x")).await);
}

#[test]
fn a_ca_file_that_cannot_be_used_is_reported() {
    let told = Trust::load(false, Some(std::path::Path::new("/nonexistent/ca.pem"))).unwrap_err().message;
    assert!(told.contains("/nonexistent/ca.pem"), "{told}");
}
