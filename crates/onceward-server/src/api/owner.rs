//! Requests of the owner of a claim: sent, renew, finish, release, doubt. Only the fence counts, never the deadline.

use std::time::Duration;

use axum::extract::State;
use onceward::core::outcome::{MAX_REFERENCE, Outcome};
use onceward::core::record::{self, Standing};
use onceward::remote::{Kind, Owner, Undelivered, WriteResult};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Api;
use super::body::Json;
use super::caller::{Caller, User};
use super::outcome::OutcomeInput;
use super::problem::Problem;
use super::schema::{BodyErrors, CommonErrors, IntentState, MAX_LEASE_MS, MAX_NOT_BEFORE_MS, given, given_whole};

/// A request about a claim, which is identified by its fence.
macro_rules! about_a_claim {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty),* $(,)? })+) => {$(
        $(#[$doc])*
        #[derive(Debug, Deserialize, ToSchema)]
        #[serde(deny_unknown_fields)]
        pub(super) struct $name {
            /// The operation of the intent.
            #[schema(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
            operation: String,
            /// The key of the intent, from the response of begin.
            #[schema(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
            key: String,
            /// The fence, from the response of begin.
            #[schema(pattern = "^[0-9a-fA-F]{32}$")]
            fence: String,
            $($(#[$field_doc])* $field: $type,)*
        }

        impl $name {
            fn owner(&self, api: &Api, caller: &Caller) -> Result<Owner, Problem> {
                let identity = caller.identity(&self.operation, &self.key)?;
                let fence = record::Fence::try_from(self.fence.clone());
                let fence = fence.map_err(|wrong| Problem::invalid(format!("fence: {wrong}")))?;
                Ok(api.ledger().remote_owner(identity, fence))
            }
        }
    )+};
}

about_a_claim! {
    /// The claim
    ClaimRequest {}

    /// The claim and its duration
    LeaseRequest {
        /// How long the claim lasts from now on. Defaults to three times the operation's `max_runtime`.
        #[serde(default, deserialize_with = "given_whole")]
        #[schema(minimum = 1, maximum = 259_200_000, nullable = false)]
        lease_ms: Option<u64>,
    }

    /// The claim and the outcome of the work
    FinishRequest {
        outcome: OutcomeInput,
        /// The id that the downstream gave the effect, in printable ASCII: `GET /v1/intents?reference=` finds it.
        #[serde(default, deserialize_with = "given")]
        #[schema(min_length = 1, max_length = 255, pattern = r"^[\x20-\x7e]+$", nullable = false)]
        reference: Option<String>,
    }

    /// The claim and the error
    ReleaseRequest {
        /// How long to wait before the next attempt. Defaults to 0.
        #[serde(default, deserialize_with = "given_whole")]
        #[schema(maximum = 604_800_000, nullable = false)]
        not_before_ms: Option<u64>,
        /// The same for an entry of the outbox; instead of `not_before_ms`. Defaults to a random time that grows with the number of
        /// attempts.
        #[serde(default, deserialize_with = "given_whole")]
        #[schema(maximum = 604_800_000, nullable = false)]
        retry_in_ms: Option<u64>,
        /// Only for an entry of the outbox: it is not tried again, because every further attempt would fail too.
        #[serde(default)]
        give_up: bool,
        /// The error, kept for people, up to 1,000 characters.
        #[serde(default, deserialize_with = "given")]
        #[schema(nullable = false)]
        error: Option<String>,
    }

    /// The claim and the reason for the doubt
    DoubtRequest {
        /// Only for an entry of the outbox: how long to wait before the next attempt, if its policy permits one. Defaults to a
        /// random time that grows with the number of attempts.
        #[serde(default, deserialize_with = "given_whole")]
        #[schema(maximum = 604_800_000, nullable = false)]
        retry_in_ms: Option<u64>,
        /// The error, kept for people, up to 1,000 characters.
        #[serde(default, deserialize_with = "given")]
        #[schema(nullable = false)]
        error: Option<String>,
    }
}

/// Whether the change was written
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "result", rename_all = "snake_case")]
pub(super) enum ClaimUpdate {
    /// The change is written. Repeating the same finish gets this as well: its response may have been lost.
    Written {
        #[schema(value_type = IntentState)]
        state: &'static str,
        /// The version of the record.
        version: u64,
        /// When the claim lapses by the store's clock, if it is still held.
        #[schema(format = DateTime, required)]
        lease_until: Option<String>,
        /// When the outcome expires, if it is done; null for never.
        #[schema(format = DateTime, required)]
        expires_at: Option<String>,
    },
    /// `give_up` and `retry_in_ms` are for entries of the outbox, and this is a claim of a direct call. Nothing changed.
    NotAnEntry,
    /// The entry was leased with `marks_sent`, and `/v1/sent` was not called for this attempt. Nothing changed.
    NotSent,
    /// The caller no longer holds the claim: it was taken over or settled. Nothing changed, and a late outcome is recorded in
    /// the audit trail.
    Stale,
}

fn answer(caller: &Caller, result: WriteResult) -> Result<Json<ClaimUpdate>, Problem> {
    let seen = match result {
        WriteResult::Written(seen) => seen,
        WriteResult::Stale => {
            caller.note_answer("stale");
            return Ok(Json(ClaimUpdate::Stale));
        }
        WriteResult::NotSent => {
            caller.note_answer("not_sent");
            return Ok(Json(ClaimUpdate::NotSent));
        }
    };
    caller.note_answer("written");
    let standing = seen.standing();
    Ok(Json(ClaimUpdate::Written {
        state: standing.map_or("tombstone", |standing| standing.status().as_str()),
        version: seen.record.version,
        lease_until: match standing {
            Some(Standing::Running { until }) => Some(until.to_string()),
            _ => None,
        },
        expires_at: match &seen.record.state {
            record::State::Done { expires_at, .. } => expires_at.map(|time| time.to_string()),
            _ => None,
        },
    }))
}

fn reference(text: Option<String>) -> Result<Option<String>, Problem> {
    let is_plain = |text: &str| text.bytes().all(|byte| (0x20..=0x7e).contains(&byte));
    let is_valid = |text: &String| !text.is_empty() && text.len() <= MAX_REFERENCE && is_plain(text);
    match text.as_ref().is_none_or(is_valid) {
        true => Ok(text),
        false => {
            Err(Problem::invalid(format!("reference: 1 to {MAX_REFERENCE} printable ASCII characters are required")))
        }
    }
}

fn pause(name: &str, millis: Option<u64>) -> Result<Option<Duration>, Problem> {
    match millis.is_some_and(|millis| millis > MAX_NOT_BEFORE_MS) {
        true => Err(Problem::invalid(format!("{name}: the maximum is {MAX_NOT_BEFORE_MS}"))),
        false => Ok(millis.map(Duration::from_millis)),
    }
}

fn not_an_entry(caller: &Caller) -> Json<ClaimUpdate> {
    caller.note_answer("not_an_entry");
    Json(ClaimUpdate::NotAnEntry)
}

pub(super) fn lease(lease_ms: Option<u64>) -> Result<Option<Duration>, Problem> {
    if lease_ms.is_some_and(|lease| lease == 0 || lease > MAX_LEASE_MS) {
        return Err(Problem::invalid(format!("lease_ms: the range is 1 to {MAX_LEASE_MS}")));
    }
    Ok(lease_ms.map(Duration::from_millis))
}

/// Mark as sent, before the first byte leaves
///
/// For callers that began with `marks_sent`. From now on, a missing result leaves the intent in doubt.
#[utoipa::path(
    post,
    path = "/v1/sent",
    tag = "claims",
    request_body = LeaseRequest,
    responses((status = 200, description = "Whether the change was written", body = ClaimUpdate), CommonErrors, BodyErrors)
)]
pub(super) async fn sent(
    State(api): State<Api>,
    User(caller): User,
    Json(request): Json<LeaseRequest>,
) -> Result<Json<ClaimUpdate>, Problem> {
    let result = request.owner(&api, &caller)?.sent(lease(request.lease_ms)?).await?;
    answer(&caller, result)
}

/// Renew the claim while the work runs
///
/// Call it after a third of the lease.
#[utoipa::path(
    post,
    path = "/v1/renew",
    tag = "claims",
    request_body = LeaseRequest,
    responses((status = 200, description = "Whether the change was written", body = ClaimUpdate), CommonErrors, BodyErrors)
)]
pub(super) async fn renew(
    State(api): State<Api>,
    User(caller): User,
    Json(request): Json<LeaseRequest>,
) -> Result<Json<ClaimUpdate>, Problem> {
    let result = request.owner(&api, &caller)?.renew(lease(request.lease_ms)?).await?;
    answer(&caller, result)
}

/// Finish the work
///
/// The outcome is kept and replayed to every repeat. An owner that is late but was not superseded finishes normally.
#[utoipa::path(
    post,
    path = "/v1/finish",
    tag = "claims",
    request_body = FinishRequest,
    responses((status = 200, description = "Whether the change was written", body = ClaimUpdate), CommonErrors, BodyErrors)
)]
pub(super) async fn finish(
    State(api): State<Api>,
    User(caller): User,
    Json(request): Json<FinishRequest>,
) -> Result<Json<ClaimUpdate>, Problem> {
    let owner = request.owner(&api, &caller)?;
    let outcome = Outcome::try_from(request.outcome)?.with_reference(reference(request.reference)?);
    let result = owner.finish(outcome).await?;
    answer(&caller, result)
}

/// Release the claim: this attempt provably did nothing
///
/// The next begin may try; an entry of the outbox is tried again, until its attempts are used up. The proof is about this attempt
/// only: an older doubt stays.
#[utoipa::path(
    post,
    path = "/v1/release",
    tag = "claims",
    request_body = ReleaseRequest,
    responses((status = 200, description = "Whether the change was written", body = ClaimUpdate), CommonErrors, BodyErrors)
)]
pub(super) async fn release(
    State(api): State<Api>,
    User(caller): User,
    Json(request): Json<ReleaseRequest>,
) -> Result<Json<ClaimUpdate>, Problem> {
    let not_before = pause("not_before_ms", request.not_before_ms)?;
    let retry_in = pause("retry_in_ms", request.retry_in_ms)?;
    if not_before.is_some() && retry_in.is_some() {
        return Err(Problem::invalid("retry_in_ms: it means the same as not_before_ms; give one of them"));
    }
    let (owner, error) = (request.owner(&api, &caller)?, request.error.as_deref());
    let result = match owner.kind().await? {
        Kind::Entry { attempts } => {
            let retry_in = retry_in.or(not_before);
            let end = Undelivered { may_have_happened: false, retry_in, give_up: request.give_up, error };
            owner.undelivered(attempts, end).await?
        }
        Kind::Direct if request.give_up || retry_in.is_some() => return Ok(not_an_entry(&caller)),
        Kind::Direct | Kind::Over => owner.release(not_before.unwrap_or_default(), error).await?,
    };
    answer(&caller, result)
}

/// Give up the claim: it is unknown whether this attempt did anything
///
/// The lease ends at once and the intent is in doubt. If nothing was sent yet, this is a release.
#[utoipa::path(
    post,
    path = "/v1/doubt",
    tag = "claims",
    request_body = DoubtRequest,
    responses((status = 200, description = "Whether the change was written", body = ClaimUpdate), CommonErrors, BodyErrors)
)]
pub(super) async fn doubt(
    State(api): State<Api>,
    User(caller): User,
    Json(request): Json<DoubtRequest>,
) -> Result<Json<ClaimUpdate>, Problem> {
    let retry_in = pause("retry_in_ms", request.retry_in_ms)?;
    let (owner, error) = (request.owner(&api, &caller)?, request.error.as_deref());
    let result = match owner.kind().await? {
        Kind::Entry { attempts } => {
            let end = Undelivered { may_have_happened: true, retry_in, give_up: false, error };
            owner.undelivered(attempts, end).await?
        }
        Kind::Direct if retry_in.is_some() => return Ok(not_an_entry(&caller)),
        Kind::Direct | Kind::Over => owner.doubt(error).await?,
    };
    answer(&caller, result)
}

/// Report that the probe found nothing
///
/// For callers that began with `probes` and got `probe_first`: the doubt is settled, and the work may go on under the same
/// claim.
#[utoipa::path(
    post,
    path = "/v1/not_found",
    tag = "claims",
    request_body = ClaimRequest,
    responses((status = 200, description = "Whether the change was written", body = ClaimUpdate), CommonErrors, BodyErrors)
)]
pub(super) async fn not_found(
    State(api): State<Api>,
    User(caller): User,
    Json(request): Json<ClaimRequest>,
) -> Result<Json<ClaimUpdate>, Problem> {
    let result = request.owner(&api, &caller)?.not_found().await?;
    answer(&caller, result)
}
