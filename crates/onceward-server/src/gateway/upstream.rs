//! Taking a request to the other side, and what its failure proves.

use std::time::Duration;

use http::uri::{PathAndQuery, Scheme};
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use onceward::http::{Body, NoAnswer};

use super::{Route, headers};
use crate::exit::Fault;
use crate::listener::Peer;

/// A connection that the other side closes in the moment of sending makes a doubt. Servers close idle ones after 2 seconds
/// or more, so ours are not used for as long.
const IDLE: Duration = Duration::from_millis(1500);

/// A connection that takes longer than this to be made is not made.
const CONNECT: Duration = Duration::from_secs(10);

/// Idle connections for each upstream.
const MOST_IDLE: usize = 512;

/// The pool of connections to all upstreams. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Upstreams {
    client: Client<HttpsConnector<HttpConnector>, Body>,
}

impl Upstreams {
    /// This many pools, each for a thread of its own.
    pub(crate) fn several(count: usize) -> Result<Vec<Self>, Fault> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT));
        let https = HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(rustls::crypto::ring::default_provider())
            .map_err(|error| Fault::config(format!("the system's certificates cannot be read: {error}")))?
            .https_or_http()
            .enable_all_versions()
            .wrap_connector(tcp);
        let pool = || {
            Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(IDLE)
                .pool_max_idle_per_host(MOST_IDLE)
                .build(https.clone())
        };
        Ok((0..count).map(|_| Self { client: pool() }).collect())
    }

    /// Sends a request, and waits for the head of its answer.
    pub(super) async fn send(
        &self,
        route: &Route,
        mut request: Request<Body>,
        peer: Peer,
    ) -> Result<Response<Incoming>, NoAnswer> {
        let host = request.uri().authority().map(|authority| authority.as_str().to_owned());
        *request.uri_mut() = target(&route.upstream, request.uri())
            .ok_or_else(|| NoAnswer::NotSent("the path cannot be joined to the upstream's".to_owned()))?;
        *request.version_mut() = http::Version::HTTP_11;
        headers::outgoing(request.headers_mut(), host.as_deref(), peer);
        let answer = tokio::time::timeout(route.timeouts.answer, self.client.request(request)).await;
        let mut response = answer.map_err(|_| NoAnswer::TimedOut)?.map_err(|error| {
            let what = told(&error);
            // Only a connection that was not made proves that nothing was sent.
            if error.is_connect() { NoAnswer::NotSent(what) } else { NoAnswer::Lost(what) }
        })?;
        headers::strip(response.headers_mut());
        Ok(response)
    }
}

pub(super) fn boxed(body: Incoming) -> Body {
    Body::new(http_body_util::BodyExt::map_err(body, Into::into))
}

/// An error with its causes, which say more than itself.
fn told(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// The request's path and query behind the upstream's own path.
fn target(upstream: &Uri, request: &Uri) -> Option<Uri> {
    let mut parts = upstream.clone().into_parts();
    let path = request.path_and_query().map_or("/", PathAndQuery::as_str);
    let joined = format!("{}{path}", upstream.path().trim_end_matches('/'));
    parts.path_and_query = Some(joined.parse().ok()?);
    Uri::from_parts(parts).ok()
}

/// Reads the address of an upstream.
pub(super) fn address(text: &str) -> Result<Uri, String> {
    let uri: Uri = text.parse().map_err(|error| format!("{text:?} is no URL: {error}"))?;
    let known = matches!(uri.scheme(), Some(scheme) if *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS);
    if !known || uri.authority().is_none() {
        return Err(format!("{text:?} is no URL of the form http://HOST[:PORT][/PATH]"));
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
        for bad in ["", "a:1", "ftp://a", "http://", "http://u:p@a", "http://a/?q=1"] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }
}
