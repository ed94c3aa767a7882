//! Asks for a claim. Every decision of the ledger is a response with status 200, not an error.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use onceward::core::decide::Decision;
use onceward::core::hash::Digest;
use onceward::core::record::{Phase, Seen, Standing};
use onceward::core::time::Timestamp;
use onceward::remote::{ClaimOffer, StartOptions, Started};
use onceward::{Call, Error, Ledger};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::Api;
use super::body::Json;
use super::caller::{Caller, User, check_operation};
use super::claim_offer_body;
use super::outcome::StoredOutcome;
use super::problem::{Kind, Problem};
use super::schema::{
    BodyErrors, CommonErrors, InDoubtPolicy, MAX_LEASE_MS, MAX_WAIT_MS, QuotaErrors, given, given_whole,
};

/// Asks for the right to do the work, or for its outcome
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BeginRequest {
    /// The kind of effect. The server's configuration has its policy and recipe.
    #[schema(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$", example = "charge_payment")]
    operation: String,
    /// The caller's own key: the same key is the same intent.
    #[serde(default, deserialize_with = "given")]
    #[schema(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$", nullable = false)]
    key: Option<String>,
    /// The SHA-256 digest of what a client derived `key` from, as 64 hex digits. The same key with another digest is a collision of
    /// two intents, and neither gets the outcome of the other. Only with `key`.
    #[serde(default, deserialize_with = "given")]
    #[schema(min_length = 64, max_length = 64, pattern = r"^[0-9a-fA-F]{64}$", nullable = false)]
    key_digest: Option<String>,
    /// The input of the work. Without `key`, the key is derived from it, using the operation's recipe if it has one. With
    /// `key`, it must be the same on every repeat.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<serde_json::Value>, nullable = false)]
    intent: Option<Box<RawValue>>,
    /// The caller's session; part of a derived key.
    #[serde(default, deserialize_with = "given")]
    #[schema(max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$", nullable = false)]
    session: Option<String>,
    /// Identifies this request, so that it can be repeated if its response is lost: while the claim is held, the same id with
    /// the same token gets the same claim. Use a new random id for every attempt, and never reuse an id after a restart: a
    /// process that no longer knows what it did must not get its old claim back.
    #[serde(default, deserialize_with = "given")]
    #[schema(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$", nullable = false)]
    claim_id: Option<String>,
    /// How long to wait for a running call of the same intent. Defaults to the operation's `wait`.
    #[serde(default, deserialize_with = "given_whole")]
    #[schema(maximum = 60_000, nullable = false)]
    wait_ms: Option<u64>,
    /// How long the claim lasts unless it is renewed. Defaults to three times the operation's `max_runtime`.
    #[serde(default, deserialize_with = "given_whole")]
    #[schema(minimum = 1, maximum = 259_200_000, nullable = false)]
    lease_ms: Option<u64>,
    /// The caller promises to call `/v1/sent` before it sends the first byte. Until then, a lapsed claim is not in doubt.
    #[serde(default)]
    marks_sent: bool,
    /// The caller can ask the downstream first when the response says `probe_first`.
    #[serde(default)]
    probes: bool,
}

/// The decision, and the key of the intent
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct BeginResponse {
    /// The key of the intent, as given or as derived.
    key: String,
    #[serde(flatten)]
    decided: BeginDecision,
}

/// The decision
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "decision", rename_all = "snake_case")]
pub(super) enum BeginDecision {
    /// Do the work, then call finish, release or doubt.
    Acquired(Acquired),
    /// Do nothing: the work is done, and this is the outcome.
    Replay {
        outcome: StoredOutcome,
        #[schema(format = DateTime)]
        finished_at: String,
        /// When the outcome expires; null for never.
        #[schema(format = DateTime, required)]
        expires_at: Option<String>,
    },
    /// It is running, or must not be retried yet. Ask again later.
    InFlight {
        /// When to ask again.
        retry_after_ms: u64,
        /// Whether an owner is doing the work now.
        running: bool,
        /// The number of the attempt.
        attempt: u32,
    },
    /// An attempt may have happened. Do not retry with another key: find out what happened, then use `/v1/resolve`.
    InDoubt {
        #[schema(format = DateTime)]
        since: String,
    },
    /// The key was used before with a different request.
    Mismatch,
    /// Two different intents have the same derived key. Nothing ran.
    Collision,
    /// The key is also used by a stream. Use a separate operation for streams.
    MixedUse,
    /// It is done, but its outcome is not kept (any more). It will not run again.
    OutcomeNotKept {
        /// The original status, if it is still known.
        #[schema(required)]
        status: Option<i32>,
        /// The digest of the outcome, if it is still known.
        #[schema(required)]
        digest: Option<String>,
    },
    /// It is waiting for the courier.
    Queued,
    /// All attempts are used up, and none of them happened.
    Dead,
    /// The attempt that this call waited for failed, or its outcome is unknown and the policy allows a retry. Ask
    /// again.
    TryAgain {
        /// The reason that its owner gave.
        reason: String,
    },
    /// The claim with this `claim_id` has ended: released, in doubt, or taken over. Begin again with a new id.
    Stale,
    /// The store is down, and the policy allows the work to run unguarded. There is nothing to finish.
    Unguarded {
        /// The key to send to the downstream.
        downstream_key: String,
    },
}

/// The right to do the work
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Acquired {
    /// Identifies the claim in every call about it. Its holder owns the work: keep it secret like a password.
    #[schema(pattern = "^[0-9a-f]{32}$")]
    fence: String,
    /// The number of this attempt, starting at 1.
    attempt: u32,
    /// The key to send to the downstream: the same on every attempt of this intent, and different for every other intent.
    downstream_key: String,
    /// When the claim lapses unless it is renewed, by the store's clock.
    #[schema(format = DateTime)]
    lease_until: String,
    /// The same as a duration, for callers with a different clock.
    lease_ms: u64,
    phase: PhaseName,
    /// An earlier attempt may have happened: ask the downstream before sending anything.
    probe_first: bool,
    /// The in-doubt policy of the record.
    #[schema(value_type = InDoubtPolicy)]
    when_in_doubt: onceward::InDoubt,
}

/// The phase of an attempt
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum PhaseName {
    /// Nothing has been sent yet.
    Claimed,
    /// The effect may have happened.
    Sent,
}

/// Ask for a claim
///
/// Every decision has status 200. Exactly one of any number of callers gets `acquired`; if it repeats its request with the
/// same `claim_id`, it gets the same claim with the same fence again.
#[utoipa::path(
    post,
    path = "/v1/begin",
    tag = "claims",
    request_body = BeginRequest,
    responses(
        (status = 200, description = "The decision", body = BeginResponse),
        QuotaErrors,
        CommonErrors,
        BodyErrors,
    )
)]
pub(super) async fn begin(
    State(api): State<Api>,
    User(caller): User,
    Json(request): Json<BeginRequest>,
) -> Result<Response, Problem> {
    let (lease, wait) = limits(&request)?;
    let call = call(api.ledger(), &caller, &request)?;
    caller.note(&call.identity);
    let wait = wait.unwrap_or(call.policy.wait).min(Duration::from_millis(MAX_WAIT_MS));
    let claim = request.claim_id.as_deref().map(|id| caller.claim_id("claim_id", id)).transpose()?;
    let started = start(&api, &call, StartOptions::default().claim_id(claim).lease(lease), wait).await;
    let key = call.identity.key.as_str().to_owned();
    let (decided, offer) = decided(started)?;
    api.0.decision_counts.count(&caller.tenant, decided.name());
    caller.note_answer(decided.name());
    Ok(claim_offer_body::offering(&BeginResponse { key, decided }, offer.map(|offer| *offer).into_iter().collect()))
}

fn limits(request: &BeginRequest) -> Result<(Option<Duration>, Option<Duration>), Problem> {
    if request.wait_ms.is_some_and(|wait| wait > MAX_WAIT_MS) {
        return Err(Problem::invalid(format!("wait_ms: the maximum is {MAX_WAIT_MS}")));
    }
    if request.lease_ms.is_some_and(|lease| lease == 0 || lease > MAX_LEASE_MS) {
        return Err(Problem::invalid(format!("lease_ms: the range is 1 to {MAX_LEASE_MS}")));
    }
    Ok((request.lease_ms.map(Duration::from_millis), request.wait_ms.map(Duration::from_millis)))
}

fn call(ledger: &Ledger, caller: &Caller, request: &BeginRequest) -> Result<Call, Problem> {
    check_operation(&request.operation)?;
    let mut operation = ledger.operation(&request.operation).tenant(caller.tenant.as_str());
    if let Some(key) = &request.key {
        operation = operation.key(key);
    }
    if let Some(intent) = &request.intent {
        operation = operation.intent_json(intent.get().as_bytes());
    }
    if let Some(session) = &request.session {
        operation = operation.session(session);
    }
    if request.marks_sent {
        operation = operation.marks_sent();
    }
    if request.probes {
        operation = operation.probes();
    }
    let mut call = operation.call()?;
    if let Some(digest) = &request.key_digest {
        call.key_digest = Some(key_digest(digest, request.key.is_some())?);
    }
    Ok(call)
}

fn key_digest(text: &str, has_key: bool) -> Result<Digest, Problem> {
    if !has_key {
        return Err(Problem::invalid("key_digest: it belongs to a key; without one, the server derives both"));
    }
    Digest::from_hex(text).ok_or_else(|| Problem::invalid("key_digest: write 64 hex digits"))
}

/// Waits for the claim. At shutdown, all waiting callers get the current state at once.
async fn start(api: &Api, call: &Call, options: StartOptions, wait: Duration) -> Result<Started, Error> {
    let mut stop = api.0.stop.clone();
    tokio::select! {
        started = api.ledger().start_remote(call, options.wait(wait)) => started,
        () = stop.stopped(), if !wait.is_zero() => api.ledger().start_remote(call, options.wait(Duration::ZERO)).await,
    }
}

fn decided(started: Result<Started, Error>) -> Result<(BeginDecision, Option<Box<ClaimOffer>>), Problem> {
    Ok(match started {
        Ok(Started::Acquired(offer)) => (BeginDecision::Acquired(Acquired::of(&offer)), Some(offer)),
        Ok(Started::Answered(decision)) => (from_decision(decision)?, None),
        Ok(Started::Stale) => (BeginDecision::Stale, None),
        Ok(Started::Unguarded { downstream_key }) => (BeginDecision::Unguarded { downstream_key }, None),
        Err(Error::OwnerFailed { reason, .. }) => (BeginDecision::TryAgain { reason }, None),
        Err(Error::OwnerUnknown { .. }) => {
            (BeginDecision::TryAgain { reason: "it is unknown whether it happened".to_owned() }, None)
        }
        Err(error) => return Err(error.into()),
    })
}

fn from_decision(decision: Decision) -> Result<BeginDecision, Problem> {
    Ok(match decision {
        Decision::Replay { outcome, finished_at, expires_at } => BeginDecision::Replay {
            outcome: StoredOutcome::from(&outcome),
            finished_at: finished_at.to_string(),
            expires_at: expires_at.map(|time| time.to_string()),
        },
        Decision::InFlight { retry_after, running, attempt } => BeginDecision::InFlight {
            retry_after_ms: u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX),
            running,
            attempt,
        },
        Decision::InDoubt { since } => BeginDecision::InDoubt { since: since.to_string() },
        Decision::Mismatch => BeginDecision::Mismatch,
        Decision::Collision => BeginDecision::Collision,
        Decision::MixedUse => BeginDecision::MixedUse,
        Decision::OutcomeNotKept { outcome, status } => {
            BeginDecision::OutcomeNotKept { status, digest: outcome.map(|digest| digest.to_hex()) }
        }
        Decision::Queued { .. } => BeginDecision::Queued,
        Decision::Dead => BeginDecision::Dead,
        // A claim comes as an offer, and the API does not support stream items.
        _ => return Err(Problem::new(Kind::Internal)),
    })
}

impl Acquired {
    fn of(offer: &ClaimOffer) -> Self {
        let (acquired, seen) = (offer.acquired(), offer.seen());
        let until = lease_end(seen);
        Self {
            fence: acquired.fence.into(),
            attempt: acquired.attempt,
            downstream_key: offer.downstream_key(),
            lease_until: until.to_string(),
            lease_ms: u64::try_from(seen.now.until(until).as_millis()).unwrap_or(u64::MAX),
            phase: acquired.phase.into(),
            probe_first: acquired.probe_first,
            when_in_doubt: acquired.in_doubt,
        }
    }
}

/// When a claim lapses that was just granted.
pub(super) fn lease_end(seen: &Seen) -> Timestamp {
    match seen.standing() {
        Some(Standing::Running { until }) => until,
        _ => seen.now,
    }
}

impl From<Phase> for PhaseName {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Claimed => Self::Claimed,
            // A claim that was just granted is never overdue.
            Phase::Sent | Phase::Overdue => Self::Sent,
        }
    }
}

impl BeginDecision {
    fn name(&self) -> &'static str {
        match self {
            Self::Acquired(_) => "acquired",
            Self::Replay { .. } => "replay",
            Self::InFlight { .. } => "in_flight",
            Self::InDoubt { .. } => "in_doubt",
            Self::Mismatch => "mismatch",
            Self::Collision => "collision",
            Self::MixedUse => "mixed_use",
            Self::OutcomeNotKept { .. } => "outcome_not_kept",
            Self::Queued => "queued",
            Self::Dead => "dead",
            Self::TryAgain { .. } => "try_again",
            Self::Unguarded { .. } => "unguarded",
            Self::Stale => "stale",
        }
    }
}
