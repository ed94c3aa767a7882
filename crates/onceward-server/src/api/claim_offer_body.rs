//! A response body that carries claims to their remote owner. If the client disconnects before the connection has taken the
//! bytes, the claims are released.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http_body::{Body, Frame, SizeHint};
use onceward::remote::ClaimOffer;
use serde::Serialize;

use super::problem::{Kind, Problem};

/// The response, which carries the claims.
pub(super) fn offering(answer: &impl Serialize, offers: Vec<ClaimOffer>) -> Response {
    let Ok(bytes) = serde_json::to_vec(answer).map(Bytes::from) else {
        return Problem::new(Kind::Internal).into_response();
    };
    let body = match offers.is_empty() {
        true => axum::body::Body::from(bytes),
        false => axum::body::Body::new(ClaimOfferBody { answer: Some((bytes, offers)) }),
    };
    ([(CONTENT_TYPE, "application/json")], body).into_response()
}

/// The response, with the claims that it offers.
struct ClaimOfferBody {
    answer: Option<(Bytes, Vec<ClaimOffer>)>,
}

impl Body for ClaimOfferBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.answer.take().map(|(answer, offers)| {
            offers.into_iter().for_each(ClaimOffer::hand_over);
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
