//! The OpenAPI document, generated from the handlers.

use std::sync::LazyLock;

use axum::response::IntoResponse;
use http::header::CONTENT_TYPE;
use serde_json::{Value, json};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Api, begin, enqueue, entries, health, intents, lease, owner, problem, rerun, resolve};

/// The parts of the document that the routes do not contain.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Onceward",
        description = "Makes side effects happen once: records the intent, lets one caller do the work, and replays the \
               outcome to every repeat. Decisions are responses with status 200; errors are problem documents \
               (RFC 9457).",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    security(("bearer" = [])),
    tags(
        (name = "claims", description = "Ask for a claim, and report on it as its owner. Scope `use`."),
        (name = "outbox", description = "Queue entries, and fetch them for delivery. Scope `use`."),
        (name = "intents", description = "List, show and count intents. Scope `read`."),
        (name = "operating", description = "Settle intents in doubt, and decide about entries of the outbox. Scope `operate`."),
        (name = "server", description = "The server itself. No token required."),
    )
)]
struct DocumentBase;

/// All routes, with their parts of the document.
pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::with_openapi(DocumentBase::openapi())
        .routes(routes!(begin::begin))
        .routes(routes!(owner::sent))
        .routes(routes!(owner::renew))
        .routes(routes!(owner::finish))
        .routes(routes!(owner::release))
        .routes(routes!(owner::doubt))
        .routes(routes!(owner::not_found))
        .routes(routes!(enqueue::enqueue))
        .routes(routes!(lease::lease))
        .routes(routes!(resolve::resolve))
        .routes(routes!(entries::requeue))
        .routes(routes!(entries::cancel))
        .routes(routes!(rerun::rerun))
        .routes(routes!(intents::list))
        .routes(routes!(intents::get))
        .routes(routes!(intents::stats))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(problem::page))
        .routes(routes!(openapi_json))
}

/// The text of the document.
pub fn document() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let mut document = json!(routes().to_openapi());
        complete(&mut document);
        format!("{document:#}\n")
    });
    &TEXT
}

/// Adds what the derive macros cannot express.
fn complete(document: &mut Value) {
    document["components"]["securitySchemes"] = json!({ "bearer": { "type": "http", "scheme": "bearer" } });
    let schemas = &mut document["components"]["schemas"];
    // Exactly one of them, and no other member.
    for choice in ["BodyInput", "ResolutionInput"] {
        for variant in schemas[choice]["oneOf"].as_array_mut().into_iter().flatten() {
            if variant["type"] == "object" {
                variant["additionalProperties"] = json!(false);
            }
        }
    }
    let without_key = json!({ "required": ["intent"], "properties": { "key_digest": false } });
    schemas["ReleaseRequest"]["not"] = json!({ "required": ["not_before_ms", "retry_in_ms"] });
    schemas["LeaseEntriesRequest"]["oneOf"] = json!([{ "required": ["operation"] }, { "required": ["operations"] }]);
    let operation = schemas["EnqueueEntry"]["properties"]["operation"].clone();
    let name = json!({ "type": "string", "minLength": 1, "maxLength": 255, "pattern": operation["pattern"] });
    schemas["LeaseEntriesRequest"]["properties"]["operations"]["items"] = name;
    // A wrong entry is refused in its own result, not with the whole request.
    schemas["EnqueueBatch"]["properties"]["entries"]["items"] =
        json!({ "anyOf": [{ "$ref": "#/components/schemas/EnqueueEntry" }, {}] });
    schemas["BeginRequest"]["anyOf"] = json!([{ "required": ["key"] }, without_key]);
}

/// This document
#[utoipa::path(
    get,
    path = "/v1/openapi.json",
    tag = "server",
    security(()),
    responses((status = 200, description = "The document", content_type = "application/json", body = serde_json::Value))
)]
pub(super) async fn openapi_json() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], document())
}
