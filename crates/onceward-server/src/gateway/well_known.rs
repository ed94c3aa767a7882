//! The gateway's own paths under `/.well-known/`: readiness, the policy of every route, and the problem pages.

use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Response, StatusCode, request};
use onceward::Ledger;
use onceward::core::policy::{InDoubt, Policy};
use onceward::every_store::StoreCheck;
use onceward::http::rules::KeyFrom;
use onceward::http::{Body, KeyMode, Kind, Problem, Profile, Rules, body, problem};
use serde_json::{Value, json};

use onceward_runtime::proxy::{Route, Routes};

const READY: &str = "/.well-known/onceward/ready";
const POLICY: &str = "/.well-known/idempotency";
const OURS: &str = "/.well-known/onceward/";

/// Health checks do not wait long.
const READY_TIMEOUT: Duration = Duration::from_secs(2);

/// Whether a path belongs to the gateway itself.
pub(super) fn is_ours(path: &str) -> bool {
    path == POLICY || path.starts_with(OURS)
}

/// Handles a request for the gateway itself.
pub(super) async fn answer(ledger: &Ledger, routes: &Routes, parts: &request::Parts) -> Response<Body> {
    let path = parts.uri.path();
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return Problem::because(Kind::BadRequest, "This path only supports GET and HEAD.")
            .response(Profile::default());
    }
    match path {
        READY => ready(ledger).await,
        POLICY => document(StatusCode::OK, &policy(routes)),
        _ => match problem::page(path) {
            Some(page) => page,
            None => Problem::new(Kind::NoRoute).response(Profile::default()),
        },
    }
}

/// The gateway is ready if it can read and write one of its stores: operations in the others must not stop these.
async fn ready(ledger: &Ledger) -> Response<Body> {
    let checks = ledger.check_stores(READY_TIMEOUT).await;
    for StoreCheck { name, durability } in &checks {
        if let Err(error) = durability {
            tracing::warn!(store = %name, %error, "the store is not ready");
        }
    }
    if checks.iter().any(|check| check.durability.is_ok()) {
        return document(StatusCode::OK, &json!({"ready": true}));
    }
    Problem::new(Kind::StoreDown).response(Profile::default())
}

fn document(status: StatusCode, value: &Value) -> Response<Body> {
    let mut response = Response::new(body::full(value.to_string().into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// What every client of this gateway can rely on, as a JSON document.
fn policy(routes: &Routes) -> Value {
    let problems: Vec<String> = Kind::ALL.iter().map(|kind| format!("{OURS}problems/{}", kind.name())).collect();
    json!({"routes": routes.all().iter().map(|route| of(route)).collect::<Vec<_>>(), "problems": problems})
}

/// How long a response is kept. A recipe with a window keeps it longer, and a derived key has its own window.
fn kept(rules: &Rules) -> Option<Duration> {
    let least = rules.recipe.as_ref().map(|recipe| recipe.minimum_retention()).unwrap_or_default();
    let kept = rules.window.map_or_else(|| rules.policy.kept_for(), Some);
    kept.map(|kept| kept.max(least))
}

fn of(route: &Route) -> Value {
    let rules = &route.rules;
    let policy: &Policy = &rules.policy;
    let terms = policy.terms();
    json!({
        "path": route.pattern,
        "methods": rules.methods.iter().map(Method::as_str).collect::<Vec<_>>(),
        "profile": rules.profile,
        "key": {
            "mode": match rules.key_mode {
                KeyMode::Required => "required",
                KeyMode::Optional => "optional",
                KeyMode::Derived => "derived",
            },
            "in": match &rules.key_from {
                KeyFrom::Header(name) => json!({"header": name.as_str()}),
                KeyFrom::Body(pointer) => json!({"body": pointer}),
            },
            "format": rules.key_format.as_ref().map(onceward::http::KeyFormat::to_json),
            "longest": onceward::core::name::MAX_CHARACTERS,
        },
        "fingerprint": if rules.recipe.is_some() { "recipe" } else { "request" },
        "kept_seconds": kept(rules).map(|kept| kept.as_secs()),
        "held_after_seconds": if rules.window.is_some() { 0 } else { terms.tombstone.as_secs() },
        "wait_seconds": policy.wait.as_secs(),
        "in_flight_status": rules.in_flight_status.as_u16(),
        "largest_request": rules.request_limit,
        "largest_kept_answer": policy.keep_limit,
        "server_errors_kept": rules.profile.keeps_server_errors(),
        "upstream_honours_key": route.honours_key,
        "in_doubt": match policy.in_doubt {
            InDoubt::Hold => "hold",
            InDoubt::Tell => "tell",
            InDoubt::Retry => "retry",
            InDoubt::Probe => "probe",
        },
    })
}
