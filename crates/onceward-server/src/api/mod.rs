//! The HTTP API: the ledger for any language.
//!
//! - `begin`: ask for the claim. `hand_over`: a claim on its way to its remote owner.
//! - `own`: what the holder of a fence does. `outcome`: outcomes as JSON carries them.
//! - `look`: intents and counts. `resolve`: a person says what happened. `health`: is it there, is it ready.
//! - `caller`: who asks, and what they may. `body`: requests, read strictly. `problem`: what is wrong, and its pages.
//! - `names`: the words and limits that several requests share. `access`: the access log.
//! - `openapi`: the document, from the same code.

mod access;
mod begin;
mod body;
mod caller;
mod hand_over;
mod health;
mod look;
mod names;
mod openapi;
mod outcome;
mod own;
mod problem;
mod resolve;
mod tally;

use std::sync::Arc;

use axum::Router;
use onceward::Ledger;

use crate::stop::Stop;
use crate::tokens::Tokens;

pub(crate) use names::{State, WhenInDoubt};
pub(crate) use openapi::document;
pub(crate) use outcome::Verdict;

/// What every request needs. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Api(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    ledger: Ledger,
    tokens: Arc<Tokens>,
    tally: tally::Tally,
    stop: Stop,
}

impl Api {
    pub(crate) fn new(ledger: Ledger, tokens: Arc<Tokens>, stop: Stop) -> Self {
        Self(Arc::new(Shared { ledger, tokens, tally: tally::Tally::default(), stop }))
    }

    /// Every route. Whatever is not there, or not for this method, is a problem like any other.
    pub(crate) fn router(self) -> Router {
        let (router, _) = openapi::routes().split_for_parts();
        router
            .fallback(problem::no_such_route)
            .method_not_allowed_fallback(problem::no_such_method)
            .with_state(self)
            .layer(axum::middleware::from_fn(access::logged))
    }

    fn ledger(&self) -> &Ledger {
        &self.0.ledger
    }
}
