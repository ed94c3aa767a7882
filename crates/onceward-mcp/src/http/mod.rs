//! A gateway in front of an MCP server that speaks streamable HTTP.
//!
//! - `identity`: which headers tell callers apart; `header_names`: what the name of a header means; `address`: what the URL says.
//!   `caller_gates`: one gate per caller. `sessions`, `session_requests`: what is known of a client by its session.
//! - `http_call`: one guarded call. `message_headers`: headers that repeat parts of a message. `sse`, `event_source`: server-sent events. `listing`:
//!   the response to `tools/list`. `server_events`: messages on streams that pass through.
//! - `stream_readers`: which clients resume a stream. `reconnect_budget`: how long a broken stream is resumed.
//!   `tracked_body`: responses to finish before the process ends. `response_watch`: whether a response was written. `origin_check`: host and origin
//!   checks on loopback. `content_type`: what headers say about a body. `local_response`: responses that the gateway makes.

mod address;
mod caller_gates;
mod content_type;
mod event_source;
mod header_names;
mod http_call;
mod identity;
mod listing;
mod local_response;
mod message_headers;
mod origin_check;
mod reconnect_budget;
mod response_watch;
mod server_events;
mod session_requests;
mod sessions;
mod sse;
mod stream_readers;
mod tracked_body;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, HeaderMap, LOCATION};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, request};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use onceward::core::name::Tenant;
use onceward::http::body::{self, full};
use onceward::http::body_memory::BodyMemory;
use onceward::http::exchange::without_answer;
use onceward::http::tenant::TenantNames;
use onceward::http::{Body, Kind, Problem, Profile, Rules, key};
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::call::CallSource;
use super::gate::{self, Gate, Handling};
use super::in_progress::InProgress;
use super::members::Members;
use super::message::{CALL, INVALID_REQUEST, Id, Message, PARSE_ERROR, RequestId};
use super::pending::{Cancellation, PendingRequests};
use caller_gates::CallerGates;
use content_type::{is_form, is_plain};
use http_call::{HttpCall, KEY, LAST_EVENT};
pub(super) use identity::Identity;
use local_response::{empty, refused};
use onceward_runtime::exit::{Fault, STORE};
use onceward_runtime::net::listener::{BoundListener, HttpVersions, Peer};
use onceward_runtime::net::stop::Signals;
use onceward_runtime::net::thread_per_core::WorkerThreads;
use onceward_runtime::output;
use onceward_runtime::proxy::{self, Route, Routes, Upstreams, headers};
use sessions::Sessions;
use stream_readers::StreamReaders;

/// The largest message of a client.
const REQUEST_LIMIT: usize = 64 * 1024 * 1024;

/// The largest response that is not a stream.
const RESPONSE_LIMIT: usize = 256 * 1024 * 1024;

/// Responses that the gateway reads must not be compressed.
const IDENTITY_ENCODING: HeaderValue = HeaderValue::from_static("identity");

/// The largest message that counts as small, and the memory limit for all small ones together: a few thousand typical messages.
/// Small messages have a limit of their own, so that a few large and slow ones cannot block all others.
const SMALL: usize = 1024 * 1024;
const SMALL_ROOM: usize = 32 * 1024 * 1024;

/// The memory limit for all other messages together: one of the largest size. While a call runs, it takes several times the size
/// of its message.
const ROOM: usize = REQUEST_LIMIT;

/// The largest form from an unknown caller: a login sends one.
const FORM_LIMIT: usize = 64 * 1024;

/// The limit for reading a client's message.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// The limit until a server starts its response: a tool may run as long.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// A client that reads nothing of its response for this long is disconnected.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// The limit for running calls after the signal to stop.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(30);

/// The limit for writing the last responses after that.
const DRAIN_LIMIT: Duration = Duration::from_millis(500);

/// What an operator can use where a credential cannot name a tenant.
const OTHER_SOURCES: &str = "Start the gateway with --tenant header:NAME or fixed:NAME, or on a loopback address without \
                             --tenant: then each token is a caller of its own.";

/// A request whose response is a stream of notifications that never ends.
const LISTEN: &str = "subscriptions/listen";

/// The path of the readiness check.
const READY: &str = "/.well-known/onceward/ready";

/// An MCP server and the gateway in front of it.
pub(super) struct Server {
    gates: CallerGates,
    upstreams: Upstreams,
    route: Route,
    /// The path of the server's endpoint.
    path: String,
    /// The gateway listens on loopback only.
    is_local: bool,
    identity: Identity,
    /// Memory for messages that are being read or running: small ones, and all others.
    rooms: [BodyMemory; 2],
    pending: PendingRequests,
    readers: StreamReaders,
    sessions: Sessions,
    in_progress: InProgress,
    next_name: AtomicU64,
    prefix: String,
}

/// The settings of a gateway in front of a remote server.
pub struct Remote {
    pub upstream: String,
    pub listen: SocketAddr,
    /// How the tenant of a request is found; `None`: all requests belong to one tenant.
    pub tenant: Option<proxy::Tenant>,
    /// How tenant names are made from credentials.
    pub names: TenantNames,
    /// Additional CA certificates for https upstreams.
    pub upstream_ca: Option<std::path::PathBuf>,
}

/// Serves until a signal.
pub(super) async fn run(gate: Arc<Gate>, remote: Remote, identity: Identity, prefix: String) -> Result<u8, Fault> {
    let upstream = proxy::address(&remote.upstream).map_err(|what| Fault::usage(format!("--upstream: {what}")))?;
    let is_local = remote.listen.ip().to_canonical().is_loopback();
    let tenant = match remote.tenant {
        Some(tenant) => tenant,
        None if is_local => proxy::Tenant::Fixed(Tenant::default().to_string()),
        None => {
            return Err(Fault::usage(
                "--listen is not a loopback address, so name the tenant of each call: --tenant authorization, header:NAME or \
                 fixed:NAME. A caller can get stored results of every other caller of the same tenant",
            ));
        }
    };
    let cannot_start = |error: std::io::Error| Fault::new(STORE, format!("cannot start: {error}"));
    let (mut signals, stop) = Signals::catch().map_err(cannot_start)?;
    let path = upstream.path().to_owned();
    let route = Route {
        pattern: "/*".to_owned(),
        upstream: root(&upstream).ok_or_else(|| Fault::usage("--upstream: this URL has no host"))?,
        rules: Arc::new(Rules::default()),
        store: None,
        tenant,
        trusted_peers: Vec::new(),
        timeout: RESPONSE_TIMEOUT,
        encoded_slashes: false,
        honours_key: false,
    };
    let routes = Routes::new(vec![route.clone()]);
    let upstreams = Upstreams::pools(1, &routes, remote.upstream_ca.as_deref())?.remove(0);
    let (pending, readers) = (PendingRequests::default(), StreamReaders::default());
    let sessions = Sessions::new(gate.settings.patience);
    let (in_progress, next_name) = (InProgress::default(), AtomicU64::new(0));
    let bound = BoundListener::bind(remote.listen, None).await;
    let bound = bound.map_err(|error| Fault::new(STORE, format!("cannot listen on {}: {error}", remote.listen)))?;
    output::out(&format!("onceward mcp listens on {}{path}", bound.url()));
    let (gates, rooms) = (CallerGates::of(gate), [BodyMemory::new(SMALL_ROOM), BodyMemory::new(ROOM)]);
    let server = Arc::new(Server {
        gates,
        upstreams,
        route,
        path,
        is_local,
        identity,
        rooms,
        pending,
        readers,
        sessions,
        in_progress,
        next_name,
        prefix,
    });
    let serving = Arc::clone(&server);
    let service = move |peer, _| {
        let server = Arc::clone(&serving);
        service_fn(move |request| {
            let server = Arc::clone(&server);
            async move { Ok::<_, Infallible>(server.answer(request, peer).await) }
        })
    };
    let listening = bound.serve(HttpVersions::Http2, Arc::new(WorkerThreads::current()), service, stop);
    tokio::pin!(listening);
    let is_closed = tokio::select! {
        () = signals.next() => false,
        () = &mut listening => true,
    };
    let calls = async {
        server.in_progress.none().await;
        if let Ok(ledger) = server.gates.lazy_ledger().ledger().await {
            ledger.idle().await;
        }
    };
    let closed = async {
        if !is_closed {
            listening.await;
        }
    };
    let over = async {
        tokio::pin!(calls, closed);
        tokio::select! {
            biased;
            // Streams that only wait for notifications would never end.
            () = &mut calls => drop(tokio::time::timeout(DRAIN_LIMIT, closed).await),
            () = &mut closed => calls.await,
        }
    };
    tokio::select! {
        () = over => {}
        () = signals.next() => {}
        () = tokio::time::sleep(SHUTDOWN_LIMIT) => tracing::warn!("stopped while calls were running; they are in doubt"),
    }
    server.gates.lazy_ledger().close().await;
    Ok(0)
}

/// The scheme and the host of a URL, without its path.
fn root(upstream: &Uri) -> Option<Uri> {
    let (scheme, authority) = (upstream.scheme()?, upstream.authority()?);
    format!("{scheme}://{authority}").parse().ok()
}

impl Server {
    async fn answer(self: Arc<Self>, request: Request<Incoming>, peer: Peer) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        if let Some(wrong) = headers::ambiguity(&parts) {
            return Problem::because(Kind::BadRequest, wrong).response(Profile::default());
        }
        if self.is_local
            && let Some(why) = origin_check::refusal(&parts)
        {
            return refused(StatusCode::FORBIDDEN, None, INVALID_REQUEST, why);
        }
        if parts.uri.path() == READY {
            return self.ready().await;
        }
        if let Some(why) = self.identity.refusal(&parts.headers) {
            return refused(StatusCode::BAD_REQUEST, None, INVALID_REQUEST, &why);
        }
        parts.uri = address::at_endpoint(parts.uri, &self.path);
        if parts.method != Method::POST {
            self.without_message(&parts, peer).await;
            let client = self.client(&parts, peer).unwrap_or_default();
            let reads_on = parts.headers.contains_key(LAST_EVENT).then(|| self.readers.enter(&client));
            let request = Request::from_parts(parts, proxy::streamed(body));
            return match self.upstreams.send(&self.route, request, peer, None).await {
                Ok(mut response) => {
                    self.relocate(response.headers_mut());
                    self.read_along(response, client, reads_on)
                }
                Err(missing) => without_answer(&missing, Profile::default()),
            };
        }
        // A form is never a message, whichever path it is sent to; anything else may be one.
        let is_form = is_form(&parts.headers);
        if !is_form && (parts.headers.contains_key(CONTENT_ENCODING) || !is_plain(&parts.headers)) {
            let why = "messages must be uncompressed UTF-8";
            return refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, None, INVALID_REQUEST, why);
        }
        // The tenant is found before the message takes memory. A login may come from a caller that is still unknown.
        let limit = match self.tenant(&parts, peer) {
            Ok(_) => REQUEST_LIMIT,
            Err(_) if is_form => FORM_LIMIT,
            Err(problem) => return problem.response(Profile::default()),
        };
        let is_small = body.size_hint().upper().is_some_and(|bytes| bytes <= SMALL as u64);
        // The message holds its share of this memory until its call has a response.
        let room = &self.rooms[usize::from(!is_small)];
        let body = match body::read_request_within(room, body, limit, BODY_TIMEOUT).await {
            Ok((body, _)) => body,
            Err(problem) => return problem.response(Profile::default()),
        };
        self.posted(parts, body, peer, is_form).await
    }

    /// Handles a message. Anything that a server may read as a message counts as one, whichever path it is sent to.
    async fn posted(self: Arc<Self>, parts: request::Parts, body: Bytes, peer: Peer, is_form: bool) -> Response<Body> {
        let message = Message::read(&body);
        let is_news = matches!(&message, Message::Request { method, .. } if method == LISTEN);
        let in_progress = (!is_news).then(|| self.in_progress.enter());
        let response = self.handle(message, parts, body, peer, is_form).await;
        match in_progress {
            Some(in_progress) => response.map(|body| tracked_body::until_read(in_progress, body)),
            None => response,
        }
    }

    async fn handle(
        self: Arc<Self>,
        message: Message,
        parts: request::Parts,
        body: Bytes,
        peer: Peer,
        is_form: bool,
    ) -> Response<Body> {
        match message {
            Message::Request { id, written, method, members }
                if method == CALL && self.gate(&parts, peer).handling(&members) == Handling::Guard =>
            {
                self.guard(parts, peer, id, written, members, body).await
            }
            Message::Request { id, method, .. } if method == "tools/list" => self.list(parts, peer, id, body).await,
            Message::Request { method, members, .. } if method == "initialize" => {
                let tenant = self.tenant(&parts, peer).ok();
                let response = self.pass(parts, body, peer).await;
                self.introduced(response.headers(), &members, tenant);
                response
            }
            Message::Notification { method, members } if method == "notifications/cancelled" => {
                self.cancelled(&parts, peer, &members);
                let client = self.client(&parts, peer).unwrap_or_default();
                if self.pending.cancel(members.object("params").as_ref(), &client) == Cancellation::Keep {
                    return empty(StatusCode::ACCEPTED);
                }
                self.pass(parts, body, peer).await
            }
            Message::Batch { calls: true, ids } => {
                let why = "tool calls in a batch are not supported; send them one by one";
                refused(StatusCode::BAD_REQUEST, ids.first().map(|id| &**id), INVALID_REQUEST, why)
            }
            Message::Ambiguous { id, why } => {
                let id = id.filter(|id| Id::read(id).is_some());
                refused(StatusCode::BAD_REQUEST, id.as_deref(), INVALID_REQUEST, why)
            }
            Message::NotJson if !is_form => refused(
                StatusCode::BAD_REQUEST,
                None,
                PARSE_ERROR,
                "the message is not valid JSON and was not forwarded",
            ),
            _ => self.pass(parts, body, peer).await,
        }
    }

    async fn pass(self: &Arc<Self>, parts: request::Parts, body: Bytes, peer: Peer) -> Response<Body> {
        let client = self.client(&parts, peer).unwrap_or_default();
        match self.upstreams.send(&self.route, Request::from_parts(parts, full(body)), peer, None).await {
            Ok(mut response) => {
                self.relocate(response.headers_mut());
                self.read_along(response, client, None)
            }
            Err(missing) => without_answer(&missing, Profile::default()),
        }
    }

    /// Guards a call. It runs to its end even if the client disconnects.
    async fn guard(
        self: Arc<Self>,
        parts: request::Parts,
        peer: Peer,
        id: Id,
        written: Box<RawValue>,
        members: Members,
        body: Bytes,
    ) -> Response<Body> {
        let disagreement = message_headers::disagreement(&parts.headers, &members);
        let tenant = match self.tenant(&parts, peer) {
            Ok(tenant) => tenant,
            Err(problem) => return problem.response(Profile::default()),
        };
        let key = match key::in_headers(&parts.headers, &KEY) {
            Ok(key) => key,
            Err(why) => {
                let why = format!("the header Idempotency-Key cannot be used: {why}");
                return refused(StatusCode::BAD_REQUEST, Some(&written), INVALID_REQUEST, &why);
            }
        };
        // Without a session, request ids of different clients can be equal.
        let owner = self.client(&parts, peer).unwrap_or_else(|| self.unique_name());
        let request_id = RequestId { connection: owner, id: id.clone() };
        if !self.pending.expect_call(request_id.clone()) {
            let why = "another request with this id is running";
            return refused(StatusCode::BAD_REQUEST, Some(&written), INVALID_REQUEST, why);
        }
        let (reply, answer) = oneshot::channel();
        let gate = self.gate(&parts, peer);
        let scope = address::scope(&parts.uri, &self.path);
        let session = self.client(&parts, peer);
        let known = self.sessions.of_request(session.as_deref(), &members);
        let source = CallSource { client: known.name().to_owned(), connection: session.unwrap_or_default() };
        let post = Arc::new(HttpCall::new(Arc::clone(&self), parts, peer, request_id.clone(), reply));
        let watch = post.watch();
        let announces = known.announces();
        let request =
            gate::Request { scope, key, source, announces, ..gate::Request::new(tenant, id, written, body, members) };
        tokio::spawn(async move {
            known.cancellations_recorded().await;
            let answer = gate.carry_out(&request, &post).await;
            let is_wanted = self.pending.answered(&request_id);
            // The server has not seen these headers, which it may refuse; forwarding them now could execute the call again.
            if let Some(name) = disagreement.filter(|_| !post.was_sent()) {
                let why = format!("the header {name} does not match the message");
                let answer = refused(StatusCode::BAD_REQUEST, Some(&request.written), message_headers::DISAGREES, &why);
                return post.refuse(answer).await;
            }
            post.deliver(answer.filter(|_| is_wanted), &known).await;
        });
        // A cancelled call has no response.
        answer.await.map_or_else(|_| empty(StatusCode::ACCEPTED), |response| response.map(|body| watch.watch(body)))
    }

    /// The tenant of a request: from `--tenant`, refined by the headers that tell callers apart.
    fn tenant(&self, parts: &request::Parts, peer: Peer) -> Result<Tenant, Problem> {
        let named = self.route.tenant.of(parts, peer, OTHER_SOURCES)?;
        let name = self.identity.of(&parts.headers, Some(&named)).unwrap_or(named);
        Tenant::new(name).map_err(|_| Problem::new(Kind::BadCredential))
    }

    /// The gate of the request's caller.
    fn gate(&self, parts: &request::Parts, peer: Peer) -> Arc<Gate> {
        self.gates.gate(self.tenant(parts, peer).ok().as_ref(), &address::scope(&parts.uri, &self.path))
    }

    /// Makes a redirect to the server itself relative: its absolute URL would lead clients around the gateway.
    fn relocate(&self, headers: &mut HeaderMap) {
        let Some(location) = headers.get(LOCATION).and_then(|location| location.to_str().ok()) else { return };
        let here = self.route.upstream.to_string();
        let rest = location.strip_prefix(here.trim_end_matches('/')).filter(|rest| rest.starts_with('/'));
        if let Some(path) = rest.and_then(|rest| HeaderValue::try_from(rest).ok()) {
            headers.insert(LOCATION, path);
        }
    }

    async fn ready(&self) -> Response<Body> {
        let is_ready = match self.gates.lazy_ledger().ledger().await {
            Ok(ledger) => ledger.ping().await.is_ok(),
            Err(_) => false,
        };
        empty(if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE })
    }

    /// A unique name for a request of the gateway.
    fn unique_name(&self) -> String {
        format!("{}{}", self.prefix, self.next_name.fetch_add(1, Ordering::Relaxed))
    }
}
