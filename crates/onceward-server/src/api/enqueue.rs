//! Queues entries for delivery: one, or many in one request, each with a result of its own.

use std::fmt;
use std::time::Duration;

use axum::extract::State;
use futures_util::stream::{self, StreamExt};
use onceward::core::decide::Decision;
use onceward::core::outbox;
use onceward::{Call, EnqueueOptions, Enqueued, Error};
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::Api;
use super::body::{Json, JsonBatch, parse};
use super::caller::{Caller, User, check_operation};
use super::outcome::StoredOutcome;
use super::problem::{Problem, ProblemDocument};
use super::schema::{BodyErrors, CommonErrors, IntentState, Priority, QuotaErrors, given, given_whole};

/// The most entries of one request.
const MAX_ENTRIES: usize = 1000;

/// How many entries of one request are written at once: the store groups them into few commits, and other requests get their turn.
const AT_ONCE: usize = 128;

/// A year: longer plans belong into a calendar.
const MAX_DELAY_MS: u64 = 31_536_000_000;

/// An entry to queue
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EnqueueEntry {
    /// The kind of effect. The server's configuration has its policy and recipe.
    #[schema(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$", example = "send_mail")]
    operation: String,
    /// The caller's own key: the same key is the same entry. Without it, the key is derived from the payload, using the operation's
    /// recipe if it has one.
    #[serde(default, deserialize_with = "given")]
    #[schema(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$", nullable = false)]
    key: Option<String>,
    /// What is delivered, up to 1 MiB. It is kept byte for byte until it is delivered, and must be the same on every repeat; if the
    /// operation has a recipe, only in the fields that the recipe names.
    #[schema(value_type = serde_json::Value)]
    payload: Box<RawValue>,
    /// The caller's session; part of a derived key.
    #[serde(default, deserialize_with = "given")]
    #[schema(max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$", nullable = false)]
    session: Option<String>,
    /// How long to wait before the first attempt. Defaults to 0.
    #[serde(default, deserialize_with = "given_whole")]
    #[schema(maximum = 31_536_000_000_i64, nullable = false)]
    delay_ms: Option<u64>,
    /// How long the entry is tried, counted from the end of the delay: after that it is dead. Without it, the attempts are the only
    /// limit.
    #[serde(default, deserialize_with = "given_whole")]
    #[schema(minimum = 1, maximum = 31_536_000_000_i64, nullable = false)]
    deliver_within_ms: Option<u64>,
    /// Due entries of a higher priority go before all others. Defaults to `normal`.
    #[serde(default, deserialize_with = "given")]
    #[schema(nullable = false)]
    priority: Option<Priority>,
    /// Keep the payload after delivery. Otherwise it is erased then.
    #[serde(default)]
    keep_payload: bool,
}

/// Entries to queue
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EnqueueBatch {
    /// Entries as `EnqueueEntry` describes them. Each has a result of its own, and one that is refused does not affect the others.
    #[serde(deserialize_with = "limited")]
    #[schema(value_type = Vec<EnqueueEntry>, max_items = 1000)]
    entries: Vec<Box<RawValue>>,
}

/// One entry, or many
#[derive(ToSchema)]
#[schema(as = EnqueueRequest)]
#[serde(untagged)]
#[allow(dead_code, reason = "it describes the request")]
pub(super) enum EnqueueRequest {
    One(EnqueueEntry),
    Many(EnqueueBatch),
}

/// The result of one entry
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "result", rename_all = "snake_case")]
pub(super) enum EnqueueResult {
    /// This request has queued it.
    Enqueued {
        /// The key of the entry, as given or as derived.
        key: String,
        #[schema(value_type = IntentState)]
        state: &'static str,
    },
    /// It was queued before, or done by a direct call.
    AlreadyEnqueued {
        /// The key of the entry, as given or as derived.
        key: String,
        #[schema(value_type = IntentState)]
        state: &'static str,
        /// The outcome, if the entry is done and the outcome is kept.
        #[schema(required)]
        outcome: Option<Box<StoredOutcome>>,
        /// Since when an attempt may have happened, if it is in doubt.
        #[schema(format = DateTime, required)]
        doubt_since: Option<String>,
    },
    /// The key was used before with a different payload. Nothing was queued.
    Mismatch { key: String },
    /// Two different payloads have the same derived key. Nothing was queued.
    Collision { key: String },
    /// The key is also used by a stream. Nothing was queued.
    MixedUse { key: String },
    /// The entry is refused, or the store failed. Only in a request with `entries`: the response to a single entry is then the
    /// problem itself.
    Problem { problem: ProblemDocument },
}

/// The results, in the order of the entries
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct EnqueueResults {
    entries: Vec<EnqueueResult>,
}

/// The result of one entry, or those of many
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum EnqueueResponse {
    One(EnqueueResult),
    Many(EnqueueResults),
}

/// Queue entries
///
/// One, or up to 1,000 in `entries`, in 8 MiB together. Sending the request again queues nothing twice: ten requests make one entry.
/// The entries are delivered to the sink of their operation, or fetched with `/v1/lease`.
#[utoipa::path(
    post,
    path = "/v1/enqueue",
    tag = "outbox",
    request_body = EnqueueRequest,
    responses(
        (status = 200, description = "The result", body = EnqueueResponse),
        QuotaErrors,
        CommonErrors,
        BodyErrors,
    )
)]
pub(super) async fn enqueue(
    State(api): State<Api>,
    User(caller): User,
    JsonBatch(body): JsonBatch,
) -> Result<Json<EnqueueResponse>, Problem> {
    if !has_entries(&body)? {
        let result = enqueue_one(&api, &caller, &body).await?;
        caller.note_answer(result.name());
        return Ok(Json(EnqueueResponse::One(result)));
    }
    let batch: EnqueueBatch = parse(&body)?;
    drop(body);
    let results =
        stream::iter(batch.entries)
            .map(|entry| {
                let (api, caller) = (&api, &caller);
                async move {
                    enqueue_one(api, caller, entry.get().as_bytes()).await.unwrap_or_else(EnqueueResult::of_problem)
                }
            })
            .buffered(AT_ONCE)
            .collect()
            .await;
    caller.note_answer("batch");
    Ok(Json(EnqueueResponse::Many(EnqueueResults { entries: results })))
}

/// Whether the body has the member `entries`.
fn has_entries(body: &[u8]) -> Result<bool, Problem> {
    #[derive(Deserialize)]
    #[serde(rename = "EnqueueRequest")]
    struct Shape {
        #[serde(default)]
        entries: Option<IgnoredAny>,
    }
    parse::<Shape>(body).map(|shape| shape.entries.is_some())
}

async fn enqueue_one(api: &Api, caller: &Caller, entry: &[u8]) -> Result<EnqueueResult, Problem> {
    let entry: EnqueueEntry = parse(entry)?;
    let options = options(&entry)?;
    let call = call(api, caller, &entry)?;
    caller.note(&call.identity);
    let key = call.identity.key.as_str().to_owned();
    let payload = entry.payload.get().as_bytes().to_vec();
    match api.ledger().enqueue(&call, payload, options).await {
        Ok(Enqueued::Created) => Ok(EnqueueResult::Enqueued { key, state: "queued" }),
        Ok(Enqueued::Existing(decision)) => Ok(EnqueueResult::of_decision(key, &decision)),
        Err(Error::Mismatch { .. }) => Ok(EnqueueResult::Mismatch { key }),
        Err(Error::Collision { .. }) => Ok(EnqueueResult::Collision { key }),
        Err(Error::MixedUse { .. }) => Ok(EnqueueResult::MixedUse { key }),
        Err(error) => Err(error.into()),
    }
}

fn options(entry: &EnqueueEntry) -> Result<EnqueueOptions, Problem> {
    for (name, millis) in [("delay_ms", entry.delay_ms), ("deliver_within_ms", entry.deliver_within_ms)] {
        if millis.is_some_and(|millis| millis > MAX_DELAY_MS) {
            return Err(Problem::invalid(format!("{name}: the maximum is {MAX_DELAY_MS}")));
        }
    }
    if entry.deliver_within_ms == Some(0) {
        return Err(Problem::invalid("deliver_within_ms: the minimum is 1"));
    }
    let delay = Duration::from_millis(entry.delay_ms.unwrap_or_default());
    Ok(EnqueueOptions {
        delay,
        priority: entry.priority.map(outbox::Priority::from).unwrap_or_default(),
        // The ledger counts from now.
        deliver_within: entry.deliver_within_ms.map(|within| delay + Duration::from_millis(within)),
        keep_payload: entry.keep_payload,
    })
}

fn call(api: &Api, caller: &Caller, entry: &EnqueueEntry) -> Result<Call, Problem> {
    check_operation(&entry.operation)?;
    let mut operation = api.ledger().operation(&entry.operation).tenant(caller.tenant.as_str());
    operation = operation.intent_json(entry.payload.get().as_bytes());
    if let Some(key) = &entry.key {
        operation = operation.key(key);
    }
    if let Some(session) = &entry.session {
        operation = operation.session(session);
    }
    Ok(operation.call()?)
}

impl EnqueueResult {
    fn of_decision(key: String, decision: &Decision) -> Self {
        let (state, outcome, since) = match decision {
            Decision::Replay { outcome, .. } => ("done", Some(Box::new(StoredOutcome::from(outcome))), None),
            Decision::OutcomeNotKept { .. } => ("done", None, None),
            Decision::InDoubt { since } => ("in_doubt", None, Some(since.to_string())),
            Decision::Dead => ("dead", None, None),
            Decision::InFlight { running: true, .. } => ("running", None, None),
            Decision::InFlight { .. } => ("open", None, None),
            _ => ("queued", None, None),
        };
        Self::AlreadyEnqueued { key, state, outcome, doubt_since: since }
    }

    fn of_problem(problem: Problem) -> Self {
        Self::Problem { problem: problem.into_document() }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Enqueued { .. } => "enqueued",
            Self::AlreadyEnqueued { .. } => "already_enqueued",
            Self::Mismatch { .. } => "mismatch",
            Self::Collision { .. } => "collision",
            Self::MixedUse { .. } => "mixed_use",
            Self::Problem { .. } => "problem",
        }
    }
}

/// A list that is refused as soon as it is too long: short elements would otherwise take far more memory than the body.
fn limited<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Box<RawValue>>, D::Error> {
    struct Entries;

    impl<'de> Visitor<'de> for Entries {
        type Value = Vec<Box<RawValue>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {MAX_ENTRIES} entries")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut entries = Vec::new();
            while let Some(entry) = list.next_element()? {
                if entries.len() == MAX_ENTRIES {
                    return Err(serde::de::Error::invalid_length(MAX_ENTRIES + 1, &self));
                }
                entries.push(entry);
            }
            Ok(entries)
        }
    }

    deserializer.deserialize_seq(Entries)
}
