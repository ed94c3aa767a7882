//! Error responses that Onceward itself writes, as `application/problem+json`. The `type` of a problem is the path of a page
//! that the server itself serves.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use serde_json::{Map, Value, json};

use onceward_core::name::Identity;
use onceward_core::time::Timestamp;

use super::body::{self, Body};
use super::dialect::Dialect;
use super::grpc;
use super::profile::Profile;

pub use super::problem_kind::Kind;

/// The path under which the server serves one page for each kind of problem.
pub const PAGES: &str = "/.well-known/onceward/problems/";

/// `Retry-After` for a tenant over its quota. Quota becomes free when a record expires, which is hours or days after it was
/// made: a faster retry would only be load.
pub const QUOTA_RETRY_AFTER: Duration = Duration::from_secs(60);

/// Tells Stripe's SDKs whether to retry. It takes precedence over the status.
const STRIPE_SHOULD_RETRY: HeaderName = HeaderName::from_static("stripe-should-retry");

/// The same for the SDKs of OpenAI and Anthropic.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// A problem: its kind, and the details of this case.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// Which problem it is.
    pub kind: Kind,
    detail: Option<String>,
    status: Option<StatusCode>,
    retry_after: Option<Duration>,
    should_retry: Option<bool>,
    more: Map<String, Value>,
}

impl Problem {
    /// A problem of this kind.
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            detail: None,
            status: None,
            retry_after: None,
            should_retry: kind.should_retry(),
            more: Map::new(),
        }
    }

    /// A problem of this kind, with a sentence about this case. The sentence never contains a key or an argument.
    pub fn because(kind: Kind, detail: impl std::fmt::Display) -> Self {
        Self { detail: Some(detail.to_string()), ..Self::new(kind) }
    }

    /// Replaces the status of its kind.
    #[must_use]
    pub fn status(mut self, status: StatusCode) -> Self {
        self.status = Some(status);
        self
    }

    /// Tells the client how long to wait before it retries.
    #[must_use]
    pub fn later(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// Tells the client whether to retry at all.
    #[must_use]
    pub fn retry(mut self, should_retry: bool) -> Self {
        self.should_retry = Some(should_retry);
        self
    }

    /// Says since when the intent has been in doubt.
    #[must_use]
    pub fn since(self, since: Timestamp) -> Self {
        self.with("since", since.to_string())
    }

    /// Names the intent, so that an operator can find it: `onceward list` shows the same names. The key itself is not shown.
    #[must_use]
    pub fn about(self, identity: &Identity) -> Self {
        let (tenant, operation) = (identity.tenant.as_str(), identity.operation.as_str());
        self.with("intent", identity.digest().to_hex()).with("tenant", tenant).with("operation", operation)
    }

    /// Adds a member to the document.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.more.insert(name.to_owned(), value.into());
        self
    }

    /// The HTTP response, in the protocol that the client speaks.
    pub fn response(&self, dialect: impl Into<Dialect>) -> Response<Body> {
        let detail = self.detail.as_deref().unwrap_or(self.kind.advice());
        match dialect.into() {
            Dialect::Http(profile) => self.document(profile, detail),
            Dialect::Grpc => {
                // A gRPC status has no members, only a message.
                let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let more: Vec<_> = self.more.iter().map(|(name, value)| format!(" {name}: {}.", text(value))).collect();
                grpc::problem(self.kind, &format!("{detail}{}", more.concat()), self.retry_after, self.should_retry)
            }
        }
    }

    fn document(&self, profile: Profile, detail: &str) -> Response<Body> {
        let status = self.status.unwrap_or(self.kind.status());
        let mut members = Map::new();
        members.insert("type".to_owned(), json!(format!("{PAGES}{}", self.kind.name())));
        members.insert("title".to_owned(), json!(self.kind.title()));
        members.insert("status".to_owned(), json!(status.as_u16()));
        members.insert("detail".to_owned(), json!(detail));
        if let Some(code) = profile.code(self.kind) {
            members.insert("code".to_owned(), json!(code));
            members.insert("message".to_owned(), json!(self.kind.title()));
        }
        if let Some(error) = profile.error(self.kind) {
            // Stripe's client for Node treats a response without this member as a success, whatever its status.
            let message = self.detail.as_deref().unwrap_or(self.kind.advice());
            members.insert("error".to_owned(), json!({"type": error, "code": self.kind.name(), "message": message}));
        }
        // Rounded up: a client that comes back too early has to ask twice.
        let retry_after = self.retry_after.map(|after| after.as_millis().div_ceil(1000).max(1) as u64);
        if let Some(seconds) = retry_after {
            members.insert("retry_after".to_owned(), json!(seconds));
        }
        members.extend(self.more.clone());
        let mut response = Response::new(body::full(Bytes::from(Value::Object(members).to_string())));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(should_retry) = self.should_retry {
            let value = HeaderValue::from_static(if should_retry { "true" } else { "false" });
            headers.insert(STRIPE_SHOULD_RETRY, value.clone());
            headers.insert(SHOULD_RETRY, value);
        }
        response
    }
}

/// The page at the path of a problem's `type`.
pub fn page(path: &str) -> Option<Response<Body>> {
    let name = path.strip_prefix(PAGES)?;
    let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name)?;
    let (title, advice, status) = (kind.title(), kind.advice(), kind.status());
    let text = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title></head>\n<body>\n\
         <h1>{title}</h1>\n<p>{advice}</p>\n<p>Status: {status}. Type: <code>{path}</code>.</p>\n</body></html>\n"
    );
    let mut response = Response::new(body::full(Bytes::from(text)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    Some(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_has_a_unique_name_and_a_page() {
        let mut names: Vec<&str> = Kind::ALL.into_iter().map(Kind::name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Kind::ALL.len());
        for kind in Kind::ALL {
            assert!(page(&format!("{PAGES}{}", kind.name())).is_some());
        }
        assert!(page(&format!("{PAGES}other")).is_none());
    }

    #[tokio::test]
    async fn stripe_clients_find_an_error_member_in_every_problem() {
        for kind in Kind::ALL {
            let response = Problem::because(kind, "for this reason").response(Profile::Stripe);
            let (bytes, _) = body::read_all(response.into_body(), 10_000).await.unwrap();
            let members: Value = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(members["error"]["message"], "for this reason", "{kind:?}");
            assert!(members["error"]["type"].is_string(), "{kind:?}");
        }
    }

    #[test]
    fn sdks_are_told_whether_a_retry_can_help() {
        for (kind, retry) in [(Kind::InDoubt, "false"), (Kind::Mismatch, "false"), (Kind::InFlight, "true")] {
            let response = Problem::new(kind).response(Profile::Ietf);
            assert_eq!(response.headers()["stripe-should-retry"], retry);
            assert_eq!(response.headers()["x-should-retry"], retry);
        }
    }
}
