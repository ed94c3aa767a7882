//! Errors as `application/problem+json` (RFC 9457), and a page for each kind, at the path in its `type`.

use axum::body::Body;
use axum::extract::Path;
use axum::response::{Html, IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use onceward::http::problem::{PAGES, QUOTA_RETRY_AFTER};
use serde::Serialize;
use utoipa::ToSchema;

/// A kind of problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    NotJson,
    Invalid,
    NoToken,
    NotAllowed,
    NoIntent,
    NoRoute,
    NoMethod,
    TooSlow,
    TooLarge,
    NotJsonType,
    WrongHost,
    StoreDown,
    Contended,
    Quota,
    Internal,
}

impl Kind {
    const ALL: [Self; 15] = [
        Self::NotJson,
        Self::Invalid,
        Self::NoToken,
        Self::NotAllowed,
        Self::NoIntent,
        Self::NoRoute,
        Self::NoMethod,
        Self::TooSlow,
        Self::TooLarge,
        Self::NotJsonType,
        Self::WrongHost,
        Self::StoreDown,
        Self::Contended,
        Self::Quota,
        Self::Internal,
    ];

    /// The name in `type`, the status, the title, and the advice.
    fn texts(self) -> (&'static str, u16, &'static str, &'static str) {
        match self {
            Self::NotJson => {
                ("not-json", 400, "Invalid JSON", "Send one JSON object. The detail says where the syntax error is.")
            }
            Self::Invalid => (
                "invalid",
                422,
                "Invalid request",
                "A field is unknown, missing or invalid. The detail says which. Nothing was written.",
            ),
            Self::NoToken => (
                "no-token",
                401,
                "Missing or unknown token",
                "Send `Authorization: Bearer TOKEN` with a token that the server knows. `onceward token new` creates one.",
            ),
            Self::NotAllowed => (
                "not-allowed",
                403,
                "The token lacks the required scope",
                "begin, finish, enqueue, lease and the other calls of an owner need the scope `use`, reading needs `read`, and resolve, \
                 requeue, cancel, rerun and reading payloads need `operate`.",
            ),
            Self::NoIntent => (
                "no-intent",
                404,
                "Intent not found",
                "Nothing is recorded under this operation and key for the tenant of the token, or the record has expired.",
            ),
            Self::NoRoute => ("no-route", 404, "Path not found", "See `/v1/openapi.json` for all paths."),
            Self::NoMethod => (
                "no-method",
                405,
                "Method not allowed",
                "The header `Allow` lists the methods. See `/v1/openapi.json` for all paths.",
            ),
            Self::TooSlow => ("too-slow", 408, "Timed out reading the body", "Send the request again."),
            Self::TooLarge => (
                "too-large",
                413,
                "The request is too large",
                "A request may have at most 1 MiB, one to `/v1/enqueue` at most 8 MiB, and the headers of an outcome at most 32 KiB. For a larger outcome, finish with \
                 a body that says where it is stored.",
            ),
            Self::NotJsonType => {
                ("not-json-type", 415, "The content type is not JSON", "Send `Content-Type: application/json`.")
            }
            Self::WrongHost => (
                "wrong-host",
                421,
                "Host not allowed",
                "Without tokens, the server only accepts requests to localhost, so that a web page in a browser cannot reach it \
                 through its own domain.",
            ),
            Self::StoreDown => (
                "store-down",
                503,
                "The store is unavailable",
                "No claim was granted, so do not run the work. Retry after `Retry-After`. The server's log has the reason.",
            ),
            Self::Contended => {
                ("contended", 503, "Too many concurrent requests for this intent", "Retry after `Retry-After`.")
            }
            Self::Quota => (
                "quota",
                429,
                "The tenant has reached its quota of records",
                "No claim was granted, so do not run the work. Recorded keys keep working. Retry with the same key after \
                 `Retry-After`: space becomes free as records expire. The operator can raise `records_per_tenant`.",
            ),
            Self::Internal => {
                ("internal", 500, "Internal server error", "This is a defect of the server. Its log has the reason.")
            }
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.texts().0 == name)
    }
}

/// A problem document (RFC 9457).
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(super) struct ProblemDocument {
    /// The kind of problem, as the path of a page on this server.
    #[serde(rename = "type")]
    #[schema(example = "/.well-known/onceward/problems/invalid")]
    kind: String,
    /// The kind of problem in words.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// What is wrong with this request. Intents are named by operation and a short hash, never by key.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

/// A problem to respond with.
#[derive(Debug)]
pub(super) struct Problem {
    kind: Kind,
    detail: Option<String>,
}

impl Problem {
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, detail: None }
    }

    pub(super) fn because(kind: Kind, detail: impl Into<String>) -> Self {
        Self { kind, detail: Some(detail.into()) }
    }

    pub(super) fn invalid(detail: impl Into<String>) -> Self {
        Self::because(Kind::Invalid, detail)
    }
}

impl Problem {
    /// The document, for a response that holds several.
    pub(super) fn into_document(self) -> ProblemDocument {
        let (name, status, title, _) = self.kind.texts();
        ProblemDocument { kind: format!("{PAGES}{name}"), title, status, detail: self.detail }
    }
}

impl From<onceward::core::name::Error> for Problem {
    fn from(error: onceward::core::name::Error) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<onceward::store::Error> for Problem {
    fn from(error: onceward::store::Error) -> Self {
        // The error names files on this machine, which clients must not see.
        tracing::error!(%error, "the store failed");
        Self::new(Kind::StoreDown)
    }
}

impl From<onceward::Error> for Problem {
    fn from(error: onceward::Error) -> Self {
        match error {
            onceward::Error::Invalid(onceward::Invalid::Randomness(_)) => internal(&error),
            onceward::Error::Invalid(error) => Self::invalid(error.to_string()),
            onceward::Error::Store(error) => error.into(),
            onceward::Error::Contended { .. } | onceward::Error::ClaimLost { .. } => Self::new(Kind::Contended),
            onceward::Error::Quota { .. } => Self::because(Kind::Quota, error.to_string()),
            error => internal(&error),
        }
    }
}

impl From<onceward::Invalid> for Problem {
    fn from(error: onceward::Invalid) -> Self {
        onceward::Error::from(error).into()
    }
}

fn internal(error: &onceward::Error) -> Problem {
    tracing::error!(%error, "a request failed with an internal error");
    Problem::new(Kind::Internal)
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let kind = self.kind;
        let document = self.into_document();
        let status = StatusCode::from_u16(document.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&document).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        match kind {
            Kind::StoreDown | Kind::Contended => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            Kind::Quota => {
                headers.insert(RETRY_AFTER, HeaderValue::from(QUOTA_RETRY_AFTER.as_secs()));
            }
            Kind::NoToken => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        response
    }
}

pub(super) async fn no_such_route() -> Problem {
    Problem::new(Kind::NoRoute)
}

pub(super) async fn no_such_method() -> Problem {
    Problem::new(Kind::NoMethod)
}

/// The explanation of a kind of problem, for people
#[utoipa::path(
    get,
    path = "/.well-known/onceward/problems/{name}",
    tag = "server",
    params(("name" = String, Path, description = "The last part of a problem's `type`")),
    security(()),
    responses(
        (status = 200, description = "The page", content_type = "text/html", body = String),
        (status = 404, description = "Unknown kind of problem", content_type = "application/problem+json", body = ProblemDocument),
    )
)]
pub(super) async fn page(Path(name): Path<String>) -> Result<Response, Problem> {
    let Some(kind) = Kind::named(&name) else {
        // A kind of the gateway: its problem documents use the same paths.
        let page = onceward::http::problem::page(&format!("{PAGES}{name}"));
        return page.map(|page| page.map(Body::new)).ok_or_else(|| Problem::new(Kind::NoRoute));
    };
    let (name, status, title, advice) = kind.texts();
    // Nothing in it comes from the request, and none of the texts contains a character that HTML would interpret.
    let page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{title}</title>\n<h1>{title}</h1>\n\
         <p>{advice}</p>\n<p>Problem <code>{name}</code>, status {status}.</p>\n</html>\n"
    );
    Ok(Html(page).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_own_name_and_plain_text() {
        for (position, kind) in Kind::ALL.into_iter().enumerate() {
            let (name, status, title, advice) = kind.texts();
            assert_eq!(Kind::named(name), Some(kind));
            assert!(Kind::ALL[..position].iter().all(|other| other.texts().0 != name));
            assert!(
                StatusCode::from_u16(status).is_ok_and(|status| status.is_client_error() || status.is_server_error())
            );
            assert!(![title, advice].concat().contains(['<', '>', '&']));
        }
    }
}
