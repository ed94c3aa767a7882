//! Leases entries of the outbox to workers, in batches. A worker chooses the id of its lease, so it can repeat a request whose
//! response was lost.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use onceward::core::name::Operation;
use onceward::pull::{MAX_ENTRIES, MAX_OPERATIONS, PullRequest, Pulled};
use onceward::remote::ClaimOffer;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::Api;
use super::begin::{PhaseName, lease_end};
use super::body::Json;
use super::caller::{Caller, User, check_operation};
use super::claim_offer_body;
use super::owner;
use super::problem::Problem;
use super::schema::{BodyErrors, CommonErrors, InDoubtPolicy, MAX_WAIT_MS, Priority, given, given_whole};

/// A worker that asks for entries
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LeaseEntriesRequest {
    /// Identifies this request, so that it can be repeated if its response is lost: the same id with the same token gets the same
    /// batch, or what is still held of it, and never a second one. Use a new random id after every response.
    #[schema(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
    lease_id: String,
    /// Only entries of this operation.
    #[serde(default, deserialize_with = "given")]
    #[schema(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$", nullable = false)]
    operation: Option<String>,
    /// Only entries of these operations; instead of `operation`.
    #[serde(default, deserialize_with = "given")]
    #[schema(min_items = 1, max_items = 20, nullable = false)]
    operations: Option<Vec<String>>,
    /// At most this many entries. Defaults to 1.
    #[serde(default, deserialize_with = "given_whole")]
    #[schema(minimum = 1, maximum = 100, nullable = false)]
    limit: Option<usize>,
    /// How long to wait until an entry is due. Defaults to 0.
    #[serde(default, deserialize_with = "given_whole")]
    #[schema(maximum = 60_000, nullable = false)]
    wait_ms: Option<u64>,
    /// How long each entry is leased unless it is renewed. Defaults to three times its operation's `max_runtime`.
    #[serde(default, deserialize_with = "given_whole")]
    #[schema(minimum = 1, maximum = 259_200_000, nullable = false)]
    lease_ms: Option<u64>,
    /// The worker promises to call `/v1/sent` for each entry before it acts. Until then, a lapsed lease is not in doubt, and finish
    /// is refused.
    #[serde(default)]
    marks_sent: bool,
    /// The worker can ask the downstream first when an entry says `probe_first`. Under `in_doubt = "probe"`, an entry in doubt that
    /// a worker without this promise meets is set aside for a person.
    #[serde(default)]
    probes: bool,
}

/// The leased entries
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "result", rename_all = "snake_case")]
pub(super) enum LeaseEntriesResponse {
    /// Deliver these entries.
    Leased {
        /// None if nothing was due.
        entries: Vec<LeasedEntry>,
        /// This is what is still held of the batch that an earlier request with this `lease_id` got. If there are no entries, go on
        /// with a new id.
        repeated: bool,
    },
    /// An earlier request with this `lease_id` asked for something else. Nothing was leased: use a new random id for every request.
    Mismatch,
}

/// An entry to deliver. End it with finish, release or doubt
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct LeasedEntry {
    operation: String,
    key: String,
    /// Identifies the lease in every call about the entry. Its holder owns the work: keep it secret like a password.
    #[schema(pattern = "^[0-9a-f]{32}$")]
    fence: String,
    /// What to deliver, byte for byte as it was queued; null if it is not JSON.
    #[schema(value_type = serde_json::Value, required)]
    payload: Option<Box<RawValue>>,
    /// The payload in standard base64, if it is not JSON: the library can queue any bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    /// The number of this attempt, starting at 1.
    attempt: u32,
    /// The key to send to the downstream: the same on every attempt of this entry, and different for every other one.
    downstream_key: String,
    /// The sink that `downstream_key` is for. Another one than `pull` made an earlier attempt that may have happened.
    sink: String,
    /// When the lease lapses unless it is renewed, by the store's clock.
    #[schema(format = DateTime)]
    lease_until: String,
    /// The same as a duration, for callers with a different clock.
    lease_ms: u64,
    phase: PhaseName,
    /// An earlier attempt may have happened: ask the downstream before sending anything.
    probe_first: bool,
    /// The in-doubt policy of the entry.
    #[schema(value_type = InDoubtPolicy)]
    when_in_doubt: onceward::InDoubt,
    priority: Priority,
    /// When it was queued.
    #[schema(format = DateTime)]
    created_at: String,
}

/// Lease due entries
///
/// For workers in any language: lease, act, finish. Each entry goes to one worker. It is handed out as `sent`, because the worker
/// may act and die: if its lease lapses, it is in doubt and the policy of its operation decides.
#[utoipa::path(
    post,
    path = "/v1/lease",
    tag = "outbox",
    request_body = LeaseEntriesRequest,
    responses((status = 200, description = "The entries", body = LeaseEntriesResponse), CommonErrors, BodyErrors)
)]
pub(super) async fn lease(
    State(api): State<Api>,
    User(caller): User,
    Json(request): Json<LeaseEntriesRequest>,
) -> Result<Response, Problem> {
    let request = pull_request(&api, &caller, &request)?;
    let mut stop = api.0.stop.clone();
    let pulled = tokio::select! {
        pulled = api.ledger().pull(&request) => pulled?,
        // At shutdown, all waiting workers are answered at once.
        () = stop.stopped(), if !request.wait.is_zero() => Pulled::Leased(Vec::new()),
    };
    let (offers, repeated) = match pulled {
        Pulled::Leased(offers) => (offers, false),
        Pulled::LeasedBefore(offers) => (offers, true),
        Pulled::Mismatch => {
            caller.note_answer("mismatch");
            return Ok(claim_offer_body::offering(&LeaseEntriesResponse::Mismatch, Vec::new()));
        }
    };
    caller.note_answer(if offers.is_empty() { "nothing_due" } else { "leased" });
    let answer = LeaseEntriesResponse::Leased { entries: offers.iter().map(LeasedEntry::of).collect(), repeated };
    Ok(claim_offer_body::offering(&answer, offers))
}

fn pull_request(api: &Api, caller: &Caller, request: &LeaseEntriesRequest) -> Result<PullRequest, Problem> {
    let limit = request.limit.unwrap_or(1);
    if limit == 0 || limit > MAX_ENTRIES {
        return Err(Problem::invalid(format!("limit: the range is 1 to {MAX_ENTRIES}")));
    }
    let wait_ms = request.wait_ms.unwrap_or_default();
    if wait_ms > MAX_WAIT_MS {
        return Err(Problem::invalid(format!("wait_ms: the maximum is {MAX_WAIT_MS}")));
    }
    Ok(PullRequest {
        tenant: caller.tenant.clone(),
        lease_id: caller.lease_id(&request.lease_id)?,
        operations: operations(api, request)?,
        limit,
        wait: Duration::from_millis(wait_ms),
        lease: owner::lease(request.lease_ms)?,
        marks_sent: request.marks_sent,
        probes: request.probes,
    })
}

/// The operations, in one order whatever the order of the request: it is the same request.
fn operations(api: &Api, request: &LeaseEntriesRequest) -> Result<Vec<Operation>, Problem> {
    let named: Vec<&String> = match (&request.operation, &request.operations) {
        (Some(one), None) => vec![one],
        (None, Some(many)) if (1..=MAX_OPERATIONS).contains(&many.len()) => many.iter().collect(),
        (None, Some(_)) => return Err(Problem::invalid(format!("operations: 1 to {MAX_OPERATIONS} are required"))),
        _ => return Err(Problem::invalid("operation: either `operation` or `operations` is required")),
    };
    let mut operations = Vec::new();
    for name in named {
        check_operation(name)?;
        if let Some(sink) = api.0.sinks.get(name) {
            let detail =
                format!("operation: the entries of one of them are delivered to the sink `{sink}`, not to workers");
            return Err(Problem::invalid(detail));
        }
        operations.push(Operation::new(name)?);
    }
    operations.sort();
    operations.dedup();
    Ok(operations)
}

impl LeasedEntry {
    fn of(offer: &ClaimOffer) -> Self {
        let (acquired, seen, identity) = (offer.acquired(), offer.seen(), offer.identity());
        let record = &seen.record;
        let until = lease_end(seen);
        let bytes = record.payload.as_deref().unwrap_or_default();
        let text = std::str::from_utf8(bytes).ok().map(str::to_owned);
        let payload = text.and_then(|text| RawValue::from_string(text).ok());
        let entry = record.entry.as_deref().cloned().unwrap_or_default();
        Self {
            operation: identity.operation.as_str().to_owned(),
            key: identity.key.as_str().to_owned(),
            fence: acquired.fence.into(),
            payload_base64: payload.is_none().then(|| STANDARD.encode(bytes)),
            payload,
            attempt: acquired.attempt,
            downstream_key: offer.downstream_key(),
            sink: entry.destination.map(|destination| destination.sink).unwrap_or_default(),
            lease_until: until.to_string(),
            lease_ms: u64::try_from(seen.now.until(until).as_millis()).unwrap_or(u64::MAX),
            phase: acquired.phase.into(),
            probe_first: acquired.probe_first,
            when_in_doubt: acquired.in_doubt,
            priority: entry.priority.into(),
            created_at: record.created_at.to_string(),
        }
    }
}
