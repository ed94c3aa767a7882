//! Asking for the claim. Whatever the ledger decides is an answer, not an error.

use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use onceward::core::claim::ClaimId;
use onceward::core::decide::Decision;
use onceward::core::record::{Phase, Standing};
use onceward::{Call, Error, Grant, Granted, Ledger};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::Api;
use super::body::Json;
use super::caller::{Caller, User};
use super::hand_over::HandOver;
use super::names::{LONGEST_LEASE, LONGEST_WAIT, Refused, RefusedBody, WhenInDoubt, given, given_whole};
use super::outcome::KeptOutcome;
use super::problem::{Kind, Problem, Told};

/// May I do the work, or what became of it?
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BeginRequest {
    /// The kind of effect. Its policy and recipe come from the server's configuration.
    #[schema(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$", example = "charge_payment")]
    operation: String,
    /// A key of the caller's own: the same key is the same intent.
    #[serde(default, deserialize_with = "given")]
    #[schema(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$", nullable = false)]
    key: Option<String>,
    /// What is wanted. Without `key`, the key is derived from it, by the operation's recipe if it has one. Together with
    /// `key`, it has to agree whenever the key comes again.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<serde_json::Value>, nullable = false)]
    intent: Option<Box<RawValue>>,
    /// The caller's session: a part of a derived key.
    #[serde(default, deserialize_with = "given")]
    #[schema(max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$", nullable = false)]
    session: Option<String>,
    /// Names this request, so that it can be repeated when its answer was lost: while the claim is held, the same id with
    /// the same token gets the same claim. Draw a new random id for every attempt, and never use one again after a restart:
    /// a process that no longer knows what it did must not be given its old claim.
    #[serde(default, deserialize_with = "given")]
    #[schema(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$", nullable = false)]
    claim_id: Option<String>,
    /// How long to wait for the answer of somebody who is at it already; the operation's `wait` unless given.
    #[serde(default, deserialize_with = "given_whole")]
    #[schema(maximum = 60_000, nullable = false)]
    wait_ms: Option<u64>,
    /// How long the claim lasts unless it is renewed; three times the operation's `max_runtime` unless given.
    #[serde(default, deserialize_with = "given_whole")]
    #[schema(minimum = 1, maximum = 259_200_000, nullable = false)]
    lease_ms: Option<u64>,
    /// The caller promises to call `/v1/sent` before the first byte leaves. Until then a lapsed claim is no doubt.
    #[serde(default)]
    marks_sent: bool,
    /// The caller asks the other side first when the answer says `probe_first`.
    #[serde(default)]
    probes: bool,
}

/// The decision, and the intent's key
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct BeginAnswer {
    /// The key of the intent: as it was given, or as it was derived.
    key: String,
    #[serde(flatten)]
    decided: Decided,
}

/// What was decided
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "decision", rename_all = "snake_case")]
pub(super) enum Decided {
    /// Do the work, then finish, release or doubt.
    Acquired(Acquired),
    /// Do nothing: it is done, and this is the outcome.
    Replay {
        outcome: KeptOutcome,
        #[schema(format = DateTime)]
        finished_at: String,
        /// Until when repeats get it; null is for ever.
        #[schema(format = DateTime, required)]
        expires_at: Option<String>,
    },
    /// Somebody is doing it, or it may not be tried again yet. Ask again later.
    InFlight {
        /// When to ask again.
        retry_after_ms: u64,
        /// Somebody is doing it now.
        running: bool,
        /// Which attempt it is.
        attempt: u32,
    },
    /// An attempt may have happened. Do not try again under another key: find out what happened, then use `/v1/resolve`.
    InDoubt {
        #[schema(format = DateTime)]
        since: String,
    },
    /// The same key came with another request before.
    Mismatch,
    /// Two different intents have the same derived key. Nothing ran.
    Collision,
    /// The key is used by a stream too. Give streams an operation of their own.
    MixedUse,
    /// It is done, but its outcome is not kept (any more). It will not run again.
    OutcomeNotKept {
        /// The original status, where it is still known.
        #[schema(required)]
        status: Option<i32>,
        /// The digest of the outcome, where it is still known.
        #[schema(required)]
        digest: Option<String>,
    },
    /// It waits for the courier.
    Queued,
    /// All attempts are used up, and none of them happened.
    Dead,
    /// The attempt that this call waited for came to nothing, or nobody knows and the policy lets the next one try. Ask
    /// again.
    TryAgain {
        /// What its owner said.
        reason: String,
    },
    /// The claim that was made with this `claim_id` is over: released, doubted, or taken over. Begin again with a new id.
    Stale,
    /// The store is down, and the policy lets the work run all the same. There is nothing to finish.
    Unguarded {
        /// The key to pass to the other side.
        downstream_key: String,
    },
}

/// The right to do the work
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Acquired {
    /// Names the claim in every call about it. Whoever has it owns the work: keep it like a password.
    #[schema(pattern = "^[0-9a-f]{32}$")]
    fence: String,
    /// Which attempt this is, from 1.
    attempt: u32,
    /// The key to pass to the other side: the same on every attempt of this intent, and of nothing else.
    downstream_key: String,
    /// The deadline by the store's clock, unless the claim is renewed.
    #[schema(format = DateTime)]
    lease_until: String,
    /// The same as a duration, for callers whose clock is another one.
    lease_ms: u64,
    phase: PhaseName,
    /// An earlier attempt may have happened: ask the other side before anything is sent.
    probe_first: bool,
    /// What the record says for the case of doubt.
    #[schema(value_type = WhenInDoubt)]
    when_in_doubt: onceward::InDoubt,
}

/// How far the attempt has come
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum PhaseName {
    /// Nothing has left yet.
    Claimed,
    /// The effect may have happened.
    Sent,
}

/// Ask for the claim
///
/// Whatever is decided is answered with 200. Exactly one of any number of callers gets `acquired`; a repeat of its own
/// request with the same `claim_id` gets it again, with the same fence.
#[utoipa::path(
    post,
    path = "/v1/begin",
    tag = "claims",
    request_body = BeginRequest,
    responses(
        (status = 200, description = "The decision", body = BeginAnswer),
        (
            status = 429,
            description = "The tenant has reached its quota of records; ask again after `Retry-After`",
            content_type = "application/problem+json",
            body = Told,
        ),
        Refused,
        RefusedBody,
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
    let wait = wait.unwrap_or(call.policy.wait).min(Duration::from_millis(LONGEST_WAIT));
    let claim = request.claim_id.as_deref().map(|id| caller.claim_id(id)).transpose()?;
    let granted = granted(&api, &call, claim, lease, wait).await;
    let key = call.identity.key.as_str().to_owned();
    let (decided, grant) = decided(granted)?;
    api.0.tally.count(&caller.tenant, decided.name());
    caller.note_answer(decided.name());
    Ok(answer(&BeginAnswer { key, decided }, grant))
}

fn limits(request: &BeginRequest) -> Result<(Option<Duration>, Option<Duration>), Problem> {
    if request.wait_ms.is_some_and(|wait| wait > LONGEST_WAIT) {
        return Err(Problem::invalid(format!("wait_ms: it is at most {LONGEST_WAIT}")));
    }
    if request.lease_ms.is_some_and(|lease| lease == 0 || lease > LONGEST_LEASE) {
        return Err(Problem::invalid(format!("lease_ms: it is from 1 to {LONGEST_LEASE}")));
    }
    Ok((request.lease_ms.map(Duration::from_millis), request.wait_ms.map(Duration::from_millis)))
}

fn call(ledger: &Ledger, caller: &Caller, request: &BeginRequest) -> Result<Call, Problem> {
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
    Ok(operation.call()?)
}

/// Waits, unless it is time to stop: then everybody is told how things stand.
async fn granted(
    api: &Api,
    call: &Call,
    claim: Option<ClaimId>,
    lease: Option<Duration>,
    wait: Duration,
) -> Result<Granted, Error> {
    let mut stop = api.0.stop.clone();
    tokio::select! {
        granted = api.ledger().grant(call, claim, lease, wait) => granted,
        () = stop.stopped(), if !wait.is_zero() => {
            api.ledger().grant(call, claim, lease, Duration::ZERO).await
        }
    }
}

fn decided(granted: Result<Granted, Error>) -> Result<(Decided, Option<Box<Grant>>), Problem> {
    Ok(match granted {
        Ok(Granted::Acquired(grant)) => (Decided::Acquired(Acquired::of(&grant)), Some(grant)),
        Ok(Granted::Answered(decision)) => (told(decision)?, None),
        Ok(Granted::Stale) => (Decided::Stale, None),
        Ok(Granted::Unguarded(downstream_key)) => (Decided::Unguarded { downstream_key }, None),
        Err(Error::OwnerFailed { reason, .. }) => (Decided::TryAgain { reason }, None),
        Err(Error::OwnerUnknown { .. }) => {
            (Decided::TryAgain { reason: "nobody knows whether it happened".to_owned() }, None)
        }
        Err(error) => return Err(error.into()),
    })
}

fn told(decision: Decision) -> Result<Decided, Problem> {
    Ok(match decision {
        Decision::Replay { outcome, finished_at, expires_at } => Decided::Replay {
            outcome: KeptOutcome::from(&outcome),
            finished_at: finished_at.to_string(),
            expires_at: expires_at.map(|time| time.to_string()),
        },
        Decision::InFlight { retry_after, running, attempt } => Decided::InFlight {
            retry_after_ms: u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX),
            running,
            attempt,
        },
        Decision::InDoubt { since } => Decided::InDoubt { since: since.to_string() },
        Decision::Mismatch => Decided::Mismatch,
        Decision::Collision => Decided::Collision,
        Decision::MixedUse => Decided::MixedUse,
        Decision::OutcomeNotKept { outcome, status } => {
            Decided::OutcomeNotKept { status, digest: outcome.map(|digest| digest.to_hex()) }
        }
        Decision::Queued { .. } => Decided::Queued,
        Decision::Dead => Decided::Dead,
        // The first is a grant, and nobody can ask for an item of a stream here.
        Decision::Acquired(_) | Decision::OutOfOrder { .. } => return Err(Problem::new(Kind::Internal)),
    })
}

impl Acquired {
    fn of(grant: &Grant) -> Self {
        let (acquired, seen) = (grant.acquired(), grant.seen());
        let until = match seen.standing() {
            Some(Standing::Running { until }) => until,
            _ => seen.now,
        };
        Self {
            fence: acquired.fence.into(),
            attempt: acquired.attempt,
            downstream_key: grant.downstream_key(),
            lease_until: until.to_string(),
            lease_ms: u64::try_from(seen.now.until(until).as_millis()).unwrap_or(u64::MAX),
            phase: match acquired.phase {
                Phase::Claimed => PhaseName::Claimed,
                // A claim that was just granted is not overdue yet.
                Phase::Sent | Phase::Overdue => PhaseName::Sent,
            },
            probe_first: acquired.probe_first,
            when_in_doubt: acquired.in_doubt,
        }
    }
}

impl Decided {
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

/// The answer, which takes the claim along.
fn answer(answer: &BeginAnswer, grant: Option<Box<Grant>>) -> Response {
    let Ok(bytes) = serde_json::to_vec(answer).map(Bytes::from) else {
        return Problem::new(Kind::Internal).into_response();
    };
    let body = match grant {
        Some(grant) => Body::new(HandOver::new(bytes, grant)),
        None => Body::from(bytes),
    };
    let mut response = (StatusCode::OK, body).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
