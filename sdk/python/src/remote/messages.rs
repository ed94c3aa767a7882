//! The JSON of the API, as far as this client uses it. Fields that it does not know are ignored.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use onceward_core::hash::Digest;
use onceward_core::outcome::{Body, JSON, Outcome, Verdict};
use onceward_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The media type of an outcome that is done and could not be kept: the API has no other form for it.
const NOT_KEPT: &str = "application/vnd.onceward.not-kept";

/// Asks for a claim.
#[derive(Clone, Debug, Serialize)]
pub(super) struct BeginRequest {
    pub(super) operation: String,
    pub(super) key: String,
    /// What the key was derived from, so that two intents with one key are seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key_digest: Option<Digest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) intent: Option<Box<RawValue>>,
    pub(super) claim_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) wait_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lease_ms: Option<u64>,
    pub(super) marks_sent: bool,
    pub(super) probes: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct BeginResponse {
    pub(super) key: String,
    #[serde(flatten)]
    pub(super) decision: BeginDecision,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
pub(super) enum BeginDecision {
    Acquired(AcquiredClaim),
    Replay { outcome: StoredOutcome, expires_at: Option<Time> },
    InFlight { retry_after_ms: u64, running: bool },
    InDoubt { since: Time },
    Mismatch,
    Collision,
    MixedUse,
    OutcomeNotKept { status: Option<i32> },
    Queued,
    Dead,
    TryAgain { reason: String },
    Stale,
    Unguarded { downstream_key: String },
}

#[derive(Debug, Deserialize)]
pub(super) struct AcquiredClaim {
    pub(super) fence: String,
    pub(super) attempt: u32,
    pub(super) downstream_key: String,
    pub(super) lease_ms: u64,
    pub(super) phase: String,
    pub(super) probe_first: bool,
    pub(super) when_in_doubt: String,
}

/// The answer to a request of an owner.
#[derive(Debug, Deserialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub(super) enum ClaimUpdate {
    Written { expires_at: Option<Time> },
    Stale,
}

#[derive(Debug, Deserialize)]
pub(super) struct StoredOutcome {
    verdict: Verdict,
    #[serde(default)]
    status: i32,
    content_type: String,
    body: StoredBody,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredBody {
    Text(String),
    Base64(String),
    TooLarge { size: u64, digest: Digest },
}

/// A time such as `2026-11-16T08:03:00.000Z`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Time(pub(super) Timestamp);

impl TryFrom<String> for Time {
    type Error = jiff::Error;

    fn try_from(text: String) -> Result<Self, jiff::Error> {
        text.parse::<jiff::Timestamp>().map(|time| Self(Timestamp::from_millis(time.as_millisecond())))
    }
}

/// A problem document (RFC 9457).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ProblemDocument {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) title: String,
    pub(super) detail: Option<String>,
}

impl StoredOutcome {
    /// The outcome; `None` if its bytes cannot be read.
    pub(super) fn read(self) -> Option<Outcome> {
        let body = match self.body {
            StoredBody::Text(text) => Body::Kept(Bytes::from(text)),
            StoredBody::Base64(text) => Body::Kept(Bytes::from(STANDARD.decode(text).ok()?)),
            StoredBody::TooLarge { size, digest } => Body::TooLarge { size, digest },
        };
        let outcome = Outcome::of(self.verdict, &self.content_type, Bytes::new()).with_status(self.status);
        Some(Outcome { body, ..outcome })
    }
}

/// An outcome as the API takes it. Without a body it is done and not kept.
pub(super) fn outcome(verdict: Verdict, body: Option<&[u8]>) -> Value {
    let (content_type, body) = match body.map(|bytes| (bytes, std::str::from_utf8(bytes))) {
        None => (NOT_KEPT, json!({ "text": "" })),
        Some((_, Ok(text))) => (JSON, json!({ "text": text })),
        Some((bytes, Err(_))) => (JSON, json!({ "base64": STANDARD.encode(bytes) })),
    };
    json!({ "verdict": verdict, "content_type": content_type, "body": body })
}

/// Whether a client that could not keep the outcome wrote this one.
pub(crate) fn is_not_kept(outcome: &Outcome) -> bool {
    outcome.content_type == NOT_KEPT
}
