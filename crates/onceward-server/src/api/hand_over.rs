//! A claim on its way to its remote owner. It travels inside the answer: as long as the connection has not taken the bytes,
//! a client that goes away leaves a released claim.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use onceward::Grant;

/// The answer, with the claim that it tells of.
pub(super) struct HandOver {
    answer: Option<(Bytes, Box<Grant>)>,
}

impl HandOver {
    pub(super) fn new(answer: Bytes, grant: Box<Grant>) -> Self {
        Self { answer: Some((answer, grant)) }
    }
}

impl Body for HandOver {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.answer.take().map(|(answer, grant)| {
            grant.hand_over();
            Ok(Frame::data(answer))
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.answer.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.answer.as_ref().map_or(0, |(answer, _)| answer.len() as u64))
    }
}
