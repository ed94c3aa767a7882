//! TLS for listeners.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::server::TlsStream;

use crate::exit::Fault;

/// A client that is slower than this is dropped.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// HTTP/2 in ALPN.
const HTTP_2: &[u8] = b"h2";

/// A TLS acceptor with a certificate chain and its key.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

impl Tls {
    /// Reads a certificate chain and its key, both in PEM form.
    pub fn read(chain: &Path, key: &Path) -> Result<Self, Fault> {
        let wrong = |path: &Path, error: &dyn Display| Fault::config(format!("cannot use {}: {error}", path.display()));
        let certificates = CertificateDer::pem_file_iter(chain)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| wrong(chain, &error))?;
        let private = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(key, &error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(certificates, private));
        let mut config = config.map_err(|error| wrong(chain, &error))?;
        config.alpn_protocols = vec![HTTP_2.to_vec(), b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config).into()))
    }

    /// Without HTTP/2, for a listener that only supports HTTP/1.1.
    pub fn without_http2(self) -> Self {
        let mut config = ServerConfig::clone(self.0.config());
        config.alpn_protocols.retain(|name| name != HTTP_2);
        Self(Arc::new(config).into())
    }

    /// Performs the handshake. `None` if it fails or times out.
    pub async fn accept(self, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
        match tokio::time::timeout(HANDSHAKE_TIMEOUT, self.0.accept(stream)).await {
            Ok(Ok(stream)) => Some(stream),
            Ok(Err(error)) => {
                tracing::debug!(%error, "the TLS handshake failed");
                None
            }
            Err(_) => None,
        }
    }
}
