//! The body of an answer that may stop in the middle, but not for ever: what waits for it holds a claim.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use onceward::http::body::Error;
use tokio::time::{Instant, Sleep};

/// An answer of which something has to come every now and then.
pub(super) struct Unstalled {
    body: Incoming,
    within: Duration,
    /// Until when the next piece has to come; only once it has been waited for.
    deadline: Option<Pin<Box<Sleep>>>,
    waiting: bool,
}

impl Unstalled {
    pub(super) fn of(body: Incoming, within: Duration) -> Self {
        Self { body, within, deadline: None, waiting: false }
    }
}

impl Body for Unstalled {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
            this.waiting = false;
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let deadline = this.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(this.within)));
        if !std::mem::replace(&mut this.waiting, true) {
            deadline.as_mut().reset(Instant::now() + this.within);
        }
        ready!(deadline.as_mut().poll(context));
        Poll::Ready(Some(Err("it stopped in the middle for too long".into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
