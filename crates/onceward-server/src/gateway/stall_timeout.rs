//! Limits how long an upstream's response may pause: while it does, it holds a claim.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use onceward::http::body::Error;
use tokio::time::{Instant, Sleep};

/// A response body with a time-out between two parts.
pub(super) struct StallTimeout {
    body: Incoming,
    limit: Duration,
    /// The deadline for the next part; kept between parts, but only valid while waiting.
    deadline: Option<Pin<Box<Sleep>>>,
    waiting: bool,
}

impl StallTimeout {
    pub(super) fn new(body: Incoming, limit: Duration) -> Self {
        Self { body, limit, deadline: None, waiting: false }
    }
}

impl Body for StallTimeout {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
            this.waiting = false;
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let deadline = this.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(this.limit)));
        if !std::mem::replace(&mut this.waiting, true) {
            deadline.as_mut().reset(Instant::now() + this.limit);
        }
        ready!(deadline.as_mut().poll(context));
        Poll::Ready(Some(Err("the response paused for too long".into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
