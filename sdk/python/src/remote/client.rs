//! Sends one request to the server and says what its answer means. Follows no redirect, and limits everything:
//! connecting, the time until the whole answer is there, and its size.

use std::error::Error as _;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use super::address::Address;
use super::background::Background;
use super::failure::{Refusal, RefusalKind, Trouble};
use super::messages::ProblemDocument;
use super::trust::Authorities;

/// How long connecting to one address may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long an answer may take, besides the wait that the request asks for.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The server closes idle connections after 30 seconds; this client does so earlier.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);

/// Idle connections that are kept.
const MAX_IDLE: usize = 32;

/// An outcome has at most 8 MiB, and JSON writes a byte with at most 6 characters.
const MAX_RESPONSE_BYTES: usize = 64 * 1024 * 1024;

/// The server accepts bodies up to this size.
pub(super) const MAX_REQUEST_BYTES: usize = 1024 * 1024;

/// A lost answer is asked for again this often at the most, by a caller that waits for it.
pub(super) const MAX_TRIES: u32 = 6;

/// The pause after the first failure. Each further one is twice as long, so that a server has 1.5 seconds for a
/// restart.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// The longest pause between two tries in the background.
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// A request of the API.
#[derive(Clone, Debug)]
pub(super) struct ApiRequest {
    method: Method,
    path: String,
    body: Bytes,
}

impl ApiRequest {
    pub(super) fn get(path: String) -> Self {
        Self { method: Method::GET, path, body: Bytes::new() }
    }

    /// A request with a JSON body. Writing it cannot fail: all names are strings.
    pub(super) fn post(path: &str, body: &impl Serialize) -> Self {
        let body = serde_json::to_vec(body).unwrap_or_default();
        Self { method: Method::POST, path: path.to_owned(), body: body.into() }
    }

    /// Whether the server would refuse it for its size.
    pub(super) fn is_too_large(&self) -> bool {
        self.body.len() > MAX_REQUEST_BYTES
    }
}

/// The pauses between tries: each twice as long as the one before.
pub(super) struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Self {
        Self(FIRST_PAUSE)
    }
}

impl Pauses {
    pub(super) async fn next(&mut self) {
        sleep(self.0).await;
        self.0 = (self.0 * 2).min(MAX_PAUSE);
    }
}

/// The connections of one process to one server.
pub(crate) struct Client {
    http: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    address: Address,
    pub(super) background: Background,
}

impl Client {
    pub(super) fn new(address: &Address, authorities: &Authorities, runtime: &Handle) -> Result<Self, String> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let https = HttpsConnectorBuilder::new().with_tls_config(authorities.config()?);
        // Never the other scheme than the one of the URL: without TLS, the token could be read on the way.
        let connector = match address.is_secure() {
            true => https.https_only().enable_http1().wrap_connector(tcp),
            false => https.https_or_http().enable_http1().wrap_connector(tcp),
        };
        let mut pool = legacy::Client::builder(TokioExecutor::new());
        pool.pool_timer(TokioTimer::new()).pool_idle_timeout(IDLE_TIMEOUT).pool_max_idle_per_host(MAX_IDLE);
        let http = pool.build(connector);
        Ok(Self { http, address: address.copy(), background: Background::new(runtime) })
    }

    pub(crate) async fn writes_done(&self) {
        self.background.idle().await;
    }

    /// Sends a request once.
    pub(super) async fn ask<T: DeserializeOwned>(&self, request: &ApiRequest, limit: Duration) -> Result<T, Trouble> {
        let (status, body) = timeout(limit, self.exchange(request))
            .await
            .unwrap_or_else(|_| Err(self.temporary("it did not answer in time", true)))?;
        if status != StatusCode::OK {
            return Err(self.problem(status, &body));
        }
        serde_json::from_slice(&body).map_err(|_| {
            let text = format!("{} does not answer as the API of onceward does", self.address.url());
            Trouble::Refused(Refusal { kind: RefusalKind::Unusable, text })
        })
    }

    /// Sends a request until there is an answer, a few times.
    pub(super) async fn ask_again<T: DeserializeOwned>(&self, request: &ApiRequest) -> Result<T, Trouble> {
        let (mut pauses, mut tries) = (Pauses::default(), 1);
        loop {
            match self.ask(request, ANSWER_TIMEOUT).await {
                Err(Trouble::Temporary { .. }) if tries < MAX_TRIES => {}
                ended => return ended,
            }
            tries += 1;
            pauses.next().await;
        }
    }

    /// Sends a request until there is an answer, or the time is over.
    pub(super) async fn insist<T: DeserializeOwned>(&self, request: &ApiRequest, until: Instant) -> Result<T, Trouble> {
        let mut pauses = Pauses::default();
        loop {
            match self.ask(request, ANSWER_TIMEOUT).await {
                Err(Trouble::Temporary { .. }) if Instant::now() < until => pauses.next().await,
                ended => return ended,
            }
        }
    }

    async fn exchange(&self, request: &ApiRequest) -> Result<(StatusCode, Bytes), Trouble> {
        let sent = self.http.request(self.message(request)?).await;
        let response = sent.map_err(|error| {
            if let Some(tls) = tls_error(&error) {
                // Asking again does not change a certificate.
                let text = format!("{}: TLS failed: {tls}", self.address.url());
                return Trouble::Refused(Refusal { kind: RefusalKind::Unusable, text });
            }
            let text = if error.is_connect() { "cannot connect" } else { "the connection was lost" };
            self.temporary(&format!("{text}{}", cause(&error)), !error.is_connect())
        })?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await;
        let body = body.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
            Some(_) => {
                let text = format!("the answer of {} has more than {MAX_RESPONSE_BYTES} bytes", self.address.url());
                Trouble::Refused(Refusal { kind: RefusalKind::Unusable, text })
            }
            None => self.temporary(&format!("the answer was cut off: {error}"), true),
        })?;
        Ok((status, body.to_bytes()))
    }

    fn message(&self, request: &ApiRequest) -> Result<Request<Full<Bytes>>, Trouble> {
        let unusable =
            || Trouble::Refused(Refusal { kind: RefusalKind::Invalid, text: "it has no valid URL".to_owned() });
        let uri = self.address.join(&request.path).ok_or_else(unusable)?;
        let mut message = Request::new(Full::new(request.body.clone()));
        *message.method_mut() = request.method.clone();
        *message.uri_mut() = uri;
        let headers = message.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if request.method == Method::POST {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(authorization) = self.address.authorization() {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        Ok(message)
    }

    fn temporary(&self, what: &str, may_have_acted: bool) -> Trouble {
        let text = format!("{}: {}", self.address.url(), self.address.shown(what));
        Trouble::Temporary { text, may_have_acted }
    }

    /// What a status other than 200 means.
    fn problem(&self, status: StatusCode, body: &[u8]) -> Trouble {
        let document: ProblemDocument = serde_json::from_slice(body).unwrap_or_default();
        let title =
            if document.title.is_empty() { status.canonical_reason().unwrap_or_default() } else { &document.title };
        let detail = document.detail.as_deref().map(|detail| format!(": {detail}")).unwrap_or_default();
        let shown = self.address.shown(&format!("{} {title}{detail}", status.as_u16()));
        let url = self.address.url();
        let refused = |kind, text: String| Trouble::Refused(Refusal { kind, text });
        match status.as_u16() {
            401 if self.address.authorization().is_none() => refused(
                RefusalKind::NotAllowed,
                format!("{url} needs a token ({shown}): give token=, or set ONCEWARD_TOKEN"),
            ),
            401 | 403 => refused(RefusalKind::NotAllowed, format!("{url} refuses the token ({shown})")),
            421 => refused(RefusalKind::NotAllowed, format!("{url} does not accept this host name ({shown})")),
            404 if document.kind.ends_with("/no-intent") => refused(RefusalKind::NoIntent, shown),
            400 | 413 | 415 | 422 => refused(RefusalKind::Invalid, format!("{url} refuses the request ({shown})")),
            429 if document.kind.ends_with("/quota") => refused(RefusalKind::Quota, shown),
            300..=399 => refused(
                RefusalKind::Unusable,
                format!("{url} redirects to another address ({}), which is not followed", status.as_u16()),
            ),
            // Nothing was granted: the server says so.
            503 if !document.kind.is_empty() => self.temporary(&shown, false),
            408 | 429 | 500 | 502 | 503 | 504 => self.temporary(&shown, true),
            _ => refused(RefusalKind::Unusable, format!("{url} does not answer as the API of onceward does ({shown})")),
        }
    }
}

/// Why TLS could not be set up: usually the certificate.
fn tls_error(error: &legacy::Error) -> Option<&rustls::Error> {
    let mut cause = error.source().filter(|_| error.is_connect())?;
    loop {
        if let Some(tls) = cause.downcast_ref::<rustls::Error>() {
            return Some(tls);
        }
        // The source of an error of the system leaves out the error that it holds.
        cause = match cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
            Some(held) => held,
            None => cause.source()?,
        };
    }
}

/// The innermost cause says most.
fn cause(error: &legacy::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    causes.last().map(|cause| format!(": {cause}")).unwrap_or_default()
}
