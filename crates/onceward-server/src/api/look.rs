//! Looking: intents, one or many, and counts. A tenant sees only its own.

use std::collections::BTreeMap;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use onceward::core::name::Operation;
use onceward::core::record::{self, Standing};
use onceward::core::time::Timestamp;
use onceward::store::{Cursor, Filter};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::body::Json;
use super::caller::Reader;
use super::names::{Refused, State as StateName};
use super::outcome::KeptOutcome;
use super::problem::{Kind, Problem, Told};
use crate::view::{Keys, View, status_named};

/// A page is one answer, which is built in memory.
const LARGEST_PAGE: usize = 200;

/// As many as fit on a screen or two.
const PAGE: usize = 50;

/// Which intents
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// Only these states, separated by commas.
    #[param(value_type = Option<Vec<StateName>>, style = Form, explode = false, nullable = false)]
    state: Option<String>,
    /// Only this operation.
    #[param(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$", nullable = false)]
    operation: Option<String>,
    /// Only those recorded before this time.
    #[param(format = DateTime, nullable = false)]
    created_before: Option<String>,
    /// Only those recorded at this time or later.
    #[param(format = DateTime, nullable = false)]
    created_since: Option<String>,
    /// At most this many.
    #[param(minimum = 1, maximum = 200, nullable = false)]
    limit: Option<usize>,
    /// Go on where an earlier page ended.
    #[param(pattern = "^[0-9a-fA-F]{80}$", nullable = false)]
    cursor: Option<String>,
    /// Show keys that look like e-mail addresses, phone numbers or card numbers; otherwise a digest is shown.
    #[param(nullable = false)]
    show_keys: Option<bool>,
}

/// How it is shown
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct GetQuery {
    /// Show a key that looks like an e-mail address, a phone number or a card number; otherwise a digest is shown.
    #[param(nullable = false)]
    show_keys: Option<bool>,
}

/// A page of intents, the newest first
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Page {
    intents: Vec<View>,
    /// Pass it as `cursor` to go on; null at the end.
    #[schema(required)]
    next: Option<String>,
}

/// One intent, with everything that is known of it
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Detail {
    intent: View,
    /// The outcome, if it is done and kept.
    #[schema(required)]
    outcome: Option<KeptOutcome>,
    /// What the record does not tell: late owners, and what people decided. The oldest first.
    trail: Vec<Entry>,
}

/// An entry of the audit trail
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Entry {
    #[schema(format = DateTime)]
    at: String,
    /// `stale_finish`, `contradiction`, `probe_found_nothing`, `resolved_happened`, `resolved_did_not_happen` or
    /// `resolved_reset`.
    what: &'static str,
    /// Who did it, as they said themselves.
    #[schema(required)]
    by: Option<String>,
    /// The name of the token with which it was asked for; null where no token was needed.
    #[schema(required)]
    token: Option<String>,
    /// Anything to add.
    #[schema(required)]
    note: Option<String>,
}

/// How the tenant's intents stand
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Stats {
    /// How many intents stand how. Once an outcome is swept, its record has no names any more and is not counted.
    counts: BTreeMap<&'static str, u64>,
    /// How often each decision was answered to begin since the server started.
    decisions: BTreeMap<&'static str, u64>,
}

/// List intents, the newest first
#[utoipa::path(
    get,
    path = "/v1/intents",
    tag = "looking",
    params(ListQuery),
    responses((status = 200, description = "A page", body = Page), Refused)
)]
pub(super) async fn list(
    State(api): State<Api>,
    Reader(caller): Reader,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> Result<Json<Page>, Problem> {
    let Query(query) = query.map_err(|error| Problem::invalid(named(&error.body_text())))?;
    let limit = query.limit.unwrap_or(PAGE);
    if limit == 0 || limit > LARGEST_PAGE {
        return Err(Problem::invalid(format!("limit: it is from 1 to {LARGEST_PAGE}")));
    }
    let keys = Keys::shown_if(query.show_keys.unwrap_or(false));
    let after = query.cursor.as_deref().map(cursor).transpose()?;
    let filter = Filter {
        status: states(query.state.as_deref().unwrap_or_default())?,
        tenant: Some(caller.tenant.clone()),
        operation: query.operation.as_deref().map(Operation::new).transpose()?,
        created_before: query.created_before.as_deref().map(|text| time("created_before", text)).transpose()?,
        created_since: query.created_since.as_deref().map(|text| time("created_since", text)).transpose()?,
    };
    let page = api.ledger().list(&filter, after, limit).await?;
    Ok(Json(Page {
        intents: page.listed.iter().filter_map(|listed| View::listed(listed, keys)).collect(),
        next: page.next.map(|cursor| cursor.to_string()),
    }))
}

/// Only the name of a field that nobody knows: values stay out of the answer.
fn named(message: &str) -> String {
    match message.find("unknown field `") {
        Some(start) => message[start..].to_owned(),
        None => "a part of the query is not what it has to be".to_owned(),
    }
}

fn cursor(text: &str) -> Result<Cursor, Problem> {
    text.parse().map_err(|_| Problem::invalid("cursor: it is the `next` of an earlier page"))
}

fn states(text: &str) -> Result<Vec<record::Status>, Problem> {
    let names = text.split(',').filter(|name| !name.is_empty());
    let states: Result<Vec<_>, _> = names.map(status_named).collect();
    states.map_err(|wrong| Problem::invalid(format!("state: {wrong}")))
}

fn time(name: &str, text: &str) -> Result<Timestamp, Problem> {
    let parsed = text.parse::<jiff::Timestamp>();
    let parsed = parsed.map(|time| Timestamp::from_millis(time.as_millisecond()));
    parsed.map_err(|_| Problem::invalid(format!("{name}: it is a time such as 2026-11-16T08:00:00Z")))
}

/// Look at one intent, without touching it
///
/// Names with slashes are percent-encoded: `POST%20%2Fv1%2Fcharges`.
#[utoipa::path(
    get,
    path = "/v1/intents/{operation}/{key}",
    tag = "looking",
    params(
        ("operation" = String, Path, description = "The operation", min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$"),
        ("key" = String, Path, description = "The key", min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$"),
        GetQuery,
    ),
    responses(
        (status = 200, description = "The intent", body = Detail),
        (status = 404, description = "There is no such intent", content_type = "application/problem+json", body = Told),
        Refused,
    )
)]
pub(super) async fn get(
    State(api): State<Api>,
    Reader(caller): Reader,
    path: Result<Path<(String, String)>, PathRejection>,
    query: Result<Query<GetQuery>, QueryRejection>,
) -> Result<Json<Detail>, Problem> {
    let Query(query) = query.map_err(|error| Problem::invalid(named(&error.body_text())))?;
    let keys = Keys::shown_if(query.show_keys.unwrap_or(false));
    let Path((operation, key)) = path.map_err(|_| Problem::invalid("the path is not UTF-8"))?;
    let identity = caller.identity(&operation, &key)?;
    let found = api.ledger().get(&identity).await?;
    let shown = found.as_ref().and_then(|found| Some((found, View::of(&found.seen, keys)?)));
    let Some((found, intent)) = shown else {
        return Err(Problem::because(Kind::NoIntent, format!("there is no {identity}")));
    };
    let outcome = match (&found.seen.record.state, found.seen.standing()) {
        (record::State::Done { outcome, .. }, Some(Standing::Done)) => Some(KeptOutcome::from(outcome)),
        _ => None,
    };
    let entry = |entry: &onceward::store::Entry| Entry {
        at: entry.at.to_string(),
        what: entry.event.what.as_str(),
        by: entry.event.by.clone(),
        token: entry.event.token.clone(),
        note: entry.event.note.clone(),
    };
    Ok(Json(Detail { intent, outcome, trail: found.trail.iter().map(entry).collect() }))
}

/// Count intents
#[utoipa::path(
    get,
    path = "/v1/stats",
    tag = "looking",
    responses((status = 200, description = "The counts", body = Stats), Refused)
)]
pub(super) async fn stats(State(api): State<Api>, Reader(caller): Reader) -> Result<Json<Stats>, Problem> {
    let counts = api.ledger().counts_of(&caller.tenant).await?;
    let counts = record::Status::ALL.into_iter().map(|status| (status.as_str(), counts.of(status))).collect();
    Ok(Json(Stats { counts, decisions: api.0.tally.of(&caller.tenant) }))
}
