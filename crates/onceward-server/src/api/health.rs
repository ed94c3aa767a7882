//! Is it there, and is it ready.

use std::time::Duration;

use axum::extract::State;
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::Api;
use super::body::Json;
use super::problem::{Kind, Problem, Told};

/// A store that takes longer to say that there is nothing has something else to do.
const WITHIN: Duration = Duration::from_secs(2);

/// How the server is
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

/// Is the server there?
#[utoipa::path(
    get,
    path = "/healthz",
    tag = "server",
    security(()),
    responses((status = 200, description = "It is", body = Health))
)]
pub(super) async fn healthz() -> Json<Health> {
    health("ok")
}

/// Can it be used?
///
/// Asks the store. Not any more once the server has been told to stop.
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "server",
    security(()),
    responses(
        (status = 200, description = "It can", body = Health),
        (status = 503, description = "Not at this moment", content_type = "application/problem+json", body = Told),
    )
)]
pub(super) async fn readyz(State(api): State<Api>) -> Result<(StatusCode, Json<Health>), Problem> {
    if api.0.stop.is_stopped() {
        return Err(Problem::because(Kind::StoreDown, "the server is about to stop"));
    }
    match tokio::time::timeout(WITHIN, api.ledger().ping()).await {
        Ok(answered) => {
            answered?;
            Ok((StatusCode::OK, health("ready")))
        }
        Err(_) => Err(Problem::because(Kind::StoreDown, "the store does not answer")),
    }
}
