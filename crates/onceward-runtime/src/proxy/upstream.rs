//! Sends requests to upstreams, over pooled connections.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::uri::{PathAndQuery, Scheme};
use http::{Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{CaptureConnection, HttpConnector, capture_connection};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use onceward::http::truncation::CloseDelimited;
use onceward::http::{Body, NoAnswer};

use super::tenant::is_trusted;
use super::{Route, Routes, UpgradeRequest, failure, headers, trust};
use crate::exit::Fault;
use crate::net::listener::Peer;

/// If the upstream closes a connection while a request is being sent, the outcome is in doubt. Servers close idle
/// connections after 2 seconds or more, so the gateway stops reusing them earlier.
const IDLE_TIMEOUT: Duration = Duration::from_millis(1500);

/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection may be silent before the system probes it.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Idle connections per upstream.
const MAX_IDLE: usize = 512;

/// HTTP/2 without TLS, with prior knowledge.
const H2C: &str = "h2c";

/// The connection pools to all upstreams. Cheap to clone.
#[derive(Clone)]
pub struct Upstreams {
    client: Client<HttpsConnector<HttpConnector>, Body>,
    /// For protocol upgrades, which only HTTP/1.1 has.
    http1: Client<HttpsConnector<HttpConnector>, Body>,
    h2c: Client<HttpConnector, Body>,
}

impl Upstreams {
    /// One pool per worker thread, for these routes. `authority` is a file with additional CA certificates.
    pub fn pools(count: usize, routes: &Routes, authority: Option<&Path>) -> Result<Vec<Self>, Fault> {
        let is_secure = |route: &Arc<Route>| route.upstream.scheme() == Some(&Scheme::HTTPS);
        let tls = trust::config(routes.all().iter().any(is_secure), authority)?;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        tcp.set_keepalive(Some(KEEPALIVE));
        let https = || HttpsConnectorBuilder::new().with_tls_config(tls.clone()).https_or_http();
        let mut pool = Client::builder(TokioExecutor::new());
        pool.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE_TIMEOUT).pool_max_idle_per_host(MAX_IDLE);
        let one = || Self {
            client: pool.build(https().enable_all_versions().wrap_connector(tcp.clone())),
            http1: pool.build(https().enable_http1().wrap_connector(tcp.clone())),
            h2c: pool.clone().http2_only(true).build(tcp.clone()),
        };
        Ok((0..count).map(|_| one()).collect())
    }

    /// Sends a request and waits for the head of the response. Asks for another protocol only if the client did.
    pub async fn send(
        &self,
        route: &Route,
        mut request: Request<Body>,
        peer: Peer,
        upgrade: Option<&UpgradeRequest>,
    ) -> Result<Response<Incoming>, NoAnswer> {
        let host = request.uri().authority().map(|authority| authority.as_str().to_owned());
        *request.uri_mut() = target(&route.upstream, request.uri())
            .ok_or_else(|| NoAnswer::NotSent("the path cannot be appended to the upstream's path".to_owned()))?;
        *request.version_mut() = http::Version::HTTP_11;
        headers::outgoing(request.headers_mut(), host.as_deref(), peer, is_trusted(&route.trusted_peers, peer));
        let mut response = self.exchange(route, request, upgrade).await?;
        let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if switched && upgrade.is_none() {
            return Err(NoAnswer::Lost("it switched the protocol without a request to do so".to_owned()));
        }
        if is_close_delimited(&response) {
            response.extensions_mut().insert(CloseDelimited);
        }
        headers::incoming(response.headers_mut(), switched);
        // The version belongs to the connection with the upstream. A response in HTTP/1.0 would not be chunked, so a truncated one
        // would look complete to the client.
        *response.version_mut() = http::Version::HTTP_11;
        Ok(response)
    }

    /// Sends a request of the gateway itself. Does not follow redirects.
    pub(super) async fn ask(&self, route: &Route, mut request: Request<Body>) -> Result<Response<Incoming>, NoAnswer> {
        *request.uri_mut() = target(&route.upstream, request.uri())
            .ok_or_else(|| NoAnswer::NotSent("the path cannot be appended to the upstream's path".to_owned()))?;
        self.exchange(route, request, None).await
    }

    async fn exchange(
        &self,
        route: &Route,
        mut request: Request<Body>,
        upgrade: Option<&UpgradeRequest>,
    ) -> Result<Response<Incoming>, NoAnswer> {
        let mut connection = capture_connection(&mut request);
        let sent = if let Some(upgrade) = upgrade {
            upgrade.add_headers(request.headers_mut());
            self.http1.request(request)
        } else if is_h2c(&route.upstream) {
            self.h2c.request(request)
        } else {
            self.client.request(request)
        };
        tokio::pin!(sent);
        let answer = tokio::select! {
            biased;
            answer = &mut sent => Ok(answer),
            made = tokio::time::timeout(CONNECT_TIMEOUT, connected(&mut connection)) => match made {
                Ok(()) => tokio::time::timeout(route.timeout, sent).await,
                // Nothing was sent: there is no connection yet.
                Err(_) => return Err(NoAnswer::NotSent("connecting timed out".to_owned())),
            },
        };
        answer.map_err(|_| NoAnswer::TimedOut)?.map_err(|error| {
            tracing::warn!(upstream = %route.upstream, error = failure::with_causes(&error), "an upstream did not answer");
            failure::classify(&error)
        })
    }
}

/// Whether a response ends only with its connection (RFC 9112, 6.3).
fn is_close_delimited(response: &Response<Incoming>) -> bool {
    let headers = response.headers();
    let is_framed = headers.contains_key(CONTENT_LENGTH) || headers.contains_key(TRANSFER_ENCODING);
    let has_body = !matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    response.version() < http::Version::HTTP_2 && !is_framed && has_body && !response.status().is_informational()
}

/// Waits for a connection, new or pooled, including the TLS handshake.
async fn connected(connection: &mut CaptureConnection) {
    if connection.wait_for_connection_metadata().await.is_none() {
        // There will be none, and the response carries the reason.
        std::future::pending().await
    }
}

/// The body of a request that is streamed. Its trailers must not carry a gateway token either.
pub fn streamed(body: Incoming) -> Body {
    let frames = http_body_util::BodyExt::map_frame(body, |mut frame| {
        if let Some(trailers) = frame.trailers_mut() {
            trailers.remove(headers::TOKEN);
        }
        frame
    });
    Body::new(http_body_util::BodyExt::map_err(frames, Into::into))
}

pub fn boxed(body: Incoming) -> Body {
    Body::new(http_body_util::BodyExt::map_err(body, Into::into))
}

/// The request's path and query, appended to the upstream's path.
fn target(upstream: &Uri, request: &Uri) -> Option<Uri> {
    let mut parts = upstream.clone().into_parts();
    let path = request.path_and_query().map_or("/", PathAndQuery::as_str);
    let joined = format!("{}{path}", upstream.path().trim_end_matches('/'));
    if is_h2c(upstream) {
        parts.scheme = Some(Scheme::HTTP);
    }
    parts.path_and_query = Some(joined.parse().ok()?);
    Uri::from_parts(parts).ok()
}

/// Whether the upstream uses HTTP/2 without TLS.
pub fn is_h2c(upstream: &Uri) -> bool {
    upstream.scheme_str() == Some(H2C)
}

/// Parses the URL of an upstream.
pub fn address(text: &str) -> Result<Uri, String> {
    // A URL that is refused may still contain a password.
    let shown = if text.contains('@') { onceward::shown_store(text) } else { text.to_owned() };
    let uri: Uri = text.parse().map_err(|error| format!("invalid URL {shown:?}: {error}"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https" | H2C)) || uri.authority().is_none() {
        return Err(format!(
            "invalid URL {shown:?}; write http://HOST[:PORT][/PATH], or https:// for TLS, or h2c:// for HTTP/2 without TLS"
        ));
    }
    if uri.query().is_some() || uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err("the URL of an upstream must not contain a query or a password".to_owned());
    }
    Ok(uri)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_that_is_refused_does_not_show_its_password() {
        for text in
            ["htp://user:hunter2@host", "http://user:hunter2@host", "http://user:hunter2@ho st", "user:hunter2@host"]
        {
            let error = address(text).unwrap_err();
            assert!(!error.contains("hunter2"), "{error}");
        }
        assert!(address("htp://host").unwrap_err().contains("htp://host"));
    }

    #[test]
    fn paths_are_joined() {
        let join = |upstream: &str, request: &str| {
            target(&address(upstream).unwrap(), &request.parse().unwrap()).unwrap().to_string()
        };
        assert_eq!(join("http://a:1", "/v1/x?y=1"), "http://a:1/v1/x?y=1");
        assert_eq!(join("http://a/base/", "/v1/x"), "http://a/base/v1/x");
        assert_eq!(join("http://a", "http://other/v1/x"), "http://a/v1/x");
        assert_eq!(join("h2c://a:1", "/pay.Charges/Charge"), "http://a:1/pay.Charges/Charge");
        for bad in ["", "a:1", "ftp://a", "h2://a", "h2c://", "http://", "http://u:p@a", "http://a/?q=1"] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }
}
