//! Real listeners: one that counts its connections, and one that follows a script.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A listener on every address of this machine. Remembers the peers that connected, and answers each request with 200.
pub(super) struct Counter {
    pub(super) port: u16,
    peers: Arc<Mutex<Vec<u16>>>,
    task: JoinHandle<()>,
}

impl Counter {
    pub(super) async fn start() -> Self {
        Self::at("[::]:0").await
    }

    pub(super) async fn at(address: &str) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let peers = Arc::<Mutex<Vec<u16>>>::default();
        let seen = Arc::clone(&peers);
        let task = tokio::spawn(async move {
            loop {
                let (mut stream, peer) = listener.accept().await.unwrap();
                seen.lock().unwrap().push(peer.port());
                tokio::spawn(async move {
                    while read_request(&mut stream).await.is_some() {
                        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
                    }
                });
            }
        });
        Self { port, peers, task }
    }

    /// How many connections were made until now. Connections are accepted in order, so one of its own shows when all earlier
    /// ones have been counted.
    pub(super) async fn connections(&self, host: &str) -> usize {
        let own = TcpStream::connect((host, self.port)).await.unwrap();
        let port = own.local_addr().unwrap().port();
        loop {
            {
                let mut peers = self.peers.lock().unwrap();
                if let Some(at) = peers.iter().position(|peer| *peer == port) {
                    peers.remove(at);
                    return peers.len();
                }
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A server that does `script` with each connection, one after the other, and gives the number of the connection to it.
pub(super) struct Scripted {
    pub(super) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Scripted {
    pub(super) async fn start<F>(mut script: impl FnMut(usize, TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            for number in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(script(number, stream));
            }
        });
        Self { address, task }
    }

    /// Reads each request and answers it with these bytes, then closes the connection.
    pub(super) async fn answering(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        Self::start(move |_, mut stream| {
            let bytes = bytes.clone();
            async move {
                read_request(&mut stream).await;
                _ = stream.write_all(&bytes).await;
            }
        })
        .await
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Reads one request in HTTP/1.1 with its body. `None` if the connection ends first.
pub(super) async fn read_request(stream: &mut (impl AsyncReadExt + Unpin)) -> Option<String> {
    let mut read = Vec::new();
    let head = loop {
        if let Some(at) = read.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut read).await.ok()? == 0 {
            return None;
        }
    };
    let text = String::from_utf8_lossy(&read[..head]).to_ascii_lowercase();
    let length =
        text.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |text| text.parse().unwrap());
    while read.len() < head + length {
        if stream.read_buf(&mut read).await.ok()? == 0 {
            return None;
        }
    }
    Some(String::from_utf8(read).unwrap())
}

/// Reads until the client closes the connection; how many bytes came.
pub(super) async fn read_to_end(stream: &mut (impl AsyncReadExt + Unpin)) -> usize {
    let mut read = Vec::new();
    _ = stream.read_to_end(&mut read).await;
    read.len()
}

/// Closes a connection with a reset.
pub(super) fn reset(stream: TcpStream) {
    stream.set_zero_linger().unwrap();
}
