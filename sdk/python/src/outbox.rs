//! Queues intents for a courier: the options of an entry, and what the ledger answers.

use std::sync::Arc;
use std::time::Duration;

use onceward::{Decision, EnqueueOptions, Enqueued, Error, Invalid, Outcome, Policy};
use onceward_core::duration;
use onceward_core::outbox::Priority;
use onceward_core::record::Status;
use onceward_core::time::Timestamp;
use pyo3::prelude::*;

use crate::claim::answer;
use crate::error::{self, About};
use crate::ledger::Source;
use crate::operation::NativeOperation;
use crate::remote::{self, CallParts, EnqueueParts};
use crate::runtime::Completion;
use crate::stored::Stored;
use crate::value;

/// How an entry is queued, as Python gives it. Durations are texts such as `"30s"`.
#[derive(Clone, Debug, Default, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct EntryOptions {
    pub(crate) delay: Option<String>,
    pub(crate) deliver_within: Option<String>,
    pub(crate) priority: Option<String>,
    pub(crate) keep_payload: bool,
    pub(crate) max_attempts: Option<u32>,
}

impl EntryOptions {
    pub(crate) fn read(&self) -> Result<EnqueueOptions, String> {
        let duration = |name: &str, text: &Option<String>| {
            let parsed = text.as_deref().map(duration::parse).transpose();
            parsed.map_err(|error| format!("{name}: {error}"))
        };
        let priority = match self.priority.as_deref() {
            None => Priority::default(),
            Some(name) => {
                let known = Priority::ALL.into_iter().find(|priority| priority.as_str() == name);
                known.ok_or_else(|| format!("priority is \"high\", \"normal\" or \"low\", not `{name}`"))?
            }
        };
        if self.max_attempts == Some(0) {
            return Err("max_attempts: an entry is tried at least once".to_owned());
        }
        Ok(EnqueueOptions {
            delay: duration("delay", &self.delay)?.unwrap_or(Duration::ZERO),
            priority,
            deliver_within: duration("deliver_within", &self.deliver_within)?,
            keep_payload: self.keep_payload,
        })
    }
}

/// Queues a call: returns whether this call did, the state, what is stored, and what exceptions say about the call.
pub(crate) fn enqueue(
    py: Python<'_>,
    event_loop: Option<&Bound<'_, PyAny>>,
    operation: &NativeOperation,
    parts: &CallParts<'_, '_>,
    payload: &Bound<'_, PyAny>,
    options: &EntryOptions,
) -> PyResult<Py<PyAny>> {
    let about = About { operation: operation.name.clone(), ..About::default() };
    let entry = options.read().map_err(|why| error::invalid(py, &why, &about))?;
    // All of the payload is kept, whatever its key is made of.
    let value = value::of_intent(payload, &operation.name, None)?;
    let text = value.canonical();
    let CallParts { tenant, session, key, .. } = *parts;
    let handle = match &operation.source {
        Source::Local(handle) => handle,
        Source::Remote(server) => {
            let has_recipe = operation.recipe.is_some();
            let parts = EnqueueParts { operation: &operation.name, tenant, session, key, payload: text, has_recipe };
            return remote::enqueue(py, event_loop, server, parts, options);
        }
    };
    let ledger = handle.ledger(py)?;
    let mut builder = operation.builder(&ledger, tenant, session, key, None, None)?.intent_value(value);
    if let Some(max_attempts) = options.max_attempts {
        let policy = Policy { max_attempts: Some(max_attempts), ..(*operation.policy).clone() };
        builder = builder.policy(Arc::new(policy));
    }
    let raised = |invalid: Invalid| error::raised(py, &Error::Invalid(invalid), &about);
    let call = builder.call().map_err(raised)?;
    let about = NativeOperation::about(handle, &call);
    answer(py, event_loop, async move {
        let enqueued = ledger.enqueue(&call, text.into_bytes(), entry).await;
        EnqueuedCall { answer: enqueued.map(EntryState::of), about }
    })
}

/// How an entry stands after it was queued.
pub(crate) struct EntryState {
    pub(crate) created: bool,
    pub(crate) state: &'static str,
    pub(crate) outcome: Option<(Outcome, Option<Timestamp>)>,
}

impl EntryState {
    fn of(enqueued: Enqueued) -> Self {
        let decision = match enqueued {
            Enqueued::Created => {
                return Self { created: true, state: Status::Queued.as_str(), outcome: None };
            }
            Enqueued::Existing(decision) => decision,
        };
        let status = match &decision {
            Decision::Replay { .. } | Decision::OutcomeNotKept { .. } => Status::Done,
            Decision::InFlight { running: true, .. } => Status::Running,
            Decision::InDoubt { .. } => Status::InDoubt,
            Decision::Dead => Status::Dead,
            // Also an entry whose next attempt is not due yet.
            _ => Status::Queued,
        };
        let outcome = match decision {
            Decision::Replay { outcome, expires_at, .. } => Some((outcome, expires_at)),
            _ => None,
        };
        Self { created: false, state: status.as_str(), outcome }
    }
}

/// What the ledger answers, as Python gets it.
struct EnqueuedCall {
    answer: Result<EntryState, Error>,
    about: About,
}

impl Completion for EnqueuedCall {
    fn deliver(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self.answer {
            Ok(state) => delivered(py, state, self.about),
            Err(error) => Err(error::raised(py, &error, &self.about)),
        }
    }
}

/// The answer as Python reads it.
pub(crate) fn delivered(py: Python<'_>, entry: EntryState, about: About) -> PyResult<Py<PyAny>> {
    let fields = about.fields(py)?;
    let kept = entry.outcome.filter(|(outcome, _)| !remote::is_not_kept(outcome));
    let stored = kept.map(|(outcome, expires_at)| Stored::new(outcome, expires_at, about));
    Ok((entry.created, entry.state, stored, fields).into_pyobject(py)?.into_any().unbind())
}
