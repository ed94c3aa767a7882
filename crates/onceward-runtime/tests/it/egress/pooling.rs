//! Kept connections: when they are used again, and what is known when the server closes one just as a request is written.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceward_runtime::egress::{Client, Limits, Lost, Sent};
use tokio::io::AsyncWriteExt;

use super::servers::{Counter, Scripted, read_request, read_to_end, reset};
use super::{Names, PATIENCE, answered, get, post, settings, unknown};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// Keeps connections for as long as a test takes.
fn keeping(change: impl FnOnce(&mut Limits)) -> Client {
    let mut settings = settings();
    settings.limits.idle = PATIENCE;
    change(&mut settings.limits);
    Client::new(settings).unwrap()
}

#[tokio::test]
async fn a_connection_is_used_again_and_never_by_another_client() {
    let counter = Counter::start().await;
    let url = format!("http://127.0.0.1:{}/", counter.port);
    let (one, other) = (keeping(|_| ()), keeping(|_| ()));
    for _ in 0..5 {
        answered(one.send(post(&url, "x")).await);
    }
    assert_eq!(counter.connections("127.0.0.1").await, 1);
    answered(other.send(post(&url, "x")).await);
    answered(one.clone().send(post(&url, "x")).await);
    assert_eq!(counter.connections("127.0.0.1").await, 2);
}

#[tokio::test]
async fn a_connection_serves_one_host_only() {
    let counter = Counter::start().await;
    let mut settings = settings();
    settings.resolver = Names::new(&[("a.test", &[&["127.0.0.1"]]), ("b.test", &[&["127.0.0.1"]])]);
    settings.limits.idle = PATIENCE;
    let client = Client::new(settings).unwrap();
    for host in ["a.test", "b.test", "127.0.0.1", "a.test", "b.test", "127.0.0.1"] {
        answered(client.send(get(format!("http://{host}:{}/", counter.port))).await);
    }
    assert_eq!(counter.connections("127.0.0.1").await, 3);
}

/// The library under this client would send such a request again by itself, if it were asked to.
#[tokio::test]
async fn a_request_that_a_kept_connection_took_with_it_is_not_sent_again() {
    let requests = Arc::new(AtomicUsize::new(0));
    let server = Scripted::start({
        let requests = Arc::clone(&requests);
        move |_, mut stream| {
            let requests = Arc::clone(&requests);
            async move {
                while read_request(&mut stream).await.is_some() {
                    if requests.fetch_add(1, Ordering::SeqCst) == 1 {
                        return;
                    }
                    stream.write_all(OK).await.unwrap();
                }
            }
        }
    })
    .await;
    let client = keeping(|_| ());
    answered(client.send(post(server.url("/1"), "x")).await);
    let lost = unknown(client.send(post(server.url("/2"), "x")).await);
    assert!(matches!(lost.why, Lost::Connection(_)), "{lost}");
    assert_eq!(requests.load(Ordering::SeqCst), 2);
    answered(client.send(post(server.url("/3"), "x")).await);
    assert_eq!(requests.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_kept_connection_that_the_server_closed_earlier_is_not_used() {
    let (tell, mut closed) = tokio::sync::mpsc::unbounded_channel();
    let server = Scripted::start(move |_, mut stream| {
        let tell = tell.clone();
        async move {
            read_request(&mut stream).await;
            stream.write_all(OK).await.unwrap();
            stream.shutdown().await.unwrap();
            // The client closes its side once it has seen the end.
            read_to_end(&mut stream).await;
            tell.send(()).unwrap();
        }
    })
    .await;
    let client = keeping(|_| ());
    for _ in 0..10 {
        answered(client.send(post(server.url("/"), "x")).await);
        closed.recv().await.unwrap();
    }
}

/// A server that closes connections at any moment, also while a request is on its way.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_counts_as_not_sent_was_never_read_by_the_server() {
    let seen = Arc::<Mutex<HashMap<String, usize>>>::default();
    let server = Scripted::start({
        let seen = Arc::clone(&seen);
        move |number, mut stream| {
            let seen = Arc::clone(&seen);
            async move {
                if number % 7 == 6 {
                    return reset(stream);
                }
                let Some(request) = read_request(&mut stream).await else { return };
                count(&seen, &request);
                stream.write_all(OK).await.unwrap();
                // The next request may be read, half read or not read when the connection ends.
                let pause = Duration::from_micros(number as u64 * 37 % 500);
                if let Ok(Some(request)) = tokio::time::timeout(pause, read_request(&mut stream)).await {
                    count(&seen, &request);
                }
                if number % 2 == 0 {
                    reset(stream);
                }
            }
        }
    })
    .await;
    let client = keeping(|_| ());
    let (mut sent, mut lost) = (0, 0);
    for number in 0..600_u64 {
        let path = format!("/{number}");
        let result = client.send(post(server.url(&path), "x")).await;
        // Time for the server to read what is on its way.
        tokio::time::sleep(Duration::from_micros(number * 53 % 400)).await;
        let times = seen.lock().unwrap().get(&path).copied().unwrap_or_default();
        match result {
            Sent::NotSent(why) => assert_eq!(times, 0, "{path} {why}"),
            Sent::Answered(_) => {
                assert_eq!(times, 1, "{path}");
                sent += 1;
            }
            Sent::Unknown(_) => {
                assert!(times <= 1, "{path} {times}");
                lost += 1;
            }
        }
    }
    assert!(sent > 0 && lost > 0, "{sent} {lost}");
    assert!(seen.lock().unwrap().values().all(|times| *times == 1));
}

fn count(seen: &Mutex<HashMap<String, usize>>, request: &str) {
    let path = request.split(' ').nth(1).unwrap().to_owned();
    *seen.lock().unwrap().entry(path).or_default() += 1;
}

#[tokio::test]
async fn an_unused_connection_is_closed_after_its_time() {
    let (tell, mut ended) = tokio::sync::mpsc::unbounded_channel();
    let server = Scripted::start(move |_, mut stream| {
        let tell = tell.clone();
        async move {
            read_request(&mut stream).await;
            stream.write_all(OK).await.unwrap();
            read_to_end(&mut stream).await;
            tell.send(()).unwrap();
        }
    })
    .await;
    let client = keeping(|limits| limits.idle = Duration::from_millis(50));
    answered(client.send(get(server.url("/"))).await);
    tokio::time::timeout(PATIENCE, ended.recv()).await.unwrap().unwrap();
    // Also with its client.
    let client = keeping(|_| ());
    answered(client.send(get(server.url("/"))).await);
    drop(client);
    tokio::time::timeout(PATIENCE, ended.recv()).await.unwrap().unwrap();
}

#[tokio::test]
async fn connections_stay_within_the_limit_and_every_request_gets_its_turn() {
    let (open, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let server = Scripted::start({
        let (open, most) = (Arc::clone(&open), Arc::clone(&most));
        move |_, mut stream| {
            most.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let open = Arc::clone(&open);
            async move {
                while read_request(&mut stream).await.is_some() {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    stream.write_all(OK).await.unwrap();
                }
                open.fetch_sub(1, Ordering::SeqCst);
            }
        }
    })
    .await;
    let client = keeping(|limits| limits.concurrent = 3);
    let requests: Vec<_> = (0..30)
        .map(|_| {
            tokio::spawn({
                let (client, url) = (client.clone(), server.url("/"));
                async move { client.send(post(url, "x")).await }
            })
        })
        .collect();
    for request in requests {
        answered(request.await.unwrap());
    }
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

/// Idle connections to one host make room for another host.
#[tokio::test]
async fn idle_connections_count_against_the_limit() {
    let (tell, mut ended) = tokio::sync::mpsc::unbounded_channel();
    let mut servers = Vec::new();
    for number in 0..3 {
        let tell = tell.clone();
        let serve = move |_, mut stream: tokio::net::TcpStream| {
            let tell = tell.clone();
            async move {
                while read_request(&mut stream).await.is_some() {
                    stream.write_all(OK).await.unwrap();
                }
                tell.send(number).unwrap();
            }
        };
        servers.push(Scripted::start(serve).await);
    }
    let client = keeping(|limits| limits.concurrent = 2);
    for server in &servers {
        answered(client.send(get(server.url("/"))).await);
    }
    // The oldest one.
    assert_eq!(ended.recv().await, Some(0));
    assert!(ended.try_recv().is_err());
}

#[tokio::test]
async fn a_connection_with_more_than_the_answer_on_it_is_not_used_again() {
    let server = Scripted::start(|number, mut stream| async move {
        read_request(&mut stream).await;
        let body = format!("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{number}");
        stream.write_all(body.as_bytes()).await.unwrap();
        // The answer to a request that was never made.
        _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwrong").await;
        read_to_end(&mut stream).await;
    })
    .await;
    let client = keeping(|_| ());
    assert_eq!(answered(client.send(get(server.url("/"))).await).body, "0");
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(answered(client.send(get(server.url("/"))).await).body, "1");
}
