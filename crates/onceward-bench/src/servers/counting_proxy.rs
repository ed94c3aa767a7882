//! Counts round trips: a proxy on the loopback interface that passes bytes on, and counts how often the client speaks after the
//! server has.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use onceward_runtime::exit::Fault;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::failed;

/// A running proxy. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct CountingProxy {
    /// The store, through the proxy.
    pub(super) url: String,
    round_trips: Arc<AtomicU64>,
    accepting: JoinHandle<()>,
}

impl Drop for CountingProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl CountingProxy {
    /// Starts a proxy in front of the server in a URL.
    pub(super) async fn start(url: &str) -> Result<Self, Fault> {
        let (host, rest) = address(url).ok_or_else(|| failed("the URL has no host and port"))?;
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let url = format!("{}127.0.0.1:{port}{}", rest.0, rest.1);
        let round_trips = Arc::new(AtomicU64::new(0));
        let (counter, host) = (Arc::clone(&round_trips), host.to_owned());
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&host).await else { return };
                // Without this, small messages would wait for each other.
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                pass(client, server, Arc::clone(&counter));
            }
        });
        Ok(Self { url, round_trips, accepting })
    }

    /// Whether a proxy can stand in front of the server: it needs the port of a single server, and breaks TLS.
    pub(super) fn can_count(url: &str) -> bool {
        !url.starts_with("rediss") && address(url).is_some()
    }

    pub(super) fn round_trips(&self) -> u64 {
        self.round_trips.load(Ordering::SeqCst)
    }
}

/// Host and port of a URL, and what is before and after them.
fn address(url: &str) -> Option<(&str, (&str, &str))> {
    let start = url.find("://")? + 3;
    let end = url[start..].find(['/', '?']).map_or(url.len(), |at| start + at);
    let start = url[start..end].rfind('@').map_or(start, |at| start + at + 1);
    let host = &url[start..end];
    (host.contains(':') && !host.contains(',')).then(|| (host, (&url[..start], &url[end..])))
}

fn pass(client: TcpStream, server: TcpStream, round_trips: Arc<AtomicU64>) {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let client_speaks = Arc::new(AtomicBool::new(false));
    let turn = Arc::clone(&client_speaks);
    tokio::spawn(copy(from_client, to_server, move || {
        if !turn.swap(true, Ordering::SeqCst) {
            round_trips.fetch_add(1, Ordering::SeqCst);
        }
    }));
    tokio::spawn(copy(from_server, to_client, move || client_speaks.store(false, Ordering::SeqCst)));
}

async fn copy(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    note: impl Fn() + Send,
) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        note();
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_replaced_and_nothing_else() {
        let found = address("postgres://u:p@h:5432/d?x=y");
        assert_eq!(found, Some(("h:5432", ("postgres://u:p@", "/d?x=y"))));
        assert_eq!(address("postgres://h:1"), Some(("h:1", ("postgres://", ""))));
        assert_eq!(address("redis://h:1?prefix=x"), Some(("h:1", ("redis://", "?prefix=x"))));
        assert_eq!(address("postgres://h/d"), None, "the port is not known");
    }

    #[tokio::test]
    async fn pipelined_messages_are_one_round_trip() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("echo://{}/", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = [0; 4];
            while stream.read_exact(&mut bytes).await.is_ok() {
                stream.write_all(&bytes).await.unwrap();
            }
        });
        let proxy = CountingProxy::start(&url).await.unwrap();
        let mut stream = TcpStream::connect(address(&proxy.url).unwrap().0).await.unwrap();
        let mut bytes = [0; 4];
        for trips in 1..4 {
            for half in [b"ab", b"cd"] {
                stream.write_all(half).await.unwrap();
                tokio::task::yield_now().await;
            }
            stream.read_exact(&mut bytes).await.unwrap();
            assert_eq!(proxy.round_trips(), trips);
        }
    }
}
