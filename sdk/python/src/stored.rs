//! The outcome that a repeat gets.

use onceward_core::outcome::{Body, Outcome, Verdict};
use onceward_core::time::Timestamp;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A stored outcome.
#[pyclass(frozen, module = "onceward")]
pub(crate) struct Stored {
    outcome: Outcome,
    expires_at: Option<Timestamp>,
}

impl Stored {
    pub(crate) fn new(outcome: Outcome, expires_at: Option<Timestamp>) -> Self {
        Self { outcome, expires_at }
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

    /// Until when it is kept, in milliseconds since the Unix epoch; `None` is for ever.
    #[getter]
    fn expires_at(&self) -> Option<i64> {
        self.expires_at.map(Timestamp::as_millis)
    }
}
