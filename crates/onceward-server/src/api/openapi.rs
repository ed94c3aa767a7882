//! The OpenAPI document, from the same code that answers.

use std::sync::LazyLock;

use axum::response::IntoResponse;
use http::header::CONTENT_TYPE;
use serde_json::{Value, json};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{Api, begin, health, look, own, problem, resolve};

/// What the document says besides what the routes say.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Onceward",
        description = "Makes side effects happen once: records the intent, lets one caller do the work, gives every repeat \
                       its outcome. Decisions are answers with status 200; what is wrong with a request is a problem \
                       after RFC 9457.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    security(("bearer" = [])),
    tags(
        (name = "claims", description = "Ask for the claim, and own it. Scope `use`."),
        (name = "looking", description = "Intents and counts. Scope `read`."),
        (name = "operating", description = "Settle what is in doubt. Scope `operate`."),
        (name = "server", description = "The server itself. No token needed."),
    )
)]
struct About;

/// Every route, with its part of the document.
pub(super) fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::with_openapi(About::openapi())
        .routes(routes!(begin::begin))
        .routes(routes!(own::sent))
        .routes(routes!(own::renew))
        .routes(routes!(own::finish))
        .routes(routes!(own::release))
        .routes(routes!(own::doubt))
        .routes(routes!(own::not_found))
        .routes(routes!(resolve::resolve))
        .routes(routes!(look::list))
        .routes(routes!(look::get))
        .routes(routes!(look::stats))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(problem::page))
        .routes(routes!(openapi_json))
}

/// The text of the document.
pub(crate) fn document() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let mut document = json!(routes().to_openapi());
        complete(&mut document);
        format!("{document:#}\n")
    });
    &TEXT
}

/// What the derived parts cannot say.
fn complete(document: &mut Value) {
    document["components"]["securitySchemes"] = json!({ "bearer": { "type": "http", "scheme": "bearer" } });
    let schemas = &mut document["components"]["schemas"];
    // One of them, and nothing beside it.
    for choice in ["GivenBody", "GivenResolution"] {
        for variant in schemas[choice]["oneOf"].as_array_mut().into_iter().flatten() {
            if variant["type"] == "object" {
                variant["additionalProperties"] = json!(false);
            }
        }
    }
    schemas["BeginRequest"]["anyOf"] = json!([{ "required": ["key"] }, { "required": ["intent"] }]);
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
