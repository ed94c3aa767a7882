//! A proxy in front of Redis that loses answers and holds requests back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A proxy that can swallow answers: the server does what it is told, and the client learns nothing.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    /// How many further answers to swallow. The connection hangs after that, as if the cable were cut.
    pub(crate) swallow: Arc<AtomicUsize>,
    /// Closes every connection, as a port does behind which no server is.
    pub(crate) closes: Arc<AtomicBool>,
    /// Holds requests with these bytes back, and what follows them on their connection, until this is `None`.
    pub(crate) holds: watch::Sender<Option<Vec<u8>>>,
    /// How many connections there were.
    pub(crate) connections: Arc<AtomicUsize>,
}

impl Proxy {
    pub(crate) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (swallow, connections, closes) =
            (Arc::<AtomicUsize>::default(), Arc::default(), Arc::<AtomicBool>::default());
        let (counter, accepted, is_closed) =
            (Arc::clone(&swallow), Arc::<AtomicUsize>::clone(&connections), Arc::clone(&closes));
        let (holds, held) = watch::channel(None);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                accepted.fetch_add(1, Ordering::SeqCst);
                if is_closed.load(Ordering::SeqCst) {
                    continue;
                }
                let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let (client, to_client) = client.into_split();
                let (from_server, server) = server.into_split();
                tokio::spawn(Self::pass_requests(client, server, held.clone()));
                tokio::spawn(Self::pass_answers(from_server, to_client, Arc::clone(&counter), Arc::clone(&is_closed)));
            }
        });
        Self { address, swallow, closes, holds, connections }
    }

    async fn pass_requests(
        mut from_client: OwnedReadHalf,
        mut to_server: OwnedWriteHalf,
        mut holds: watch::Receiver<Option<Vec<u8>>>,
    ) {
        let mut buffer = vec![0; 65536];
        while let Ok(size @ 1..) = from_client.read(&mut buffer).await {
            let request = &buffer[..size];
            let passes = |held: &Option<Vec<u8>>| {
                held.as_ref().is_none_or(|held| !request.windows(held.len()).any(|part| part == held))
            };
            let is_over = holds.wait_for(passes).await.is_err();
            if is_over || to_server.write_all(request).await.is_err() {
                return;
            }
        }
    }

    async fn pass_answers(
        mut from_server: OwnedReadHalf,
        mut to_client: OwnedWriteHalf,
        swallow: Arc<AtomicUsize>,
        closes: Arc<AtomicBool>,
    ) {
        let mut buffer = [0; 4096];
        let mut is_cut = false;
        while let Ok(size @ 1..) = from_server.read(&mut buffer).await {
            if closes.load(Ordering::SeqCst) {
                return;
            }
            let last = swallow.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            is_cut |= last.is_ok();
            if !is_cut && to_client.write_all(&buffer[..size]).await.is_err() {
                return;
            }
        }
    }
}
