//! Accepts connections and serves HTTP on them: connection limits, header time-outs and graceful shutdown.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::net::protocol_timeout::ProtocolTimeout;
use crate::net::stop::Stop;
use crate::net::thread_per_core::WorkerThreads;
use crate::net::tls::Tls;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Maximum number of open connections. Further connections wait in the operating system's queue.
const MAX_CONNECTIONS: usize = 10_000;

/// How long a client may take to send its headers, and how long an idle connection stays open.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// All headers together; far more than clients send.
const MAX_HEADER_BYTES: u32 = 64 * 1024;

/// Concurrent streams on one HTTP/2 connection.
const MAX_STREAMS: u32 = 256;

/// Pause after a failed accept. A system that has run out of file handles usually recovers quickly.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The HTTP versions that a listener supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpVersions {
    /// One response after the other on a connection, so that bytes which the connection has taken are on their way.
    Http1,
    /// HTTP/1.1 and HTTP/2.
    Http2,
}

/// The client end of a connection, and whether it uses TLS.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    pub address: SocketAddr,
    pub secure: bool,
}

/// A bound socket that does not accept connections yet.
pub struct BoundListener {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<Tls>,
    max_connections: usize,
}

impl BoundListener {
    /// Binds to an address; port 0 picks a free port.
    pub async fn bind(address: SocketAddr, tls: Option<Tls>) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, tls, max_connections: MAX_CONNECTIONS })
    }

    /// Sets the maximum number of open connections, if given.
    pub fn max_connections(self, connections: Option<NonZeroU32>) -> Self {
        let max_connections = connections
            .map_or(self.max_connections, |max_connections| max_connections.get() as usize)
            .min(Semaphore::MAX_PERMITS);
        Self { max_connections, ..self }
    }

    /// The URL, with the actual port.
    pub fn url(&self) -> String {
        format!("{}://{}", if self.tls.is_some() { "https" } else { "http" }, self.address)
    }

    /// Serves each connection on one of the workers, whose number is passed to `service`, until it is time to stop. Then it
    /// accepts no more connections and waits for the open ones; the caller limits how long.
    pub async fn serve<S, B>(
        self,
        versions: HttpVersions,
        workers: Arc<WorkerThreads>,
        service: impl Fn(Peer, usize) -> S,
        mut stop: Stop,
    ) where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
        S::Future: Send + 'static,
        B: Body<Data: Send, Error: Into<Error>> + Send + 'static,
    {
        let permits = Arc::new(Semaphore::new(self.max_connections));
        let connections = GracefulShutdown::new();
        let protocol = Protocol::new(versions);
        let tls = match versions {
            HttpVersions::Http1 => self.tls.map(Tls::without_http2),
            HttpVersions::Http2 => self.tls,
        };
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.stopped() => break,
                accepted = async {
                    let permit = Arc::clone(&permits).acquire_owned().await;
                    (self.listener.accept().await, permit)
                } => accepted,
            };
            let (stream, address, permit) = match accepted {
                (Ok((stream, address)), Ok(permit)) => (stream, address, permit),
                (Err(error), _) => {
                    tracing::warn!(%error, "failed to accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
                (_, Err(_)) => break,
            };
            let _ = stream.set_nodelay(true);
            // The socket was registered with this runtime and must be registered with the worker's.
            let (Some(worker), Ok(stream)) = (workers.least_busy(), stream.into_std()) else { continue };
            let service = service(Peer { address, secure: tls.is_some() }, worker.number);
            let (tls, protocol, watcher) = (tls.clone(), protocol.clone(), connections.watcher());
            worker.runtime.clone().spawn(async move {
                let Ok(stream) = TcpStream::from_std(stream) else { return };
                let ended = match tls {
                    None => serve_connection(watcher, &protocol, stream, service).await,
                    Some(tls) => match tls.accept(stream).await {
                        Some(stream) => serve_connection(watcher, &protocol, stream, service).await,
                        None => Ok(()),
                    },
                };
                // Clients may disconnect at any time: not a problem of the server.
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended with an error");
                }
                drop((permit, worker));
            });
        }
        drop(self.listener);
        connections.shutdown().await;
    }
}

/// Serves one connection until it ends or switches to another protocol.
async fn serve_connection<I, S, B>(watcher: Watcher, protocol: &Protocol, stream: I, service: S) -> Result<(), Error>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
    S::Future: Send + 'static,
    B: Body<Data: Send, Error: Into<Error>> + Send + 'static,
{
    let stream = TokioIo::new(ProtocolTimeout::new(stream, HEADER_TIMEOUT));
    match protocol {
        Protocol::Http1(protocol) => Ok(watcher.watch(protocol.serve_connection(stream, service)).await?),
        Protocol::Http2(protocol) => watcher.watch(protocol.serve_connection_with_upgrades(stream, service)).await,
    }
}

/// How to serve connections. The builder for both versions cannot be limited to one of them if connections may switch
/// protocols, so HTTP/1.1 alone uses its own builder.
#[derive(Clone)]
enum Protocol {
    Http1(http1::Builder),
    Http2(auto::Builder<TokioExecutor>),
}

impl Protocol {
    fn new(versions: HttpVersions) -> Self {
        if versions == HttpVersions::Http1 {
            let mut protocol = http1::Builder::new();
            protocol
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .max_buf_size(MAX_HEADER_BYTES as usize);
            return Self::Http1(protocol);
        }
        let mut protocol = auto::Builder::new(TokioExecutor::new());
        protocol
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .max_buf_size(MAX_HEADER_BYTES as usize);
        protocol
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .keep_alive_interval(Some(HEADER_TIMEOUT))
            .max_header_list_size(MAX_HEADER_BYTES);
        Self::Http2(protocol)
    }
}
