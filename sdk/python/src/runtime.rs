//! Waits for the library's futures: a thread that calls blocks with the interpreter released and Ctrl-C noticed; an event loop
//! gets a future of its own, which a thread of this runtime completes.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use tokio::runtime::{Builder, Runtime};

use crate::completions::LoopQueue;
use crate::process::{self, generation, is_ending, is_ending_elsewhere};

/// How often a thread that waits looks for signals, so that Ctrl-C ends the wait.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// Leases are renewed, and futures completed, on these threads. Work itself runs on Python's.
const THREADS: usize = 2;

/// How long the end of the interpreter waits for the last writes.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(1);

/// The runtime of this process; null before it is needed, and again in a child after a fork. It is never freed: threads may use
/// it until the process ends.
static RUNTIME: AtomicPtr<Runtime> = AtomicPtr::new(std::ptr::null_mut());

/// How many calls wait, and whether a call was given up before it had its answer.
static UNDER_WAY: AtomicU64 = AtomicU64::new(0);
static GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// The runtime of this process.
#[allow(unsafe_code)]
pub(crate) fn runtime() -> PyResult<&'static Runtime> {
    process::check_fork()?;
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
    match poll_once(runtime, future.as_mut()) {
        Poll::Ready(output) => Ok(output),
        Poll::Pending => block_on(py, runtime, future),
    }
}

fn block_on<F>(py: Python<'_>, runtime: &Runtime, mut future: Pin<&mut F>) -> PyResult<F::Output>
where
    F: Future + Send,
    F::Output: Send,
{
    let under_way = CallUnderWay::begin();
    loop {
        let waited =
            py.detach(|| runtime.block_on(async { tokio::time::timeout(SIGNAL_INTERVAL, future.as_mut()).await }));
        match waited {
            Ok(output) => {
                under_way.end();
                return Ok(output);
            }
            Err(_) => py.check_signals()?,
        }
    }
}

/// Waits for what a call leads to, and hands it to the caller on this thread.
pub(crate) fn wait_and_deliver<F>(py: Python<'_>, future: F) -> PyResult<Py<PyAny>>
where
    F: Future + Send,
    F::Output: Completion,
{
    let waited = wait(py, async {
        let output = future.await;
        if output.begins_work() && is_ending_elsewhere() {
            // This thread may never come back into the interpreter.
            output.abandon();
            return None;
        }
        Some(output)
    })?;
    let Some(output) = waited else { return Err(process::ending(py)) };
    // Otherwise Python would get a claim and raise at once.
    if let Err(error) = py.check_signals() {
        output.abandon();
        return Err(error);
    }
    output.deliver(py)
}

/// What a future leads to, as Python gets it.
pub(crate) trait Completion: Send + 'static {
    /// Hands it to the caller.
    fn deliver(self, py: Python<'_>) -> PyResult<Py<PyAny>>;

    /// Whether the caller may begin work with it.
    fn begins_work(&self) -> bool {
        false
    }

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
        return Ok((true, wait_and_deliver(py, future)?));
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

/// Ends the use of the interpreter by the threads of the runtime, and waits for the last writes. Registered with `atexit`.
#[pyfunction]
pub(crate) fn shut_down(py: Python<'_>) {
    let (true, Some(runtime)) = (process::begin_end(py), known()) else { return };
    crate::courier::stop_all();
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

/// The threads of the parent do not exist in the child, nor do its calls.
pub(crate) fn after_fork_in_child() {
    RUNTIME.store(std::ptr::null_mut(), Ordering::Release);
    UNDER_WAY.store(0, Ordering::SeqCst);
    GIVEN_UP.store(false, Ordering::SeqCst);
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
