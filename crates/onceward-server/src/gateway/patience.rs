//! An answer that has begun and does not go on. Without a limit, its key would be taken for ever.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use onceward::http::body::Error;
use tokio::time::{Instant, Sleep};

/// The body of an answer, each part of which has to come within a limit.
pub(super) struct Patience {
    body: Incoming,
    limit: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl Patience {
    pub(super) fn new(body: Incoming, limit: Duration) -> Self {
        Self { body, limit, waiting: None }
    }
}

impl Body for Patience {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            self.waiting = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let until = Instant::now() + self.limit;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        ready!(waiting.as_mut().poll(context));
        Poll::Ready(Some(Err("it did not go on in time".into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
