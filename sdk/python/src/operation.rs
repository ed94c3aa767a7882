//! An operation with its policy and recipe, and the start of its calls.

use std::sync::Arc;

use onceward::{Call, CallBuilder, Error, Guard, Ledger, Policy, Recipe, StartOptions, Started};
use onceward_core::decide::Decision;
use onceward_core::policy::Effect;
use onceward_runtime::config::Operation;
use pyo3::prelude::*;

use crate::claim::{NativeClaim, answer};
use crate::error::{self, About};
use crate::ledger::{Handle, Source};
use crate::outbox::{self, EntryOptions};
use crate::process::check_may_begin;
use crate::remote::{self, CallParts, RemoteOperation};
use crate::runtime::{Completion, runtime};
use crate::stored::Stored;
use crate::value;

/// An operation of a ledger.
#[pyclass(frozen, module = "onceward")]
pub(crate) struct NativeOperation {
    pub(crate) source: Source,
    pub(crate) name: String,
    pub(crate) policy: Arc<Policy>,
    pub(crate) recipe: Option<Arc<Recipe>>,
    /// Whether the caller set them: otherwise a server uses its own.
    sets_runtime: bool,
    sets_wait: bool,
}

impl NativeOperation {
    pub(crate) fn new(
        py: Python<'_>,
        source: Source,
        name: String,
        settings: &str,
        marks_sent: bool,
        probes: bool,
    ) -> PyResult<Self> {
        let about = About { operation: name.clone(), ..About::default() };
        let refuse = |why: String| error::invalid(py, &why, &about);
        let settings = read_settings(settings).map_err(refuse)?;
        let recipe = settings.recipe().map_err(|error| refuse(error.to_string()))?;
        let policy = Policy { marks_sent, probes, ..settings.policy() };
        if policy.effect == Effect::Transactional {
            return Err(refuse("effect = \"transactional\" is not supported from Python".to_owned()));
        }
        let (sets_runtime, sets_wait) = (settings.max_runtime.is_some(), settings.wait.is_some());
        Ok(Self { source, name, policy: Arc::new(policy), recipe: recipe.map(Arc::new), sets_runtime, sets_wait })
    }

    fn on_server(&self) -> RemoteOperation<'_> {
        RemoteOperation {
            name: &self.name,
            recipe: self.recipe.as_deref(),
            policy: &self.policy,
            lease: self.sets_runtime.then(|| self.policy.lease()),
            wait: self.sets_wait.then_some(self.policy.wait),
        }
    }

    #[allow(clippy::too_many_arguments, reason = "they are the parts of one call")]
    pub(crate) fn builder(
        &self,
        ledger: &Ledger,
        tenant: Option<&str>,
        session: Option<&str>,
        key: Option<&str>,
        intent: Option<&Bound<'_, PyAny>>,
        item: Option<(String, u64)>,
    ) -> PyResult<CallBuilder> {
        let mut builder = ledger.operation(&self.name).policy(self.policy.clone());
        if let Some(recipe) = &self.recipe {
            builder = builder.recipe(recipe.clone());
        }
        if let Some(tenant) = tenant {
            builder = builder.tenant(tenant);
        }
        if let Some(session) = session {
            builder = builder.session(session);
        }
        if let Some(key) = key {
            builder = builder.key(key);
        }
        if let Some((stream, number)) = item {
            builder = builder.item(&stream, number);
        }
        if let Some(intent) = intent {
            builder = builder.intent_value(value::of_intent(intent, &self.name, self.recipe.as_deref())?);
        }
        Ok(builder)
    }

    pub(crate) fn about(handle: &Handle, call: &Call) -> About {
        let identity = &call.identity;
        About {
            store: handle.shown().to_owned(),
            tenant: identity.tenant.as_str().to_owned(),
            operation: identity.operation.as_str().to_owned(),
            key: identity.key.as_str().to_owned(),
            intent: identity.to_string(),
        }
    }
}

#[pymethods]
impl NativeOperation {
    /// Starts a call: returns a claim, or the stored outcome, or raises what the ledger decided.
    #[pyo3(signature = (event_loop, tenant, session, key, intent, item = None, wait = None))]
    #[allow(clippy::too_many_arguments, reason = "they are the parts of one call")]
    fn start(
        &self,
        py: Python<'_>,
        event_loop: Option<&Bound<'_, PyAny>>,
        tenant: Option<&str>,
        session: Option<&str>,
        key: Option<&str>,
        intent: Option<&Bound<'_, PyAny>>,
        item: Option<(String, u64)>,
        wait: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        check_may_begin(py)?;
        let handle = match &self.source {
            Source::Local(handle) => handle,
            Source::Remote(server) => {
                let parts = CallParts { tenant, session, key, intent, is_item: item.is_some() };
                let wait = wait.map(|wait| error::duration_of(py, wait)).transpose()?;
                return remote::start(py, event_loop, server, &self.on_server(), &parts, wait);
            }
        };
        let ledger = handle.ledger(py)?;
        let builder = self.builder(&ledger, tenant, session, key, intent, item)?;
        let call = builder.call().map_err(|error| {
            let about = About { operation: self.name.clone(), ..About::default() };
            error::raised(py, &Error::Invalid(error), &about)
        })?;
        let mut options = StartOptions::default();
        if let Some(wait) = wait {
            options = options.wait(error::duration_of(py, wait)?);
        }
        let about = Self::about(handle, &call);
        let starting = async move {
            let started = ledger.start(&call, options).await;
            StartedCall { started, about }
        };
        answer(py, event_loop, starting)
    }

    /// Queues a call for a courier.
    #[allow(clippy::too_many_arguments, reason = "they are the parts of one call")]
    fn enqueue(
        &self,
        py: Python<'_>,
        event_loop: Option<&Bound<'_, PyAny>>,
        tenant: Option<&str>,
        session: Option<&str>,
        key: Option<&str>,
        payload: &Bound<'_, PyAny>,
        options: EntryOptions,
    ) -> PyResult<Py<PyAny>> {
        let parts = CallParts { tenant, session, key, intent: None, is_item: false };
        outbox::enqueue(py, event_loop, self, &parts, payload, &options)
    }

    /// The key of a call.
    #[pyo3(signature = (tenant, session, key, intent, item = None))]
    fn key(
        &self,
        py: Python<'_>,
        tenant: Option<&str>,
        session: Option<&str>,
        key: Option<&str>,
        intent: Option<&Bound<'_, PyAny>>,
        item: Option<(String, u64)>,
    ) -> PyResult<String> {
        let handle = match &self.source {
            Source::Local(handle) => handle,
            Source::Remote(server) => {
                let parts = CallParts { tenant, session, key, intent, is_item: item.is_some() };
                return self.on_server().key(py, server, &parts);
            }
        };
        let ledger = handle.ledger(py)?;
        let call = self.builder(&ledger, tenant, session, key, intent, item)?.call().map_err(|error| {
            let about = About { operation: self.name.clone(), ..About::default() };
            error::raised(py, &Error::Invalid(error), &about)
        })?;
        Ok(call.identity.key.as_str().to_owned())
    }
}

/// Reads settings that Python has written as JSON. An error names the setting and not a place in that text.
pub(crate) fn read_settings(settings: &str) -> Result<Operation, String> {
    let mut reader = serde_json::Deserializer::from_str(settings);
    serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let (setting, message) = (error.path().to_string(), error.inner().to_string());
        let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
        format!("{setting}: {message}")
    })
}

/// What a start leads to.
struct StartedCall {
    started: Result<Started, Error>,
    about: About,
}

impl Completion for StartedCall {
    fn deliver(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let Self { started, about } = self;
        let claim = |claim: NativeClaim| Ok(Py::new(py, claim)?.into_any());
        match started {
            Ok(Started::Acquired(guard)) => claim(NativeClaim::guarded(guard, about)),
            Ok(Started::Unguarded { claim: unguarded, .. }) => claim(NativeClaim::unguarded(unguarded, about)),
            Ok(Started::Answered(Decision::Replay { outcome, .. })) if remote::is_not_kept(&outcome) => {
                let error = Error::OutcomeNotKept { intent: about.intent.clone(), status: None, outcome: None };
                Err(error::raised(py, &error, &about))
            }
            Ok(Started::Answered(Decision::Replay { outcome, expires_at, .. })) => {
                Ok(Py::new(py, Stored::new(outcome, expires_at, about))?.into_any())
            }
            Ok(Started::Answered(Decision::InFlight { retry_after, running: false, .. })) => {
                Err(error::not_yet(py, retry_after, &about))
            }
            Ok(Started::Answered(decision)) => {
                Err(error::raised(py, &Error::of_decision(about.intent.clone(), decision), &about))
            }
            Err(error) => Err(error::raised(py, &error, &about)),
        }
    }

    fn begins_work(&self) -> bool {
        matches!(self.started, Ok(Started::Acquired(_) | Started::Unguarded { .. }))
    }

    /// Nothing was done under the claim: the next caller may have it at once.
    fn abandon(self) {
        let (Ok(Started::Acquired(guard)), Ok(runtime)) = (self.started, runtime()) else { return };
        runtime.spawn(withdraw(guard));
    }
}

/// Gives a claim back before the work began.
pub(crate) async fn withdraw(guard: Guard) {
    let _: Result<_, Error> = guard.withdraw(Some("the caller went away before the work began")).await;
}
