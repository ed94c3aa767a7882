//! Queues an intent on a server. Sending it again is harmless, so a lost answer is asked for again.

use onceward::Error;
use onceward_core::name::{Identity, Key, Operation, Tenant};
use onceward_core::record::Status;
use pyo3::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::RemoteLedger;
use super::client::{ApiRequest, MAX_REQUEST_BYTES};
use super::failure::RemoteError;
use super::messages::{StoredOutcome, Time};
use crate::claim::answer;
use crate::error::{self, About};
use crate::outbox::{EntryOptions, EntryState, delivered};
use crate::runtime::Completion;

/// The parts of an entry, as Python gives them.
pub(crate) struct EnqueueParts<'a> {
    pub(crate) operation: &'a str,
    pub(crate) tenant: Option<&'a str>,
    pub(crate) session: Option<&'a str>,
    pub(crate) key: Option<&'a str>,
    /// Canonical JSON.
    pub(crate) payload: String,
    pub(crate) has_recipe: bool,
}

#[derive(Debug, Serialize)]
struct EnqueueRequest<'a> {
    operation: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    payload: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deliver_within: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    keep_payload: bool,
}

#[derive(Debug, Deserialize)]
struct EnqueueResponse {
    result: EnqueueResult,
    key: Option<String>,
    #[serde(default)]
    state: Option<String>,
    #[serde(default)]
    outcome: Option<StoredOutcome>,
    #[serde(default)]
    expires_at: Option<Time>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum EnqueueResult {
    Enqueued,
    AlreadyEnqueued,
    Mismatch,
    Collision,
    MixedUse,
}

/// Queues an intent on a server.
pub(crate) fn enqueue(
    py: Python<'_>,
    event_loop: Option<&Bound<'_, PyAny>>,
    ledger: &RemoteLedger,
    parts: EnqueueParts<'_>,
    options: &EntryOptions,
) -> PyResult<Py<PyAny>> {
    let EnqueueParts { operation, tenant, session, key, payload, has_recipe } = parts;
    let about = About { operation: operation.to_owned(), ..ledger.about() };
    let refuse = |why: &str| Err(error::invalid(py, why, &about));
    if tenant.is_some() {
        return refuse("the tenant of a ledger behind HTTP is that of its token");
    }
    if has_recipe || options.max_attempts.is_some() {
        return refuse(
            "the fields that make the key, and max_attempts, must be set on the server of this ledger: write them into \
             [operation.NAME] of its onceward.toml, and leave them out here",
        );
    }
    let payload = RawValue::from_string(payload).map_err(|error| error::invalid(py, &error.to_string(), &about))?;
    let request = EnqueueRequest {
        operation,
        key,
        payload,
        session,
        delay: options.delay.as_deref(),
        deliver_within: options.deliver_within.as_deref(),
        priority: options.priority.as_deref(),
        keep_payload: options.keep_payload,
    };
    let request = ApiRequest::post("/v1/enqueue", &request);
    if request.is_too_large() {
        return refuse(&format!("the payload is too large: a server accepts requests of {MAX_REQUEST_BYTES} bytes"));
    }
    let (client, key) = (ledger.client(py)?, key.map(ToOwned::to_owned));
    answer(py, event_loop, async move {
        let answer = client.ask_again::<EnqueueResponse>(&request).await.map_err(RemoteError::from);
        RemoteEnqueue { answer, key, about }
    })
}

/// What a server answers, as Python gets it.
struct RemoteEnqueue {
    answer: Result<EnqueueResponse, RemoteError>,
    key: Option<String>,
    about: About,
}

impl Completion for RemoteEnqueue {
    fn deliver(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let Self { answer, key, about } = self;
        let response = answer.map_err(|error| error.raised(py, &about))?;
        let about = named(about, key.or(response.key).unwrap_or_default());
        let intent = about.intent.clone();
        let error = match response.result {
            EnqueueResult::Mismatch => Error::Mismatch { intent },
            EnqueueResult::Collision => Error::Collision { intent },
            EnqueueResult::MixedUse => Error::MixedUse { intent },
            EnqueueResult::Enqueued | EnqueueResult::AlreadyEnqueued => {
                let created = matches!(response.result, EnqueueResult::Enqueued);
                let state = state_of(response.state.as_deref());
                let expires_at = response.expires_at.map(|time| time.0);
                let outcome = response.outcome.and_then(StoredOutcome::read).map(|outcome| (outcome, expires_at));
                return delivered(py, EntryState { created, state, outcome }, about);
            }
        };
        Err(error::raised(py, &error, &about))
    }
}

/// A state that this version does not know is that of an entry which is not done.
fn state_of(name: Option<&str>) -> &'static str {
    let known = Status::ALL.into_iter().find(|status| Some(status.as_str()) == name);
    known.unwrap_or(Status::Queued).as_str()
}

/// The key is that of the caller, or was derived by the server.
fn named(about: About, key: String) -> About {
    let identity = Operation::new(&about.operation)
        .and_then(|operation| Ok(Identity { tenant: Tenant::default(), operation, key: Key::new(&key)? }));
    let intent = identity.map(|identity| identity.to_string()).unwrap_or_default();
    About { key, intent, ..about }
}
