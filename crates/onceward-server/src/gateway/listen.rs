//! Connections: how many, for how long, with which protocol, and how they end.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use super::{Gateway, Peer};
use crate::exit::{self, Fault};

/// Connections at once. More wait to be accepted.
const MOST_CONNECTIONS: usize = 10_000;

/// Who has not sent the head of a request by then does not mean to.
const HEAD: Duration = Duration::from_secs(30);

/// Who has not finished greeting by then does not mean to.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The longest head of a request.
const LARGEST_HEAD: usize = 64 * 1024;

/// How many streams one connection of HTTP/2 may have.
const MOST_STREAMS: u32 = 256;

/// How long nothing is accepted when the system has no more handles: time for some to come back.
const OUT_OF_HANDLES: Duration = Duration::from_millis(100);

/// Certificates for those who ask for TLS.
pub(crate) struct Tls(Arc<ServerConfig>);

impl Tls {
    /// Reads a chain and its key, both as PEM.
    pub(crate) fn read(chain: &std::path::Path, key: &std::path::Path) -> Result<Self, Fault> {
        use tokio_rustls::rustls::pki_types::pem::PemObject;
        use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
        let wrong = |path: &std::path::Path, error: &dyn std::fmt::Display| {
            Fault::config(format!("{} cannot be used: {error}", path.display()))
        };
        let certificates = CertificateDer::pem_file_iter(chain)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| wrong(chain, &error))?;
        let private = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, &error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(certificates, private));
        let mut config = config.map_err(|error| wrong(chain, &error))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }
}

/// A gateway with its listener.
pub(crate) struct Listening {
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    gateway: Arc<Gateway>,
}

impl Listening {
    pub(crate) async fn bind(address: SocketAddr, tls: Option<Tls>, gateway: Gateway) -> Result<Self, Fault> {
        let listener = TcpListener::bind(address)
            .await
            .map_err(|error| Fault::new(exit::STORE, format!("{address} cannot be listened on: {error}")))?;
        Ok(Self { listener, tls: tls.map(|Tls(config)| config.into()), gateway: Arc::new(gateway) })
    }

    /// The address that it really got.
    pub(crate) fn url(&self) -> Result<String, Fault> {
        let address = self.listener.local_addr().map_err(|error| Fault::new(exit::STORE, error))?;
        Ok(format!("{}://{address}", if self.tls.is_some() { "https" } else { "http" }))
    }

    /// Answers until told to stop; then finishes what runs, within `grace`.
    pub(crate) async fn serve(self, stop: impl Future<Output = ()>, grace: Duration) {
        let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        let connections = GracefulShutdown::new();
        let mut protocol = Builder::new(TokioExecutor::new());
        protocol.http1().timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(LARGEST_HEAD);
        protocol
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(MOST_STREAMS)
            .keep_alive_interval(Some(HEAD))
            .max_header_list_size(LARGEST_HEAD as u32);
        let mut stop = std::pin::pin!(stop);
        loop {
            let Ok(place) = Arc::clone(&room).acquire_owned().await else { break };
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = &mut stop => break,
            };
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(OUT_OF_HANDLES).await;
                    continue;
                }
            };
            let peer = Peer { address, secure: self.tls.is_some() };
            let (gateway, tls, protocol) = (Arc::clone(&self.gateway), self.tls.clone(), protocol.clone());
            let watcher = connections.watcher();
            tokio::spawn(async move {
                let _place = place;
                let _ = stream.set_nodelay(true);
                let service = service_fn(move |request: Request<Incoming>| {
                    let gateway = Arc::clone(&gateway);
                    async move { Ok::<_, Infallible>(gateway.answer(request, peer).await) }
                });
                // A client that breaks off is nobody's fault.
                let ended = match tls {
                    None => watcher.watch(protocol.serve_connection(TokioIo::new(stream), service)).await,
                    Some(tls) => match greeted(tls, stream).await {
                        Some(stream) => watcher.watch(protocol.serve_connection(TokioIo::new(stream), service)).await,
                        None => Ok(()),
                    },
                };
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended");
                }
            });
        }
        drop(self.listener);
        // What was sent is seen through to its end, also for clients that are gone. What is not over by then is in doubt,
        // and says so.
        let ledger = self.gateway.ledger.clone();
        let over = async {
            connections.shutdown().await;
            ledger.idle().await;
        };
        if tokio::time::timeout(grace, over).await.is_err() {
            tracing::warn!("stopped although requests were running; their intents are in doubt");
        }
    }
}

async fn greeted(tls: TlsAcceptor, stream: TcpStream) -> Option<tokio_rustls::server::TlsStream<TcpStream>> {
    match tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err(error)) => {
            tracing::debug!(%error, "no TLS came about");
            None
        }
        Err(_) => None,
    }
}
