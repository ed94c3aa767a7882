//! Connections that switch to another protocol, such as WebSocket. After the switch, bytes are copied in both directions and
//! not inspected.

use std::sync::Arc;

use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderValue, Response, StatusCode, request};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use onceward::http::stored_response::connection_names;
use onceward::http::{Body, Kind, Problem, body};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of open tunnels: each takes two sockets.
const MAX_TUNNELS: u32 = 10_000;

/// Protocols that are never forwarded: other forms of HTTP, in which keys would not be checked, so that clients could bypass
/// the guard. A server may always ignore an upgrade. The part of the name in front of the slash counts.
const NEVER_FORWARDED: [&str; 4] = ["h2c", "h2", "http", "tls"];

/// All open tunnels.
pub struct Tunnels(Arc<Semaphore>);

/// A client's request to switch the protocol, with a reserved slot for the tunnel.
pub struct UpgradeRequest {
    protocols: HeaderValue,
    client: OnUpgrade,
    permit: OwnedSemaphorePermit,
}

impl Default for Tunnels {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_TUNNELS as usize)))
    }
}

impl Tunnels {
    /// The upgrade that a request asks for, if any.
    pub fn requested(&self, parts: &mut request::Parts) -> Result<Option<UpgradeRequest>, Problem> {
        let Some(protocols) = protocols(&parts.headers) else { return Ok(None) };
        let Some(client) = parts.extensions.remove::<OnUpgrade>() else { return Ok(None) };
        let permit = Arc::clone(&self.0).try_acquire_owned().map_err(|_| Problem::new(Kind::Overloaded))?;
        Ok(Some(UpgradeRequest { protocols, client, permit }))
    }

    /// Waits until no tunnel is open.
    pub async fn closed(&self) {
        let _ = self.0.acquire_many(MAX_TUNNELS).await;
    }
}

impl UpgradeRequest {
    /// Asks the upstream for the same upgrade.
    pub fn add_headers(&self, headers: &mut HeaderMap) {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, self.protocols.clone());
    }

    /// Connects both ends after the response, if the upstream agrees to the upgrade.
    pub fn complete(self, mut response: Response<Incoming>) -> Response<Body> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let upstream = hyper::upgrade::on(&mut response);
            tokio::spawn(self.connect(upstream));
            return response.map(|_| body::full(bytes::Bytes::new()));
        }
        response.map(super::upstream::boxed)
    }

    async fn connect(self, upstream: OnUpgrade) {
        let Self { client, permit, .. } = self;
        let ended = match tokio::try_join!(client, upstream) {
            Ok((client, upstream)) => {
                tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(upstream))
                    .await
                    .map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        // Either end may disconnect at any time.
        if let Err(error) = ended {
            tracing::debug!(error, "a connection with another protocol ended with an error");
        }
        drop(permit);
    }
}

/// The protocols that the client offers and that may be forwarded.
fn protocols(headers: &HeaderMap) -> Option<HeaderValue> {
    if !connection_names(headers).contains(&UPGRADE) {
        return None;
    }
    let values = headers.get_all(UPGRADE).iter().filter_map(|value| value.to_str().ok());
    let names = values.flat_map(|value| value.split(',')).map(str::trim).filter(|name| !name.is_empty());
    let forwarded: Vec<&str> = names
        .filter(|name| {
            let family = name.split('/').next().unwrap_or_default();
            !NEVER_FORWARDED.iter().any(|known| known.eq_ignore_ascii_case(family))
        })
        .collect();
    HeaderValue::try_from(forwarded.join(", ")).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requested_protocols_other_than_http_are_forwarded() {
        for (connection, upgrade, passed) in [
            ("Upgrade", "websocket", Some("websocket")),
            ("keep-alive, upgrade", "WebSocket, other/2", Some("WebSocket, other/2")),
            ("keep-alive", "websocket", None),
            ("upgrade", "", None),
            ("upgrade", "h2c", None),
            ("upgrade", "H2C, HTTP/2.0, TLS/1.0,,", None),
            ("upgrade", "h2c, websocket", Some("websocket")),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONNECTION, connection.parse().unwrap());
            headers.insert(UPGRADE, upgrade.parse().unwrap());
            assert_eq!(protocols(&headers).as_ref().map(|value| value.to_str().unwrap()), passed, "{upgrade}");
        }
    }
}
