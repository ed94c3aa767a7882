//! A response body that carries a claim to its remote owner. If the client disconnects before the connection has taken the
//! bytes, the claim is released.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use onceward::remote::ClaimOffer;

/// The response, with the claim that it offers.
pub(super) struct ClaimOfferBody {
    answer: Option<(Bytes, Box<ClaimOffer>)>,
}

impl ClaimOfferBody {
    pub(super) fn new(answer: Bytes, offer: Box<ClaimOffer>) -> Self {
        Self { answer: Some((answer, offer)) }
    }
}

impl Body for ClaimOfferBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.answer.take().map(|(answer, offer)| {
            offer.hand_over();
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
