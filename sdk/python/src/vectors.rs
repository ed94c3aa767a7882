//! Pure functions of the core, most of them for the vectors that every language runs.

use onceward_core::evidence::{EXIT_CODES_OF_SIGNALS, in_exit_code, in_message, in_text};
use onceward_core::key;
use onceward_core::name::{Error, Identity, Key, Operation, Session, Tenant};
use onceward_core::recipe::{Definition, Recipe};
use onceward_core::record;
use onceward_core::time::Timestamp;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::json;

use crate::value;

/// The canonical JSON of a value.
#[pyfunction]
pub(crate) fn canonical(value: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(value::of(value)?.canonical())
}

/// The key that is derived from an intent.
#[pyfunction]
pub(crate) fn derived_key(session: &str, operation: &str, intent: &Bound<'_, PyAny>) -> PyResult<String> {
    let (session, operation) = (name(Session::new(session))?, name(Operation::new(operation))?);
    Ok(key::derive(&session, &operation, &value::of(intent)?).key.as_str().to_owned())
}

/// Evidence in the message of an error that its attempt may have happened.
#[pyfunction]
pub(crate) fn evidence(message: &str) -> Option<&'static str> {
    in_message(message).map(|evidence| evidence.as_str())
}

/// Evidence in any text, such as the result of a tool.
#[pyfunction]
pub(crate) fn evidence_in_text(text: &str) -> Option<&'static str> {
    in_text(text).map(|evidence| evidence.as_str())
}

/// Whether a command that ends with this exit code may have acted: it lost its connection, or was stopped.
#[pyfunction]
pub(crate) fn is_lost_exit_code(code: u8) -> bool {
    EXIT_CODES_OF_SIGNALS.contains(&code) || in_exit_code(code).is_some()
}

/// The digest under which an intent is stored.
#[pyfunction]
pub(crate) fn identity_digest(tenant: &str, operation: &str, key: &str) -> PyResult<String> {
    Ok(identity(tenant, operation, key)?.digest().to_hex())
}

/// The key that is passed on to the downstream.
#[pyfunction]
pub(crate) fn downstream_key(
    tenant: &str,
    operation: &str,
    key: &str,
    sink: &str,
    generation: u32,
) -> PyResult<String> {
    Ok(record::downstream_key(&identity(tenant, operation, key)?, sink, generation))
}

/// What a recipe makes of an intent, as JSON. A refusal is a `ValueError` with its kind.
#[pyfunction]
pub(crate) fn apply_recipe(
    definition: &str,
    session: &str,
    operation: &str,
    intent: &Bound<'_, PyAny>,
    now_ms: i64,
) -> PyResult<String> {
    let definition: Definition =
        serde_json::from_str(definition).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let (session, operation) = (name(Session::new(session))?, name(Operation::new(operation))?);
    let intent = value::of(intent)?;
    let applied = Recipe::new(definition)
        .and_then(|recipe| recipe.apply(&session, &operation, &intent, Timestamp::from_millis(now_ms)))
        .map_err(|error| PyValueError::new_err(error.kind()))?;
    let matched: Vec<_> = applied
        .matched
        .iter()
        .map(|(pointer, value)| match value {
            Some(value) => json!({ "pointer": pointer, "value": value.canonical() }),
            None => json!({ "pointer": pointer }),
        })
        .collect();
    let made = json!({
        "reduced": applied.intent.canonical(),
        "window": applied.window,
        "digest": applied.derived.digest.to_hex(),
        "key": applied.derived.key.as_str(),
        "matched": matched,
        "fingerprint": applied.fingerprint.to_string(),
        "left_out": applied.left_out,
    });
    Ok(made.to_string())
}

fn identity(tenant: &str, operation: &str, key: &str) -> PyResult<Identity> {
    Ok(Identity {
        tenant: name(Tenant::new(tenant))?,
        operation: name(Operation::new(operation))?,
        key: name(Key::new(key))?,
    })
}

fn name<T>(made: Result<T, Error>) -> PyResult<T> {
    made.map_err(|error| PyValueError::new_err(error.to_string()))
}
