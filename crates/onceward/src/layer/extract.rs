//! The claim as an argument of an axum handler, which passes its downstream key on.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::request::Parts;

use crate::ledger::Claim;

/// A handler takes a claim, and its request has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this request is not guarded: its route is not behind IdempotencyLayer, or its method or its missing key lets it pass through"
)]
pub struct NoClaim;

impl IntoResponse for NoClaim {
    fn into_response(self) -> Response {
        tracing::error!("a handler takes a claim: {self}");
        (StatusCode::INTERNAL_SERVER_ERROR, self.to_string()).into_response()
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Claim {
    type Rejection = NoClaim;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, NoClaim> {
        parts.extensions.get::<Self>().cloned().ok_or(NoClaim)
    }
}

impl<S: Send + Sync> OptionalFromRequestParts<S> for Claim {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(parts.extensions.get::<Self>().cloned())
    }
}
