//! One guarded call over HTTP: forwards it, holds its response back until the outcome is recorded, and forwards everything else at
//! once. Resumes a stream that breaks off, if the client does not.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName};
use http::{HeaderValue, Method, Request, Response, StatusCode, request, response};
use http_body::Frame;
use hyper::body::Incoming;
use onceward::http::body::{self, BodySender, full};
use onceward::http::{Body, NoAnswer as Unanswered};
use tokio::sync::{Mutex, oneshot, watch};
use tokio::time::{sleep, timeout};

use super::content_type::is_stream;
use super::event_source::EventSource;
use super::local_response::json;
use super::message_headers;
use super::reconnect_budget::ReconnectBudget;
use super::response_watch::ResponseWatch;
use super::sse::Event;
use super::{IDENTITY_ENCODING, READ_TIMEOUT, RESPONSE_LIMIT, Server};
use crate::client::Client;
use crate::delivery::{OutgoingResponse, Receipt};
use crate::members::Members;
use crate::message::{self, Id, Message, RequestId};
use crate::pending::LateResponse;
use crate::transport::{CallResponse, NoResponse, Transport};
use onceward_runtime::net::listener::Peer;

/// The header with which a reader resumes a stream.
pub(super) const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// The header with a client's own key.
pub(super) const KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Headers of protocol version 2026-07-28 that repeat parts of a message, for proxies that do not parse it.
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// The delay before a stream is resumed, unless the server sets one, and the longest that a server may set.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);
const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(30);

/// How long a client may take to resume its stream.
const CLIENT_RECONNECT_TIME: Duration = Duration::from_secs(5);

/// Statuses that prove that the call was not executed: the request was not understood, not permitted, or sent to the wrong place.
const NOT_EXECUTED: [u16; 11] = [400, 401, 403, 404, 405, 406, 407, 413, 415, 421, 429];

/// How often in a row to wait while the client reads other streams.
const MAX_WAITS_FOR_READER: u32 = 10;

/// The largest refusal that is forwarded whole.
const REFUSAL_LIMIT: usize = 1024 * 1024;

/// How many event ids before the response are remembered, in case the client resumes from one of them.
const MAX_EVENT_IDS: usize = 64;

/// The limit for reading a refusal.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(60);

/// A guarded call over HTTP.
pub(super) struct HttpCall(Arc<Exchange>);

/// The state of the call.
struct Exchange {
    server: Arc<Server>,
    /// The head of the client's request.
    parts: request::Parts,
    peer: Peer,
    request_id: RequestId,
    /// The key of the call downstream.
    key: OnceLock<HeaderValue>,
    /// The call was sent to the server, or is about to be.
    is_sent: AtomicBool,
    response: Mutex<ClientResponse>,
    /// Watches whether the connection has taken the response.
    watch: ResponseWatch,
    /// Ids of events before the response, from which a reader could resume.
    events: std::sync::Mutex<VecDeque<String>>,
    /// The client got the response on another stream.
    is_elsewhere: AtomicBool,
}

/// The state of the response to the client.
enum ClientResponse {
    /// The server has not responded yet.
    Open(oneshot::Sender<Response<Body>>),
    /// The response came whole, with this head.
    Whole(oneshot::Sender<Response<Body>>, response::Parts),
    /// The server refused the request.
    Refused(oneshot::Sender<Response<Body>>, Response<Body>),
    /// The head was sent, and events are being forwarded.
    Streaming(BodySender, Option<(Event, EventSource)>),
    /// The response is complete.
    Over,
}

impl HttpCall {
    pub(super) fn new(
        server: Arc<Server>,
        mut parts: request::Parts,
        peer: Peer,
        request_id: RequestId,
        reply: oneshot::Sender<Response<Body>>,
    ) -> Self {
        // The gateway reads the response, and its length may change.
        parts.headers.insert(ACCEPT_ENCODING, IDENTITY_ENCODING);
        parts.headers.remove(CONTENT_LENGTH);
        let (key, is_sent) = (OnceLock::new(), AtomicBool::new(false));
        let response = Mutex::new(ClientResponse::Open(reply));
        let (watch, events, is_elsewhere) = Default::default();
        let exchange =
            Exchange { server, parts, peer, request_id, key, is_sent, response, watch, events, is_elsewhere };
        Self(Arc::new(exchange))
    }

    /// Whether the server may have received the call.
    pub(super) fn was_sent(&self) -> bool {
        self.0.is_sent.load(Ordering::Relaxed)
    }

    /// Responds that the request is refused.
    pub(super) async fn refuse(&self, answer: Response<Body>) {
        if let ClientResponse::Open(reply) = std::mem::replace(&mut *self.0.response.lock().await, ClientResponse::Over)
        {
            let _ = reply.send(answer);
        }
    }

    /// Records the response as delivered once the connection has taken these bytes.
    fn expect(&self, bytes: &Bytes, receipt: Option<Receipt>, client: &Arc<Client>) {
        let Some(receipt) = receipt else { return };
        receipt.open.writing();
        let (client, id) = (Arc::clone(client), self.0.request_id.id.clone());
        let events = self.0.events.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect();
        self.0.watch.expect(bytes.clone(), move || client.event_written(&id, receipt, events));
    }

    pub(super) fn watch(&self) -> ResponseWatch {
        self.0.watch.clone()
    }

    /// Sends the response to the client, after the outcome was recorded.
    pub(super) async fn deliver(&self, answer: Option<OutgoingResponse>, client: &Arc<Client>) {
        let (line, receipt) = answer.map_or((None, None), |answer| (Some(Bytes::from(answer.line)), answer.receipt));
        let delivery = std::mem::replace(&mut *self.0.response.lock().await, ClientResponse::Over);
        let is_elsewhere = matches!(delivery, ClientResponse::Over) && self.0.is_elsewhere.load(Ordering::Relaxed);
        if is_elsewhere && let Some(receipt) = receipt {
            return client.response_written(&self.0.request_id.id, receipt);
        }
        let expect = |bytes: &Bytes| self.expect(bytes, receipt, client);
        match (delivery, line) {
            (ClientResponse::Refused(reply, response), Some(_)) => {
                let _ = reply.send(response);
            }
            (ClientResponse::Open(reply), Some(line)) => {
                expect(&line);
                let _ = reply.send(json(StatusCode::OK, line));
            }
            (ClientResponse::Whole(reply, mut head), Some(line)) => {
                head.headers.remove(CONTENT_LENGTH);
                expect(&line);
                let _ = reply.send(Response::from_parts(head, full(line)));
            }
            (ClientResponse::Streaming(mut sender, held), line) => {
                let (event, rest) = held.map_or((None, None), |(event, rest)| (Some(event), Some(rest)));
                if let Some(line) = line {
                    let is_same = event.as_ref().and_then(Event::data).is_some_and(|data| data == *line);
                    let event = match event {
                        Some(event) if is_same => event,
                        Some(event) => event.with_message(&line),
                        None => Event::of(&line, None),
                    };
                    expect(&event.0);
                    sender.send(Frame::data(event.0)).await;
                }
                if let Some(mut rest) = rest {
                    loop {
                        let event = tokio::select! {
                            event = rest.next() => event,
                            () = sender.closed() => None,
                        };
                        let Some(event) = event else { break };
                        sender.send(Frame::data(event.0)).await;
                    }
                }
                sender.finish();
            }
            (
                ClientResponse::Open(_)
                | ClientResponse::Whole(..)
                | ClientResponse::Refused(..)
                | ClientResponse::Over,
                _,
            ) => {}
        }
    }
}

impl Exchange {
    async fn request(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<Response<Incoming>, NoResponse> {
        let mut request = Request::new(full(Bytes::from(body)));
        *request.method_mut() = method;
        *request.uri_mut() = self.parts.uri.clone();
        *request.headers_mut() = headers;
        let answer = self.server.upstreams.send(&self.server.route, request, self.peer, None).await;
        answer.map_err(|missing| match missing {
            Unanswered::NotSent(why) => NoResponse::NotSent(format!("the server cannot be reached: {why}")),
            Unanswered::Refused(why) => NoResponse::NotSent(format!("the server refused it before execution: {why}")),
            Unanswered::Lost(why) => NoResponse::Lost(why),
            Unanswered::TimedOut => NoResponse::Lost("the server timed out".to_owned()),
        })
    }

    /// Reads the response to the call.
    async fn answered(
        &self,
        response: Response<Incoming>,
        cancelled: &watch::Receiver<bool>,
    ) -> Result<CallResponse, NoResponse> {
        let (head, body) = response.into_parts();
        if head.status != StatusCode::OK {
            return self.refused(head, body, cancelled).await;
        }
        if is_stream(&head.headers) {
            self.replace(|reply| {
                let (sender, handed) = body::channel(READ_TIMEOUT);
                let _ = reply.send(Response::from_parts(without_length(head), handed));
                ClientResponse::Streaming(sender, None)
            })
            .await;
            return self.streamed(EventSource::of(body), cancelled).await;
        }
        let broken = |_| NoResponse::Lost("the response broke off".to_owned());
        let (bytes, _) = body::read_all(body, RESPONSE_LIMIT).await.map_err(broken)?;
        match Message::read_lenient(&bytes) {
            Message::Response { id, members } if id == self.request_id.id => {
                self.replace(|reply| ClientResponse::Whole(reply, head)).await;
                Ok(CallResponse { line: bytes.to_vec(), members, cancelled: *cancelled.borrow() })
            }
            _ => Err(NoResponse::Lost("the server responded with something else".to_owned())),
        }
    }

    /// Handles a status other than 200. Some servers send a tool's result with an error status: then the result counts. Some statuses
    /// are about the request, and clients know how to react: log in, start a new session, follow a redirect.
    async fn refused(
        &self,
        mut head: response::Parts,
        body: Incoming,
        cancelled: &watch::Receiver<bool>,
    ) -> Result<CallResponse, NoResponse> {
        let status = head.status.as_u16();
        let bytes = timeout(REFUSAL_TIMEOUT, body::read_all(body, REFUSAL_LIMIT)).await.ok().and_then(Result::ok);
        let bytes = bytes.map(|(bytes, _)| bytes).unwrap_or_default();
        if let Message::Response { id, members } = Message::read_lenient(&bytes)
            && id == self.request_id.id
        {
            self.replace(|reply| ClientResponse::Whole(reply, head)).await;
            return Ok(CallResponse { line: bytes.to_vec(), members, cancelled: *cancelled.borrow() });
        }
        let why = format!("the server answered with status {status}");
        if !head.status.is_redirection() && !NOT_EXECUTED.contains(&status) {
            return Err(NoResponse::Lost(why));
        }
        self.server.relocate(&mut head.headers);
        self.replace(|reply| ClientResponse::Refused(reply, Response::from_parts(without_length(head), full(bytes))))
            .await;
        Err(NoResponse::NotSent(why))
    }

    /// Forwards events until the response comes, which is held back.
    async fn streamed(
        &self,
        mut source: EventSource,
        cancelled: &watch::Receiver<bool>,
    ) -> Result<CallResponse, NoResponse> {
        let (mut last, mut pause, mut budget) = (None, RECONNECT_DELAY, ReconnectBudget::default());
        loop {
            while let Some(event) = budget.within(source.next()).await? {
                last = event.id().or(last);
                pause = event.retry().map_or(pause, Duration::from_millis).min(MAX_RECONNECT_DELAY);
                let data = event.data();
                budget.heard(data.is_some());
                if let Some(line) = data
                    && let Message::Response { id, members } = Message::read_lenient(&line)
                    && id == self.request_id.id
                {
                    if let ClientResponse::Streaming(_, held) = &mut *self.response.lock().await {
                        *held = Some((event, source));
                    }
                    return Ok(CallResponse { line, members, cancelled: *cancelled.borrow() });
                }
                self.server.observe_notification(&event);
                if let Some(id) = event.id() {
                    self.remember_event(id);
                }
                if let ClientResponse::Streaming(sender, _) = &mut *self.response.lock().await {
                    sender.send(Frame::data(event.0)).await;
                }
            }
            // A server that numbers its events may end or lose a stream and continue it. The client sees the end, as without a
            // gateway, and resumes; if it does not, the gateway does. A server that ends a stream without event ids sends no
            // response on it, and the client may know another way to get it: the client sees the end, as without a gateway, and
            // the next equal call is told that the outcome is unknown. A lost connection is not an end by the server.
            if last.is_some() || !source.is_broken {
                self.end_stream().await;
            }
            let Some(at) = &last else {
                return Err(NoResponse::Lost("the stream ended before the response".to_owned()));
            };
            budget.broken();
            let mut waits = 0;
            source = loop {
                sleep(pause + CLIENT_RECONNECT_TIME).await;
                waits += 1;
                if waits <= MAX_WAITS_FOR_READER && self.server.readers.is_reading(&self.request_id.connection) {
                    continue;
                }
                budget.spend_attempt()?;
                if let Some(source) = self.resume(at).await {
                    break source;
                }
            };
        }
    }

    /// Remembers an event from which a reader could resume.
    fn remember_event(&self, id: String) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        if events.len() >= MAX_EVENT_IDS {
            events.pop_front();
        }
        events.push_back(id);
    }

    /// Ends the client's stream. Later events do not reach the client on it.
    async fn end_stream(&self) {
        if let ClientResponse::Streaming(sender, _) =
            std::mem::replace(&mut *self.response.lock().await, ClientResponse::Over)
        {
            sender.finish();
        }
    }

    /// Resumes the stream after an event.
    async fn resume(&self, at: &str) -> Option<EventSource> {
        let mut headers = self.headers_without_key();
        headers.remove(CONTENT_TYPE);
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        headers.insert(LAST_EVENT, HeaderValue::try_from(at).ok()?);
        let response = self.request(Method::GET, headers, Vec::new()).await.ok()?;
        let is_there = response.status() == StatusCode::OK && is_stream(response.headers());
        is_there.then(|| EventSource::of(response.into_body()))
    }

    /// The client's headers for a request that the gateway makes on its behalf. Without the key: a server that honours keys would
    /// take the request for the call.
    fn headers_without_key(&self) -> HeaderMap {
        let mut headers = self.parts.headers.clone();
        headers.remove(KEY);
        headers
    }

    /// The client's headers for the call. A key in them is replaced by the downstream key, which is the same on every attempt and
    /// another one for a deliberate repeat.
    fn headers_of_call(&self) -> HeaderMap {
        let mut headers = self.parts.headers.clone();
        if let Some(key) = self.key.get().filter(|_| headers.contains_key(KEY)) {
            headers.insert(KEY, key.clone());
        }
        headers
    }

    async fn replace(&self, next: impl FnOnce(oneshot::Sender<Response<Body>>) -> ClientResponse) {
        let mut delivery = self.response.lock().await;
        *delivery = match std::mem::replace(&mut *delivery, ClientResponse::Over) {
            ClientResponse::Open(reply) => next(reply),
            other => other,
        };
    }
}

impl Transport for HttpCall {
    async fn send(&self, _id: &Id, line: Vec<u8>) -> Result<CallResponse, NoResponse> {
        let sent = self.0.server.pending.send(&self.0.request_id)?;
        self.0.is_sent.store(true, Ordering::Relaxed);
        let (exchange, cancelled) = (Arc::clone(&self.0), sent.cancelled());
        let mut here = Box::pin(async move {
            let response = exchange.request(Method::POST, exchange.headers_of_call(), line).await?;
            exchange.answered(response, &cancelled).await
        });
        tokio::select! {
            biased;
            answer = &mut here => answer,
            answer = sent.answer() => match answer {
                // The client cancelled, and no response came yet. It may still come, on either stream.
                Err(NoResponse::GaveUp(there)) => Err(NoResponse::GaveUp(LateResponse::new(async move {
                    tokio::select! {
                        biased;
                        Ok(answer) = here => Some(answer),
                        Some(answer) = there.answer() => Some(answer),
                        else => None,
                    }
                }))),
                // A client that resumed the stream got the response there.
                answer => {
                    self.0.is_elsewhere.store(answer.is_ok(), Ordering::Relaxed);
                    answer
                }
            },
        }
    }

    fn set_key(&self, downstream_key: &str) {
        if let Ok(key) = HeaderValue::try_from(downstream_key) {
            let _ = self.0.key.set(key);
        }
    }

    async fn ask(&self, method: &str, parameters: Members) -> Result<Members, NoResponse> {
        let name = self.0.server.unique_name();
        let mut headers = self.0.headers_without_key();
        message_headers::without_arguments(&mut headers);
        if headers.contains_key(METHOD) {
            set(&mut headers, METHOD, method);
            match parameters.text("name").or_else(|| parameters.text("taskId")) {
                Some(name) => set(&mut headers, NAME, &name),
                None => drop(headers.remove(NAME)),
            }
        }
        let body = message::request(&name, method, &parameters);
        let (head, body) = self.0.request(Method::POST, headers, body).await?.into_parts();
        let id_of_request = Id::Text(name);
        let response_in = |data: &[u8]| match Message::read_lenient(data) {
            Message::Response { id, members } if id == id_of_request => Some(members),
            _ => None,
        };
        let nothing = || NoResponse::Lost("the server did not respond".to_owned());
        if is_stream(&head.headers) {
            let mut source = EventSource::of(body);
            while let Some(event) = source.next().await {
                if let Some(members) = event.data().and_then(|data| response_in(&data)) {
                    return Ok(members);
                }
            }
            return Err(nothing());
        }
        let (bytes, _) = body::read_all(body, RESPONSE_LIMIT).await.map_err(|_| nothing())?;
        response_in(&bytes).ok_or_else(nothing)
    }
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(name, value);
    }
}

/// Without a length, because the body may change.
fn without_length(mut head: response::Parts) -> response::Parts {
    head.headers.remove(CONTENT_LENGTH);
    head
}
