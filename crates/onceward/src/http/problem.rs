//! Everything that we say ourselves, as `application/problem+json`. The type of a problem is the path of a page that the
//! server itself serves.

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

/// Where the pages are.
pub const PAGES: &str = "/.well-known/onceward/problems/";

/// Tells the SDKs of Stripe whether to try again; it outranks the status.
const STRIPE_SHOULD_RETRY: HeaderName = HeaderName::from_static("stripe-should-retry");

/// The same for those of OpenAI and Anthropic.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// What a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A key is required and there is none.
    KeyMissing,
    /// What should be a key is none.
    KeyMalformed,
    /// The body cannot be read as what it says it is.
    BodyMalformed,
    /// The body is over the limit.
    BodyTooLarge,
    /// Nobody said whose request it is.
    NoCredential,
    /// What says whose request it is cannot be believed.
    BadCredential,
    /// Somebody is doing it at this moment.
    InFlight,
    /// The attempt that was waited for was given back.
    AttemptFailed,
    /// An attempt may have happened.
    InDoubt,
    /// The key came with another request.
    Mismatch,
    /// Two intents have one derived key.
    Collision,
    /// It is done, and its answer is not kept.
    NotKept,
    /// It waits for the courier.
    Queued,
    /// All attempts are used up.
    Dead,
    /// The ledger cannot be reached.
    StoreDown,
    /// The other side was not reached; nothing was sent.
    Unreachable,
    /// The other side was reached, and did not answer.
    NoAnswer,
    /// The other side did not answer in time.
    TimedOut,
    /// The request itself is wrong.
    BadRequest,
    /// The body of the request did not come in time; nothing was begun.
    TooSlow,
    /// Nothing is configured for this path.
    NoRoute,
    /// More at once than is allowed.
    Overloaded,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 22] = [
        Self::KeyMissing,
        Self::KeyMalformed,
        Self::BodyMalformed,
        Self::BodyTooLarge,
        Self::NoCredential,
        Self::BadCredential,
        Self::InFlight,
        Self::AttemptFailed,
        Self::InDoubt,
        Self::Mismatch,
        Self::Collision,
        Self::NotKept,
        Self::Queued,
        Self::Dead,
        Self::StoreDown,
        Self::Unreachable,
        Self::NoAnswer,
        Self::TimedOut,
        Self::BadRequest,
        Self::TooSlow,
        Self::NoRoute,
        Self::Overloaded,
    ];

    /// The last part of its type.
    pub fn name(self) -> &'static str {
        self.words().0
    }

    /// One line.
    pub fn title(self) -> &'static str {
        self.words().1
    }

    /// What it means and what to do, for the page.
    pub fn advice(self) -> &'static str {
        self.words().2
    }

    /// The HTTP status.
    pub fn status(self) -> StatusCode {
        match self {
            Self::KeyMissing | Self::KeyMalformed | Self::BodyMalformed | Self::BadRequest => StatusCode::BAD_REQUEST,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::NoCredential | Self::BadCredential => StatusCode::UNAUTHORIZED,
            Self::InFlight | Self::AttemptFailed | Self::InDoubt | Self::Collision | Self::Queued | Self::Dead => {
                StatusCode::CONFLICT
            }
            Self::Mismatch => StatusCode::UNPROCESSABLE_ENTITY,
            Self::NotKept => StatusCode::GONE,
            Self::StoreDown | Self::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unreachable | Self::NoAnswer => StatusCode::BAD_GATEWAY,
            Self::TimedOut => StatusCode::GATEWAY_TIMEOUT,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::NoRoute => StatusCode::NOT_FOUND,
        }
    }

    /// Whether the same request with the same key may help; `None` where the status says it.
    fn should_retry(self) -> Option<bool> {
        match self {
            Self::InFlight
            | Self::AttemptFailed
            | Self::StoreDown
            | Self::Unreachable
            | Self::TooSlow
            | Self::Overloaded => Some(true),
            Self::InDoubt | Self::Mismatch | Self::Collision | Self::NotKept | Self::Queued | Self::Dead => Some(false),
            _ => None,
        }
    }

    fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::KeyMissing => (
                "key-missing",
                "An idempotency key is required",
                "Send a key that names what you want, in the header Idempotency-Key, and the same key with every retry of it.",
            ),
            Self::KeyMalformed => (
                "key-malformed",
                "The idempotency key is malformed",
                "A key has 1 to 255 visible ASCII characters, bare or as a quoted string, in one header line.",
            ),
            Self::BodyMalformed => (
                "body-malformed",
                "The body cannot be read",
                "The key is made from the body, so the body has to be the JSON that its content type promises, with the fields that make the intent.",
            ),
            Self::BodyTooLarge => (
                "body-too-large",
                "The body is over the limit",
                "A guarded request is read whole before it is passed on, up to a limit that the operator can raise.",
            ),
            Self::NoCredential => (
                "no-credential",
                "Nobody said whose request this is",
                "Keys belong to a tenant. Send the credential that this route names.",
            ),
            Self::BadCredential => (
                "bad-credential",
                "The credential is not accepted",
                "A replay is answered without asking the other side, so the credential has to be one that can be trusted here.",
            ),
            Self::InFlight => (
                "in-flight",
                "The same request is being worked on",
                "Ask again with the same key after Retry-After: you will get its outcome.",
            ),
            Self::AttemptFailed => (
                "attempt-failed",
                "The attempt that you waited for did nothing",
                "It was given back. Try again with the same key.",
            ),
            Self::InDoubt => (
                "in-doubt",
                "It is not known whether this happened",
                "An attempt may have taken effect and its answer was lost. Do not try again under another key: find out at the other side, then settle it with `onceward resolve`.",
            ),
            Self::Mismatch => (
                "mismatch",
                "The key was used with another request",
                "One key means one request. A different request needs a key of its own.",
            ),
            Self::Collision => (
                "collision",
                "Two intents have the same derived key",
                "This should never happen. Nothing was done. Please report it.",
            ),
            Self::NotKept => (
                "not-kept",
                "It is done, but its answer is not kept",
                "The request took effect and will not run again. Its answer was too large to keep, or has expired. Look at the other side for the result.",
            ),
            Self::Queued => ("queued", "It waits to be delivered", "The courier will do it. Ask again later."),
            Self::Dead => (
                "dead",
                "All attempts are used up",
                "None of them took effect. It runs again only when an operator puts it back.",
            ),
            Self::StoreDown => (
                "store-down",
                "The ledger cannot be reached",
                "Without it nobody can tell whether this was done before, so nothing was done. Try again with the same key.",
            ),
            Self::Unreachable => {
                ("unreachable", "The other side cannot be reached", "Nothing was sent. Try again with the same key.")
            }
            Self::NoAnswer => (
                "no-answer",
                "The other side did not answer",
                "The request was sent and may have taken effect. A retry with the same key tells what is known.",
            ),
            Self::TimedOut => (
                "timed-out",
                "The other side did not answer in time",
                "The request was sent and may have taken effect. A retry with the same key tells what is known.",
            ),
            Self::BadRequest => ("bad-request", "The request is wrong", "The detail says what is wrong with it."),
            Self::TooSlow => (
                "too-slow",
                "The request did not arrive in time",
                "Its body was waited for in vain, so nothing was begun. Try again with the same key.",
            ),
            Self::NoRoute => ("no-route", "There is no such route", "The gateway has no upstream for this path."),
            Self::Overloaded => {
                ("overloaded", "Too much at once", "Nothing was done. Try again with the same key after Retry-After.")
            }
        }
    }
}

/// A problem, with what is known about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// What it is.
    pub kind: Kind,
    detail: Option<String>,
    retry_after: Option<Duration>,
    should_retry: Option<bool>,
    more: Map<String, Value>,
}

impl Problem {
    /// A problem of this kind.
    pub fn new(kind: Kind) -> Self {
        Self { kind, detail: None, retry_after: None, should_retry: kind.should_retry(), more: Map::new() }
    }

    /// A problem of this kind, with a sentence about this case. Never a key or an argument.
    pub fn because(kind: Kind, detail: impl std::fmt::Display) -> Self {
        Self { detail: Some(detail.to_string()), ..Self::new(kind) }
    }

    /// When to ask again.
    #[must_use]
    pub fn later(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// Whether to ask again at all.
    #[must_use]
    pub fn retry(mut self, should_retry: bool) -> Self {
        self.should_retry = Some(should_retry);
        self
    }

    /// A doubt says since when.
    #[must_use]
    pub fn since(self, since: Timestamp) -> Self {
        self.with("since", since.to_string())
    }

    /// Which intent it is about, so that an operator finds it: `onceward list` shows the same names. The key itself stays
    /// with who sent it.
    #[must_use]
    pub fn about(self, identity: &Identity) -> Self {
        let (tenant, operation) = (identity.tenant.as_str(), identity.operation.as_str());
        self.with("intent", identity.digest().to_hex()).with("tenant", tenant).with("operation", operation)
    }

    /// A further member.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.more.insert(name.to_owned(), value.into());
        self
    }

    /// The answer, in words that the client understands.
    pub fn response(&self, dialect: impl Into<Dialect>) -> Response<Body> {
        let detail = self.detail.as_deref().unwrap_or(self.kind.advice());
        match dialect.into() {
            Dialect::Http(profile) => self.document(profile, detail),
            Dialect::Grpc => {
                // It has no members, only words.
                let words = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let more: Vec<_> =
                    self.more.iter().map(|(name, value)| format!(" {name}: {}.", words(value))).collect();
                grpc::problem(self.kind, &format!("{detail}{}", more.concat()), self.retry_after, self.should_retry)
            }
        }
    }

    fn document(&self, profile: Profile, detail: &str) -> Response<Body> {
        let status = self.kind.status();
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
            // Stripe's client for Node takes an answer without this member for a success, whatever its status.
            let message = self.detail.as_deref().unwrap_or(self.kind.advice());
            members.insert("error".to_owned(), json!({"type": error, "code": self.kind.name(), "message": message}));
        }
        members.extend(self.more.clone());
        let mut response = Response::new(body::full(Bytes::from(Value::Object(members).to_string())));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(after) = self.retry_after {
            // Rounded up: who comes too early asks twice.
            headers.insert(RETRY_AFTER, HeaderValue::from(after.as_millis().div_ceil(1000).max(1) as u64));
        }
        if let Some(should_retry) = self.should_retry {
            let value = HeaderValue::from_static(if should_retry { "true" } else { "false" });
            headers.insert(STRIPE_SHOULD_RETRY, value.clone());
            headers.insert(SHOULD_RETRY, value);
        }
        response
    }
}

/// The page at the path of a problem's type.
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
    fn every_problem_has_a_name_of_its_own_and_a_page() {
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
    async fn stripes_clients_find_an_error_in_every_problem() {
        for kind in Kind::ALL {
            let answer = Problem::because(kind, "for this reason").response(Profile::Stripe);
            let (bytes, _) = body::whole(answer.into_body(), 10_000).await.unwrap();
            let members: Value = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(members["error"]["message"], "for this reason", "{kind:?}");
            assert!(members["error"]["type"].is_string(), "{kind:?}");
        }
    }

    #[test]
    fn what_a_retry_cannot_help_says_so_to_the_sdks() {
        for (kind, retry) in [(Kind::InDoubt, "false"), (Kind::Mismatch, "false"), (Kind::InFlight, "true")] {
            let response = Problem::new(kind).response(Profile::Ietf);
            assert_eq!(response.headers()["stripe-should-retry"], retry);
            assert_eq!(response.headers()["x-should-retry"], retry);
        }
    }
}
