//! The response to `tools/list`, whole or as events.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH};
use http::{Request, Response, StatusCode, request};
use http_body::Frame;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use onceward::http::body::{self, full};
use onceward::http::exchange::without_answer;
use onceward::http::{Body, NoAnswer, Profile};

use super::content_type::is_stream;
use super::sse::EventParser;
use super::{IDENTITY_ENCODING, READ_TIMEOUT, RESPONSE_LIMIT, Server};
use crate::list;
use crate::members::Members;
use crate::message::{Id, Message};
use onceward_runtime::net::listener::Peer;
use onceward_runtime::proxy;

impl Server {
    /// Forwards the request for the tools, and adds the gateway's own tool to the response.
    pub(super) async fn list(
        self: Arc<Self>,
        mut parts: request::Parts,
        peer: Peer,
        id: Id,
        body: Bytes,
    ) -> Response<Body> {
        parts.headers.insert(ACCEPT_ENCODING, IDENTITY_ENCODING);
        let gate = self.gate(&parts, peer);
        let answer = self.upstreams.send(&self.route, Request::from_parts(parts, full(body)), peer, None).await;
        let (mut head, body) = match answer {
            Ok(answer) => answer.into_parts(),
            Err(missing) => return without_answer(&missing, Profile::default()),
        };
        let edited = move |message: &[u8]| match Message::read_lenient(message) {
            Message::Response { id: of, members } if of == id => list::edited(&members, &gate.tools),
            _ => None,
        };
        if is_stream(&head.headers) {
            head.headers.remove(CONTENT_LENGTH);
            let (sender, handed) = body::channel(READ_TIMEOUT);
            tokio::spawn(streamed(body, sender, edited));
            return Response::from_parts(head, handed);
        }
        if head.status != StatusCode::OK {
            self.relocate(&mut head.headers);
            return Response::from_parts(head, proxy::boxed(body));
        }
        let Ok((bytes, _)) = body::read_all(body, RESPONSE_LIMIT).await else {
            return without_answer(&NoAnswer::Lost("the response broke off".to_owned()), Profile::default());
        };
        let bytes = edited(&bytes).map_or(bytes, |edited| edited.to_json().into());
        head.headers.remove(CONTENT_LENGTH);
        Response::from_parts(head, full(bytes))
    }
}

/// Forwards events, and edits the one with the list.
async fn streamed(
    mut body: Incoming,
    mut sender: body::BodySender,
    edited: impl Fn(&[u8]) -> Option<Members> + Send + 'static,
) {
    let mut events = EventParser::default();
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            // A server may keep the stream open after its response.
            () = sender.closed() => return,
        };
        match frame.map(|frame| frame.map(Frame::into_data)) {
            Some(Ok(Ok(data))) => events.put(&data),
            Some(Ok(Err(_))) => {}
            Some(Err(error)) => return sender.abort(error.into()).await,
            None => break,
        }
        while let Some(event) = events.next() {
            let changed = event.data().and_then(|data| edited(&data));
            let event =
                changed.map_or_else(|| event.clone(), |changed| event.with_message(changed.to_json().as_bytes()));
            sender.send(Frame::data(event.0)).await;
        }
    }
    if let Some(rest) = events.rest() {
        sender.send(Frame::data(rest.0)).await;
    }
    sender.finish();
}
