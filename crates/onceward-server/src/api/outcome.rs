//! Outcomes as JSON. Bytes are lossless: text if they are UTF-8, base64 otherwise.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use onceward::core::outcome::{self, Body, JSON, Outcome};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::problem::{Kind, Problem};
use super::schema::whole;

/// Accepts encoders that leave stray bits at the end.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// Far more headers than are worth keeping.
const MAX_HEADERS: usize = 64;

/// All headers of an outcome together, names and values: servers accept heads of 8 to 32 KiB.
const MAX_HEADER_BYTES: usize = 32 * 1024;

/// Headers that belong to one connection or one client and are never replayed.
const DROPPED: [&str; 11] = [
    "connection",
    "content-length",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Whether the effect happened.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It happened.
    Success,
    /// It did not happen, and the same request would fail the same way again.
    Failure,
}

/// The outcome that every repeat gets
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OutcomeInput {
    verdict: Verdict,
    /// The caller's own status: an HTTP status, an exit code, or 0.
    #[serde(default, deserialize_with = "whole")]
    #[schema(minimum = -2_147_483_648_i64, maximum = 2_147_483_647_i64)]
    status: i32,
    /// The media type of the body.
    #[serde(default = "json")]
    #[schema(default = "application/json", min_length = 1, max_length = 255, pattern = r"^[\x20-\x7e]+$")]
    content_type: String,
    /// Further headers that are safe to replay, at most 32 KiB together. Hop-by-hop headers and `Set-Cookie` are dropped.
    #[serde(default)]
    #[schema(max_items = 64)]
    headers: Vec<Header>,
    /// The bytes that every repeat gets. Defaults to an empty body.
    #[serde(default)]
    body: BodyInput,
}

/// Bytes: exactly one of these members
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum BodyInput {
    /// Bytes that are UTF-8.
    Text(String),
    /// Any bytes, in standard base64 with padding.
    Base64(Base64),
}

/// Standard base64 with padding
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[schema(pattern = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$")]
pub(super) struct Base64(String);

impl Default for BodyInput {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

/// A header of an HTTP response
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    #[schema(min_length = 1, max_length = 255, pattern = "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]
    name: String,
    #[schema(max_length = 8192, pattern = r"^[\x20-\x7e]*$")]
    value: String,
}

/// A stored outcome
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct StoredOutcome {
    verdict: Verdict,
    /// The first caller's own status: an HTTP status, an exit code, or 0.
    status: i32,
    /// The media type of the body.
    content_type: String,
    /// Further headers.
    headers: Vec<Header>,
    body: StoredBody,
    /// The id that the downstream gave the effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    reference: Option<String>,
}

/// Bytes: exactly one of these members
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum StoredBody {
    /// The bytes, if they are UTF-8.
    Text(String),
    /// The bytes in standard base64 with padding, if they are not UTF-8.
    Base64(Base64),
    /// It is done and will not run again, but its response was too large to keep.
    TooLarge {
        /// The number of bytes.
        size: u64,
        /// Their SHA-256.
        digest: String,
    },
}

fn json() -> String {
    JSON.to_owned()
}

impl From<Verdict> for outcome::Verdict {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Success => Self::Success,
            Verdict::Failure => Self::Failure,
        }
    }
}

impl From<outcome::Verdict> for Verdict {
    fn from(verdict: outcome::Verdict) -> Self {
        match verdict {
            outcome::Verdict::Success => Self::Success,
            outcome::Verdict::Failure => Self::Failure,
        }
    }
}

impl TryFrom<OutcomeInput> for Outcome {
    type Error = Problem;

    fn try_from(given: OutcomeInput) -> Result<Self, Problem> {
        let content_type = given.content_type;
        let is_plain = |text: &str| text.bytes().all(|byte| (0x20..=0x7e).contains(&byte));
        if content_type.is_empty() || content_type.len() > 255 || !is_plain(&content_type) {
            return Err(Problem::invalid("outcome.content_type: 1 to 255 printable ASCII characters are required"));
        }
        if given.headers.len() > MAX_HEADERS {
            return Err(Problem::invalid(format!("outcome.headers: the maximum is {MAX_HEADERS} headers")));
        }
        let size: usize = given.headers.iter().map(|header| header.name.len() + header.value.len()).sum();
        if size > MAX_HEADER_BYTES {
            let detail = format!("outcome.headers: they have {size} bytes together; the maximum is {MAX_HEADER_BYTES}");
            return Err(Problem::because(Kind::TooLarge, detail));
        }
        let mut headers = Vec::new();
        for Header { name, value } in given.headers {
            let is_header = name.len() <= 255 && HeaderName::from_bytes(name.as_bytes()).is_ok();
            if !is_header || value.len() > 8192 || !is_plain(&value) || HeaderValue::from_str(&value).is_err() {
                return Err(Problem::invalid("outcome.headers: one of them is not a valid HTTP header"));
            }
            if !DROPPED.iter().any(|dropped| dropped.eq_ignore_ascii_case(&name)) {
                headers.push((name, value));
            }
        }
        let body = match given.body {
            BodyInput::Text(text) => text.into_bytes(),
            BodyInput::Base64(Base64(text)) => {
                BASE64.decode(text).map_err(|_| Problem::invalid("outcome.body.base64: invalid standard base64"))?
            }
        };
        let mut outcome = Self::of(given.verdict.into(), &content_type, body).with_status(given.status);
        outcome.headers = headers;
        Ok(outcome)
    }
}

impl StoredBody {
    pub(super) fn of(bytes: &Bytes) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Base64(Base64(BASE64.encode(bytes))),
        }
    }
}

impl From<&Outcome> for StoredOutcome {
    fn from(outcome: &Outcome) -> Self {
        let header = |(name, value): &(String, String)| Header { name: name.clone(), value: value.clone() };
        Self {
            verdict: outcome.verdict.into(),
            status: outcome.status,
            content_type: outcome.content_type.clone(),
            headers: outcome.headers.iter().map(header).collect(),
            body: match &outcome.body {
                Body::Kept(bytes) => StoredBody::of(bytes),
                Body::TooLarge { size, digest } => StoredBody::TooLarge { size: *size, digest: digest.to_hex() },
            },
            reference: outcome.reference.clone(),
        }
    }
}
