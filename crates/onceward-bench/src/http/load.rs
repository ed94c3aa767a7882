//! The load generator: a process that does as little work as possible. It reads commands from its stdin.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::super::bench_part::threads;
use super::super::samples::Samples;
use super::case::{KeyChoice, MANY};
use super::wire::{self, Request};
use onceward_runtime::exit::{self, Fault};
use onceward_runtime::output;

/// Larger than any response.
const MAX_RESPONSE_BYTES: usize = 16 * 1024;

/// Connections opened at a time; more could overflow the queue of a listener.
pub(super) const OPEN_BATCH: usize = 64;

/// A command to the load generator.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum LoadCommand {
    /// Connect, and send one request on each connection. Closes earlier connections.
    Open { to: SocketAddr, connections: usize, keys: KeyChoice, replayed: bool },
    /// Send on all connections for this long.
    Run { millis: u64 },
}

/// The response of the load generator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum LoadResponse {
    Ready,
    Done(LoadResult),
    Wrong(String),
}

/// The result of all connections together.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct LoadResult {
    pub(super) requests: u64,
    pub(super) seconds: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
}

/// Runs commands until its stdin is closed.
pub(in super::super) fn run() -> Result<u8, Fault> {
    // Half of the cores: the servers need the others.
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads((threads() / 2).max(1)).enable_all().build();
    let runtime = runtime.map_err(|error| Fault::new(exit::STORE, format!("cannot start: {error}")))?;
    let mut sender = Sender::default();
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let order = serde_json::from_str(&line).map_err(Fault::usage)?;
        output::json(&runtime.block_on(sender.run_command(order)).unwrap_or_else(LoadResponse::Wrong));
    }
    Ok(0)
}

/// The open connections and the next new key.
#[derive(Default)]
struct Sender {
    connections: Vec<Connection>,
    next: Arc<AtomicU64>,
}

impl Sender {
    async fn run_command(&mut self, order: LoadCommand) -> Result<LoadResponse, String> {
        match order {
            LoadCommand::Open { to, connections, keys, replayed } => {
                self.connections.clear();
                while self.connections.len() < connections {
                    let some = OPEN_BATCH.min(connections - self.connections.len());
                    let opening = (0..some).map(|_| Connection::open(to, keys, replayed, Arc::clone(&self.next)));
                    self.connections.extend(all(opening).await?);
                }
                Ok(LoadResponse::Ready)
            }
            LoadCommand::Run { millis } => {
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
                let nothing = || "no request was completed".to_owned();
                Ok(LoadResponse::Done(LoadResult {
                    requests: times.len() as u64,
                    seconds,
                    p50_us: times.percentile(0.5).ok_or_else(nothing)?,
                    p99_us: times.percentile(0.99).ok_or_else(nothing)?,
                }))
            }
        }
    }
}

/// Runs all futures concurrently.
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
    keys: KeyChoice,
    replayed: bool,
    next: Arc<AtomicU64>,
    buffer: Vec<u8>,
}

impl Connection {
    async fn open(to: SocketAddr, keys: KeyChoice, replayed: bool, next: Arc<AtomicU64>) -> Result<Self, String> {
        let stream = TcpStream::connect(to).await.map_err(|error| format!("cannot connect to {to}: {error}"))?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let request = Request::new(&to.to_string(), keys);
        let buffer = vec![0; MAX_RESPONSE_BYTES];
        let mut connection = Self { stream, request, keys, replayed, next, buffer };
        connection.exchange().await?;
        // An idle connection needs no buffer.
        connection.buffer = Vec::new();
        Ok(connection)
    }

    async fn send_until(mut self, until: Instant) -> Result<(Self, Samples), String> {
        self.buffer.resize(MAX_RESPONSE_BYTES, 0);
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
            KeyChoice::None | KeyChoice::One => 0,
            KeyChoice::Fresh => MANY + self.next.fetch_add(1, Ordering::Relaxed),
            KeyChoice::Many => self.next.fetch_add(1, Ordering::Relaxed) % MANY,
        };
        let broken = |error: std::io::Error| format!("a connection broke: {error}");
        self.stream.write_all(self.request.numbered(number)).await.map_err(broken)?;
        let mut length = 0;
        while wire::answer(&self.buffer[..length], self.replayed)?.is_none() {
            // No timer per response: the process that sent the command has a time-out.
            length += match self.stream.read(&mut self.buffer[length..]).await {
                Ok(0) => return Err("a connection was closed before the response".to_owned()),
                read => read.map_err(broken)?,
            };
        }
        Ok(())
    }
}
