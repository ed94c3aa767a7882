//! What the holder of a fence does: mark, renew, finish, release, doubt. Only the fence is judged, never the deadline.

use std::time::Duration;

use axum::extract::State;
use onceward::core::outcome::Outcome;
use onceward::core::record::{self, Standing};
use onceward::{Held, Holder};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Api;
use super::body::Json;
use super::caller::{Caller, User};
use super::names::{
    LONGEST_LEASE, LONGEST_NOT_BEFORE, Refused, RefusedBody, State as StateName, given, given_whole, whole,
};
use super::outcome::GivenOutcome;
use super::problem::Problem;

/// A claim, by its fence.
macro_rules! about_a_claim {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty),* $(,)? })+) => {$(
        $(#[$doc])*
        #[derive(Debug, Deserialize, ToSchema)]
        #[serde(deny_unknown_fields)]
        pub(super) struct $name {
            /// The operation of the intent.
            #[schema(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
            operation: String,
            /// The key of the intent, as begin answered it.
            #[schema(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
            key: String,
            /// The fence that begin answered.
            #[schema(pattern = "^[0-9a-fA-F]{32}$")]
            fence: String,
            $($(#[$field_doc])* $field: $type,)*
        }

        impl $name {
            fn holder(&self, api: &Api, caller: &Caller) -> Result<Holder, Problem> {
                let identity = caller.identity(&self.operation, &self.key)?;
                let fence = record::Fence::try_from(self.fence.clone());
                let fence = fence.map_err(|wrong| Problem::invalid(format!("fence: {wrong}")))?;
                Ok(api.ledger().holder(identity, fence))
            }
        }
    )+};
}

about_a_claim! {
    /// Which claim
    ClaimRequest {}

    /// Which claim, and for how long
    LeaseRequest {
        /// How long the claim lasts from now on; three times the operation's `max_runtime` unless given.
        #[serde(default, deserialize_with = "given_whole")]
        #[schema(minimum = 1, maximum = 259_200_000, nullable = false)]
        lease_ms: Option<u64>,
    }

    /// Which claim, and what the work came to
    FinishRequest {
        outcome: GivenOutcome,
    }

    /// Which claim, and what went wrong
    ReleaseRequest {
        /// Not to be tried again before this long.
        #[serde(default, deserialize_with = "whole")]
        #[schema(maximum = 604_800_000)]
        not_before_ms: u64,
        /// What went wrong. It is kept for people, up to 1,000 characters.
        #[serde(default, deserialize_with = "given")]
        #[schema(nullable = false)]
        error: Option<String>,
    }

    /// Which claim, and why nobody knows
    DoubtRequest {
        /// What went wrong. It is kept for people, up to 1,000 characters.
        #[serde(default, deserialize_with = "given")]
        #[schema(nullable = false)]
        error: Option<String>,
    }
}

/// Whether it was written
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "result", rename_all = "snake_case")]
pub(super) enum Written {
    /// It is written. The same finish again is told so too: an answer may have been lost.
    Written {
        #[schema(value_type = StateName)]
        state: &'static str,
        /// The version of the record.
        version: u64,
        /// The deadline of the claim by the store's clock, if it still runs.
        #[schema(format = DateTime, required)]
        lease_until: Option<String>,
        /// Until when repeats get the outcome, if it is done; null is for ever.
        #[schema(format = DateTime, required)]
        expires_at: Option<String>,
    },
    /// The claim is no longer the caller's: somebody took over, or settled it. Nothing changed, and a late outcome is in
    /// the audit trail.
    Stale,
}

fn answer(caller: &Caller, held: Held) -> Result<Json<Written>, Problem> {
    let Held::Written(seen) = held else {
        caller.note_answer("stale");
        return Ok(Json(Written::Stale));
    };
    caller.note_answer("written");
    let standing = seen.standing();
    Ok(Json(Written::Written {
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

fn lease(lease_ms: Option<u64>) -> Result<Option<Duration>, Problem> {
    if lease_ms.is_some_and(|lease| lease == 0 || lease > LONGEST_LEASE) {
        return Err(Problem::invalid(format!("lease_ms: it is from 1 to {LONGEST_LEASE}")));
    }
    Ok(lease_ms.map(Duration::from_millis))
}

/// The first byte is about to leave
///
/// For callers that began with `marks_sent`. From here on a missing answer is a doubt.
#[utoipa::path(
    post,
    path = "/v1/sent",
    tag = "claims",
    request_body = LeaseRequest,
    responses((status = 200, description = "Whether it was written", body = Written), Refused, RefusedBody)
)]
pub(super) async fn sent(
    State(api): State<Api>,
    User(caller): User,
    Json(request): Json<LeaseRequest>,
) -> Result<Json<Written>, Problem> {
    let held = request.holder(&api, &caller)?.sent(lease(request.lease_ms)?).await?;
    answer(&caller, held)
}

/// The work goes on
///
/// Call it when a third of the lease is over.
#[utoipa::path(
    post,
    path = "/v1/renew",
    tag = "claims",
    request_body = LeaseRequest,
    responses((status = 200, description = "Whether it was written", body = Written), Refused, RefusedBody)
)]
pub(super) async fn renew(
    State(api): State<Api>,
    User(caller): User,
    Json(request): Json<LeaseRequest>,
) -> Result<Json<Written>, Problem> {
    let held = request.holder(&api, &caller)?.renew(lease(request.lease_ms)?).await?;
    answer(&caller, held)
}

/// The work is finished
///
/// The outcome is kept and given to every repeat. An owner that is late but was not superseded finishes normally.
#[utoipa::path(
    post,
    path = "/v1/finish",
    tag = "claims",
    request_body = FinishRequest,
    responses((status = 200, description = "Whether it was written", body = Written), Refused, RefusedBody)
)]
pub(super) async fn finish(
    State(api): State<Api>,
    User(caller): User,
    Json(request): Json<FinishRequest>,
) -> Result<Json<Written>, Problem> {
    let holder = request.holder(&api, &caller)?;
    let held = holder.finish(Outcome::try_from(request.outcome)?).await?;
    answer(&caller, held)
}

/// It is proven that this attempt did nothing
///
/// The next begin may try. A proof speaks for its own attempt only: an older doubt stays.
#[utoipa::path(
    post,
    path = "/v1/release",
    tag = "claims",
    request_body = ReleaseRequest,
    responses((status = 200, description = "Whether it was written", body = Written), Refused, RefusedBody)
)]
pub(super) async fn release(
    State(api): State<Api>,
    User(caller): User,
    Json(request): Json<ReleaseRequest>,
) -> Result<Json<Written>, Problem> {
    if request.not_before_ms > LONGEST_NOT_BEFORE {
        return Err(Problem::invalid(format!("not_before_ms: it is at most {LONGEST_NOT_BEFORE}")));
    }
    let not_before = Duration::from_millis(request.not_before_ms);
    let held = request.holder(&api, &caller)?.release(not_before, request.error.as_deref()).await?;
    answer(&caller, held)
}

/// Nobody knows whether this attempt did anything
///
/// The lease ends at once as a doubt. If nothing was sent yet, this is a release.
#[utoipa::path(
    post,
    path = "/v1/doubt",
    tag = "claims",
    request_body = DoubtRequest,
    responses((status = 200, description = "Whether it was written", body = Written), Refused, RefusedBody)
)]
pub(super) async fn doubt(
    State(api): State<Api>,
    User(caller): User,
    Json(request): Json<DoubtRequest>,
) -> Result<Json<Written>, Problem> {
    let held = request.holder(&api, &caller)?.doubt(request.error.as_deref()).await?;
    answer(&caller, held)
}

/// The other side was asked, and has seen nothing
///
/// For callers that began with `probes` and were told `probe_first`: the doubt is settled, and the work may go on under
/// the same claim.
#[utoipa::path(
    post,
    path = "/v1/not_found",
    tag = "claims",
    request_body = ClaimRequest,
    responses((status = 200, description = "Whether it was written", body = Written), Refused, RefusedBody)
)]
pub(super) async fn not_found(
    State(api): State<Api>,
    User(caller): User,
    Json(request): Json<ClaimRequest>,
) -> Result<Json<Written>, Problem> {
    let held = request.holder(&api, &caller)?.not_found().await?;
    answer(&caller, held)
}
