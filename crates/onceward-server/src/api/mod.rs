//! The HTTP API: the ledger for any language.
//!
//! - `begin`: asks for a claim. `claim_offer_body`: a response that carries a claim to its remote owner.
//! - `owner`: requests of the owner of a claim. `outcome`: outcomes as JSON.
//! - `enqueue`: queues entries of the outbox. `lease`: hands them out to workers. `entries`: decisions of people about them.
//! - `rerun`: a deliberate new run of an entry that is done.
//! - `intents`: lists, shows and counts intents. `resolve`: settles doubts. `health`: liveness and readiness.
//! - `caller`: authentication and scopes. `body`: strict parsing of requests. `problem`: errors and their pages.
//! - `schema`: types and limits that several requests share. `access_log`: the access log.
//! - `openapi`: the OpenAPI document, generated from the same code.

mod access_log;
mod begin;
mod body;
mod caller;
mod claim_offer_body;
mod decision_counts;
mod enqueue;
mod entries;
mod health;
mod intents;
mod lease;
mod openapi;
mod outcome;
mod owner;
mod problem;
mod rerun;
mod resolve;
mod schema;

use std::collections::HashMap;
use std::sync::Arc;

use axum::Router;
use onceward::Ledger;

use onceward_runtime::net::stop::Stop;
use onceward_runtime::net::tokens::Tokens;

pub use openapi::document;
pub use outcome::Verdict;
pub use schema::{InDoubtPolicy, IntentState, Priority};

/// The state that every request needs. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Api(Arc<ApiState>);

#[derive(Debug)]
struct ApiState {
    ledger: Ledger,
    tokens: Arc<Tokens>,
    decision_counts: decision_counts::DecisionCounts,
    stop: Stop,
    /// The operations whose entries a courier delivers, with the names of their sinks: workers cannot lease them.
    sinks: HashMap<String, String>,
}

impl Api {
    /// The API beside a courier that delivers the entries of these operations to these sinks.
    pub fn new(ledger: Ledger, tokens: Arc<Tokens>, stop: Stop, sinks: HashMap<String, String>) -> Self {
        let decision_counts = decision_counts::DecisionCounts::default();
        Self(Arc::new(ApiState { ledger, tokens, decision_counts, stop, sinks }))
    }

    /// All routes. An unknown route or method gets a problem document like any other error.
    pub fn router(self) -> Router {
        let (router, _) = openapi::routes().split_for_parts();
        router
            .fallback(problem::no_such_route)
            .method_not_allowed_fallback(problem::no_such_method)
            .with_state(self)
            .layer(axum::middleware::from_fn(access_log::logged))
    }

    fn ledger(&self) -> &Ledger {
        &self.0.ledger
    }
}
