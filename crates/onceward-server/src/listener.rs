//! A socket that is listened on: how many may come, how long they may take to say what they want, and how it ends.

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

use crate::first_words::FirstWords;
use crate::lanes::Lanes;
use crate::stop::Stop;
use crate::tls::Tls;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Connections at a time. More wait in the system's own queue.
const MOST_CONNECTIONS: usize = 10_000;

/// How long a client may take for its headers, and how long an idle connection is kept.
const HEADERS_WITHIN: Duration = Duration::from_secs(30);

/// All headers together; far more than any client sends.
const LARGEST_HEADERS: u32 = 64 * 1024;

/// How many streams one connection of HTTP/2 may have.
const MOST_STREAMS: u32 = 256;

/// A system that has no more file handles gets them back in a moment.
const PAUSE: Duration = Duration::from_millis(50);

/// Which protocols are spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaks {
    /// One answer after the other on a connection, so that what it has taken was handed over.
    Http1,
    /// HTTP/2 as well.
    Http2,
}

/// Who sent a request, and how it came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    pub(crate) secure: bool,
}

/// A socket that is bound and not listened on yet.
pub(crate) struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<Tls>,
    most: usize,
}

impl Bound {
    /// Binds; port 0 takes a free one.
    pub(crate) async fn to(address: SocketAddr, tls: Option<Tls>) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, tls, most: MOST_CONNECTIONS })
    }

    /// With so many connections at a time, if anything is said about it.
    pub(crate) fn at_most(self, connections: Option<NonZeroU32>) -> Self {
        let most = connections.map_or(self.most, |most| most.get() as usize).min(Semaphore::MAX_PERMITS);
        Self { most, ..self }
    }

    /// Where it is to be found, with the address that it really got.
    pub(crate) fn url(&self) -> String {
        format!("{}://{}", if self.tls.is_some() { "https" } else { "http" }, self.address)
    }

    /// Serves until it is time to stop, each connection on one of the lanes, whose number the service is told. Then nobody
    /// is let in any more, and who is in may finish; for how long is for the caller to say.
    pub(crate) async fn serve<S, B>(
        self,
        speaks: Speaks,
        lanes: Arc<Lanes>,
        service: impl Fn(Peer, usize) -> S,
        mut stop: Stop,
    ) where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
        S::Future: Send + 'static,
        B: Body<Data: Send, Error: Into<Error>> + Send + 'static,
    {
        let places = Arc::new(Semaphore::new(self.most));
        let connections = GracefulShutdown::new();
        let protocol = Protocol::new(speaks);
        let tls = match speaks {
            Speaks::Http1 => self.tls.map(Tls::without_http2),
            Speaks::Http2 => self.tls,
        };
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.stopped() => break,
                accepted = async {
                    let place = Arc::clone(&places).acquire_owned().await;
                    (self.listener.accept().await, place)
                } => accepted,
            };
            let (stream, address, place) = match accepted {
                (Ok((stream, address)), Ok(place)) => (stream, address, place),
                (Err(error), _) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                (_, Err(_)) => break,
            };
            let _ = stream.set_nodelay(true);
            // It was accepted on this runtime, and has to be known to the one that it is served on.
            let (Some(lane), Ok(stream)) = (lanes.take(), stream.into_std()) else { continue };
            let service = service(Peer { address, secure: tls.is_some() }, lane.number);
            let (tls, protocol, watcher) = (tls.clone(), protocol.clone(), connections.watcher());
            lane.runtime.clone().spawn(async move {
                let Ok(stream) = TcpStream::from_std(stream) else { return };
                let ended = match tls {
                    None => served(watcher, &protocol, stream, service).await,
                    Some(tls) => match tls.greeted(stream).await {
                        Some(stream) => served(watcher, &protocol, stream, service).await,
                        None => Ok(()),
                    },
                };
                // A client that goes away in the middle is nobody's fault.
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended");
                }
                drop((place, lane));
            });
        }
        drop(self.listener);
        connections.shutdown().await;
    }
}

/// One connection, until it ends or has become something else than HTTP.
async fn served<I, S, B>(watcher: Watcher, protocol: &Protocol, stream: I, service: S) -> Result<(), Error>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + 'static,
    S::Future: Send + 'static,
    B: Body<Data: Send, Error: Into<Error>> + Send + 'static,
{
    let stream = TokioIo::new(FirstWords::of(stream, HEADERS_WITHIN));
    match protocol {
        Protocol::Http1(protocol) => Ok(watcher.watch(protocol.serve_connection(stream, service)).await?),
        Protocol::Http2(protocol) => watcher.watch(protocol.serve_connection_with_upgrades(stream, service)).await,
    }
}

/// How connections are spoken on. That of both protocols cannot be told to leave one out where connections may become
/// something else, so HTTP/1.1 alone has one of its own.
#[derive(Clone)]
enum Protocol {
    Http1(http1::Builder),
    Http2(auto::Builder<TokioExecutor>),
}

impl Protocol {
    fn new(speaks: Speaks) -> Self {
        if speaks == Speaks::Http1 {
            let mut protocol = http1::Builder::new();
            protocol
                .timer(TokioTimer::new())
                .header_read_timeout(HEADERS_WITHIN)
                .max_buf_size(LARGEST_HEADERS as usize);
            return Self::Http1(protocol);
        }
        let mut protocol = auto::Builder::new(TokioExecutor::new());
        protocol
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADERS_WITHIN)
            .max_buf_size(LARGEST_HEADERS as usize);
        protocol
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(MOST_STREAMS)
            .keep_alive_interval(Some(HEADERS_WITHIN))
            .max_header_list_size(LARGEST_HEADERS);
        Self::Http2(protocol)
    }
}
