//! A proxy in front of Redis that loses answers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A proxy that can swallow answers: the server does what it is told, and the client learns nothing.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    /// How many further answers to swallow. The connection hangs after that, as if the cable were cut.
    pub(crate) swallow: Arc<AtomicUsize>,
    /// Closes every connection, as a port does behind which no server is.
    pub(crate) closes: Arc<AtomicBool>,
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
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                accepted.fetch_add(1, Ordering::SeqCst);
                if is_closed.load(Ordering::SeqCst) {
                    continue;
                }
                let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                tokio::spawn(Self::pass(client, server, Arc::clone(&counter), Arc::clone(&is_closed)));
            }
        });
        Self { address, swallow, closes, connections }
    }

    async fn pass(client: TcpStream, server: TcpStream, swallow: Arc<AtomicUsize>, closes: Arc<AtomicBool>) {
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = server.into_split();
        tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
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
