//! Liveness and readiness.

use std::time::Duration;

use axum::extract::State;
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::Api;
use super::body::Json;
use super::problem::{Kind, Problem, ProblemDocument};

/// A store that takes longer than this counts as down.
const READY_TIMEOUT: Duration = Duration::from_secs(2);

/// The state of the server
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Health {
    /// `ok` or `ready`.
    status: &'static str,
    /// The version of the server.
    version: &'static str,
}

fn health(status: &'static str) -> Json<Health> {
    Json(Health { status, version: env!("CARGO_PKG_VERSION") })
}

/// Liveness
#[utoipa::path(
    get,
    path = "/healthz",
    tag = "server",
    security(()),
    responses((status = 200, description = "The server is running", body = Health))
)]
pub(super) async fn healthz() -> Json<Health> {
    health("ok")
}

/// Readiness
///
/// Checks the store. Fails once the server is shutting down.
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "server",
    security(()),
    responses(
        (status = 200, description = "The server is ready", body = Health),
        (status = 503, description = "The server is not ready", content_type = "application/problem+json", body = ProblemDocument),
    )
)]
pub(super) async fn readyz(State(api): State<Api>) -> Result<(StatusCode, Json<Health>), Problem> {
    if api.0.stop.is_stopped() {
        return Err(Problem::because(Kind::StoreDown, "the server is shutting down"));
    }
    match tokio::time::timeout(READY_TIMEOUT, api.ledger().ping()).await {
        Ok(answered) => {
            answered?;
            Ok((StatusCode::OK, health("ready")))
        }
        Err(_) => Err(Problem::because(Kind::StoreDown, "the store does not respond")),
    }
}
