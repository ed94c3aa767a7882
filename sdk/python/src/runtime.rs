//! Waits for the library's futures: a thread that calls blocks with the interpreter released and Ctrl-C noticed; an event loop
//! gets a future of its own, which a thread of this runtime completes.
//!
//! Threads of the runtime take the interpreter only to complete such a future, and never once the interpreter is ending: a
//! thread that asks for it then would be ended in the middle of Rust code.

use std::cell::RefCell;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use pyo3::exceptions::{PyImportError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use tokio::runtime::{Builder, Runtime};

use crate::completions::LoopQueue;

/// How often a thread that waits looks for signals, so that Ctrl-C ends the wait.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// Leases are renewed, and futures completed, on these threads. Work itself runs on Python's.
const THREADS: usize = 2;

/// How long the end of the interpreter waits for the last writes.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(1);

/// The runtime of this process; null before it is needed, and again in a child after a fork. It is never freed: threads may use
/// it until the process ends.
static RUNTIME: AtomicPtr<Runtime> = AtomicPtr::new(std::ptr::null_mut());

/// How many forks there were between the first process and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// The interpreter that imported the module.
static INTERPRETER: AtomicI64 = AtomicI64::new(NO_INTERPRETER);
const NO_INTERPRETER: i64 = -1;

/// Whether the interpreter is ending.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// How many calls wait in event loops, and whether a call was given up before it had its answer.
static UNDER_WAY: AtomicU64 = AtomicU64::new(0);
static GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// Threads of the runtime hold the gate for reading while they use the interpreter. A child process replaces it, because other
/// threads of the parent may have been waiting for it. Null means the first one.
static GATE: AtomicPtr<RwLock<()>> = AtomicPtr::new(std::ptr::null_mut());
static FIRST_GATE: RwLock<()> = RwLock::new(());

thread_local! {
    /// The gate, closed by the thread that forks, from before the fork until after it.
    static CLOSED_GATE: RefCell<Option<RwLockWriteGuard<'static, ()>>> = const { RefCell::new(None) };
}

/// Which process this is, counted in forks: what was opened in another one cannot be used.
pub(crate) fn generation() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

/// The runtime of this process.
#[allow(unsafe_code)]
pub(crate) fn runtime() -> PyResult<&'static Runtime> {
    let known = RUNTIME.load(Ordering::Acquire);
    if !known.is_null() {
        // SAFETY: it was made by `Box::leak` below, and is never freed.
        return Ok(unsafe { &*known });
    }
    let made = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("onceward")
        .enable_all()
        .build()
        .map_err(|error| PyRuntimeError::new_err(format!("onceward cannot start its threads: {error}")))?;
    let made: *mut Runtime = Box::leak(Box::new(made));
    match RUNTIME.compare_exchange(std::ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: as above.
        Ok(_) => Ok(unsafe { &*made }),
        Err(other) => {
            // Another thread was faster. This one has nothing to run, so its threads end at once.
            // SAFETY: it was leaked above, and no other thread has seen it.
            unsafe { Box::from_raw(made) }.shutdown_background();
            // SAFETY: as above.
            Ok(unsafe { &*other })
        }
    }
}

/// Refuses a second interpreter of this process: Python before 3.12 would share objects between them.
#[allow(unsafe_code)]
pub(crate) fn check_interpreter() -> PyResult<()> {
    // SAFETY: this thread is attached to an interpreter, because it is importing a module.
    let this = unsafe { pyo3::ffi::PyInterpreterState_GetID(pyo3::ffi::PyInterpreterState_Get()) };
    match INTERPRETER.compare_exchange(NO_INTERPRETER, this, Ordering::SeqCst, Ordering::SeqCst) {
        Err(first) if first != this => Err(PyImportError::new_err(
            "onceward can be imported in one interpreter of a process, not in subinterpreters",
        )),
        _ => Ok(()),
    }
}

/// The gate of this process.
#[allow(unsafe_code)]
fn gate() -> &'static RwLock<()> {
    let replaced = GATE.load(Ordering::Acquire);
    // SAFETY: it is null, or was made by `Box::leak` after a fork, and is never freed.
    unsafe { replaced.as_ref() }.unwrap_or(&FIRST_GATE)
}

/// Polls a future once. Most answers from the cache and from memory are ready at once, and cost no change of threads.
fn poll_once<F: Future>(runtime: &Runtime, future: Pin<&mut F>) -> Poll<F::Output> {
    let _inside = runtime.enter();
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Waits for a future on this thread. A signal handler that raises, as for Ctrl-C, ends the wait and drops the future.
pub(crate) fn wait<F>(py: Python<'_>, future: F) -> PyResult<F::Output>
where
    F: Future + Send,
    F::Output: Send,
{
    let runtime = runtime()?;
    let mut future = pin!(future);
    if let Poll::Ready(output) = poll_once(runtime, future.as_mut()) {
        return Ok(output);
    }
    loop {
        let waited =
            py.detach(|| runtime.block_on(async { tokio::time::timeout(SIGNAL_INTERVAL, future.as_mut()).await }));
        match waited {
            Ok(output) => return Ok(output),
            Err(_) => py.check_signals().inspect_err(|_| GIVEN_UP.store(true, Ordering::SeqCst))?,
        }
    }
}

/// What a future leads to, as Python gets it.
pub(crate) trait Completion: Send + 'static {
    /// Hands it to the caller.
    fn deliver(self, py: Python<'_>) -> PyResult<Py<PyAny>>;

    /// The caller has gone away before it could have it.
    fn abandon(self)
    where
        Self: Sized,
    {
    }
}

/// Waits for a future in an event loop. Returns `(True, result)` if it is ready at once, and otherwise `(False, future)` with a
/// future of the loop.
pub(crate) fn wait_in_loop<F>(py: Python<'_>, event_loop: &Bound<'_, PyAny>, future: F) -> PyResult<(bool, Py<PyAny>)>
where
    F: Future + Send + 'static,
    F::Output: Completion,
{
    let runtime = runtime()?;
    let mut future = Box::pin(future);
    if let Poll::Ready(output) = poll_once(runtime, future.as_mut()) {
        return Ok((true, output.deliver(py)?));
    }
    if is_ending() {
        // An exit handler that runs after ours: there is no thread left that could complete a future of the loop.
        return Ok((true, wait(py, future)?.deliver(py)?));
    }
    let waiting = event_loop.call_method0("create_future")?;
    let (target, queue) = (waiting.clone().unbind(), LoopQueue::of(event_loop));
    let under_way = CallUnderWay::begin();
    let task = runtime.spawn(async move {
        let output = future.await;
        under_way.end();
        queue.push(output, target);
    });
    let abort = Py::new(py, AbortOnCancel { task: TaskHandle::of(&task) })?;
    waiting.call_method1("add_done_callback", (abort,))?;
    Ok((false, waiting.unbind()))
}

/// Counts the calls whose answers are not there yet, and notices those that are given up before: what they asked for may still
/// be granted.
struct CallUnderWay {
    generation: u64,
    has_ended: bool,
}

impl CallUnderWay {
    fn begin() -> Self {
        UNDER_WAY.fetch_add(1, Ordering::SeqCst);
        Self { generation: generation(), has_ended: false }
    }

    fn end(mut self) {
        self.has_ended = true;
    }
}

impl Drop for CallUnderWay {
    fn drop(&mut self) {
        if self.generation == generation() {
            UNDER_WAY.fetch_sub(1, Ordering::SeqCst);
            GIVEN_UP.fetch_or(!self.has_ended, Ordering::SeqCst);
        }
    }
}

/// Whether a claim may be granted that no caller waits for.
pub(crate) fn may_have_stray_claims() -> bool {
    GIVEN_UP.load(Ordering::SeqCst) || UNDER_WAY.load(Ordering::SeqCst) > 0
}

/// Stops the task when its caller no longer waits.
#[pyclass(frozen, name = "_AbortOnCancel")]
struct AbortOnCancel {
    task: TaskHandle,
}

#[pymethods]
impl AbortOnCancel {
    fn __call__(&self, target: &Bound<'_, PyAny>) -> PyResult<()> {
        if target.call_method0("cancelled")?.is_truthy()? {
            self.task.abort();
        }
        Ok(())
    }
}

/// A task of the runtime, which can be stopped only in its own process: its queue does not work in a forked child.
pub(crate) struct TaskHandle {
    task: tokio::task::AbortHandle,
    generation: u64,
}

impl TaskHandle {
    pub(crate) fn of(task: &tokio::task::JoinHandle<()>) -> Self {
        Self { task: task.abort_handle(), generation: generation() }
    }

    pub(crate) fn abort(&self) {
        if self.generation == generation() {
            self.task.abort();
        }
    }
}

/// The runtime, if there is one.
#[allow(unsafe_code)]
pub(crate) fn known() -> Option<&'static Runtime> {
    // SAFETY: as in `runtime`.
    unsafe { RUNTIME.load(Ordering::Acquire).as_ref() }
}

/// Keeps forks and the end of the interpreter waiting until the guard is dropped.
pub(crate) fn enter_gate() -> RwLockReadGuard<'static, ()> {
    gate().read().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the interpreter is ending.
pub(crate) fn is_ending() -> bool {
    IS_ENDING.load(Ordering::SeqCst)
}

/// Runs work in the background that takes the interpreter. If the interpreter is ending, the value that the work needs comes
/// back: what it has of Python cannot be freed any more.
pub(crate) fn inside_interpreter<T>(value: T, work: impl FnOnce(Python<'_>, T)) -> Result<(), T> {
    let _inside = enter_gate();
    if is_ending() {
        return Err(value);
    }
    Python::attach(|py| work(py, value));
    Ok(())
}

/// Runs work in the background that takes the interpreter, unless it is ending.
pub(crate) fn with_interpreter(work: impl FnOnce(Python<'_>)) {
    if let Err(work) = inside_interpreter(work, |py, work| work(py)) {
        std::mem::forget(work);
    }
}

/// Ends the use of the interpreter by the threads of the runtime, and waits for the last writes. Registered with `atexit`.
#[pyfunction]
pub(crate) fn shut_down(py: Python<'_>) {
    let known = RUNTIME.load(Ordering::Acquire);
    py.detach(|| {
        // Threads that are inside finish first; every later one sees the mark.
        let _all_outside = gate().write().unwrap_or_else(PoisonError::into_inner);
        IS_ENDING.store(true, Ordering::SeqCst);
    });
    if known.is_null() {
        return;
    }
    let Ok(runtime) = runtime() else { return };
    let ledgers = crate::ledger::open_ledgers();
    py.detach(|| {
        runtime.block_on(async {
            let all = async {
                for ledger in ledgers {
                    ledger.writes_done().await;
                }
                crate::remote::writes_done().await;
            };
            let _ = tokio::time::timeout(SHUTDOWN_LIMIT, all).await;
        });
    });
}

/// To be called before a fork. Until the fork is over, no thread of the runtime uses the interpreter: one that is about to take
/// it may hold a lock of Python, and Python before 3.12 would wait for that lock in the child.
#[pyfunction]
pub(crate) fn before_fork(py: Python<'_>) {
    py.detach(|| {
        let all_outside = gate().write().unwrap_or_else(PoisonError::into_inner);
        CLOSED_GATE.with(|closed| *closed.borrow_mut() = Some(all_outside));
    });
    onceward::fork::prepare();
}

/// To be called in the parent after a fork.
#[pyfunction]
pub(crate) fn after_fork_in_parent() {
    onceward::fork::resume_parent();
    drop(CLOSED_GATE.with(|closed| closed.borrow_mut().take()));
}

/// To be called in the child after a fork: threads are gone, and so is everything that they kept alive.
#[pyfunction]
pub(crate) fn after_fork_in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    RUNTIME.store(std::ptr::null_mut(), Ordering::Release);
    std::mem::forget(CLOSED_GATE.with(|closed| closed.borrow_mut().take()));
    GATE.store(Box::leak(Box::new(RwLock::new(()))), Ordering::Release);
    crate::log::after_fork_in_child();
    UNDER_WAY.store(0, Ordering::SeqCst);
    GIVEN_UP.store(false, Ordering::SeqCst);
    onceward::fork::resume_child();
}

/// A function of the Python part of the package.
pub(crate) fn python<'py>(
    py: Python<'py>,
    cell: &'static PyOnceLock<Py<PyAny>>,
    module: &str,
    name: &str,
) -> PyResult<&'py Bound<'py, PyAny>> {
    cell.import(py, module, name)
}
