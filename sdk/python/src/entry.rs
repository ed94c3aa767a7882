//! What identifies an entry that SQL queues, and the terms of its operation: for `onceward.postgres`, which calls the function of
//! the database in the caller's transaction.

use std::time::Duration;

use onceward::clock::{Clock, SystemClock};
use onceward::{Error, Invalid, Policy};
use onceward_core::identify::{Content, Request, identify};
use onceward_core::name::{Identity, Key, Operation, Session, Tenant};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::error::{self, About};
use crate::operation::read_settings;
use crate::outbox::EntryOptions;
use crate::value;

/// The arguments of the function by their names: what the caller gave, and what is derived from it. `intent` is the name of the
/// intent in messages.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "they are the parts of one entry")]
pub(crate) fn sql_entry<'py>(
    py: Python<'py>,
    operation: &str,
    settings: &str,
    tenant: Option<&str>,
    session: Option<&str>,
    key: Option<&str>,
    payload: &Bound<'py, PyAny>,
    options: EntryOptions,
) -> PyResult<Bound<'py, PyDict>> {
    let about = About { operation: operation.to_owned(), ..About::default() };
    let refuse = |why: String| error::invalid(py, &why, &about);
    let settings = read_settings(settings).map_err(refuse)?;
    let options = options.read().map_err(refuse)?;
    let recipe = settings.recipe().map_err(|error| refuse(error.to_string()))?;
    let payload = value::of_intent(payload, operation, None)?;
    let identified = || -> Result<_, Invalid> {
        let (tenant, operation) =
            (tenant.map(Tenant::new).transpose()?.unwrap_or_default(), Operation::new(operation)?);
        let (session, key) = (Session::new(session.unwrap_or_default())?, key.map(Key::new).transpose()?);
        let content = match &recipe {
            Some(recipe) => Content::Recipe { recipe, intent: &payload, now: SystemClock.now(), head: None },
            None => Content::Intent(&payload),
        };
        let identified = identify(Request { session: &session, operation: &operation, key, content })?;
        Ok((Identity { tenant, operation, key: identified.key.clone() }, identified))
    };
    let (identity, identified) = identified().map_err(|invalid| error::raised(py, &Error::Invalid(invalid), &about))?;
    let minimum_retention = identified.minimum_retention.unwrap_or_default();
    let terms = Policy { minimum_retention, ..settings.policy() }.terms();
    let entry = PyDict::new(py);
    entry.set_item("tenant", identity.tenant.as_str())?;
    entry.set_item("key", identity.key.as_str())?;
    entry.set_item("intent", identity.to_string())?;
    entry.set_item("fingerprint", PyBytes::new(py, identified.fingerprint.digest().as_bytes()))?;
    entry.set_item("payload", PyBytes::new(py, payload.canonical().as_bytes()))?;
    entry.set_item("retention", terms.retention.map(seconds))?;
    entry.set_item("tombstone", seconds(terms.tombstone))?;
    entry.set_item("delay", seconds(options.delay))?;
    entry.set_item("deliver_within", options.deliver_within.map(seconds))?;
    Ok(entry)
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}
