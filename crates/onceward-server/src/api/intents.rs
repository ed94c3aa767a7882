//! Lists, shows and counts intents. A tenant sees only its own.

use std::collections::BTreeMap;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use onceward::core::name::Operation;
use onceward::core::outcome::MAX_REFERENCE;
use onceward::core::record::{self, Standing};
use onceward::core::time::Timestamp;
use onceward::every_store::StoreFailure;
use onceward::pull::LEASES;
use onceward::store::{Cursor, Filter};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::body::Json;
use super::caller::Reader;
use super::outcome::{StoredBody, StoredOutcome};
use super::problem::{Kind, Problem, ProblemDocument};
use super::schema::{CommonErrors, IntentState};
use crate::view::{IntentView, KeyDisplay, status_named};

/// A page is built in memory.
const MAX_PAGE_SIZE: usize = 200;

/// One or two screens.
const DEFAULT_PAGE_SIZE: usize = 50;

/// Filters
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// Only these states, separated by commas.
    #[param(value_type = Option<Vec<IntentState>>, min_items = 1, style = Form, explode = false, nullable = false)]
    state: Option<String>,
    /// Only this operation.
    #[param(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$", nullable = false)]
    operation: Option<String>,
    /// Only the intent to whose effect the provider gave this id.
    #[param(max_length = 255, nullable = false)]
    reference: Option<String>,
    /// Only intents recorded before this time.
    #[param(format = DateTime, nullable = false)]
    created_before: Option<String>,
    /// Only intents recorded at this time or later.
    #[param(format = DateTime, nullable = false)]
    created_since: Option<String>,
    /// Maximum number of intents. A page may have fewer, even if there are more pages.
    #[param(minimum = 1, maximum = 200, nullable = false)]
    limit: Option<usize>,
    /// Continue after an earlier page.
    #[param(pattern = "^[0-9a-fA-F]{80}([0-9a-fA-F]{8})?$", nullable = false)]
    cursor: Option<String>,
    /// Show keys that look like e-mail addresses, phone numbers or card numbers, instead of a digest.
    #[param(nullable = false)]
    show_keys: Option<bool>,
}

/// Display options
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct GetQuery {
    /// Show a key that looks like an e-mail address, a phone number or a card number, instead of a digest.
    #[param(nullable = false)]
    show_keys: Option<bool>,
    /// Show the payload of an entry of the outbox. Scope `operate`.
    #[param(nullable = false)]
    show_payload: Option<bool>,
}

/// A page of intents, newest first
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct IntentPage {
    intents: Vec<IntentView>,
    /// The `cursor` of the next page; null at the end.
    #[schema(required)]
    next: Option<String>,
    /// The stores that failed, by name: their intents are missing from this page.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_stores: Vec<String>,
}

/// One intent in full
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct IntentDetail {
    intent: IntentView,
    /// The outcome, if the intent is done and the outcome is kept.
    #[schema(required)]
    outcome: Option<StoredOutcome>,
    /// The payload of an entry of the outbox, if `show_payload` asks for it and it is still there.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<StoredBody>,
    /// Events that the record does not show: failed attempts to deliver an entry, late owners and decisions of people. Oldest first.
    trail: Vec<AuditEntry>,
}

/// An entry of the audit trail
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AuditEntry {
    #[schema(format = DateTime)]
    at: String,
    /// `stale_finish`, `contradiction`, `probe_found_nothing`, `resolved_happened`, `resolved_did_not_happen`,
    /// `resolved_reset`, `forced_in_doubt`, `attempt_failed`, `attempt_unknown`, `requeued`, `cancelled` or `rerun`.
    what: &'static str,
    /// The person or program that did it, as given.
    #[schema(required)]
    by: Option<String>,
    /// The name of the token of the request; null if no token was required.
    #[schema(required)]
    token: Option<String>,
    /// Additional information.
    #[schema(required)]
    note: Option<String>,
}

/// Counts of the tenant's intents
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Stats {
    /// The number of intents per state. A record whose outcome was swept has no names any more and is not counted.
    counts: BTreeMap<&'static str, u64>,
    /// How often begin returned each decision since the server started.
    decisions: BTreeMap<&'static str, u64>,
    /// The stores that failed, by name: their intents are not counted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_stores: Vec<String>,
}

/// List intents, newest first
#[utoipa::path(
    get,
    path = "/v1/intents",
    tag = "intents",
    params(ListQuery),
    responses((status = 200, description = "A page", body = IntentPage), CommonErrors)
)]
pub(super) async fn list(
    State(api): State<Api>,
    Reader(caller): Reader,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> Result<Json<IntentPage>, Problem> {
    let Query(query) = query.map_err(|error| Problem::invalid(query_error(&error.body_text())))?;
    let limit = query.limit.unwrap_or(DEFAULT_PAGE_SIZE);
    if limit == 0 || limit > MAX_PAGE_SIZE {
        return Err(Problem::invalid(format!("limit: the range is 1 to {MAX_PAGE_SIZE}")));
    }
    if query.reference.as_ref().is_some_and(|reference| reference.chars().count() > MAX_REFERENCE) {
        return Err(Problem::invalid(format!("reference: the maximum is {MAX_REFERENCE} characters")));
    }
    let keys = KeyDisplay::shown_if(query.show_keys.unwrap_or(false));
    let after = query.cursor.as_deref().map(cursor).transpose()?;
    let filter = Filter {
        status: query.state.as_deref().map(states).transpose()?.unwrap_or_default(),
        tenant: Some(caller.tenant.clone()),
        operation: query.operation.as_deref().map(Operation::new).transpose()?,
        reference: query.reference,
        created_before: query.created_before.as_deref().map(|text| time("created_before", text)).transpose()?,
        created_since: query.created_since.as_deref().map(|text| time("created_since", text)).transpose()?,
    };
    // What the server keeps for itself is shown only on request.
    let all = filter.operation.is_some();
    let is_shown = |intent: &IntentView| all || intent.operation.as_deref() != Some(LEASES);
    let (page, failed) = api.ledger().list_reachable(&filter, after, limit).await.any()?;
    Ok(Json(IntentPage {
        missing_stores: names(&failed),
        intents: page.listed.iter().filter_map(|listed| IntentView::listed(listed, keys)).filter(is_shown).collect(),
        next: page.next.map(|cursor| cursor.to_string()),
    }))
}

fn names(failed: &[StoreFailure]) -> Vec<String> {
    for StoreFailure { name, error } in failed {
        tracing::warn!(store = %name, %error, "the store is left out of an answer");
    }
    failed.iter().map(|failure| failure.name.clone()).collect()
}

/// Shows only the name of an unknown field: values stay out of the response.
fn query_error(message: &str) -> String {
    match message.find("unknown field `") {
        Some(start) => message[start..].to_owned(),
        None => "invalid query".to_owned(),
    }
}

fn cursor(text: &str) -> Result<Cursor, Problem> {
    text.parse().map_err(|_| Problem::invalid("cursor: write the `next` of an earlier page"))
}

fn states(text: &str) -> Result<Vec<record::Status>, Problem> {
    let names = text.split(',');
    let states: Result<Vec<_>, _> = names.map(status_named).collect();
    states.map_err(|wrong| Problem::invalid(format!("state: {wrong}")))
}

fn time(name: &str, text: &str) -> Result<Timestamp, Problem> {
    let parsed = text.parse::<jiff::Timestamp>();
    let parsed = parsed.map(|time| Timestamp::from_millis(time.as_millisecond()));
    parsed.map_err(|_| Problem::invalid(format!("{name}: write a time such as 2026-11-16T08:00:00Z")))
}

/// Show one intent
///
/// Percent-encode names with slashes: `POST%20%2Fv1%2Fcharges`.
#[utoipa::path(
    get,
    path = "/v1/intents/{operation}/{key}",
    tag = "intents",
    params(
        ("operation" = String, Path, description = "The operation", min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$"),
        ("key" = String, Path, description = "The key", min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$"),
        GetQuery,
    ),
    responses(
        (status = 200, description = "The intent", body = IntentDetail),
        (status = 404, description = "Intent not found", content_type = "application/problem+json", body = ProblemDocument),
        CommonErrors,
    )
)]
pub(super) async fn get(
    State(api): State<Api>,
    Reader(caller): Reader,
    path: Result<Path<(String, String)>, PathRejection>,
    query: Result<Query<GetQuery>, QueryRejection>,
) -> Result<Json<IntentDetail>, Problem> {
    let Query(query) = query.map_err(|error| Problem::invalid(query_error(&error.body_text())))?;
    let keys = KeyDisplay::shown_if(query.show_keys.unwrap_or(false));
    if query.show_payload == Some(true) && !caller.may_operate {
        return Err(Problem::because(Kind::NotAllowed, "show_payload needs a token with the scope `operate`"));
    }
    let Path((operation, key)) = path.map_err(|_| Problem::invalid("the path is not UTF-8"))?;
    let identity = caller.any_identity(&operation, &key)?;
    let found = api.ledger().get(&identity).await?;
    let shown = found.as_ref().and_then(|found| Some((found, IntentView::of(&found.seen, keys)?)));
    let Some((found, intent)) = shown else {
        return Err(Problem::because(Kind::NoIntent, format!("{identity} not found")));
    };
    let outcome = match (&found.seen.record.state, found.seen.standing()) {
        (record::State::Done { outcome, .. }, Some(Standing::Done)) => Some(StoredOutcome::from(outcome)),
        _ => None,
    };
    let entry = |entry: &onceward::store::AuditEntry| AuditEntry {
        at: entry.at.to_string(),
        what: entry.event.what.as_str(),
        by: entry.event.by.clone(),
        token: entry.event.token.clone(),
        note: entry.event.note.clone(),
    };
    let payload = found.seen.record.payload.as_ref().filter(|_| query.show_payload == Some(true)).map(StoredBody::of);
    Ok(Json(IntentDetail { intent, outcome, payload, trail: found.trail.iter().map(entry).collect() }))
}

/// Count intents
#[utoipa::path(
    get,
    path = "/v1/stats",
    tag = "intents",
    responses((status = 200, description = "The counts", body = Stats), CommonErrors)
)]
pub(super) async fn stats(State(api): State<Api>, Reader(caller): Reader) -> Result<Json<Stats>, Problem> {
    let (counts, failed) = api.ledger().counts_reachable(Some(&caller.tenant)).await.any()?;
    let counts = record::Status::ALL.into_iter().map(|status| (status.as_str(), counts.of(status))).collect();
    let decisions = api.0.decision_counts.of(&caller.tenant);
    Ok(Json(Stats { counts, decisions, missing_stores: names(&failed) }))
}
