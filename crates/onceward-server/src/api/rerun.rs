//! A deliberate new run of an entry that is done.

use axum::extract::State;
use onceward::name::Identity;
use onceward::{Ledger, Rerun, RerunRefusal, RerunRequest, Resolver};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::Api;
use super::body::Json;
use super::caller::Operator;
use super::problem::Problem;
use super::resolve::limited;
use super::schema::{BodyErrors, CommonErrors, IntentState, QuotaErrors, given};
use crate::view::{IntentView, KeyDisplay};

/// The longest reason, in characters.
const LONGEST_WHY: usize = 1000;

/// The entry to run again, and why
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RerunRequest)]
pub(super) struct RerunBody {
    /// The operation of the entry.
    #[schema(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
    operation: String,
    /// The key of the run that is done. For a third run, the key of the second one.
    #[schema(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
    key: String,
    /// The payload of the run that is done. Needed unless the entry has kept it. It must be the same as it was; if the operation has a
    /// recipe, only in the fields that the recipe names.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<Box<RawValue>>,
    /// The session, if the key was derived with one.
    #[serde(default, deserialize_with = "given")]
    #[schema(max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$", nullable = false)]
    session: Option<String>,
    /// The reason.
    #[schema(min_length = 1, max_length = 1000)]
    why: String,
    /// The person who decides. The audit trail also records the name of the token.
    #[serde(default, deserialize_with = "given")]
    #[schema(max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$", nullable = false)]
    by: Option<String>,
}

/// The result
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "result", rename_all = "snake_case")]
pub(super) enum RerunResponse {
    /// This request has queued the new run.
    Enqueued {
        /// The key of the new run.
        key: String,
        /// The number of the new run: 2 for the one that follows the first.
        run: u32,
        /// The new run.
        #[schema(required)]
        intent: Option<Box<IntentView>>,
    },
    /// An earlier request has queued it. `intent` says how it stands.
    AlreadyEnqueued {
        /// The key of the new run.
        key: String,
        /// The number of the new run: 2 for the one that follows the first.
        run: u32,
        /// The new run.
        #[schema(required)]
        intent: Option<Box<IntentView>>,
    },
    /// Nothing was queued.
    Refused {
        reason: RerunRefusalReason,
        /// The state of the intent, if that is the reason.
        #[schema(value_type = Option<IntentState>, required)]
        state: Option<&'static str>,
        /// The reason in words.
        detail: String,
    },
}

/// Why there is no new run
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum RerunRefusalReason {
    /// The intent does not exist.
    Absent,
    /// It is not done. An entry in doubt is settled with `/v1/resolve`, and a dead one is tried again with `/v1/requeue`.
    NotDone,
    /// It is done, and its outcome is no longer kept.
    Expired,
    /// It was done by a direct call. Another run needs a new key.
    NotAnEntry,
    /// Its payload was erased after delivery. Send it again in `payload`.
    PayloadErased,
    /// It was queued with another payload.
    Mismatch,
}

impl From<RerunRefusal> for RerunRefusalReason {
    fn from(refusal: RerunRefusal) -> Self {
        match refusal {
            RerunRefusal::Absent => Self::Absent,
            RerunRefusal::NotDone(_) => Self::NotDone,
            RerunRefusal::Expired => Self::Expired,
            RerunRefusal::NotAnEntry => Self::NotAnEntry,
            RerunRefusal::PayloadErased => Self::PayloadErased,
            RerunRefusal::OtherPayload => Self::Mismatch,
        }
    }
}

/// Run an entry again that is done
///
/// The finished run stays as it is. The new run has a key of its own, and the downstream gets another key too, so it acts again.
/// Sending the request again gives the same new run. Refused unless the entry is done.
#[utoipa::path(
    post,
    path = "/v1/rerun",
    tag = "operating",
    request_body = RerunBody,
    responses(
        (status = 200, description = "The result", body = RerunResponse),
        QuotaErrors,
        CommonErrors,
        BodyErrors,
    )
)]
pub(super) async fn rerun(
    State(api): State<Api>,
    Operator(caller): Operator,
    Json(body): Json<RerunBody>,
) -> Result<Json<RerunResponse>, Problem> {
    let identity = caller.identity(&body.operation, &body.key)?;
    let by = limited(body.by, 255, "by")?;
    let session = limited(body.session, 255, "session")?;
    let why = limited(Some(body.why), LONGEST_WHY, "why")?.filter(|why| !why.is_empty());
    let why = why.ok_or_else(|| Problem::invalid("why: say why it is done again"))?;
    let payload = body.payload.map(|payload| payload.get().as_bytes().to_vec());
    let who = Resolver { by: by.as_deref(), token: caller.token.as_deref() };
    let request = RerunRequest { payload, session: session.as_deref(), who, why: &why };
    let (name, answer) = match api.ledger().rerun(&identity, request).await? {
        Rerun::Queued { identity, run } => {
            let (key, intent) = (identity.key.as_str().to_owned(), shown(api.ledger(), &identity).await?);
            ("enqueued", RerunResponse::Enqueued { key, run, intent })
        }
        Rerun::Existing { identity, run, .. } => {
            let (key, intent) = (identity.key.as_str().to_owned(), shown(api.ledger(), &identity).await?);
            ("already_enqueued", RerunResponse::AlreadyEnqueued { key, run, intent })
        }
        Rerun::Refused(refusal) => ("refused", refused(refusal)),
    };
    caller.note_answer(name);
    Ok(Json(answer))
}

async fn shown(ledger: &Ledger, identity: &Identity) -> Result<Option<Box<IntentView>>, Problem> {
    let found = ledger.get(identity).await?;
    Ok(found.and_then(|found| IntentView::of(&found.seen, KeyDisplay::Masked)).map(Box::new))
}

fn refused(refusal: RerunRefusal) -> RerunResponse {
    let state = if let RerunRefusal::NotDone(status) = refusal { Some(status.as_str()) } else { None };
    RerunResponse::Refused { reason: refusal.into(), state, detail: refusal.to_string() }
}
