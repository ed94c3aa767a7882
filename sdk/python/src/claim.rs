//! The right to do the work, as Python holds it, and how the work ended. Each method takes an event loop, or `None` to block.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use onceward::{Claim, Error, Failure, Guard, Outcome, WriteResult};
use onceward_core::class::{Class, Disposition};
use onceward_core::evidence::{Evidence, in_message};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::{self, About};
use crate::operation::withdraw;
use crate::process::{self, ending, is_ending_elsewhere, with_interpreter};
use crate::remote::{Ownership, RemoteClaim};
use crate::runtime::{self, Completion, TaskHandle, wait_and_deliver, wait_in_loop};

/// A claim of this process. If it is dropped before the work has begun, it is given back; afterwards, the outcome is unknown.
#[pyclass(frozen, module = "onceward", weakref)]
pub(crate) struct NativeClaim {
    source: Source,
    about: About,
    is_guarded: bool,
    is_begun: AtomicBool,
    /// The process that made the claim, counted in forks.
    generation: u64,
}

/// Which ledger has the record.
enum Source {
    Local(LocalClaim),
    Remote(RemoteClaim),
}

/// A claim on a record in this process.
struct LocalClaim {
    /// `None` once the work is over: the end of the interpreter waits for every claim, and Python code may keep this object, as
    /// the traceback of an error does.
    claim: Mutex<Option<Claim>>,
    /// `None` once the claim has ended, and for work that runs without a record.
    guard: Mutex<Option<Guard>>,
    /// The key and the downstream key, which can be read after the end too.
    names: OnceLock<(String, String)>,
    attempt: u32,
    probe_first: bool,
    may_be_taken_over: bool,
}

impl LocalClaim {
    fn new(claim: Claim, guard: Option<Guard>) -> Self {
        let (attempt, probe_first, may_be_taken_over) =
            (claim.attempt(), claim.probe_first(), claim.may_be_taken_over());
        let (claim, guard, names) = (Mutex::new(Some(claim)), Mutex::new(guard), OnceLock::new());
        Self { claim, guard, names, attempt, probe_first, may_be_taken_over }
    }

    fn claim(&self) -> Option<Claim> {
        self.claim.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn take_guard(&self) -> Option<Guard> {
        self.guard.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Takes the claim once the work is over.
    fn take_claim(&self) -> Option<Claim> {
        self.names();
        self.claim.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn names(&self) -> &(String, String) {
        self.names.get_or_init(|| {
            self.claim().map(|claim| (claim.key().to_owned(), claim.downstream_key().to_owned())).unwrap_or_default()
        })
    }
}

/// A claim that is taken to end it.
enum Ending {
    Local(Guard),
    Remote(Ownership),
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
        Self::of(Source::Local(LocalClaim::new(guard.claim(), Some(guard))), about, true)
    }

    pub(crate) fn unguarded(claim: Claim, about: About) -> Self {
        Self::of(Source::Local(LocalClaim::new(claim, None)), about, false)
    }

    pub(crate) fn remote(claim: RemoteClaim, about: About, is_guarded: bool) -> Self {
        Self::of(Source::Remote(claim), about, is_guarded)
    }

    fn of(source: Source, about: About, is_guarded: bool) -> Self {
        Self { source, about, is_guarded, is_begun: AtomicBool::new(false), generation: process::generation() }
    }

    /// Takes what ends the claim, if it is still there.
    fn taken(&self) -> Option<Ending> {
        match &self.source {
            Source::Local(claim) => claim.take_guard().map(Ending::Local),
            Source::Remote(claim) => claim.take().map(Ending::Remote),
        }
    }

    /// Takes the guard to end the claim; `None` for work without a record.
    fn take(&self, py: Python<'_>) -> PyResult<Option<Ending>> {
        self.check_process(py)?;
        if !self.is_guarded {
            return Ok(None);
        }
        match self.taken() {
            Some(ending) => Ok(Some(ending)),
            None => Err(self.has_ended(py)),
        }
    }

    /// Ends the claim without waiting, if it has not ended: gives it back before the work has begun, and is in doubt afterwards.
    fn let_go(&self) -> PyResult<()> {
        let Some(ending) = self.taken() else { return Ok(()) };
        if self.is_begun.load(Ordering::SeqCst) {
            drop(ending);
            return Ok(());
        }
        let runtime = runtime::runtime()?;
        match ending {
            Ending::Local(guard) => drop(runtime.spawn(withdraw(guard))),
            Ending::Remote(ended) => drop(runtime.spawn(ended.withdraw(self.about.clone()))),
        }
        Ok(())
    }

    fn has_ended(&self, py: Python<'_>) -> PyErr {
        error::invalid(py, "this claim has ended already", &self.about)
    }

    fn check_process(&self, py: Python<'_>) -> PyResult<()> {
        if self.generation == process::generation() {
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
        None => wait_and_deliver(py, future),
        Some(event_loop) => Ok(wait_in_loop(py, event_loop, future)?.into_pyobject(py)?.into_any().unbind()),
    }
}

#[pymethods]
impl NativeClaim {
    #[getter]
    fn downstream_key(&self) -> &str {
        match &self.source {
            Source::Local(claim) => &claim.names().1,
            Source::Remote(claim) => &claim.downstream_key,
        }
    }

    #[getter]
    fn key(&self) -> &str {
        match &self.source {
            Source::Local(claim) => &claim.names().0,
            Source::Remote(claim) => &claim.key,
        }
    }

    #[getter]
    fn attempt(&self) -> u32 {
        match &self.source {
            Source::Local(claim) => claim.attempt,
            Source::Remote(claim) => claim.attempt,
        }
    }

    #[getter]
    fn probe_first(&self) -> bool {
        match &self.source {
            Source::Local(claim) => claim.probe_first,
            Source::Remote(claim) => claim.probe_first,
        }
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

    /// What an exception says about the call.
    #[getter]
    fn about<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.about.fields(py)
    }

    /// Whether another caller may take the work over while this owner still runs.
    #[getter]
    fn may_be_taken_over(&self) -> bool {
        match &self.source {
            Source::Local(claim) => claim.may_be_taken_over,
            Source::Remote(claim) => claim.may_be_taken_over,
        }
    }

    /// The function, or a probe, is about to run.
    fn begin(&self, py: Python<'_>) -> PyResult<()> {
        if is_ending_elsewhere() {
            // Now, because this thread may be stopped while it waits for the error.
            self.give_back()?;
            return Err(ending(py));
        }
        // What a signal handler raises, it raises before the mark.
        py.check_signals()?;
        self.is_begun.store(true, Ordering::SeqCst);
        Ok(())
    }

    #[getter]
    fn is_begun(&self) -> bool {
        self.is_begun.load(Ordering::SeqCst)
    }

    /// Marks that the first byte is about to leave.
    fn sent(&self, py: Python<'_>, event_loop: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        self.check_process(py)?;
        match &self.source {
            Source::Local(claim) => {
                let claim = claim.claim().ok_or_else(|| self.has_ended(py))?;
                self.write(py, event_loop, async move { claim.sent().await.map(|()| "sent") })
            }
            Source::Remote(claim) => answer(py, event_loop, claim.sent(&self.about)),
        }
    }

    /// Records that the downstream knows of no earlier attempt.
    fn not_found(&self, py: Python<'_>, event_loop: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        self.check_process(py)?;
        match &self.source {
            Source::Local(claim) => {
                let claim = claim.claim().ok_or_else(|| self.has_ended(py))?;
                self.write(py, event_loop, async move { claim.not_found().await.map(|()| "not_found") })
            }
            Source::Remote(claim) => answer(py, event_loop, claim.not_found(&self.about)),
        }
    }

    /// The work is done. Without `body`, its result cannot be kept.
    fn finish(
        &self,
        py: Python<'_>,
        event_loop: Option<&Bound<'_, PyAny>>,
        body: Option<Vec<u8>>,
    ) -> PyResult<Py<PyAny>> {
        let guard = match self.take(py)? {
            None => return self.write(py, event_loop, async { Ok("done") }),
            Some(Ending::Remote(ended)) => return answer(py, event_loop, ended.finish(body, self.about.clone())),
            Some(Ending::Local(guard)) => guard,
        };
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
        let Some(ending) = self.take(py)? else { return self.write(py, event_loop, async { Ok("released") }) };
        let retry_after = retry_after.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let class = class_of(class, &messages, retry_after);
        let message = messages.into_iter().next().unwrap_or_default();
        let guard = match ending {
            Ending::Remote(ended) => return answer(py, event_loop, ended.fail(class, message, self.about.clone())),
            Ending::Local(guard) => guard,
        };
        let failure = Failure::of(class, message);
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
        match self.take(py)? {
            None => self.write(py, event_loop, async { Ok("released") }),
            Some(Ending::Remote(ended)) => answer(py, event_loop, ended.withdraw(self.about.clone())),
            Some(Ending::Local(guard)) => {
                self.write(py, event_loop, async move { guard.withdraw(Some(&why)).await.map(|_| "released") })
            }
        }
    }

    /// The work is over. If the claim has not ended, its outcome is unknown from now on, unless nothing was sent yet. Work that
    /// has not begun is given back.
    fn abandon(&self) -> PyResult<()> {
        if self.generation == process::generation() {
            self.let_go()?;
            if let Source::Local(claim) = &self.source {
                drop(claim.take_claim());
            }
        }
        Ok(())
    }

    /// Gives the claim back without waiting, because the caller went away before the work began.
    fn give_back(&self) -> PyResult<()> {
        self.is_begun.store(false, Ordering::SeqCst);
        if self.generation == process::generation() { self.let_go() } else { Ok(()) }
    }

    /// Calls `callback`, on a thread of the library, when another caller may go on with the work. It must not wait for anything.
    /// Returns a function that ends the watch.
    fn on_lost(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<Py<LostWatch>> {
        self.check_process(py)?;
        let lost: Pin<Box<dyn Future<Output = ()> + Send>> = match &self.source {
            Source::Local(claim) => {
                let claim = claim.claim().ok_or_else(|| self.has_ended(py))?;
                Box::pin(async move { claim.lost().await })
            }
            Source::Remote(claim) => Box::pin(claim.lost()),
        };
        let task = runtime::runtime()?.spawn(async move {
            lost.await;
            tokio::task::spawn_blocking(move || {
                with_interpreter(|py| {
                    // A loop that was closed has nothing to cancel.
                    let _ = callback.bind(py).call0();
                });
            });
        });
        Py::new(py, LostWatch { task: TaskHandle::of(&task) })
    }
}

impl Drop for NativeClaim {
    fn drop(&mut self) {
        if self.generation != process::generation() {
            // The parent's claim: the child must neither end it nor touch the threads that it does not have.
            std::mem::forget(self.taken());
            if let Source::Local(claim) = &self.source {
                std::mem::forget(claim.take_claim());
            }
        } else {
            // Without threads, the claim ends with the process.
            let _ = self.let_go();
        }
    }
}

/// Ends the watch for a lost claim.
#[pyclass(frozen, name = "_LostWatch")]
pub(crate) struct LostWatch {
    task: TaskHandle,
}

#[pymethods]
impl LostWatch {
    fn __call__(&self) {
        self.task.abort();
    }
}

/// The class that Python names; `None` is an error without a class, whose chain of messages is searched for evidence.
pub(crate) fn class_of(name: Option<&str>, messages: &[String], retry_after: Option<Duration>) -> Class {
    match name {
        Some("not_sent") => Class::NotSent,
        Some("refused") => Class::Refused { retry_after },
        Some("permanent") => Class::Final,
        Some(_) => Class::Unknown,
        None => Class::Unclassified { evidence: evidence_in(messages) },
    }
}

/// Evidence in any error of a chain.
fn evidence_in(messages: &[String]) -> Option<Evidence> {
    messages.iter().find_map(|message| in_message(message))
}
