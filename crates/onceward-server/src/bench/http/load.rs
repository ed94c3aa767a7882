//! Who sends: a process of its own that does as little as it can. It is told what to do by lines on its input.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::super::part::threads;
use super::super::samples::Samples;
use super::case::{Keys, MANY};
use super::wire::{self, Request};
use crate::exit::{self, Fault};
use crate::output;

/// Larger than any answer.
const LARGEST: usize = 16 * 1024;

/// Connections that are opened at a time; more could overflow the queue of a listener.
pub(super) const AT_ONCE: usize = 64;

/// What is to be done.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Connect, and send one request on each connection. Earlier connections are closed.
    Open { to: SocketAddr, connections: usize, keys: Keys, replayed: bool },
    /// Send on all connections for this long.
    Run { millis: u64 },
}

/// What came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Said {
    Ready,
    Done(Done),
    Wrong(String),
}

/// What all connections did together.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Done {
    pub(super) requests: u64,
    pub(super) seconds: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
}

/// Obeys until its input is closed.
pub(in super::super) fn run() -> Result<u8, Fault> {
    // Half of the cores: the servers want the others.
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads((threads() / 2).max(1)).enable_all().build();
    let runtime = runtime.map_err(|error| Fault::new(exit::STORE, format!("cannot start: {error}")))?;
    let mut sender = Sender::default();
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let order = serde_json::from_str(&line).map_err(Fault::usage)?;
        output::json(&runtime.block_on(sender.obey(order)).unwrap_or_else(Said::Wrong));
    }
    Ok(0)
}

/// The connections that are open, and the next new key.
#[derive(Default)]
struct Sender {
    connections: Vec<Connection>,
    next: Arc<AtomicU64>,
}

impl Sender {
    async fn obey(&mut self, order: Order) -> Result<Said, String> {
        match order {
            Order::Open { to, connections, keys, replayed } => {
                self.connections.clear();
                while self.connections.len() < connections {
                    let some = AT_ONCE.min(connections - self.connections.len());
                    let opening = (0..some).map(|_| Connection::open(to, keys, replayed, Arc::clone(&self.next)));
                    self.connections.extend(all(opening).await?);
                }
                Ok(Said::Ready)
            }
            Order::Run { millis } => {
                let started = Instant::now();
                let until = started + Duration::from_millis(millis);
                let sending = self.connections.drain(..).map(|connection| connection.send_until(until));
                let ended = all(sending).await?;
                let seconds = started.elapsed().as_secs_f64();
                let mut times = Samples::default();
                for (connection, mine) in ended {
                    times.add(mine);
                    self.connections.push(connection);
                }
                let nothing = || "no request was answered".to_owned();
                Ok(Said::Done(Done {
                    requests: times.len() as u64,
                    seconds,
                    p50_us: times.percentile(0.5).ok_or_else(nothing)?,
                    p99_us: times.percentile(0.99).ok_or_else(nothing)?,
                }))
            }
        }
    }
}

/// Does all of it at once.
async fn all<T: Send + 'static>(
    work: impl Iterator<Item = impl Future<Output = Result<T, String>> + Send + 'static>,
) -> Result<Vec<T>, String> {
    let mut running: JoinSet<_> = work.collect();
    let mut done = Vec::with_capacity(running.len());
    while let Some(ended) = running.join_next().await {
        done.push(ended.map_err(|error| format!("a connection died: {error}"))??);
    }
    Ok(done)
}

/// One connection, with one request at a time.
struct Connection {
    stream: TcpStream,
    request: Request,
    keys: Keys,
    replayed: bool,
    next: Arc<AtomicU64>,
    buffer: Vec<u8>,
}

impl Connection {
    async fn open(to: SocketAddr, keys: Keys, replayed: bool, next: Arc<AtomicU64>) -> Result<Self, String> {
        let stream = TcpStream::connect(to).await.map_err(|error| format!("{to} cannot be reached: {error}"))?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let request = Request::new(&to.to_string(), keys);
        let buffer = vec![0; LARGEST];
        let mut connection = Self { stream, request, keys, replayed, next, buffer };
        connection.exchange().await?;
        // An idle one needs none.
        connection.buffer = Vec::new();
        Ok(connection)
    }

    async fn send_until(mut self, until: Instant) -> Result<(Self, Samples), String> {
        self.buffer.resize(LARGEST, 0);
        let mut times = Samples::default();
        let mut now = Instant::now();
        while now < until {
            let sent = now;
            self.exchange().await?;
            now = Instant::now();
            times.note(now - sent);
        }
        Ok((self, times))
    }

    async fn exchange(&mut self) -> Result<(), String> {
        let number = match self.keys {
            Keys::None | Keys::One => 0,
            Keys::Fresh => MANY + self.next.fetch_add(1, Ordering::Relaxed),
            Keys::Many => self.next.fetch_add(1, Ordering::Relaxed) % MANY,
        };
        let broken = |error: std::io::Error| format!("a connection broke: {error}");
        self.stream.write_all(self.request.numbered(number)).await.map_err(broken)?;
        let mut length = 0;
        while wire::answer(&self.buffer[..length], self.replayed)?.is_none() {
            // No timer for each answer: whoever gave the order waits only so long.
            length += match self.stream.read(&mut self.buffer[length..]).await {
                Ok(0) => return Err("a connection was closed before its answer".to_owned()),
                read => read.map_err(broken)?,
            };
        }
        Ok(())
    }
}
