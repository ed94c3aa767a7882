//! Connections that change their protocol, as websockets do. From then on bytes go both ways as they come, and nobody looks
//! at them.

use std::sync::Arc;

use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderValue, Response, StatusCode, request};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use onceward::http::kept::connection_names;
use onceward::http::{Body, Kind, Problem, body};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many may be open at a time: each takes two sockets.
const MOST: u32 = 10_000;

/// Other forms of HTTP, by the part of their name before the slash. Inside them nobody would look at keys, so they would
/// be a way around the guard. A server may always stay with the protocol that it has.
const NOT_PASSED_ON: [&str; 4] = ["h2c", "h2", "http", "tls"];

/// All that are open.
pub(crate) struct Tunnels(Arc<Semaphore>);

/// A client that asks for another protocol, and a place for it.
pub(crate) struct Asked {
    protocols: HeaderValue,
    client: OnUpgrade,
    place: OwnedSemaphorePermit,
}

impl Tunnels {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(MOST as usize)))
    }

    /// What the head of a request asks for.
    pub(super) fn asked(&self, parts: &mut request::Parts) -> Result<Option<Asked>, Problem> {
        let Some(protocols) = protocols(&parts.headers) else { return Ok(None) };
        let Some(client) = parts.extensions.remove::<OnUpgrade>() else { return Ok(None) };
        let place = Arc::clone(&self.0).try_acquire_owned().map_err(|_| Problem::new(Kind::Overloaded))?;
        Ok(Some(Asked { protocols, client, place }))
    }

    /// Resolves when none is open.
    pub(crate) async fn closed(&self) {
        let _ = self.0.acquire_many(MOST).await;
    }
}

impl Asked {
    /// Asks the other side for the same.
    pub(super) fn pass_on(&self, headers: &mut HeaderMap) {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, self.protocols.clone());
    }

    /// Connects both sides once the client has the answer, if the other side agrees.
    pub(super) fn answered(self, mut response: Response<Incoming>) -> Response<Body> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let upstream = hyper::upgrade::on(&mut response);
            tokio::spawn(self.connect(upstream));
            return response.map(|_| body::full(bytes::Bytes::new()));
        }
        response.map(super::upstream::boxed)
    }

    async fn connect(self, upstream: OnUpgrade) {
        let Self { client, place, .. } = self;
        let ended = match tokio::try_join!(client, upstream) {
            Ok((client, upstream)) => {
                tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(upstream))
                    .await
                    .map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        // Either side may go away at any moment.
        if let Err(error) = ended {
            tracing::debug!(error, "a connection with another protocol broke off");
        }
        drop(place);
    }
}

/// The protocols that a client offers and that may be passed on.
fn protocols(headers: &HeaderMap) -> Option<HeaderValue> {
    if !connection_names(headers).contains(&UPGRADE) {
        return None;
    }
    let values = headers.get_all(UPGRADE).iter().filter_map(|value| value.to_str().ok());
    let names = values.flat_map(|value| value.split(',')).map(str::trim).filter(|name| !name.is_empty());
    let passed: Vec<&str> = names
        .filter(|name| {
            let family = name.split('/').next().unwrap_or_default();
            !NOT_PASSED_ON.iter().any(|known| known.eq_ignore_ascii_case(family))
        })
        .collect();
    HeaderValue::try_from(passed.join(", ")).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_asked_for_and_is_no_http_is_passed_on() {
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
