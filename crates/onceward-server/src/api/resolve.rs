//! A person says what happened.

use axum::extract::State;
use onceward::core::decide::{Refusal, Resolution};
use onceward::{Resolved, Who};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Api;
use super::body::Json;
use super::caller::Operator;
use super::names::{Refused, RefusedBody, State as StateName, given, whole};
use super::outcome::GivenOutcome;
use super::problem::Problem;
use crate::view::{Keys, View};

/// What happened, and how it is known
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResolveRequest {
    /// The operation of the intent.
    #[schema(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
    operation: String,
    /// The key of the intent.
    #[schema(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
    key: String,
    /// The version of the record on which the decision is based. If it has changed since, nothing is written.
    #[serde(deserialize_with = "whole")]
    #[schema(maximum = 9_223_372_036_854_775_807_i64)]
    version: u64,
    resolution: GivenResolution,
    /// Who decides, in their own words. The audit trail also names the token.
    #[serde(default, deserialize_with = "given")]
    #[schema(max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$", nullable = false)]
    by: Option<String>,
    /// How it is known.
    #[serde(default, deserialize_with = "given")]
    #[schema(max_length = 1000, nullable = false)]
    note: Option<String>,
}

/// What happened
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum GivenResolution {
    /// It happened, and repeats get this outcome.
    Happened(GivenOutcome),
    /// It did not happen; it may be tried again.
    DidNotHappen,
    /// It did not happen, and the key is free for another request.
    Reset,
}

/// What came of it
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "result", rename_all = "snake_case")]
pub(super) enum ResolveAnswer {
    /// It is settled.
    Settled {
        /// The intent as it stands now.
        #[schema(required)]
        intent: Option<Box<View>>,
    },
    /// It cannot be settled like this, and nothing was written.
    Refused {
        reason: Reason,
        /// How the intent stands, where that is the reason.
        #[schema(value_type = Option<StateName>, required)]
        state: Option<&'static str>,
    },
}

/// Why it cannot be settled
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reason {
    /// There is no such intent.
    Absent,
    /// Somebody is doing the work at this moment.
    Running,
    /// The record has changed since that version. Look again, then decide.
    Changed,
    /// The intent stands otherwise: there is nothing to settle.
    NothingToDo,
}

/// Settle an intent
///
/// Refused while somebody is doing the work, when the record has changed since `version`, and when there is nothing to
/// settle.
#[utoipa::path(
    post,
    path = "/v1/resolve",
    tag = "operating",
    request_body = ResolveRequest,
    responses((status = 200, description = "What came of it", body = ResolveAnswer), Refused, RefusedBody)
)]
pub(super) async fn resolve(
    State(api): State<Api>,
    Operator(caller): Operator,
    Json(request): Json<ResolveRequest>,
) -> Result<Json<ResolveAnswer>, Problem> {
    let identity = caller.identity(&request.operation, &request.key)?;
    let by = within(request.by, 255, "by")?;
    let note = within(request.note, 1000, "note")?;
    let resolution = match request.resolution {
        GivenResolution::Happened(outcome) => Resolution::Happened(outcome.try_into()?),
        GivenResolution::DidNotHappen => Resolution::DidNotHappen,
        GivenResolution::Reset => Resolution::Reset,
    };
    let version = request.version;
    let who = Who { by: by.as_deref(), token: caller.token.as_deref() };
    let resolved = api.ledger().resolve_as(&identity, version, resolution, who, note.as_deref()).await?;
    let (name, answer) = match resolved {
        Resolved::Settled => {
            let found = api.ledger().get(&identity).await?;
            let intent = found.and_then(|found| View::of(&found.seen, Keys::Masked)).map(Box::new);
            ("settled", ResolveAnswer::Settled { intent })
        }
        Resolved::Refused(refusal) => ("refused", refused(refusal)),
    };
    caller.note_answer(name);
    Ok(Json(answer))
}

fn refused(refusal: Refusal) -> ResolveAnswer {
    let (reason, state) = match refusal {
        Refusal::Absent => (Reason::Absent, None),
        Refusal::Running => (Reason::Running, None),
        Refusal::Changed => (Reason::Changed, None),
        Refusal::NothingToDo(status) => (Reason::NothingToDo, Some(status.as_str())),
    };
    ResolveAnswer::Refused { reason, state }
}

/// A text for people, on one line where it is a name, and never long.
fn within(text: Option<String>, most: usize, name: &str) -> Result<Option<String>, Problem> {
    let is_long = text.as_ref().is_some_and(|text| text.chars().count() > most);
    let is_name = most <= 255 && text.as_ref().is_some_and(|text| text.contains(char::is_control));
    match is_long || is_name {
        true => Err(Problem::invalid(format!("{name}: it has at most {most} characters, and a name no line breaks"))),
        false => Ok(text),
    }
}
