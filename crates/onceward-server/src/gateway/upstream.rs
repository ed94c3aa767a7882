//! Taking a request to the other side.

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
use onceward::http::cut_off::CloseDelimited;
use onceward::http::{Body, NoAnswer};

use super::tenant::is_trusted;
use super::{Route, Routes, failure, headers, trust, tunnel};
use crate::exit::Fault;
use crate::listener::Peer;

/// A connection that the other side closes in the moment of sending makes a doubt. Servers close idle ones after 2 seconds
/// or more, so ours are not used for as long.
const IDLE: Duration = Duration::from_millis(1500);

/// A connection that takes longer than this to be made is not made.
const CONNECT: Duration = Duration::from_secs(10);

/// How long a connection may be silent before the system asks whether the other side is still there.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Idle connections for each upstream.
const MOST_IDLE: usize = 512;

/// HTTP/2 without TLS, because both sides know that it is spoken.
const H2C: &str = "h2c";

/// The pools of connections to all upstreams. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Upstreams {
    client: Client<HttpsConnector<HttpConnector>, Body>,
    /// For what only HTTP/1.1 can do: become another protocol.
    http1: Client<HttpsConnector<HttpConnector>, Body>,
    h2c: Client<HttpConnector, Body>,
}

impl Upstreams {
    /// Pools for these routes, as many as there are threads. `authority` is a file with certificates that are believed
    /// besides those of the system.
    pub(crate) fn several(count: usize, routes: &Routes, authority: Option<&Path>) -> Result<Vec<Self>, Fault> {
        let is_secure = |route: &Arc<Route>| route.upstream.scheme() == Some(&Scheme::HTTPS);
        let tls = trust::config(routes.all().iter().any(is_secure), authority)?;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT));
        tcp.set_keepalive(Some(KEEPALIVE));
        let https = || HttpsConnectorBuilder::new().with_tls_config(tls.clone()).https_or_http();
        let mut pool = Client::builder(TokioExecutor::new());
        pool.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE).pool_max_idle_per_host(MOST_IDLE);
        let one = || Self {
            client: pool.build(https().enable_all_versions().wrap_connector(tcp.clone())),
            http1: pool.build(https().enable_http1().wrap_connector(tcp.clone())),
            h2c: pool.clone().http2_only(true).build(tcp.clone()),
        };
        Ok((0..count).map(|_| one()).collect())
    }

    /// Sends a request, and waits for the head of its answer. Another protocol is asked for only where a client does.
    pub(crate) async fn send(
        &self,
        route: &Route,
        mut request: Request<Body>,
        peer: Peer,
        asked: Option<&tunnel::Asked>,
    ) -> Result<Response<Incoming>, NoAnswer> {
        let host = request.uri().authority().map(|authority| authority.as_str().to_owned());
        *request.uri_mut() = target(&route.upstream, request.uri())
            .ok_or_else(|| NoAnswer::NotSent("the path cannot be joined to the upstream's".to_owned()))?;
        *request.version_mut() = http::Version::HTTP_11;
        headers::outgoing(request.headers_mut(), host.as_deref(), peer, is_trusted(&route.trusted_peers, peer));
        let mut response = self.exchange(route, request, asked).await?;
        let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if switched && asked.is_none() {
            return Err(NoAnswer::Lost("it changed the protocol without being asked".to_owned()));
        }
        if is_close_delimited(&response) {
            response.extensions_mut().insert(CloseDelimited);
        }
        headers::incoming(response.headers_mut(), switched);
        // The version belongs to the connection with the upstream. An answer in HTTP/1.0 would have no chunks, and one that
        // breaks off would look whole to its client.
        *response.version_mut() = http::Version::HTTP_11;
        Ok(response)
    }

    /// Sends a request of the gateway itself as it is, to a path of the upstream. Redirects are not followed.
    pub(super) async fn ask(&self, route: &Route, mut request: Request<Body>) -> Result<Response<Incoming>, NoAnswer> {
        *request.uri_mut() = target(&route.upstream, request.uri())
            .ok_or_else(|| NoAnswer::NotSent("the path cannot be joined to the upstream's".to_owned()))?;
        self.exchange(route, request, None).await
    }

    async fn exchange(
        &self,
        route: &Route,
        mut request: Request<Body>,
        asked: Option<&tunnel::Asked>,
    ) -> Result<Response<Incoming>, NoAnswer> {
        let mut connection = capture_connection(&mut request);
        let sent = if let Some(asked) = asked {
            asked.pass_on(request.headers_mut());
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
            made = tokio::time::timeout(CONNECT, connected(&mut connection)) => match made {
                Ok(()) => tokio::time::timeout(route.timeout, sent).await,
                // Nothing was sent: there is nothing yet on which it could have been.
                Err(_) => return Err(NoAnswer::NotSent("no connection came about in time".to_owned())),
            },
        };
        answer.map_err(|_| NoAnswer::TimedOut)?.map_err(|error| {
            tracing::warn!(upstream = %route.upstream, error = failure::told(&error), "an upstream did not answer");
            failure::proves(&error)
        })
    }
}

/// Whether an answer ends only when its connection does (RFC 9112, 6.3).
fn is_close_delimited(response: &Response<Incoming>) -> bool {
    let headers = response.headers();
    let is_framed = headers.contains_key(CONTENT_LENGTH) || headers.contains_key(TRANSFER_ENCODING);
    let has_body = !matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    response.version() < http::Version::HTTP_2 && !is_framed && has_body && !response.status().is_informational()
}

/// Waits until there is a connection, new or used before: made, and greeted if there is TLS.
async fn connected(connection: &mut CaptureConnection) {
    if connection.wait_for_connection_metadata().await.is_none() {
        // There will be none, and why comes as the answer.
        std::future::pending().await
    }
}

/// The body of a request that is streamed through. Its trailers must not carry a token of the gateway either.
pub(crate) fn streamed(body: Incoming) -> Body {
    let frames = http_body_util::BodyExt::map_frame(body, |mut frame| {
        if let Some(trailers) = frame.trailers_mut() {
            trailers.remove(headers::TOKEN);
        }
        frame
    });
    Body::new(http_body_util::BodyExt::map_err(frames, Into::into))
}

pub(crate) fn boxed(body: Incoming) -> Body {
    Body::new(http_body_util::BodyExt::map_err(body, Into::into))
}

/// The request's path and query behind the upstream's own path.
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

/// Whether HTTP/2 is spoken without TLS.
pub(super) fn is_h2c(upstream: &Uri) -> bool {
    upstream.scheme_str() == Some(H2C)
}

/// Reads the address of an upstream.
pub(crate) fn address(text: &str) -> Result<Uri, String> {
    let uri: Uri = text.parse().map_err(|error| format!("{text:?} is no URL: {error}"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https" | H2C)) || uri.authority().is_none() {
        return Err(format!(
            "{text:?} is no URL of the form http://HOST[:PORT][/PATH], with https:// for TLS and h2c:// for HTTP/2 without"
        ));
    }
    if uri.query().is_some() || uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err("the URL of an upstream has neither a query nor a password".to_owned());
    }
    Ok(uri)
}

#[cfg(test)]
mod tests {
    use super::*;

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
