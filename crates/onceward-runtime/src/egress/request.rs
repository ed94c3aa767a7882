//! A request as a caller gives it, and the checks that it must pass before anything is dialled.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Method};
use onceward::http::stored_response::HOP_BY_HOP;

use super::rules::AddressRules;
use super::sent::NotSent;
use super::target::Target;

/// Common servers accept less.
const MAX_HEADER_BYTES: usize = 64 * 1024;

/// What a header needs beside its name and value (RFC 9113, 10.5.1).
const HEADER_OVERHEAD: usize = 32;

/// Headers that this client writes itself. Another host, length or framing would make the server see another request than the
/// one that was checked, and `Expect` another exchange.
const OWN: [HeaderName; 5] = [
    header::HOST,
    header::CONTENT_LENGTH,
    header::EXPECT,
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("http2-settings"),
];

/// An outgoing request.
#[derive(Clone)]
pub struct Request {
    pub method: Method,
    pub url: String,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// A shorter limit than the client's, for example because the entry has a deadline.
    pub timeout: Option<Duration>,
}

/// Without the URL, headers and body, which may contain secrets.
impl fmt::Debug for Request {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Request")
            .field("method", &self.method)
            .field("bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// A request that passed its checks.
pub(super) struct Checked {
    pub(super) method: Method,
    pub(super) target: Target,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Request {
    pub(super) fn check(self, rules: &AddressRules, max_body: usize) -> Result<Checked, NotSent> {
        // Both would make the server do something else than answer the URL.
        if self.method == Method::CONNECT || self.method == Method::TRACE {
            return Err(NotSent::Invalid("the methods CONNECT and TRACE are not supported"));
        }
        if self.body.len() > max_body {
            return Err(NotSent::Invalid("the body is larger than the limit"));
        }
        let size = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len() + HEADER_OVERHEAD;
        if self.headers.iter().map(size).sum::<usize>() > MAX_HEADER_BYTES {
            return Err(NotSent::Invalid("the headers are larger than 64 KiB"));
        }
        if self.headers.keys().any(|name| OWN.contains(name) || HOP_BY_HOP.contains(name)) {
            return Err(NotSent::Invalid(
                "a header belongs to the connection or to the length of the message (Host, Connection, Content-Length, …)",
            ));
        }
        let target = Target::parse(&self.url, rules)?;
        Ok(Checked { method: self.method, headers: with_defaults(self.headers), target, body: self.body })
    }
}

fn with_defaults(mut headers: HeaderMap) -> HeaderMap {
    // Some APIs refuse requests without it.
    let agent = HeaderValue::from_static(concat!("onceward/", env!("CARGO_PKG_VERSION")));
    headers.entry(header::USER_AGENT).or_insert(agent);
    // Bodies are kept and read as they come.
    headers.entry(header::ACCEPT_ENCODING).or_insert(HeaderValue::from_static("identity"));
    headers
}

impl Checked {
    /// The request for HTTP/1.1, in origin form.
    pub(super) fn http1<B>(&self, body: B) -> Result<http::Request<B>, http::Error> {
        let mut request = http::Request::builder()
            .method(self.method.clone())
            .uri(http::Uri::from(self.target.path().clone()))
            .body(body)?;
        *request.headers_mut() = self.headers.clone();
        request.headers_mut().insert(header::HOST, HeaderValue::try_from(self.target.origin.authority())?);
        Ok(request)
    }

    /// The head of the request for HTTP/2.
    pub(super) fn http2(&self) -> Result<http::Request<()>, http::Error> {
        let uri = self.target.origin.uri(self.target.path())?;
        let builder = http::Request::builder().method(self.method.clone()).uri(uri).version(http::Version::HTTP_2);
        let mut request = builder.body(())?;
        *request.headers_mut() = self.headers.clone();
        let has_length = !self.body.is_empty() || matches!(self.method, Method::POST | Method::PUT | Method::PATCH);
        if has_length {
            request.headers_mut().insert(header::CONTENT_LENGTH, self.body.len().into());
        }
        Ok(request)
    }
}
