//! One guarded call over HTTP: sent to the server, its answer held back until it is kept, everything else handed on as it
//! comes. A stream that breaks off is taken up again where it was, if its client does not do so.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName};
use http::{HeaderValue, Method, Request, Response, StatusCode, request, response};
use http_body::Frame;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use onceward::http::body::{Filling, filled, full, whole};
use onceward::http::{Body, NoAnswer as Unanswered};
use tokio::sync::{Mutex, oneshot, watch};
use tokio::time::{sleep, timeout};

use super::envelope;
use super::events::{Event, Events};
use super::handover::Handover;
use super::head::is_stream;
use super::own::json;
use super::patience::Patience;
use super::{ANSWER_LIMIT, AS_IT_IS, READER_PATIENCE, Server};
use crate::listener::Peer;
use crate::mcp::client::Client;
use crate::mcp::delivery::{Answered, Receipt};
use crate::mcp::link::{Answer, Link, NoAnswer};
use crate::mcp::members::Members;
use crate::mcp::message::{self, Id, Message};
use crate::mcp::waiting::{Late, Place};

/// Where a reader of events says where it was.
pub(super) const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// Where a client puts a key of its own.
pub(super) const KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// What the newest generation repeats of a message, for those on the way who do not read it.
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// How long to wait before a stream is taken up again, unless the server says otherwise, and at the most.
const COME_BACK: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

/// How long a client may take to come back for the rest of its stream.
const FOR_THE_CLIENT: Duration = Duration::from_secs(5);

/// Statuses that cannot come after the work: the request was not understood, not permitted, or not for this place.
const BEFORE_THE_WORK: [u16; 11] = [400, 401, 403, 404, 405, 406, 407, 413, 415, 421, 429];

/// How often in a row a client's reading of other streams is waited for.
const OTHERS: u32 = 10;

/// The largest refusal of a server that is passed on whole.
const REFUSAL_LIMIT: usize = 1024 * 1024;

/// How many events before the answer are remembered, in case the client reads on from one of them.
const EVENTS: usize = 64;

/// How long such a refusal may take to come.
const REFUSED_WITHIN: Duration = Duration::from_secs(60);

/// A call on its way.
pub(super) struct Post(Arc<Exchange>);

/// What is known of it.
struct Exchange {
    server: Arc<Server>,
    /// The head of the client's request.
    parts: request::Parts,
    peer: Peer,
    place: Place,
    /// The key of the call downstream.
    key: OnceLock<HeaderValue>,
    /// It was passed on, or was to be.
    is_sent: AtomicBool,
    delivery: Mutex<Delivery>,
    /// Sees when the connection has taken the answer.
    handover: Handover,
    /// The events before the answer, from which a reader could go on.
    events: std::sync::Mutex<VecDeque<String>>,
    /// The client got the answer on another stream.
    is_elsewhere: AtomicBool,
}

/// How far the answer to the client is.
enum Delivery {
    /// Nothing has come yet.
    Open(oneshot::Sender<Response<Body>>),
    /// The answer came in one piece, with this head.
    Whole(oneshot::Sender<Response<Body>>, response::Parts),
    /// The server has refused the request itself.
    Refused(oneshot::Sender<Response<Body>>, Response<Body>),
    /// The head is on its way, and events are.
    Streaming(Filling, Option<(Event, Source)>),
    /// All is said.
    Over,
}

/// Events from the server.
struct Source {
    body: Incoming,
    events: Events,
    /// The connection was lost; otherwise the server has ended the stream itself.
    is_broken: bool,
}

impl Source {
    fn of(body: Incoming) -> Self {
        Self { body, events: Events::default(), is_broken: false }
    }

    /// The next event; `None` when there are no more.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.events.next() {
                return Some(event);
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.events.put(data);
                    }
                }
                // One that is not whole says nothing.
                None => return None,
                Some(Err(_)) => {
                    self.is_broken = true;
                    return None;
                }
            }
        }
    }
}

impl Post {
    pub(super) fn new(
        server: Arc<Server>,
        mut parts: request::Parts,
        peer: Peer,
        place: Place,
        reply: oneshot::Sender<Response<Body>>,
    ) -> Self {
        // What is looked at has to be readable, and its length may change.
        parts.headers.insert(ACCEPT_ENCODING, AS_IT_IS);
        parts.headers.remove(CONTENT_LENGTH);
        let (key, is_sent) = (OnceLock::new(), AtomicBool::new(false));
        let delivery = Mutex::new(Delivery::Open(reply));
        let (handover, events, is_elsewhere) = Default::default();
        let exchange = Exchange { server, parts, peer, place, key, is_sent, delivery, handover, events, is_elsewhere };
        Self(Arc::new(exchange))
    }

    /// Whether the server may have got the call.
    pub(super) fn was_sent(&self) -> bool {
        self.0.is_sent.load(Ordering::Relaxed)
    }

    /// Hands over that the request itself is not taken.
    pub(super) async fn refuse(&self, answer: Response<Body>) {
        if let Delivery::Open(reply) = std::mem::replace(&mut *self.0.delivery.lock().await, Delivery::Over) {
            let _ = reply.send(answer);
        }
    }

    /// The answer is recorded as delivered once the connection has taken these bytes.
    fn expect(&self, bytes: &Bytes, receipt: Option<Receipt>, client: &Arc<Client>) {
        let Some(receipt) = receipt else { return };
        receipt.open.writing();
        let (client, id) = (Arc::clone(client), self.0.place.id.clone());
        let events = self.0.events.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect();
        self.0.handover.expect(bytes.clone(), move || client.got_as_event(&id, receipt, events));
    }

    pub(super) fn handover(&self) -> Handover {
        self.0.handover.clone()
    }

    /// Hands the answer over, after it was kept.
    pub(super) async fn deliver(&self, answer: Option<Answered>, client: &Arc<Client>) {
        let (line, receipt) = answer.map_or((None, None), |answer| (Some(Bytes::from(answer.line)), answer.receipt));
        let delivery = std::mem::replace(&mut *self.0.delivery.lock().await, Delivery::Over);
        let is_elsewhere = matches!(delivery, Delivery::Over) && self.0.is_elsewhere.load(Ordering::Relaxed);
        if is_elsewhere && let Some(receipt) = receipt {
            return client.got(&self.0.place.id, receipt);
        }
        let expect = |bytes: &Bytes| self.expect(bytes, receipt, client);
        match (delivery, line) {
            (Delivery::Refused(reply, response), Some(_)) => {
                let _ = reply.send(response);
            }
            (Delivery::Open(reply), Some(line)) => {
                expect(&line);
                let _ = reply.send(json(StatusCode::OK, line));
            }
            (Delivery::Whole(reply, mut head), Some(line)) => {
                head.headers.remove(CONTENT_LENGTH);
                expect(&line);
                let _ = reply.send(Response::from_parts(head, full(line)));
            }
            (Delivery::Streaming(mut filling, held), line) => {
                let (event, rest) = held.map_or((None, None), |(event, rest)| (Some(event), Some(rest)));
                if let Some(line) = line {
                    let is_same = event.as_ref().and_then(Event::data).is_some_and(|data| data == *line);
                    let event = match event {
                        Some(event) if is_same => event,
                        Some(event) => event.saying(&line),
                        None => Event::of(&line, None),
                    };
                    expect(&event.0);
                    filling.put(Frame::data(event.0)).await;
                }
                if let Some(mut rest) = rest {
                    loop {
                        let event = tokio::select! {
                            event = rest.next() => event,
                            () = filling.unread() => None,
                        };
                        let Some(event) = event else { break };
                        filling.put(Frame::data(event.0)).await;
                    }
                }
                filling.end();
            }
            (Delivery::Open(_) | Delivery::Whole(..) | Delivery::Refused(..) | Delivery::Over, _) => {}
        }
    }
}

impl Exchange {
    async fn request(&self, method: Method, headers: HeaderMap, body: Vec<u8>) -> Result<Response<Incoming>, NoAnswer> {
        let mut request = Request::new(full(Bytes::from(body)));
        *request.method_mut() = method;
        *request.uri_mut() = self.parts.uri.clone();
        *request.headers_mut() = headers;
        let answer = self.server.upstreams.send(&self.server.route, request, self.peer, None).await;
        answer.map_err(|missing| match missing {
            Unanswered::NotSent(why) => NoAnswer::NotSent(format!("the server cannot be reached: {why}")),
            Unanswered::Refused(why) => NoAnswer::NotSent(format!("the server has not taken it: {why}")),
            Unanswered::Lost(why) => NoAnswer::Lost(why),
            Unanswered::TimedOut => NoAnswer::Lost("the server took too long".to_owned()),
        })
    }

    /// The answer to a call that was sent.
    async fn answered(
        &self,
        response: Response<Incoming>,
        cancelled: &watch::Receiver<bool>,
    ) -> Result<Answer, NoAnswer> {
        let (head, body) = response.into_parts();
        if head.status != StatusCode::OK {
            return self.refused(head, body, cancelled).await;
        }
        if is_stream(&head.headers) {
            self.replace(|reply| {
                let (filling, handed) = filled(READER_PATIENCE);
                let _ = reply.send(Response::from_parts(without_length(head), handed));
                Delivery::Streaming(filling, None)
            })
            .await;
            return self.streamed(Source::of(body), cancelled).await;
        }
        let broken = |_| NoAnswer::Lost("the answer broke off".to_owned());
        let (bytes, _) = whole(body, ANSWER_LIMIT).await.map_err(broken)?;
        match Message::heard(&bytes) {
            Message::Answer { id, members } if id == self.place.id => {
                self.replace(|reply| Delivery::Whole(reply, head)).await;
                Ok(Answer { line: bytes.to_vec(), members, cancelled: *cancelled.borrow() })
            }
            _ => Err(NoAnswer::Lost("the server answered with something else".to_owned())),
        }
    }

    /// A status of another kind. Some servers put what a tool said under one: then that counts. Some statuses are about the
    /// request itself, and clients know what to do about them: log in, start a new session, go elsewhere.
    async fn refused(
        &self,
        mut head: response::Parts,
        body: Incoming,
        cancelled: &watch::Receiver<bool>,
    ) -> Result<Answer, NoAnswer> {
        let status = head.status.as_u16();
        let bytes = timeout(REFUSED_WITHIN, whole(body, REFUSAL_LIMIT)).await.ok().and_then(Result::ok);
        let bytes = bytes.map(|(bytes, _)| bytes).unwrap_or_default();
        if let Message::Answer { id, members } = Message::heard(&bytes)
            && id == self.place.id
        {
            self.replace(|reply| Delivery::Whole(reply, head)).await;
            return Ok(Answer { line: bytes.to_vec(), members, cancelled: *cancelled.borrow() });
        }
        let why = format!("the server answered with status {status}");
        if !head.status.is_redirection() && !BEFORE_THE_WORK.contains(&status) {
            return Err(NoAnswer::Lost(why));
        }
        self.server.relocate(&mut head.headers);
        self.replace(|reply| Delivery::Refused(reply, Response::from_parts(without_length(head), full(bytes)))).await;
        Err(NoAnswer::NotSent(why))
    }

    /// Hands events on until the answer comes, which is held back.
    async fn streamed(&self, mut source: Source, cancelled: &watch::Receiver<bool>) -> Result<Answer, NoAnswer> {
        let (mut last, mut pause, mut patience) = (None, COME_BACK, Patience::default());
        loop {
            while let Some(event) = patience.within(source.next()).await? {
                last = event.id().or(last);
                pause = event.retry().map_or(pause, Duration::from_millis).min(LONGEST);
                let data = event.data();
                patience.heard(data.is_some());
                if let Some(line) = data
                    && let Message::Answer { id, members } = Message::heard(&line)
                    && id == self.place.id
                {
                    if let Delivery::Streaming(_, held) = &mut *self.delivery.lock().await {
                        *held = Some((event, source));
                    }
                    return Ok(Answer { line, members, cancelled: *cancelled.borrow() });
                }
                self.server.hear_news(&event);
                if let Some(id) = event.id() {
                    self.numbered(id);
                }
                if let Delivery::Streaming(filling, _) = &mut *self.delivery.lock().await {
                    filling.put(Frame::data(event.0)).await;
                }
            }
            // A server that numbers its events may end a stream, or lose it, and go on with it. Its client is told, as
            // without us, and comes back for the rest; if it does not, we do. One that ends a stream without a number
            // sends no answer on it, and its client may know another way to ask for it: the client sees the end as
            // without us, and the next equal call is told of the doubt. A lost connection was not meant by the server.
            if last.is_some() || !source.is_broken {
                self.end_stream().await;
            }
            let Some(at) = &last else { return Err(NoAnswer::Lost("the stream ended before the answer".to_owned())) };
            patience.lost();
            let mut others = 0;
            source = loop {
                sleep(pause + FOR_THE_CLIENT).await;
                others += 1;
                if others <= OTHERS && self.server.readers.is_reading(&self.place.client) {
                    continue;
                }
                patience.tried()?;
                if let Some(source) = self.taken_up(at).await {
                    break source;
                }
            };
        }
    }

    /// Remembers an event from which a reader could go on.
    fn numbered(&self, id: String) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        if events.len() >= EVENTS {
            events.pop_front();
        }
        events.push_back(id);
    }

    /// Ends the client's stream. What is said afterwards does not reach the client.
    async fn end_stream(&self) {
        if let Delivery::Streaming(filling, _) = std::mem::replace(&mut *self.delivery.lock().await, Delivery::Over) {
            filling.end();
        }
    }

    /// The stream from where it was.
    async fn taken_up(&self, at: &str) -> Option<Source> {
        let mut headers = self.headers_of_ours();
        headers.remove(CONTENT_TYPE);
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        headers.insert(LAST_EVENT, HeaderValue::try_from(at).ok()?);
        let response = self.request(Method::GET, headers, Vec::new()).await.ok()?;
        let is_there = response.status() == StatusCode::OK && is_stream(response.headers());
        is_there.then(|| Source::of(response.into_body()))
    }

    /// The client's headers, for a request of ours on its behalf: a server that honours keys must not take it for the call.
    fn headers_of_ours(&self) -> HeaderMap {
        let mut headers = self.parts.headers.clone();
        headers.remove(KEY);
        headers
    }

    /// The client's headers, for the call itself. A key in them becomes the key of the call downstream, which is the same on
    /// every attempt and another one for a repeat on purpose.
    fn headers_of_call(&self) -> HeaderMap {
        let mut headers = self.parts.headers.clone();
        if let Some(key) = self.key.get().filter(|_| headers.contains_key(KEY)) {
            headers.insert(KEY, key.clone());
        }
        headers
    }

    async fn replace(&self, next: impl FnOnce(oneshot::Sender<Response<Body>>) -> Delivery) {
        let mut delivery = self.delivery.lock().await;
        *delivery = match std::mem::replace(&mut *delivery, Delivery::Over) {
            Delivery::Open(reply) => next(reply),
            other => other,
        };
    }
}

impl Link for Post {
    async fn send(&self, _id: &Id, line: Vec<u8>) -> Result<Answer, NoAnswer> {
        let sent = self.0.server.waiting.send(&self.0.place)?;
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
                // It has cancelled, and nothing comes. It may come yet, here or there.
                Err(NoAnswer::GaveUp(there)) => Err(NoAnswer::GaveUp(Late::new(async move {
                    tokio::select! {
                        biased;
                        Ok(answer) = here => Some(answer),
                        Some(answer) = there.answer() => Some(answer),
                        else => None,
                    }
                }))),
                // A client that took the stream up again has got it there.
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

    async fn ask(&self, method: &str, parameters: Members) -> Result<Members, NoAnswer> {
        let name = self.0.server.own_name();
        let mut headers = self.0.headers_of_ours();
        envelope::without_arguments(&mut headers);
        if headers.contains_key(METHOD) {
            set(&mut headers, METHOD, method);
            match parameters.text("name").or_else(|| parameters.text("taskId")) {
                Some(name) => set(&mut headers, NAME, &name),
                None => drop(headers.remove(NAME)),
            }
        }
        let body = message::request(&name, method, &parameters);
        let (head, body) = self.0.request(Method::POST, headers, body).await?.into_parts();
        let ours = Id::Text(name);
        let mine = |data: &[u8]| match Message::heard(data) {
            Message::Answer { id, members } if id == ours => Some(members),
            _ => None,
        };
        let nothing = || NoAnswer::Lost("the server gave no answer".to_owned());
        if is_stream(&head.headers) {
            let mut source = Source::of(body);
            while let Some(event) = source.next().await {
                if let Some(members) = event.data().and_then(|data| mine(&data)) {
                    return Ok(members);
                }
            }
            return Err(nothing());
        }
        let (bytes, _) = whole(body, ANSWER_LIMIT).await.map_err(|_| nothing())?;
        mine(&bytes).ok_or_else(nothing)
    }
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(name, value);
    }
}

/// Its body may become another one.
fn without_length(mut head: response::Parts) -> response::Parts {
    head.headers.remove(CONTENT_LENGTH);
    head
}
