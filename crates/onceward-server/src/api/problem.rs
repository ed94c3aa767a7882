//! What is wrong with a request, as `application/problem+json`; and a page for each kind, which its `type` names.

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

    /// Its name in `type`, its status, its title, and what to do about it.
    fn told(self) -> (&'static str, u16, &'static str, &'static str) {
        match self {
            Self::NotJson => {
                ("not-json", 400, "The body is not JSON", "Send one JSON object. The detail says where it goes wrong.")
            }
            Self::Invalid => (
                "invalid",
                422,
                "The request is refused",
                "Something in it is unknown, missing, or not what it has to be. The detail says what. Nothing was written.",
            ),
            Self::NoToken => (
                "no-token",
                401,
                "No valid token",
                "Send `Authorization: Bearer TOKEN` with a token that the server knows. `onceward token new` makes one.",
            ),
            Self::NotAllowed => (
                "not-allowed",
                403,
                "The token does not allow this",
                "begin, finish and the like need the scope `use`, looking needs `read`, and resolve needs `operate`.",
            ),
            Self::NoIntent => (
                "no-intent",
                404,
                "There is no such intent",
                "Nothing is recorded under this operation and key for the tenant of the token, or it has expired.",
            ),
            Self::NoRoute => ("no-route", 404, "There is nothing here", "What there is stands in `/v1/openapi.json`."),
            Self::NoMethod => (
                "no-method",
                405,
                "Not with this method",
                "The header `Allow` names the methods. What there is stands in `/v1/openapi.json`.",
            ),
            Self::TooSlow => ("too-slow", 408, "The body took too long", "Send it again."),
            Self::TooLarge => (
                "too-large",
                413,
                "The request is too large",
                "A request has at most 1 MiB, and the headers of an outcome at most 32 KiB. An outcome that is larger can be \
                 finished with a body that says where it is.",
            ),
            Self::NotJsonType => {
                ("not-json-type", 415, "The body is not said to be JSON", "Send `Content-Type: application/json`.")
            }
            Self::WrongHost => (
                "wrong-host",
                421,
                "This server goes by another name",
                "Without tokens, only requests to localhost are answered, so that no page in a browser can get at it under \
                 a name of its own.",
            ),
            Self::StoreDown => (
                "store-down",
                503,
                "The store cannot be used at this moment",
                "Nothing was granted, so nothing may run. Ask again after `Retry-After`. The server's log says what is \
                 wrong.",
            ),
            Self::Contended => {
                ("contended", 503, "Too many at once for the same intent", "Ask again after `Retry-After`.")
            }
            Self::Quota => (
                "quota",
                429,
                "The tenant has reached its quota of records",
                "Nothing was granted, so nothing may run. Keys that are recorded already go on working. Ask again with the \
                 same key after `Retry-After`: places become free as records expire. The operator can raise \
                 `records_per_tenant`.",
            ),
            Self::Internal => {
                ("internal", 500, "The server cannot answer", "This is a fault of the server. Its log says more.")
            }
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.told().0 == name)
    }
}

/// What is wrong, after RFC 9457.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(super) struct Told {
    /// Which kind, as the path of a page on this server.
    #[serde(rename = "type")]
    #[schema(example = "/.well-known/onceward/problems/invalid")]
    kind: String,
    /// The kind in words.
    title: &'static str,
    /// The status of the answer.
    status: u16,
    /// This very problem in words. Intents are named by operation and a short hash, never by key.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

/// A problem that is to be answered.
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

impl From<onceward::core::name::Error> for Problem {
    fn from(error: onceward::core::name::Error) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<onceward::store::Error> for Problem {
    fn from(error: onceward::store::Error) -> Self {
        // It names files of this machine, which are nobody else's business.
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
    tracing::error!(%error, "a request could not be answered");
    Problem::new(Kind::Internal)
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (name, status, title, _) = self.kind.told();
        let told = Told { kind: format!("{PAGES}{name}"), title, status, detail: self.detail };
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&told).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        match self.kind {
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

/// What a problem of this kind means, for people
#[utoipa::path(
    get,
    path = "/.well-known/onceward/problems/{name}",
    tag = "server",
    params(("name" = String, Path, description = "The last part of a problem's `type`")),
    security(()),
    responses(
        (status = 200, description = "The page", content_type = "text/html", body = String),
        (status = 404, description = "There is no such kind", content_type = "application/problem+json", body = Told),
    )
)]
pub(super) async fn page(Path(name): Path<String>) -> Result<Response, Problem> {
    let Some(kind) = Kind::named(&name) else {
        // One of the gateway's: its answers name the same place.
        let page = onceward::http::problem::page(&format!("{PAGES}{name}"));
        return page.map(|page| page.map(Body::new)).ok_or_else(|| Problem::new(Kind::NoRoute));
    };
    let (name, status, title, advice) = kind.told();
    // Nothing in it comes from the request, and none of our own words holds a character that HTML would read otherwise.
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
    fn every_kind_has_a_name_of_its_own_and_plain_words() {
        for (position, kind) in Kind::ALL.into_iter().enumerate() {
            let (name, status, title, advice) = kind.told();
            assert_eq!(Kind::named(name), Some(kind));
            assert!(Kind::ALL[..position].iter().all(|other| other.told().0 != name));
            assert!(
                StatusCode::from_u16(status).is_ok_and(|status| status.is_client_error() || status.is_server_error())
            );
            assert!(![title, advice].concat().contains(['<', '>', '&']));
        }
    }
}
