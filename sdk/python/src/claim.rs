//! The right to do the work, as Python holds it, and how the work ended. Each method takes an event loop, or `None` to block.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use onceward::{Claim, Error, Failure, Guard, Outcome, WriteResult};
use onceward_core::class::{Class, Disposition};
use onceward_core::evidence::{Evidence, in_message};
use pyo3::prelude::*;

use crate::error::{self, About};
use crate::runtime::{self, Completion, wait, wait_in_loop, with_interpreter};

/// How many errors of a chain are looked at for evidence.
const MAX_CHAIN: usize = 16;

/// A claim of this process.
#[pyclass(frozen, module = "onceward", weakref)]
pub(crate) struct NativeClaim {
    claim: Claim,
    /// `None` once the claim has ended, and for work that runs without a record.
    guard: Mutex<Option<Guard>>,
    about: About,
    is_guarded: bool,
    /// The process that made the claim, counted in forks.
    generation: u64,
}

/// What a write of the owner leads to.
struct Written {
    result: Result<&'static str, Error>,
    about: About,
}

impl Completion for Written {
    fn deliver(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self.result {
            Ok(what) => Ok(what.into_pyobject(py)?.into_any().unbind()),
            Err(error) => Err(error::raised(py, &error, &self.about)),
        }
    }
}

impl NativeClaim {
    pub(crate) fn guarded(guard: Guard, about: About) -> Self {
        let (claim, guard) = (guard.claim(), Mutex::new(Some(guard)));
        Self { claim, guard, about, is_guarded: true, generation: runtime::generation() }
    }

    pub(crate) fn unguarded(claim: Claim, about: About) -> Self {
        Self { claim, guard: Mutex::new(None), about, is_guarded: false, generation: runtime::generation() }
    }

    /// Takes the guard to end the claim; `None` for work without a record.
    fn take(&self, py: Python<'_>) -> PyResult<Option<Guard>> {
        self.check_process(py)?;
        if !self.is_guarded {
            return Ok(None);
        }
        let guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner).take();
        match guard {
            Some(guard) => Ok(Some(guard)),
            None => Err(error::invalid(py, "this claim has ended already", &self.about)),
        }
    }

    fn check_process(&self, py: Python<'_>) -> PyResult<()> {
        if self.generation == runtime::generation() {
            return Ok(());
        }
        let why = "this claim belongs to the parent process; a forked child cannot end it";
        Err(error::invalid(py, why, &self.about))
    }

    /// Waits for a write.
    fn write<F>(&self, py: Python<'_>, event_loop: Option<&Bound<'_, PyAny>>, write: F) -> PyResult<Py<PyAny>>
    where
        F: Future<Output = Result<&'static str, Error>> + Send + 'static,
    {
        let about = self.about.clone();
        let written = async move { Written { result: write.await, about } };
        answer(py, event_loop, written)
    }
}

/// Waits for a future: blocks without an event loop, and otherwise returns what `wait_in_loop` does.
pub(crate) fn answer<F>(py: Python<'_>, event_loop: Option<&Bound<'_, PyAny>>, future: F) -> PyResult<Py<PyAny>>
where
    F: Future + Send + 'static,
    F::Output: Completion,
{
    match event_loop {
        None => wait(py, future)?.deliver(py),
        Some(event_loop) => Ok(wait_in_loop(py, event_loop, future)?.into_pyobject(py)?.into_any().unbind()),
    }
}

#[pymethods]
impl NativeClaim {
    #[getter]
    fn downstream_key(&self) -> &str {
        self.claim.downstream_key()
    }

    #[getter]
    fn key(&self) -> &str {
        self.claim.key()
    }

    #[getter]
    fn attempt(&self) -> u32 {
        self.claim.attempt()
    }

    #[getter]
    fn probe_first(&self) -> bool {
        self.claim.probe_first()
    }

    /// Whether the intent is recorded. It is not when the store is down and `store_down` is `"open"`.
    #[getter]
    fn is_guarded(&self) -> bool {
        self.is_guarded
    }

    /// The intent in messages: never the key.
    #[getter]
    fn intent(&self) -> &str {
        &self.about.intent
    }

    /// Whether another caller may take the work over while this owner still runs.
    #[getter]
    fn may_be_taken_over(&self) -> bool {
        self.claim.may_be_taken_over()
    }

    /// Marks that the first byte is about to leave.
    fn sent(&self, py: Python<'_>, event_loop: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        self.check_process(py)?;
        let claim = self.claim.clone();
        self.write(py, event_loop, async move { claim.sent().await.map(|()| "sent") })
    }

    /// Records that the downstream knows of no earlier attempt.
    fn not_found(&self, py: Python<'_>, event_loop: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        self.check_process(py)?;
        let claim = self.claim.clone();
        self.write(py, event_loop, async move { claim.not_found().await.map(|()| "not_found") })
    }

    /// The work is done. Without `body`, its result cannot be kept.
    fn finish(
        &self,
        py: Python<'_>,
        event_loop: Option<&Bound<'_, PyAny>>,
        body: Option<Vec<u8>>,
    ) -> PyResult<Py<PyAny>> {
        let Some(guard) = self.take(py)? else { return self.write(py, event_loop, async { Ok("done") }) };
        let intent = self.about.intent.clone();
        let outcome = match body {
            Some(body) => Outcome::success(body),
            // Over any limit, so that repeats are told that it is done and not kept.
            None => Outcome::success(&b"null"[..]).within(0),
        };
        self.write(py, event_loop, async move {
            match guard.finish(outcome.clone()).await? {
                WriteResult::Written => Ok("done"),
                WriteResult::Stale => Err(Error::ClaimLost { intent, outcome: Some(Box::new(outcome)) }),
            }
        })
    }

    /// The work failed. `class` is `not_sent`, `refused`, `permanent`, `unknown`, or `None` for an error without a class, whose
    /// chain of messages is then searched for evidence. Returns `released`, `kept` or `in_doubt`.
    #[pyo3(signature = (event_loop, class, messages, retry_after = None))]
    fn fail(
        &self,
        py: Python<'_>,
        event_loop: Option<&Bound<'_, PyAny>>,
        class: Option<&str>,
        messages: Vec<String>,
        retry_after: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let Some(guard) = self.take(py)? else { return self.write(py, event_loop, async { Ok("released") }) };
        let retry_after = retry_after.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let class = match class {
            Some("not_sent") => Class::NotSent,
            Some("refused") => Class::Refused { retry_after },
            Some("permanent") => Class::Final,
            Some(_) => Class::Unknown,
            None => Class::Unclassified { evidence: evidence_in(&messages) },
        };
        let failure = Failure::of(class, messages.into_iter().next().unwrap_or_default());
        self.write(py, event_loop, async move {
            Ok(match guard.fail(&failure).await? {
                Disposition::Release(_) => "released",
                Disposition::Keep => "kept",
                Disposition::Doubt => "in_doubt",
            })
        })
    }

    /// Gives the claim back before anything was done.
    fn withdraw(&self, py: Python<'_>, event_loop: Option<&Bound<'_, PyAny>>, why: String) -> PyResult<Py<PyAny>> {
        let Some(guard) = self.take(py)? else { return self.write(py, event_loop, async { Ok("released") }) };
        self.write(py, event_loop, async move { guard.withdraw(Some(&why)).await.map(|_| "released") })
    }

    /// Gives the claim up without waiting: from now on the outcome is unknown, unless nothing was sent yet.
    fn abandon(&self) {
        if self.generation == runtime::generation() {
            drop(self.guard.lock().unwrap_or_else(PoisonError::into_inner).take());
        }
    }

    /// Calls `callback` in the event loop when another caller may go on with the work. Returns a function that ends the watch.
    fn on_lost(&self, py: Python<'_>, event_loop: Py<PyAny>, callback: Py<PyAny>) -> PyResult<Py<LostWatch>> {
        let claim = self.claim.clone();
        let task = runtime::runtime()?.spawn(async move {
            claim.lost().await;
            tokio::task::spawn_blocking(move || {
                with_interpreter(|py| {
                    // A loop that was closed has nothing to cancel.
                    let _ = event_loop.bind(py).call_method1("call_soon_threadsafe", (callback,));
                });
            });
        });
        Py::new(py, LostWatch { task: task.abort_handle() })
    }
}

impl Drop for NativeClaim {
    fn drop(&mut self) {
        if self.generation != runtime::generation() {
            // The parent's claim: the child must neither end it nor touch the threads that it does not have.
            std::mem::forget(self.guard.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}

/// Ends the watch for a lost claim.
#[pyclass(frozen, name = "_LostWatch")]
pub(crate) struct LostWatch {
    task: tokio::task::AbortHandle,
}

#[pymethods]
impl LostWatch {
    fn __call__(&self) {
        self.task.abort();
    }
}

/// Evidence in any error of a chain.
fn evidence_in(messages: &[String]) -> Option<Evidence> {
    messages.iter().take(MAX_CHAIN).find_map(|message| in_message(message))
}
