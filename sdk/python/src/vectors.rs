//! Pure functions of the core, for the vectors that every language runs.

use onceward_core::evidence::in_message;
use onceward_core::key;
use onceward_core::name::{Operation, Session};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::value;

/// The canonical JSON of a value.
#[pyfunction]
pub(crate) fn canonical(value: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(value::of(value)?.canonical())
}

/// The key that is derived from an intent.
#[pyfunction]
pub(crate) fn derived_key(session: &str, operation: &str, intent: &Bound<'_, PyAny>) -> PyResult<String> {
    let refuse = |error: onceward_core::name::Error| PyValueError::new_err(error.to_string());
    let (session, operation) = (Session::new(session).map_err(refuse)?, Operation::new(operation).map_err(refuse)?);
    Ok(key::derive(&session, &operation, &value::of(intent)?).key.as_str().to_owned())
}

/// Evidence in the message of an error that its attempt may have happened.
#[pyfunction]
pub(crate) fn evidence(message: &str) -> Option<&'static str> {
    in_message(message).map(|evidence| evidence.as_str())
}
