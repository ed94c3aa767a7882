//! Reads server-sent events from the body of a response.

use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::sse::{Event, EventParser};

/// The events of one response.
pub(super) struct EventSource {
    body: Incoming,
    events: EventParser,
    /// The connection was lost; otherwise the server ended the stream.
    pub(super) is_broken: bool,
}

impl EventSource {
    pub(super) fn of(body: Incoming) -> Self {
        Self { body, events: EventParser::default(), is_broken: false }
    }

    /// The next event; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Event> {
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
                // An incomplete event is dropped.
                None => return None,
                Some(Err(_)) => {
                    self.is_broken = true;
                    return None;
                }
            }
        }
    }
}
