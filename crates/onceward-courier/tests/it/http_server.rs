//! An HTTP server that does the work for each whole request, and then answers, or fails at a given point.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What the server does with each connection.
#[derive(Clone, Debug)]
pub(super) enum Behaviour {
    /// Closes it without reading.
    CloseAtOnce,
    /// Closes it after this many bytes of the request.
    CloseAfterBytes(usize),
    /// Does the work and closes it without an answer.
    CloseInsteadOfAnswer,
    /// Does the work, and closes it after these bytes.
    Answer(Vec<u8>),
    /// Does the work, and then says nothing.
    Silent,
    /// Does the work, and answers with a body that does not end.
    Endless,
}

/// The server.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Server {
    pub(super) async fn start(behaviour: Behaviour) -> Self {
        Self::sequence(vec![behaviour]).await
    }

    /// Does one of these with each connection, in this order; the last one stays.
    pub(super) async fn sequence(behaviours: Vec<Behaviour>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let seen = Arc::clone(&requests);
        let task = tokio::spawn(async move {
            for number in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                let behaviour = behaviours.get(number).or(behaviours.last()).unwrap().clone();
                tokio::spawn(serve(stream, behaviour, Arc::clone(&seen)));
            }
        });
        Self { address, requests, task }
    }

    /// Answers each request with this status and body.
    pub(super) async fn answering(status: &str, headers: &str, body: &str) -> Self {
        Self::start(answer(status, headers, body)).await
    }

    /// The requests for which the work was done.
    pub(super) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// How often the work was done.
    pub(super) fn effects(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    /// The last request for which the work was done.
    pub(super) fn last(&self) -> String {
        self.requests.lock().unwrap().last().unwrap().clone()
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

/// A whole answer.
pub(super) fn answer(status: &str, headers: &str, body: &str) -> Behaviour {
    let length = body.len();
    let answer = format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}");
    Behaviour::Answer(answer.into_bytes())
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, behaviour: Behaviour, requests: Arc<Mutex<Vec<String>>>) {
    match behaviour {
        Behaviour::CloseAtOnce => return,
        Behaviour::CloseAfterBytes(count) => {
            let _ = stream.read_exact(&mut vec![0; count]).await;
            return;
        }
        _ => {}
    }
    let Some(request) = read_request(&mut stream).await else { return };
    requests.lock().unwrap().push(request);
    match behaviour {
        Behaviour::Answer(bytes) => {
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
        }
        Behaviour::Silent => tokio::time::sleep(Duration::from_secs(600)).await,
        Behaviour::Endless => {
            let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
            let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
            let _ = stream.write_all(head).await;
            while stream.write_all(chunk.as_bytes()).await.is_ok() {}
        }
        _ => {}
    }
}

/// A whole request: head and body. `None` if the connection ends before.
async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        if let Some(head) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
            let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
            if bytes.len() >= head + 4 + length.unwrap_or(0) {
                return Some(String::from_utf8_lossy(&bytes).into_owned());
            }
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}
