//! What servers say on streams that are passed on: answers to calls whose own streams broke off, and that a list has changed.

use std::sync::Arc;

use http::Response;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use onceward::http::Body;

use super::Server;
use super::events::{Event, Events};
use super::head::is_stream;
use super::readers::Reading;
use crate::gateway;
use crate::mcp::message::Message;
use crate::mcp::waiting::Place;

impl Server {
    /// Streams of news may have the answer to a call whose own stream broke off.
    pub(super) fn overheard(
        self: &Arc<Self>,
        response: Response<Incoming>,
        client: String,
        reads_on: Option<Reading>,
    ) -> Response<Body> {
        if !is_stream(response.headers()) {
            return response.map(gateway::boxed);
        }
        let (server, mut events) = (Arc::clone(self), Events::default());
        response.map(|body| {
            let heard = body.map_frame(move |frame| {
                let _ = &reads_on;
                if let Some(data) = frame.data_ref() {
                    events.put(data);
                    while let Some(event) = events.next() {
                        server.hear(&event, &client);
                    }
                }
                frame
            });
            heard.map_err(Into::into).boxed_unsync()
        })
    }

    fn hear(&self, event: &Event, client: &str) {
        let Some(line) = event.data() else { return };
        match Message::heard(&line) {
            Message::Answer { id, members } => {
                self.waiting.take(&Place { client: client.to_owned(), id }, members, &line);
            }
            message => self.learn_news(&message),
        }
    }

    /// What the server says of itself on the stream of a call.
    pub(super) fn hear_news(&self, event: &Event) {
        if let Some(line) = event.data() {
            self.learn_news(&Message::heard(&line));
        }
    }

    fn learn_news(&self, message: &Message) {
        if matches!(message, Message::Notification { method, .. } if method == "notifications/tools/list_changed") {
            self.callers.list_changed();
        }
    }
}
