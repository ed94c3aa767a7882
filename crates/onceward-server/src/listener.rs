//! A socket that is listened on: how many may come, how long they may take to say what they want, and how it ends.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tower_service::Service;

use crate::stop::Stop;

/// Connections at a time. More wait in the system's own queue.
const MOST_CONNECTIONS: usize = 1024;

/// How long a client may take for its headers, and how long an idle connection is kept.
const HEADERS_WITHIN: Duration = Duration::from_secs(30);

/// All headers together; far more than any client of ours sends.
const LARGEST_HEADERS: usize = 64 * 1024;

/// How long running requests may take to end once it is time to stop.
const GRACE: Duration = Duration::from_secs(10);

/// A system that has no more file handles gets them back in a moment.
const PAUSE: Duration = Duration::from_millis(50);

/// A socket that is bound and not listened on yet.
#[derive(Debug)]
pub(crate) struct Bound {
    listener: TcpListener,
    address: SocketAddr,
}

impl Bound {
    /// Binds; port 0 takes a free one.
    pub(crate) async fn to(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// The address that it really got.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until it is time to stop. Then nobody is let in any more, and who is in may finish within a limit.
    pub(crate) async fn serve<S, B>(self, service: S, mut stop: Stop)
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send + 'static,
        B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
    {
        let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        let connections = GracefulShutdown::new();
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEADERS_WITHIN).max_buf_size(LARGEST_HEADERS);
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.stopped() => break,
                accepted = async {
                    let place = Arc::clone(&places).acquire_owned().await;
                    (self.listener.accept().await, place)
                } => accepted,
            };
            let (stream, place) = match accepted {
                (Ok((stream, _)), Ok(place)) => (stream, place),
                (Err(error), _) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                (_, Err(_)) => break,
            };
            let _ = stream.set_nodelay(true);
            let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service.clone()));
            let connection = connections.watch(connection);
            tokio::spawn(async move {
                // A client that goes away in the middle is nothing to tell anybody.
                let _ = connection.await;
                drop(place);
            });
        }
        drop(self.listener);
        if tokio::time::timeout(GRACE, connections.shutdown()).await.is_err() {
            tracing::warn!("some requests did not end in time and are cut off");
        }
    }
}
