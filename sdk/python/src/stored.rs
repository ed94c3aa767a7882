//! The outcome that a repeat gets.

use onceward_core::outcome::{Body, Outcome, Verdict};
use onceward_core::time::Timestamp;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::error::About;

/// A stored outcome.
#[pyclass(frozen, module = "onceward")]
pub(crate) struct Stored {
    outcome: Outcome,
    expires_at: Option<Timestamp>,
    about: About,
}

impl Stored {
    pub(crate) fn new(outcome: Outcome, expires_at: Option<Timestamp>, about: About) -> Self {
        Self { outcome, expires_at, about }
    }
}

#[pymethods]
impl Stored {
    /// The body, byte for byte.
    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        match &self.outcome.body {
            Body::Kept(bytes) => PyBytes::new(py, bytes),
            Body::TooLarge { .. } => PyBytes::new(py, b""),
        }
    }

    /// Whether the effect happened; otherwise it is a final failure.
    #[getter]
    fn is_success(&self) -> bool {
        self.outcome.verdict == Verdict::Success
    }

    /// The intent in messages: never the key.
    #[getter]
    fn intent(&self) -> &str {
        &self.about.intent
    }

    /// What an exception says about the call.
    #[getter]
    fn about<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.about.fields(py)
    }

    /// Until when it is kept, in milliseconds since the Unix epoch; `None` is for ever.
    #[getter]
    fn expires_at(&self) -> Option<i64> {
        self.expires_at.map(Timestamp::as_millis)
    }
}
