//! TLS to sinks: which certificates are trusted, and the handshake.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::target::Host;
use crate::exit::Fault;
use crate::proxy::trust;

/// HTTP/2 in ALPN.
const HTTP_2: &[u8] = b"h2";

/// What a client of HTTP offers in ALPN.
pub(super) const HTTP: [&[u8]; 2] = [HTTP_2, b"http/1.1"];

/// Longer than any error that lists a few names.
const MAX_REASON: usize = 500;

/// The CA certificates that sinks are verified with. Loaded once, and shared by all clients: it holds no secret.
#[derive(Clone, Debug)]
pub struct Trust(Arc<RootCertStore>);

impl Trust {
    /// The certificates of the system, if `system`, and those in a file.
    pub fn load(system: bool, authority: Option<&Path>) -> Result<Self, Fault> {
        trust::roots(system, authority).map(|roots| Self(Arc::new(roots)))
    }
}

/// TLS for one client. Sessions are resumed only within it.
#[derive(Clone)]
pub(super) struct Tls(TlsConnector);

impl Tls {
    /// `protocols` are offered in ALPN.
    pub(super) fn new(trust: &Trust, protocols: &[&[u8]]) -> Result<Self, Fault> {
        let mut config: ClientConfig = trust::client(Arc::clone(&trust.0))?;
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        // Early data can be processed before the handshake ends, and a failed handshake would prove nothing.
        config.enable_early_data = false;
        Ok(Self(Arc::new(config).into()))
    }

    /// Performs the handshake. The certificate must be valid for the host of the URL, whatever address was dialled.
    pub(super) async fn handshake(&self, host: &Host, stream: TcpStream) -> Result<TlsStream<TcpStream>, String> {
        let name = match host {
            Host::Name(name) => ServerName::try_from(name.clone()).map_err(|error| error.to_string())?,
            Host::Address(address) => ServerName::IpAddress((*address).into()),
        };
        // A certificate can have thousands of names, and the error lists them.
        self.0.connect(name, stream).await.map_err(|error| error.to_string().chars().take(MAX_REASON).collect())
    }
}

/// Whether the server chose HTTP/2.
pub(super) fn is_http2(stream: &TlsStream<TcpStream>) -> bool {
    stream.get_ref().1.alpn_protocol() == Some(HTTP_2)
}
