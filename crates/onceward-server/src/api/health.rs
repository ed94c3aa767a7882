//! Liveness and readiness.

use std::time::Duration;

use axum::extract::State;
use http::StatusCode;
use onceward::every_store::StoreCheck;
use onceward::store::Durability;
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
    /// The stores, if it is ready.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stores: Vec<StoreHealth>,
}

/// A store of the server
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct StoreHealth {
    /// Its name in the configuration, or `default`.
    name: String,
    /// Whether it can be read and written.
    ready: bool,
    /// What an acknowledged write survives, if the store is ready: `level` is `durable`, `best_effort` (with `reasons`) or
    /// `volatile`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    durability: Option<Durability>,
}

fn health(status: &'static str, stores: Vec<StoreHealth>) -> Json<Health> {
    Json(Health { status, version: env!("CARGO_PKG_VERSION"), stores })
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
    health("ok", Vec::new())
}

/// Readiness
///
/// Checks the stores. Fails if none of them can be used, and once the server is shutting down.
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
    let checks = api.ledger().check_stores(READY_TIMEOUT).await;
    // Operations in the other stores go on.
    if let [StoreCheck { durability: Err(error), .. }, ..] = &checks[..]
        && checks.iter().all(|check| check.durability.is_err())
    {
        return Err(error.clone().into());
    }
    let mut stores = Vec::new();
    for StoreCheck { name, durability } in checks {
        if let Err(error) = &durability {
            tracing::warn!(store = %name, %error, "the store is not ready");
        }
        stores.push(StoreHealth { name, ready: durability.is_ok(), durability: durability.ok() });
    }
    Ok((StatusCode::OK, health("ready", stores)))
}
