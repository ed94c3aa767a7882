//! Connections for protocols other than HTTP, to permitted addresses only.

use std::fmt;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::client::TlsStream;

use super::dial::dial;
use super::resolve::Resolve;
use super::rules::AddressRules;
use super::sent::NotSent;
use super::target::Host;
use super::trust::{Tls, Trust};
use crate::exit::Fault;

/// Connects to one host.
#[derive(Clone)]
pub struct Dialer {
    rules: AddressRules,
    resolver: Arc<dyn Resolve>,
    tls: Tls,
    host: Host,
    port: u16,
}

impl fmt::Debug for Dialer {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Dialer({self})")
    }
}

impl fmt::Display for Dialer {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}:{}", self.host, self.port)
    }
}

impl Dialer {
    /// Checks the host, as far as this can be done before its name is resolved. Connects to nothing.
    pub fn new(
        (host, port): (&str, u16),
        rules: AddressRules,
        trust: &Trust,
        resolver: Arc<dyn Resolve>,
    ) -> Result<Self, Fault> {
        let host = Host::parse(host).map_err(Fault::config)?;
        rules.check_host(&host).map_err(Fault::config)?;
        Ok(Self { rules, resolver, tls: Tls::new(trust, &[])?, host, port })
    }

    /// Connects to a permitted address.
    pub async fn connect(&self, deadline: Instant) -> Result<TcpStream, NotSent> {
        dial(&*self.resolver, &self.rules, (&self.host, self.port), &self.to_string(), deadline).await
    }

    /// Performs the TLS handshake. The certificate must be valid for the host.
    pub async fn handshake(&self, stream: TcpStream, deadline: Instant) -> Result<TlsStream<TcpStream>, NotSent> {
        let ended = timeout_at(deadline, self.tls.handshake(&self.host, stream)).await;
        let ended = ended.unwrap_or_else(|_| Err("the TLS handshake timed out".to_owned()));
        ended.map_err(|why| NotSent::Unreachable { to: self.to_string(), why })
    }
}
