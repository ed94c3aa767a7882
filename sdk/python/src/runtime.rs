//! Waits for the library's futures: a thread that calls blocks with the interpreter released and Ctrl-C noticed; an event loop
//! gets a future of its own, which a thread of this runtime completes.
//!
//! Threads of the runtime take the interpreter only to complete such a future, and never once the interpreter is ending: a
//! thread that asks for it then would be ended in the middle of Rust code.

use std::cell::RefCell;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use pyo3::exceptions::{PyImportError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use tokio::runtime::{Builder, Runtime};

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
            Err(_) => py.check_signals()?,
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
    if IS_ENDING.load(Ordering::SeqCst) {
        // An exit handler that runs after ours: there is no thread left that could complete a future of the loop.
        return Ok((true, wait(py, future)?.deliver(py)?));
    }
    let waiting = event_loop.call_method0("create_future")?;
    let (target, target_loop) = (waiting.clone().unbind(), event_loop.clone().unbind());
    let task = runtime.spawn(async move {
        let output = future.await;
        // Completing takes the interpreter, for which this thread may have to wait.
        tokio::task::spawn_blocking(move || complete(output, target, target_loop));
    });
    let abort = Py::new(py, AbortOnCancel { task: TaskHandle::of(&task) })?;
    waiting.call_method1("add_done_callback", (abort,))?;
    Ok((false, waiting.unbind()))
}

/// Hands the output to the event loop, unless the loop has gone or the interpreter is ending.
fn complete<C: Completion>(output: C, target: Py<PyAny>, event_loop: Py<PyAny>) {
    let _inside = gate().read().unwrap_or_else(PoisonError::into_inner);
    if IS_ENDING.load(Ordering::SeqCst) {
        output.abandon();
        // Freeing them takes the interpreter.
        std::mem::forget((target, event_loop));
        return;
    }
    Python::attach(|py| {
        let delivery = Delivery { deliver: std::sync::Mutex::new(Some(Box::new(Parcel(output)))) };
        let Ok(delivery) = Py::new(py, delivery) else { return };
        // A loop that was closed takes nothing; then the delivery is dropped, which abandons the output.
        let _ = event_loop.bind(py).call_method1("call_soon_threadsafe", (delivery, target));
    });
}

/// An output that is handed over once, or else abandoned.
trait Deliverable: Send {
    fn deliver(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>>;
    fn abandon(self: Box<Self>);
}

struct Parcel<C>(C);

impl<C: Completion> Deliverable for Parcel<C> {
    fn deliver(self: Box<Self>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.0.deliver(py)
    }

    fn abandon(self: Box<Self>) {
        self.0.abandon();
    }
}

/// Completes a future when the event loop calls it.
#[pyclass(frozen, name = "_Delivery")]
struct Delivery {
    deliver: std::sync::Mutex<Option<Box<dyn Deliverable>>>,
}

#[pymethods]
impl Delivery {
    fn __call__(&self, py: Python<'_>, target: &Bound<'_, PyAny>) -> PyResult<()> {
        let output = self.deliver.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(output) = output else { return Ok(()) };
        if target.call_method0("done")?.is_truthy()? {
            output.abandon();
            return Ok(());
        }
        match output.deliver(py) {
            Ok(result) => target.call_method1("set_result", (result,))?,
            Err(error) => target.call_method1("set_exception", (error.into_value(py),))?,
        };
        Ok(())
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if let Some(output) = self.deliver.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            output.abandon();
        }
    }
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

/// Runs work in the background that takes the interpreter, unless it is ending.
pub(crate) fn with_interpreter(work: impl FnOnce(Python<'_>)) {
    let _inside = gate().read().unwrap_or_else(PoisonError::into_inner);
    if !IS_ENDING.load(Ordering::SeqCst) {
        Python::attach(work);
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
