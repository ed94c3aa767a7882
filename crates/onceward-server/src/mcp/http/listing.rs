//! The answer to `tools/list`, in one piece or as events.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH};
use http::{Request, Response, StatusCode, request};
use http_body::Frame;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use onceward::http::body::{self, filled, full};
use onceward::http::exchange::without_answer;
use onceward::http::{Body, NoAnswer, Profile};

use super::events::Events;
use super::head::is_stream;
use super::{ANSWER_LIMIT, AS_IT_IS, READER_PATIENCE, Server};
use crate::gateway;
use crate::listener::Peer;
use crate::mcp::list;
use crate::mcp::members::Members;
use crate::mcp::message::{Id, Message};

impl Server {
    /// Asks for the tools, and adds what the gateway offers.
    pub(super) async fn list(
        self: Arc<Self>,
        mut parts: request::Parts,
        peer: Peer,
        id: Id,
        body: Bytes,
    ) -> Response<Body> {
        parts.headers.insert(ACCEPT_ENCODING, AS_IT_IS);
        let gate = self.gate(&parts, peer);
        let answer = self.upstreams.send(&self.route, Request::from_parts(parts, full(body)), peer, None).await;
        let (mut head, body) = match answer {
            Ok(answer) => answer.into_parts(),
            Err(missing) => return without_answer(&missing, Profile::default()),
        };
        let edited = move |message: &[u8]| match Message::heard(message) {
            Message::Answer { id: of, members } if of == id => list::edited(&members, &gate.tools),
            _ => None,
        };
        if is_stream(&head.headers) {
            head.headers.remove(CONTENT_LENGTH);
            let (filling, handed) = filled(READER_PATIENCE);
            tokio::spawn(streamed(body, filling, edited));
            return Response::from_parts(head, handed);
        }
        if head.status != StatusCode::OK {
            self.relocate(&mut head.headers);
            return Response::from_parts(head, gateway::boxed(body));
        }
        let Ok((bytes, _)) = body::whole(body, ANSWER_LIMIT).await else {
            return without_answer(&NoAnswer::Lost("the answer broke off".to_owned()), Profile::default());
        };
        let bytes = edited(&bytes).map_or(bytes, |edited| edited.written().into());
        head.headers.remove(CONTENT_LENGTH);
        Response::from_parts(head, full(bytes))
    }
}

/// Passes events on, some of them changed.
async fn streamed(
    mut body: Incoming,
    mut filling: body::Filling,
    edited: impl Fn(&[u8]) -> Option<Members> + Send + 'static,
) {
    let mut events = Events::default();
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            // A server may keep the stream open after its answer.
            () = filling.unread() => return,
        };
        match frame.map(|frame| frame.map(Frame::into_data)) {
            Some(Ok(Ok(data))) => events.put(&data),
            Some(Ok(Err(_))) => {}
            Some(Err(error)) => return filling.break_off(error.into()).await,
            None => break,
        }
        while let Some(event) = events.next() {
            let changed = event.data().and_then(|data| edited(&data));
            let event = changed.map_or_else(|| event.clone(), |changed| event.saying(changed.written().as_bytes()));
            filling.put(Frame::data(event.0)).await;
        }
    }
    if let Some(rest) = events.rest() {
        filling.put(Frame::data(rest.0)).await;
    }
    filling.end();
}
