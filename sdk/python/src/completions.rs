//! Hands results to event loops. All results that are ready for one loop share one wake-up of it: waking a loop takes the
//! interpreter, and costs more than everything else that a completion does.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::process::{generation, inside_interpreter, is_ending};
use crate::runtime::Completion;

thread_local! {
    /// The queue of the loop that last ran on this thread. It is kept alive by the calls that wait.
    static LATEST: RefCell<Weak<LoopQueue>> = const { RefCell::new(Weak::new()) };
}

/// The results that are ready for one event loop, in the order in which they came. It has at most one result for each call that
/// waits.
pub(crate) struct LoopQueue {
    event_loop: Py<PyAny>,
    /// The process that made it, counted in forks.
    generation: u64,
    ready: Mutex<Ready>,
}

#[derive(Default)]
struct Ready {
    results: Vec<ReadyResult>,
    /// The loop has been woken, or is about to be, and will take everything that is there by then.
    is_woken: bool,
}

struct ReadyResult {
    output: Box<dyn Deliverable>,
    target: Py<PyAny>,
}

impl LoopQueue {
    /// The queue of a loop. The loop runs on this thread.
    pub(crate) fn of(event_loop: &Bound<'_, PyAny>) -> Arc<Self> {
        LATEST.with_borrow_mut(|latest| {
            // A queue that is there keeps its loop alive, so that an equal address is the same loop.
            let known = latest.upgrade();
            if let Some(queue) = known.filter(|queue| queue.event_loop.is(event_loop) && queue.is_of_this_process()) {
                return queue;
            }
            let event_loop = event_loop.clone().unbind();
            let queue = Arc::new(Self { event_loop, generation: generation(), ready: Mutex::default() });
            *latest = Arc::downgrade(&queue);
            queue
        })
    }

    /// Adds a result, and wakes the loop unless it is awake for an earlier one. Does not block.
    pub(crate) fn push<C: Completion>(self: &Arc<Self>, output: C, target: Py<PyAny>) {
        if is_ending() {
            output.abandon();
            // Freeing it takes the interpreter.
            std::mem::forget(target);
            return;
        }
        let was_woken = {
            let mut ready = self.lock();
            ready.results.push(ReadyResult { output: Box::new(Parcel(output)), target });
            std::mem::replace(&mut ready.is_woken, true)
        };
        if !was_woken {
            let queue = Arc::clone(self);
            // Waking takes the interpreter, for which a thread may have to wait.
            tokio::task::spawn_blocking(move || wake(queue));
        }
    }

    fn is_of_this_process(&self) -> bool {
        self.generation == generation()
    }

    fn lock(&self) -> MutexGuard<'_, Ready> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes everything that is ready. The next result wakes the loop again.
    fn take(&self) -> Vec<ReadyResult> {
        std::mem::take(&mut *self.lock()).results
    }
}

impl Drop for LoopQueue {
    fn drop(&mut self) {
        if !self.is_of_this_process() {
            // Results for the parent: its claims must not end here.
            std::mem::forget(std::mem::take(self.ready.get_mut().unwrap_or_else(PoisonError::into_inner)));
        }
    }
}

/// Asks the loop to take its results, unless it has gone or the interpreter is ending.
fn wake(queue: Arc<LoopQueue>) {
    let queue = inside_interpreter(queue, |py, queue| {
        let event_loop = queue.event_loop.clone_ref(py);
        let Ok(drain) = Py::new(py, Drain { queue, is_called: AtomicBool::new(false) }) else { return };
        // A loop that was closed takes nothing; then the drain is dropped, which abandons the results.
        let _ = event_loop.bind(py).call_method1("call_soon_threadsafe", (drain,));
    });
    if let Err(queue) = queue {
        for result in queue.take() {
            result.output.abandon();
            // Freeing them takes the interpreter.
            std::mem::forget(result.target);
        }
        std::mem::forget(queue);
    }
}

/// Completes every future whose result is ready, when the event loop calls it.
#[pyclass(frozen, name = "_Drain")]
struct Drain {
    queue: Arc<LoopQueue>,
    is_called: AtomicBool,
}

#[pymethods]
impl Drain {
    fn __call__(&self, py: Python<'_>) -> PyResult<()> {
        self.is_called.store(true, Ordering::Relaxed);
        if !self.queue.is_of_this_process() {
            return Ok(());
        }
        let mut first_error = None;
        for result in self.queue.take() {
            // One that fails, as when Ctrl-C comes in the middle, must not keep the others waiting.
            if let Err(error) = result.complete(py) {
                first_error.get_or_insert(error);
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// Shows Python's collector the way back to the loop, which keeps this callback until it calls it: a loop that was stopped
    /// and dropped must not keep itself alive. While calls are under way, these keep the loop too.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // Without other owners no thread can change the queue, and only one callback shows what it has.
        if Arc::strong_count(&self.queue) != 1 {
            return Ok(());
        }
        visit.call(&self.queue.event_loop)?;
        match self.queue.ready.try_lock() {
            Ok(ready) => ready.results.iter().try_for_each(|result| visit.call(&result.target)),
            Err(_) => Ok(()),
        }
    }

    fn __clear__(&self) {
        self.abandon();
    }
}

impl Drain {
    /// The loop will never call this.
    fn abandon(&self) {
        if self.queue.is_of_this_process() {
            for result in self.queue.take() {
                result.output.abandon();
            }
        }
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        // Results that came after the call have a drain of their own. Without a call, the loop was closed.
        if !*self.is_called.get_mut() {
            self.abandon();
        }
    }
}

impl ReadyResult {
    fn complete(self, py: Python<'_>) -> PyResult<()> {
        let target = self.target.bind(py);
        match target.call_method0("done").and_then(|is_done| is_done.is_truthy()) {
            Ok(false) => {}
            Ok(true) => {
                self.output.abandon();
                return Ok(());
            }
            Err(error) => {
                self.output.abandon();
                return Err(error);
            }
        }
        match self.output.deliver(py) {
            Ok(result) => target.call_method1("set_result", (result,))?,
            Err(error) => target.call_method1("set_exception", (error.into_value(py),))?,
        };
        Ok(())
    }
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
