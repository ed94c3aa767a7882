//! Raises the exceptions of the Python package, each with the intent and what is known of it.

use std::time::Duration;

use onceward::{Error, store};
use onceward_core::duration;
use onceward_core::outcome::{Body, Outcome};
use onceward_core::time::Timestamp;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict};

use crate::runtime::python;

static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// What an exception says about the call besides its intent.
#[derive(Clone, Debug, Default)]
pub(crate) struct About {
    pub(crate) store: String,
    pub(crate) tenant: String,
    pub(crate) operation: String,
    pub(crate) key: String,
    /// The name of the intent in messages: never the key.
    pub(crate) intent: String,
}

impl About {
    /// What is known, by the names of the exception's attributes.
    pub(crate) fn fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let fields = PyDict::new(py);
        self.add_to(&fields)?;
        Ok(fields)
    }

    fn add_to(&self, fields: &Bound<'_, PyDict>) -> PyResult<()> {
        for (name, value) in [
            ("store", &self.store),
            ("tenant", &self.tenant),
            ("operation", &self.operation),
            ("key", &self.key),
            ("intent", &self.intent),
        ] {
            if !value.is_empty() {
                fields.set_item(name, value)?;
            }
        }
        Ok(())
    }
}

/// The exception for an error of the library.
pub(crate) fn raised(py: Python<'_>, error: &Error, about: &About) -> PyErr {
    make(py, error, about).unwrap_or_else(|failure| failure)
}

/// The exception for a store that cannot be used.
pub(crate) fn store_unavailable(py: Python<'_>, error: &store::Error, about: &About) -> PyErr {
    raised(py, &Error::Store(error.clone()), about)
}

/// The exception for a mistake in a call or a setting.
pub(crate) fn invalid(py: Python<'_>, message: &str, about: &About) -> PyErr {
    named(py, "InvalidCall", message, about)
}

/// An exception of the Python package, by name.
pub(crate) fn named(py: Python<'_>, kind: &str, message: &str, about: &About) -> PyErr {
    exception(py, kind, message, about, PyDict::new(py)).unwrap_or_else(|failure| failure)
}

/// The exception for work that is not running and may not be tried again yet, as after a refusal that named a time.
pub(crate) fn not_yet(py: Python<'_>, retry_after: Duration, about: &About) -> PyErr {
    let fields = PyDict::new(py);
    let seconds = retry_after.as_secs_f64();
    let set = fields.set_item("retry_after", seconds).and_then(|()| fields.set_item("is_running", false));
    let text = format!("{} may not be tried again yet; ask again in {seconds:.1} s", about.intent);
    set.and_then(|()| exception(py, "InFlight", &text, about, fields)).unwrap_or_else(|failure| failure)
}

fn make(py: Python<'_>, error: &Error, about: &About) -> PyResult<PyErr> {
    let fields = PyDict::new(py);
    let kind = match error {
        Error::Invalid(_) => "InvalidCall",
        Error::Store(_) => "StoreUnavailable",
        Error::InFlight { retry_after, .. } => {
            fields.set_item("retry_after", retry_after.as_secs_f64())?;
            "InFlight"
        }
        Error::InDoubt { since, .. } => {
            set_since(&fields, *since)?;
            "InDoubt"
        }
        Error::Mismatch { .. } => "Mismatch",
        Error::Collision { .. } => "Collision",
        Error::MixedUse { .. } => "MixedUse",
        Error::OutOfOrder { expected, given, .. } => {
            fields.set_item("expected", expected)?;
            fields.set_item("given", given)?;
            "OutOfOrder"
        }
        Error::OutcomeNotKept { .. } => "OutcomeNotKept",
        Error::Queued { .. } => "Queued",
        Error::Dead { .. } => "Dead",
        Error::Failed { failure, .. } => {
            fields.set_item("reason", failure.message())?;
            "Failed"
        }
        Error::OwnerFailed { reason, .. } => {
            fields.set_item("reason", reason)?;
            "OwnerFailed"
        }
        Error::OwnerUnknown { .. } => "OwnerUnknown",
        Error::ClaimLost { outcome, .. } => {
            set_outcome(py, &fields, outcome.as_deref())?;
            "ClaimLost"
        }
        Error::NotRecorded { outcome, .. } => {
            set_outcome(py, &fields, Some(outcome))?;
            "NotRecorded"
        }
        Error::Quota { most, .. } => {
            fields.set_item("most", most)?;
            "QuotaReached"
        }
        Error::NotJson { reason, .. } | Error::Unreadable { reason, .. } => {
            fields.set_item("reason", reason)?;
            "Unreadable"
        }
        _ => "Contended",
    };
    exception(py, kind, &error.to_string(), about, fields)
}

fn exception(py: Python<'_>, kind: &str, message: &str, about: &About, fields: Bound<'_, PyDict>) -> PyResult<PyErr> {
    about.add_to(&fields)?;
    let made = python(py, &MAKE, "onceward._errors", "make")?.call1((kind, message, fields))?;
    Ok(PyErr::from_value(made))
}

fn set_since(fields: &Bound<'_, PyDict>, since: Timestamp) -> PyResult<()> {
    fields.set_item("since_ms", since.as_millis())
}

/// The result of work that was done, but could not be recorded.
fn set_outcome(py: Python<'_>, fields: &Bound<'_, PyDict>, outcome: Option<&Outcome>) -> PyResult<()> {
    if let Some(Outcome { body: Body::Kept(bytes), .. }) = outcome {
        fields.set_item("result_json", PyBytes::new(py, bytes))?;
    }
    Ok(())
}

/// Reads a duration as Python gives it: seconds, or a text such as `"20s"`.
pub(crate) fn duration_of(py: Python<'_>, given: &Bound<'_, PyAny>) -> PyResult<Duration> {
    if let Ok(seconds) = given.extract::<f64>() {
        let refuse = |_| {
            invalid(
                py,
                "a wait must be a number of seconds, not negative, or a text such as \"20s\"",
                &About::default(),
            )
        };
        return Duration::try_from_secs_f64(seconds).map_err(refuse);
    }
    duration::parse(&given.extract::<String>()?).map_err(|error| invalid(py, &error.to_string(), &About::default()))
}
