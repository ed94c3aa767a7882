//! Reads along on streams that pass through: responses to calls whose own streams broke off, and changes of the list of tools.

use std::sync::Arc;

use http::Response;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use onceward::http::Body;

use super::Server;
use super::content_type::is_stream;
use super::sse::{Event, EventParser};
use super::stream_readers::StreamReader;
use crate::message::Message;
use crate::message::RequestId;
use onceward_runtime::proxy;

impl Server {
    /// Reads along: any stream may carry the response to a call whose own stream broke off.
    pub(super) fn read_along(
        self: &Arc<Self>,
        response: Response<Incoming>,
        client: String,
        reads_on: Option<StreamReader>,
    ) -> Response<Body> {
        if !is_stream(response.headers()) {
            return response.map(proxy::boxed);
        }
        let (server, mut events) = (Arc::clone(self), EventParser::default());
        response.map(|body| {
            let watched = body.map_frame(move |frame| {
                let _ = &reads_on;
                if let Some(data) = frame.data_ref() {
                    events.put(data);
                    while let Some(event) = events.next() {
                        server.observe(&event, &client);
                    }
                }
                frame
            });
            watched.map_err(Into::into).boxed_unsync()
        })
    }

    fn observe(&self, event: &Event, client: &str) {
        let Some(line) = event.data() else { return };
        match Message::read_lenient(&line) {
            Message::Response { id, members } => {
                self.pending.take(&RequestId { connection: client.to_owned(), id }, members, &line);
            }
            message => self.note_list_change(&message),
        }
    }

    /// Observes a notification on the stream of a call.
    pub(super) fn observe_notification(&self, event: &Event) {
        if let Some(line) = event.data() {
            self.note_list_change(&Message::read_lenient(&line));
        }
    }

    fn note_list_change(&self, message: &Message) {
        if matches!(message, Message::Notification { method, .. } if method == "notifications/tools/list_changed") {
            self.gates.list_changed();
        }
    }
}
