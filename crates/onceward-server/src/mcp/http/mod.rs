//! A gateway before a server that speaks streamable HTTP.
//!
//! - `identity`: who calls. `header_names`: what the name of a header tells. `callers`: whose gate it is. `clients`, `client_side`: what is known of
//!   clients. `post`: one guarded
//!   call. `envelope`: headers that say what a message says. `events`: server-sent events. `listing`: the list of tools.
//!   `news`: what is overheard.
//! - `readers`: who reads a stream on. `patience`: how long one that broke off is waited for. `under_way`: what is to be seen
//!   through before we end. `strangers`: who may come. `head`: what headers say. `own`: answers of our own.

mod callers;
mod client_side;
mod clients;
mod envelope;
mod events;
mod handover;
mod head;
mod header_names;
mod identity;
mod listing;
mod news;
mod own;
mod patience;
mod post;
mod readers;
mod strangers;
mod under_way;

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
use onceward::core::hash::Fields;
use onceward::core::name::Tenant;
use onceward::http::body::{self, full};
use onceward::http::exchange::without_answer;
use onceward::http::room::Room;
use onceward::http::tenant::Names;
use onceward::http::{Body, Kind, Problem, Profile, Rules, key};
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::call::From;
use super::gate::{self, Gate, Way};
use super::members::Members;
use super::message::{CALL, GARBLED, Id, Message, UNCLEAR};
use super::name::DIGITS;
use super::waiting::{Cancelled, Place, Waiting};
use crate::exit::{Fault, STORE};
use crate::gateway::{self, Route, Routes, Upstreams, headers};
use crate::lanes::Lanes;
use crate::listener::{Bound, Peer, Speaks};
use crate::output;
use crate::stop::Signals;
use callers::Callers;
use clients::Clients;
use head::{is_form, is_plain};
pub(super) use identity::Identity;
use own::{empty, refused};
use post::{KEY, LAST_EVENT, Post};
use readers::Readers;
use under_way::UnderWay;

/// The largest message of a client.
const REQUEST_LIMIT: usize = 64 * 1024 * 1024;

/// The largest answer that comes in one piece.
const ANSWER_LIMIT: usize = 256 * 1024 * 1024;

/// What is looked at comes as it is: without a word about it, a server may pack its answers.
const AS_IT_IS: HeaderValue = HeaderValue::from_static("identity");

/// The largest message that counts as small, and the memory that all small ones take together: some thousands of common ones.
/// They have room of their own, so that a few large messages which come slowly do not keep all others out.
const SMALL: usize = 1024 * 1024;
const SMALL_ROOM: usize = 32 * 1024 * 1024;

/// The memory that all other messages take together: one of the largest. While a call is carried out, it takes several times
/// the size of its message.
const ROOM: usize = REQUEST_LIMIT;

/// The largest form of a caller that is not known: what a login sends.
const FORM_LIMIT: usize = 64 * 1024;

/// How long a client may take for its message.
const BODY_WITHIN: Duration = Duration::from_secs(60);

/// How long a server may take to begin its answer: a tool may take as long.
const ANSWER_WITHIN: Duration = Duration::from_secs(60 * 60);

/// How long a client may take nothing of its answer before it is cut off.
const READER_PATIENCE: Duration = Duration::from_secs(60);

/// How long calls that are under way may take to end once it is time to stop.
const GRACE: Duration = Duration::from_secs(30);

/// How long the last answers may take to be handed over then.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A request whose answer is a stream of news, which never ends.
const LISTEN: &str = "subscriptions/listen";

/// Whether we are there.
const READY: &str = "/.well-known/onceward/ready";

/// A server, and what stands before it.
pub(super) struct Server {
    callers: Callers,
    upstreams: Upstreams,
    route: Route,
    /// Where the server is to be found.
    path: String,
    /// The socket is for this machine only.
    is_local: bool,
    identity: Identity,
    /// The memory of messages that are read or under way: of small ones, and of all others.
    rooms: [Room; 2],
    waiting: Waiting,
    readers: Readers,
    clients: Clients,
    under_way: UnderWay,
    own: AtomicU64,
    prefix: String,
}

/// What it is started with.
pub(crate) struct Remote {
    pub(crate) upstream: String,
    pub(crate) listen: SocketAddr,
    /// Where to take the tenant from; always the same one if this is nothing.
    pub(crate) tenant: Option<gateway::Tenant>,
    /// How callers are named after their credentials.
    pub(crate) names: Names,
    /// Certificates to believe, besides those that the system knows.
    pub(crate) upstream_ca: Option<std::path::PathBuf>,
}

/// Serves until a signal.
pub(super) async fn run(gate: Arc<Gate>, remote: Remote, identity: Identity, prefix: String) -> Result<u8, Fault> {
    let upstream = gateway::address(&remote.upstream).map_err(|what| Fault::usage(format!("--upstream: {what}")))?;
    let is_local = remote.listen.ip().to_canonical().is_loopback();
    let tenant = match remote.tenant {
        Some(tenant) => tenant,
        None if is_local => gateway::Tenant::Fixed(Tenant::default().to_string()),
        None => {
            return Err(Fault::usage(
                "--listen is not for this machine only, so say whose calls they are: --tenant authorization, header:NAME or \
                 fixed:NAME. One who can call tools gets the stored results of the others of the same tenant",
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
        tenant,
        trusted_peers: Vec::new(),
        timeout: ANSWER_WITHIN,
        encoded_slashes: false,
        honours_key: false,
    };
    let routes = Routes::new(vec![route.clone()]);
    let upstreams = Upstreams::several(1, &routes, remote.upstream_ca.as_deref())?.remove(0);
    let (waiting, readers) = (Waiting::default(), Readers::default());
    let clients = Clients::new(gate.naming.patience);
    let (under_way, own) = (UnderWay::default(), AtomicU64::new(0));
    let bound = Bound::to(remote.listen, None).await;
    let bound = bound.map_err(|error| Fault::new(STORE, format!("cannot listen on {}: {error}", remote.listen)))?;
    output::out(&format!("onceward mcp listens on {}{path}", bound.url()));
    let (callers, rooms) = (Callers::of(gate), [Room::of(SMALL_ROOM), Room::of(ROOM)]);
    let server = Arc::new(Server {
        callers,
        upstreams,
        route,
        path,
        is_local,
        identity,
        rooms,
        waiting,
        readers,
        clients,
        under_way,
        own,
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
    let listening = bound.serve(Speaks::Http2, Arc::new(Lanes::here()), service, stop);
    tokio::pin!(listening);
    let is_closed = tokio::select! {
        () = signals.next() => false,
        () = &mut listening => true,
    };
    let calls = async {
        server.under_way.none().await;
        if let Ok(ledger) = server.callers.books().ledger().await {
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
            // Streams that only wait for news would never end.
            () = &mut calls => drop(tokio::time::timeout(LAST_WORDS, closed).await),
            () = &mut closed => calls.await,
        }
    };
    tokio::select! {
        () = over => {}
        () = signals.next() => {}
        () = tokio::time::sleep(GRACE) => tracing::warn!("stopped although calls were under way; they are in doubt"),
    }
    server.callers.books().close().await;
    Ok(0)
}

/// Only where it is, without a path.
fn root(upstream: &Uri) -> Option<Uri> {
    let (scheme, authority) = (upstream.scheme()?, upstream.authority()?);
    format!("{scheme}://{authority}").parse().ok()
}

impl Server {
    async fn answer(self: Arc<Self>, request: Request<Incoming>, peer: Peer) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        if let Some(wrong) = headers::wrong(&parts) {
            return Problem::because(Kind::BadRequest, wrong).response(Profile::default());
        }
        if self.is_local
            && let Some(why) = strangers::refusal(&parts)
        {
            return refused(StatusCode::FORBIDDEN, None, UNCLEAR, why);
        }
        if parts.uri.path() == READY {
            return self.ready().await;
        }
        if let Some(why) = self.identity.refusal(&parts.headers) {
            return refused(StatusCode::BAD_REQUEST, None, UNCLEAR, &why);
        }
        if parts.uri.path() == "/"
            && let Ok(path) = self.path.parse()
        {
            parts.uri = path;
        }
        if parts.method != Method::POST {
            self.heard_without_message(&parts, peer).await;
            let client = self.client(&parts, peer).unwrap_or_default();
            let reads_on = parts.headers.contains_key(LAST_EVENT).then(|| self.readers.enter(&client));
            let request = Request::from_parts(parts, gateway::streamed(body));
            return match self.upstreams.send(&self.route, request, peer, None).await {
                Ok(mut response) => {
                    self.relocate(response.headers_mut());
                    self.overheard(response, client, reads_on)
                }
                Err(missing) => without_answer(&missing, Profile::default()),
            };
        }
        // What a form sends is no message, wherever it goes; anything else might be one.
        let is_form = is_form(&parts.headers);
        if !is_form && (parts.headers.contains_key(CONTENT_ENCODING) || !is_plain(&parts.headers)) {
            let why = "messages are taken as plain UTF-8 only";
            return refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, None, UNCLEAR, why);
        }
        // Whose message it is has to be known before it takes memory. A login may come from a caller who is not known yet.
        let limit = match self.tenant(&parts, peer) {
            Ok(_) => REQUEST_LIMIT,
            Err(_) if is_form => FORM_LIMIT,
            Err(problem) => return problem.response(Profile::default()),
        };
        let is_small = body.size_hint().upper().is_some_and(|bytes| bytes <= SMALL as u64);
        let room = &self.rooms[usize::from(!is_small)];
        let body = match body::received_in(room, body, limit, BODY_WITHIN).await {
            Ok((body, _)) => body,
            Err(problem) => return problem.response(Profile::default()),
        };
        self.posted(parts, body, peer, is_form).await
    }

    /// A message. What a server might take for one counts as one, wherever it is sent.
    async fn posted(self: Arc<Self>, parts: request::Parts, body: Bytes, peer: Peer, is_form: bool) -> Response<Body> {
        let message = Message::read(&body);
        let is_news = matches!(&message, Message::Request { method, .. } if method == LISTEN);
        let seen_through = (!is_news).then(|| self.under_way.enter());
        let response = self.taken(message, parts, body, peer, is_form).await;
        match seen_through {
            Some(seen_through) => response.map(|body| seen_through.until_read(body)),
            None => response,
        }
    }

    async fn taken(
        self: Arc<Self>,
        message: Message,
        parts: request::Parts,
        body: Bytes,
        peer: Peer,
        is_form: bool,
    ) -> Response<Body> {
        match message {
            Message::Request { id, written, method, members }
                if method == CALL && self.gate(&parts, peer).way(&members) == Way::Guard =>
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
                self.cancelled(&parts, peer, &members).await;
                let client = self.client(&parts, peer).unwrap_or_default();
                if self.waiting.cancel(members.object("params").as_ref(), &client) == Cancelled::Keep {
                    return empty(StatusCode::ACCEPTED);
                }
                self.pass(parts, body, peer).await
            }
            Message::Batch { calls: true, ids } => {
                let why = "calls of tools are not taken in batches; send them one by one";
                refused(StatusCode::BAD_REQUEST, ids.first().map(|id| &**id), UNCLEAR, why)
            }
            Message::Unclear { id, why } => {
                let id = id.filter(|id| Id::read(id).is_some());
                refused(StatusCode::BAD_REQUEST, id.as_deref(), UNCLEAR, why)
            }
            Message::Garbled if !is_form => {
                refused(StatusCode::BAD_REQUEST, None, GARBLED, "this is no JSON, and was not passed on")
            }
            _ => self.pass(parts, body, peer).await,
        }
    }

    async fn pass(self: &Arc<Self>, parts: request::Parts, body: Bytes, peer: Peer) -> Response<Body> {
        let client = self.client(&parts, peer).unwrap_or_default();
        match self.upstreams.send(&self.route, Request::from_parts(parts, full(body)), peer, None).await {
            Ok(mut response) => {
                self.relocate(response.headers_mut());
                self.overheard(response, client, None)
            }
            Err(missing) => without_answer(&missing, Profile::default()),
        }
    }

    /// Guards a call. It is seen through to its end although the client goes away.
    async fn guard(
        self: Arc<Self>,
        parts: request::Parts,
        peer: Peer,
        id: Id,
        written: Box<RawValue>,
        members: Members,
        body: Bytes,
    ) -> Response<Body> {
        let disagreement = envelope::disagreement(&parts.headers, &members);
        let tenant = match self.tenant(&parts, peer) {
            Ok(tenant) => tenant,
            Err(problem) => return problem.response(Profile::default()),
        };
        let key = match key::in_headers(&parts.headers, &KEY) {
            Ok(key) => key,
            Err(why) => {
                let why = format!("the header Idempotency-Key cannot be used: {why}");
                return refused(StatusCode::BAD_REQUEST, Some(&written), UNCLEAR, &why);
            }
        };
        // Without a session, ids of several clients are the same.
        let owner = self.client(&parts, peer).unwrap_or_else(|| self.own_name());
        let place = Place { client: owner, id: id.clone() };
        if !self.waiting.expect_call(place.clone()) {
            let why = "another request with this id is under way";
            return refused(StatusCode::BAD_REQUEST, Some(&written), UNCLEAR, why);
        }
        let (reply, answer) = oneshot::channel();
        let gate = self.gate(&parts, peer);
        let scope = self.scope(&parts.uri);
        let session = self.client(&parts, peer);
        let known = self.clients.of_request(session.as_deref(), &members);
        let from = From { client: known.name().to_owned(), connection: session.unwrap_or_default() };
        let post = Arc::new(Post::new(Arc::clone(&self), parts, peer, place.clone(), reply));
        let handover = post.handover();
        let announces = known.announces();
        let request =
            gate::Request { scope, key, from, announces, ..gate::Request::new(tenant, id, written, body, members) };
        tokio::spawn(async move {
            let answer = gate.carry_out(&request, &post).await;
            let is_wanted = self.waiting.answered(&place);
            // The server has not seen headers that it may refuse, and to pass them on now could be a second call.
            if let Some(name) = disagreement.filter(|_| !post.was_sent()) {
                let why = format!("the header {name} does not say what the message says");
                let answer = refused(StatusCode::BAD_REQUEST, Some(&request.written), envelope::DISAGREES, &why);
                return post.refuse(answer).await;
            }
            post.deliver(answer.filter(|_| is_wanted), &known).await;
        });
        // Nobody waits for what was cancelled.
        answer.await.map_or_else(|_| empty(StatusCode::ACCEPTED), |response| response.map(|body| handover.watch(body)))
    }

    /// Whose call it is: what `--tenant` names, and what the headers that count say.
    fn tenant(&self, parts: &request::Parts, peer: Peer) -> Result<Tenant, Problem> {
        let named = self.route.tenant.of(parts, peer)?;
        let name = self.identity.of(&parts.headers, Some(&named)).unwrap_or(named);
        Tenant::new(name).map_err(|_| Problem::new(Kind::BadCredential))
    }

    /// The gate that a request goes through.
    fn gate(&self, parts: &request::Parts, peer: Peer) -> Arc<Gate> {
        self.callers.gate(self.tenant(parts, peer).ok().as_ref(), &self.scope(&parts.uri))
    }

    /// What an address says besides where the server is: it may name an account.
    fn scope(&self, uri: &Uri) -> String {
        let path = gateway::one_spelling(uri.path());
        let is_here = path.trim_end_matches('/') == self.path.trim_end_matches('/');
        match (is_here, uri.query()) {
            (true, None | Some("")) => String::new(),
            (_, query) => {
                let given = Fields::new().field(path.trim_end_matches('/')).field(query.unwrap_or_default());
                format!("?{}", &given.digest().to_hex()[..DIGITS])
            }
        }
    }

    /// A server sends clients elsewhere under its own name, which would lead them past us.
    fn relocate(&self, headers: &mut HeaderMap) {
        let Some(location) = headers.get(LOCATION).and_then(|location| location.to_str().ok()) else { return };
        let here = self.route.upstream.to_string();
        let rest = location.strip_prefix(here.trim_end_matches('/')).filter(|rest| rest.starts_with('/'));
        if let Some(path) = rest.and_then(|rest| HeaderValue::try_from(rest).ok()) {
            headers.insert(LOCATION, path);
        }
    }

    async fn ready(&self) -> Response<Body> {
        let is_ready = match self.callers.books().ledger().await {
            Ok(ledger) => ledger.ping().await.is_ok(),
            Err(_) => false,
        };
        empty(if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE })
    }

    /// A name that nobody else has.
    fn own_name(&self) -> String {
        format!("{}{}", self.prefix, self.own.fetch_add(1, Ordering::Relaxed))
    }
}
