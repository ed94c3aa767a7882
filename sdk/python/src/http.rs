//! Guards the HTTP requests of an ASGI app with the library's own exchange, as a route of the gateway does. The app
//! takes the place of the upstream: Python runs it, and passes the pieces of the request and of the response on.
//!
//! - `call`: a call of the app. `response`: the response for the client.
//! - `pieces`: bodies whose pieces come from Python.

mod call;
mod pieces;
mod response;

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri, request};
use onceward::Ledger;
use onceward::http::rules::Asks;
use onceward::http::{Body, Dialect, Kind, Problem, Received, Rules, body, exchange};
use onceward_runtime::config::{self, Length};
use onceward_runtime::net::listener::Peer;
use onceward_runtime::proxy::{Route, Routes, Tenant};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use serde::Deserialize;
use tokio::sync::mpsc;

use self::pieces::{Piece, Pieces, push};
use crate::error::{self, About};
use crate::ledger::{Handle, NativeLedger};
use crate::runtime::{Completion, TaskHandle, runtime, wait_in_loop};

pub(crate) use self::call::{NativeHttpCall, NativeHttpClaim};
pub(crate) use self::response::NativeHttpResponse;

/// An exchange has two events: it calls the app, and it has a response.
const EVENTS: usize = 2;

/// A route needs an upstream. This one is never connected to, because the app takes its place.
const NO_UPSTREAM: &str = "http://app.invalid";

/// The advice for clients whose credential changes.
const TENANT_HINT: &str = "Name the tenant by what stays the same, with `tenant`.";

/// Why a header that names the tenant needs a list of peers. ASGI has no address of the peer that a client cannot choose.
const TRUST_HINT: &str = "tenant: a header names the tenant only if trusted_peers says from whom it is taken. The address is the \
                          one that the ASGI server reports, which clients can forge where it believes X-Forwarded-For from \
                          any address";

/// Settings that `onceward.toml` does not have.
#[derive(Default, Deserialize)]
#[serde(default)]
struct MoreSettings {
    unread_for: Option<Length>,
}

/// The rules for the requests of an app.
#[pyclass(frozen, module = "onceward")]
pub(crate) struct NativeHttpGuard {
    handle: Arc<Handle>,
    rules: Arc<Rules>,
    routes: Routes,
    /// `None` when a Python function names the tenant.
    tenant: Option<Tenant>,
}

/// What becomes of a request, judged by its head. `None` is for a request that passes through.
#[derive(IntoPyObject)]
enum Judged {
    Guarded(Py<NativeHttpExchange>),
    Refused(Py<NativeHttpResponse>),
}

#[pymethods]
impl NativeHttpGuard {
    /// `route` and `operation` are JSON, with the names of `[[gateway.route]]` and `[operation.NAME]`.
    #[new]
    fn new(
        py: Python<'_>,
        ledger: &Bound<'_, NativeLedger>,
        route: &str,
        operation: &str,
        has_tenant_function: bool,
    ) -> PyResult<Self> {
        let refuse = |why: String| error::invalid(py, &why, &About::default());
        let wrong = |error: serde_json::Error| refuse(error.to_string());
        let written: config::Route = serde_json::from_str(route).map_err(wrong)?;
        let more: MoreSettings = serde_json::from_str(route).map_err(wrong)?;
        let operation: config::Operation = serde_json::from_str(operation).map_err(wrong)?;
        let written = config::Route { upstream: Some(NO_UPSTREAM.to_owned()), ..written };
        let configured = Route::configured(&written, &operation, Path::new(""), None);
        let mut route = configured.map_err(|(field, what)| refuse(format!("{field}: {what}")))?;
        if let Some(Length(unread_for)) = more.unread_for {
            Arc::make_mut(&mut route.rules).unread_for = unread_for;
        }
        if matches!(route.tenant, Tenant::Whoami(_)) {
            return Err(refuse("tenant: whoami:PATH#POINTER is only for the HTTP gateway; use a function".to_owned()));
        }
        if matches!(route.tenant, Tenant::Header(..)) && written.trusted_peers.is_none() {
            return Err(refuse(TRUST_HINT.to_owned()));
        }
        let (rules, tenant) = (Arc::clone(&route.rules), (!has_tenant_function).then(|| route.tenant.clone()));
        Ok(Self { handle: Arc::clone(ledger.get().local(py)?), rules, routes: Routes::new(vec![route]), tenant })
    }

    /// Whether requests with this method are passed through, whatever their headers are.
    fn passes(&self, method: &str) -> bool {
        !self.rules.may_guard(method)
    }

    /// Judges a request by its head. `raw_path` is the path as the client wrote it, and `paths` are the forms in which the app
    /// reads it: with the place where it is mounted, and without it.
    #[allow(clippy::too_many_arguments, reason = "they are the parts of one request")]
    fn judge(
        &self,
        py: Python<'_>,
        method: &str,
        paths: Vec<String>,
        raw_path: &[u8],
        query: &[u8],
        headers: &Bound<'_, PyAny>,
        client: Option<(String, u16)>,
        sends_trailers: bool,
    ) -> PyResult<Option<Judged>> {
        let is_here = |path: &str| self.routes.find(path).is_some();
        if !paths.iter().any(|path| is_here(path)) && !is_here(&String::from_utf8_lossy(raw_path)) {
            return Ok(None);
        }
        let dialect = Dialect::Http(self.rules.profile);
        let refused = |problem: Problem, dialect: Dialect| {
            let response = NativeHttpResponse::new(problem.response(dialect), sends_trailers);
            Py::new(py, response).map(|response| Some(Judged::Refused(response)))
        };
        let Some(parts) = head(method, raw_path, query, headers)? else {
            return refused(Problem::because(Kind::BadRequest, "The head of the request is malformed."), dialect);
        };
        let dialect = Dialect::of(self.rules.profile, &parts.headers);
        let key = match self.rules.asks(&parts) {
            Ok(Asks::Nothing) => return Ok(None),
            Ok(Asks::Guard(key)) => key,
            Err(problem) => return refused(problem, dialect),
        };
        let tenant = match self.tenant.as_ref().map(|tenant| named_tenant(tenant, &parts, client)).transpose() {
            Ok(tenant) => tenant,
            Err(problem) => return refused(problem, dialect),
        };
        let pending = PendingRequest { parts, key, tenant, dialect };
        let exchange = NativeHttpExchange::new(self.handle.ledger(py)?, &self.rules, pending, sends_trailers);
        Ok(Some(Judged::Guarded(Py::new(py, exchange)?)))
    }
}

/// The tenant, as the gateway names it.
fn named_tenant(tenant: &Tenant, parts: &request::Parts, client: Option<(String, u16)>) -> Result<String, Problem> {
    let address = client.and_then(|(host, port)| Some((host.parse::<IpAddr>().ok()?, port).into()));
    // Without an address, the client is not trusted.
    let address = address.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)));
    tenant.of(parts, Peer { address, secure: false }, TENANT_HINT)
}

/// The head of a request; `None` if it is malformed.
fn head(method: &str, path: &[u8], query: &[u8], headers: &Bound<'_, PyAny>) -> PyResult<Option<request::Parts>> {
    let target = if query.is_empty() { path.to_vec() } else { [path, b"?", query].concat() };
    let (Ok(method), Ok(uri)) = (Method::from_bytes(method.as_bytes()), Uri::try_from(target)) else { return Ok(None) };
    let Ok(headers) = header_map(headers)? else { return Ok(None) };
    let (mut parts, ()) = Request::new(()).into_parts();
    (parts.method, parts.uri, parts.headers) = (method, uri, headers);
    Ok(Some(parts))
}

/// Headers as ASGI has them: pairs of bytes. The inner error names the header that is not valid.
pub(crate) fn header_map(pairs: &Bound<'_, PyAny>) -> PyResult<Result<HeaderMap, String>> {
    let mut headers = HeaderMap::new();
    for pair in pairs.try_iter()? {
        let pair = pair?;
        let (name, value): (PyBackedBytes, PyBackedBytes) =
            (pair.get_item(0)?.extract()?, pair.get_item(1)?.extract()?);
        match (HeaderName::from_bytes(&name), HeaderValue::from_bytes(&value)) {
            (Ok(name), Ok(value)) => headers.append(name, value),
            _ => return Ok(Err(format!("the header {:?} is not valid", String::from_utf8_lossy(&name)))),
        };
    }
    Ok(Ok(headers))
}

type HeaderPairs<'py> = Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>;

fn header_pairs<'py>(py: Python<'py>, headers: &HeaderMap) -> HeaderPairs<'py> {
    let pair = |(name, value): (&HeaderName, &HeaderValue)| {
        (PyBytes::new(py, name.as_str().as_bytes()), PyBytes::new(py, value.as_bytes()))
    };
    headers.iter().map(pair).collect()
}

/// A guarded request whose body has not been read.
struct PendingRequest {
    parts: request::Parts,
    key: Option<String>,
    /// `None` when a Python function names it.
    tenant: Option<String>,
    dialect: Dialect,
}

/// What Python has to do next.
enum Event {
    Call(Box<NativeHttpCall>),
    Response(Response<Body>),
}

/// One guarded request from start to end.
#[pyclass(frozen, module = "onceward")]
pub(crate) struct NativeHttpExchange {
    ledger: Ledger,
    rules: Arc<Rules>,
    /// `None` once it has started.
    pending: Mutex<Option<(PendingRequest, Pieces, mpsc::Sender<Event>)>>,
    request_body: pieces::Sender,
    events: Arc<tokio::sync::Mutex<mpsc::Receiver<Event>>>,
    task: OnceLock<TaskHandle>,
    sends_trailers: bool,
}

impl NativeHttpExchange {
    fn new(ledger: Ledger, rules: &Arc<Rules>, pending: PendingRequest, sends_trailers: bool) -> Self {
        let ((request_body, incoming), (sender, events)) = (pieces::channel(), mpsc::channel(EVENTS));
        Self {
            ledger,
            rules: Arc::clone(rules),
            pending: Mutex::new(Some((pending, incoming, sender))),
            request_body,
            events: Arc::new(tokio::sync::Mutex::new(events)),
            task: OnceLock::new(),
            sends_trailers,
        }
    }
}

#[pymethods]
impl NativeHttpExchange {
    /// Starts it. `tenant` is what the Python function named.
    #[pyo3(signature = (tenant = None))]
    fn start(&self, tenant: Option<String>) -> PyResult<()> {
        let pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((mut pending, incoming, events)) = pending else { return Ok(()) };
        pending.tenant = pending.tenant.or(tenant);
        let (ledger, rules) = (self.ledger.clone(), Arc::clone(&self.rules));
        let task = runtime()?.spawn(async move {
            let response = guarded(&ledger, &rules, pending, incoming, events.clone()).await;
            // A client that has gone away takes no response.
            let _ = events.send(Event::Response(response)).await;
        });
        let _ = self.task.set(TaskHandle::of(&task));
        Ok(())
    }

    /// Hands over a piece of the request's body. The result is whether more is wanted.
    fn feed(
        &self,
        py: Python<'_>,
        event_loop: &Bound<'_, PyAny>,
        data: &[u8],
        more: bool,
    ) -> PyResult<(bool, Py<PyAny>)> {
        push(py, event_loop, self.request_body.clone(), Piece::of(data, more))
    }

    /// The next event: a call of the app, or the response, or `None` after `close`.
    fn next(&self, py: Python<'_>, event_loop: &Bound<'_, PyAny>) -> PyResult<(bool, Py<PyAny>)> {
        let (events, sends_trailers) = (Arc::clone(&self.events), self.sends_trailers);
        wait_in_loop(
            py,
            event_loop,
            async move { NextEvent { event: events.lock().await.recv().await, sends_trailers } },
        )
    }

    /// The client has gone away. A call of the app that has begun goes on, and its outcome is recorded.
    fn close(&self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

impl Drop for NativeHttpExchange {
    fn drop(&mut self) {
        self.close();
    }
}

struct NextEvent {
    event: Option<Event>,
    sends_trailers: bool,
}

impl Completion for NextEvent {
    fn deliver(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(match self.event {
            None => py.None(),
            Some(Event::Call(call)) => Py::new(py, *call)?.into_any(),
            Some(Event::Response(response)) => {
                Py::new(py, NativeHttpResponse::new(response, self.sends_trailers))?.into_any()
            }
        })
    }
}

/// Reads the request and guards it, in the order of the Tower layer.
async fn guarded(
    ledger: &Ledger,
    rules: &Arc<Rules>,
    pending: PendingRequest,
    incoming: Pieces,
    events: mpsc::Sender<Event>,
) -> Response<Body> {
    let PendingRequest { parts, key, tenant, dialect } = pending;
    let Some(tenant) = tenant else {
        return Problem::because(Kind::NoCredential, "The request does not say whose it is.").response(dialect);
    };
    let body = match body::read_request(incoming, rules.request_limit, rules.body_timeout).await {
        Ok((body, _)) => body,
        Err(problem) => return problem.response(dialect),
    };
    let original = parts.headers.clone();
    let received = Received { tenant, parts, body };
    exchange(ledger, rules, received, key, move |request, claim| call::call_app(events, original, request, claim)).await
}
