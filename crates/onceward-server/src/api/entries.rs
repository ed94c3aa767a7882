//! Decisions of people about entries of the outbox: one that is dead is tried again, and one that waits is cancelled.

use axum::extract::State;
use onceward::core::name::Identity;
use onceward::{Error, Resolved, Resolver};
use serde::Deserialize;
use utoipa::ToSchema;

use super::Api;
use super::body::Json;
use super::caller::{Caller, Operator};
use super::problem::Problem;
use super::resolve::{ResolveResponse, limited, refused};
use super::schema::{BodyErrors, CommonErrors, given, whole};
use crate::view::{IntentView, KeyDisplay};

/// The entry, and who decides
macro_rules! about_an_entry {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty),* $(,)? })+) => {$(
        $(#[$doc])*
        #[derive(Debug, Deserialize, ToSchema)]
        #[serde(deny_unknown_fields)]
        pub(super) struct $name {
            /// The operation of the entry.
            #[schema(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
            operation: String,
            /// The key of the entry.
            #[schema(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]+$")]
            key: String,
            /// The version of the record that the decision is based on. If the record has changed since, nothing is written.
            #[serde(deserialize_with = "whole")]
            #[schema(maximum = 9_223_372_036_854_775_807_i64)]
            version: u64,
            /// The person who decides. The audit trail also records the name of the token.
            #[serde(default, deserialize_with = "given")]
            #[schema(max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$", nullable = false)]
            by: Option<String>,
            /// The reason.
            #[serde(default, deserialize_with = "given")]
            #[schema(max_length = 1000, nullable = false)]
            note: Option<String>,
            $($(#[$field_doc])* $field: $type,)*
        }

        impl $name {
            /// The entry, the person and the reason, checked.
            fn checked(&mut self, caller: &Caller) -> Result<(Identity, Option<String>, Option<String>), Problem> {
                let by = limited(self.by.take(), 255, "by")?;
                let note = limited(self.note.take(), 1000, "note")?;
                Ok((caller.identity(&self.operation, &self.key)?, by, note))
            }
        }
    )+};
}

about_an_entry! {
    /// The dead entry to try again
    RequeueRequest {
        /// Send a new key to the downstream: it may have recorded the failed request under the old one.
        #[serde(default)]
        fresh_key: bool,
    }

    /// The entry to cancel
    CancelRequest {}
}

/// Try a dead entry again
///
/// With all its attempts, and without the time limit that it had. Refused in every other state: an entry in doubt may have been
/// delivered, and is settled with `/v1/resolve`. Sending the request again gives the same response.
#[utoipa::path(
    post,
    path = "/v1/requeue",
    tag = "operating",
    request_body = RequeueRequest,
    responses((status = 200, description = "The result", body = ResolveResponse), CommonErrors, BodyErrors)
)]
pub(super) async fn requeue(
    State(api): State<Api>,
    Operator(caller): Operator,
    Json(mut request): Json<RequeueRequest>,
) -> Result<Json<ResolveResponse>, Problem> {
    let (identity, by, note) = request.checked(&caller)?;
    let who = Resolver { by: by.as_deref(), token: caller.token.as_deref() };
    let ledger = api.ledger();
    let done = ledger.requeue(&identity, request.version, request.fresh_key, who, note.as_deref()).await;
    answer(&api, &caller, &identity, done).await
}

/// Cancel an entry that waits
///
/// It is dead from then on, and can be requeued. Refused while a worker delivers it, and in doubt.
#[utoipa::path(
    post,
    path = "/v1/cancel",
    tag = "operating",
    request_body = CancelRequest,
    responses((status = 200, description = "The result", body = ResolveResponse), CommonErrors, BodyErrors)
)]
pub(super) async fn cancel(
    State(api): State<Api>,
    Operator(caller): Operator,
    Json(mut request): Json<CancelRequest>,
) -> Result<Json<ResolveResponse>, Problem> {
    let (identity, by, note) = request.checked(&caller)?;
    let who = Resolver { by: by.as_deref(), token: caller.token.as_deref() };
    let done = api.ledger().cancel(&identity, request.version, who, note.as_deref()).await;
    answer(&api, &caller, &identity, done).await
}

async fn answer(
    api: &Api,
    caller: &Caller,
    identity: &Identity,
    done: Result<Resolved, Error>,
) -> Result<Json<ResolveResponse>, Problem> {
    let (name, answer) = match done? {
        Resolved::Settled => {
            let found = api.ledger().get(identity).await?;
            let intent = found.and_then(|found| IntentView::of(&found.seen, KeyDisplay::Masked)).map(Box::new);
            ("settled", ResolveResponse::Settled { intent })
        }
        Resolved::Refused(refusal) => ("refused", refused(refusal)),
    };
    caller.note_answer(name);
    Ok(Json(answer))
}
