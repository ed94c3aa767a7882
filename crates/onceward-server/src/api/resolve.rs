//! Settles an intent: a person says what happened.

use axum::extract::State;
use onceward::core::decide::{Refusal, Resolution};
use onceward::{Resolved, Resolver};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Api;
use super::body::Json;
use super::caller::Operator;
use super::outcome::OutcomeInput;
use super::problem::Problem;
use super::schema::{BodyErrors, CommonErrors, IntentState, given, whole};
use crate::view::{IntentView, KeyDisplay};

/// What happened, and the evidence for it
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResolveRequest {
    /// The operation of the intent.
    #[schema(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
    operation: String,
    /// The key of the intent.
    #[schema(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
    key: String,
    /// The version of the record that the decision is based on. If the record has changed since, nothing is written.
    #[serde(deserialize_with = "whole")]
    #[schema(maximum = 9_223_372_036_854_775_807_i64)]
    version: u64,
    resolution: ResolutionInput,
    /// The person who decides. The audit trail also records the name of the token.
    #[serde(default, deserialize_with = "given")]
    #[schema(max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$", nullable = false)]
    by: Option<String>,
    /// The evidence.
    #[serde(default, deserialize_with = "given")]
    #[schema(max_length = 1000, nullable = false)]
    note: Option<String>,
}

/// What happened
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ResolutionInput {
    /// It happened; repeats get this outcome.
    Happened(OutcomeInput),
    /// It did not happen; it may be retried.
    DidNotHappen,
    /// It did not happen, and the key may be used for another request.
    Reset,
}

/// The result
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "result", rename_all = "snake_case")]
pub(super) enum ResolveResponse {
    /// The intent is settled.
    Settled {
        /// The intent after the change.
        #[schema(required)]
        intent: Option<Box<IntentView>>,
    },
    /// The intent cannot be settled like this; nothing was written.
    Refused {
        reason: ResolveRefusal,
        /// The state of the intent, if that is the reason.
        #[schema(value_type = Option<IntentState>, required)]
        state: Option<&'static str>,
    },
}

/// Why the intent cannot be settled
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ResolveRefusal {
    /// The intent does not exist.
    Absent,
    /// An owner is doing the work now.
    Running,
    /// The record has changed since that version. Read it again, then decide.
    Changed,
    /// There is nothing to settle in this state.
    NothingToDo,
}

/// Settle an intent
///
/// Refused while an owner is doing the work, if the record has changed since `version`, and if there is nothing to
/// settle.
#[utoipa::path(
    post,
    path = "/v1/resolve",
    tag = "operating",
    request_body = ResolveRequest,
    responses((status = 200, description = "The result", body = ResolveResponse), CommonErrors, BodyErrors)
)]
pub(super) async fn resolve(
    State(api): State<Api>,
    Operator(caller): Operator,
    Json(request): Json<ResolveRequest>,
) -> Result<Json<ResolveResponse>, Problem> {
    let identity = caller.identity(&request.operation, &request.key)?;
    let by = limited(request.by, 255, "by")?;
    let note = limited(request.note, 1000, "note")?;
    let resolution = match request.resolution {
        ResolutionInput::Happened(outcome) => Resolution::Happened(outcome.try_into()?),
        ResolutionInput::DidNotHappen => Resolution::DidNotHappen,
        ResolutionInput::Reset => Resolution::Reset,
    };
    let version = request.version;
    let who = Resolver { by: by.as_deref(), token: caller.token.as_deref() };
    let resolved = api.ledger().resolve_as(&identity, version, resolution, who, note.as_deref()).await?;
    let (name, answer) = match resolved {
        Resolved::Settled => {
            let found = api.ledger().get(&identity).await?;
            let intent = found.and_then(|found| IntentView::of(&found.seen, KeyDisplay::Masked)).map(Box::new);
            ("settled", ResolveResponse::Settled { intent })
        }
        Resolved::Refused(refusal) => ("refused", refused(refusal)),
    };
    caller.note_answer(name);
    Ok(Json(answer))
}

pub(super) fn refused(refusal: Refusal) -> ResolveResponse {
    let (reason, state) = match refusal {
        Refusal::Absent => (ResolveRefusal::Absent, None),
        Refusal::Running => (ResolveRefusal::Running, None),
        // Only an owner is refused for what it has not marked as sent, and a person is none.
        Refusal::Changed | Refusal::NotSent => (ResolveRefusal::Changed, None),
        Refusal::NothingToDo(status) => (ResolveRefusal::NothingToDo, Some(status.as_str())),
    };
    ResolveResponse::Refused { reason, state }
}

/// Checks a text for people: limited length, and a single line for a name.
pub(super) fn limited(text: Option<String>, most: usize, name: &str) -> Result<Option<String>, Problem> {
    let is_long = text.as_ref().is_some_and(|text| text.chars().count() > most);
    let is_name = most <= 255 && text.as_ref().is_some_and(|text| text.contains(char::is_control));
    match is_long || is_name {
        true => Err(Problem::invalid(format!("{name}: at most {most} characters, and no line breaks in a name"))),
        false => Ok(text),
    }
}
