//! Forks and the end of the interpreter: which process this is, and when threads of the library may use the interpreter. They
//! never take it once the interpreter is ending: a thread that asks for it then would be ended in the middle of Rust code.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;

use crate::error::{self, About};
use crate::runtime;

/// How long a thread that may not begin work any more waits before it is told. The interpreter ends threads without a message, and
/// most end here; an exit handler may wait for this one. Longer than `shut_down` takes.
const REFUSED_PAUSE: Duration = Duration::from_secs(2);

/// How many forks there were between the first process and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Whether Python runs our handlers around the fork that is under way.
static IS_HOOKED: AtomicBool = AtomicBool::new(false);

/// Whether this process was forked by C code that did not tell Python, while ledgers were in use.
static IS_UNKNOWN_FORK: AtomicBool = AtomicBool::new(false);

/// The interpreter that imported the module.
static INTERPRETER: AtomicI64 = AtomicI64::new(NO_INTERPRETER);
const NO_INTERPRETER: i64 = -1;

/// Whether the package was imported before, and its handlers registered.
static IS_REGISTERED: AtomicBool = AtomicBool::new(false);

/// Whether the interpreter is ending.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Threads of the runtime hold the gate for reading while they use the interpreter. A child process replaces it, because other
/// threads of the parent may have been waiting for it. Null means the first one.
static GATE: AtomicPtr<RwLock<()>> = AtomicPtr::new(std::ptr::null_mut());
static FIRST_GATE: RwLock<()> = RwLock::new(());

thread_local! {
    /// The gate, closed by the thread that forks, from before the fork until after it.
    static CLOSED_GATE: RefCell<Option<RwLockWriteGuard<'static, ()>>> = const { RefCell::new(None) };
    /// Whether this thread ends the interpreter, and runs its exit handlers.
    static ENDS_INTERPRETER: Cell<bool> = const { Cell::new(false) };
}

/// Which process this is, counted in forks: what was opened in another one cannot be used.
pub(crate) fn generation() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

/// Refuses a child of a fork that Python does not know of. Locks may be held there by threads that do not exist, and the files
/// of the parent's ledgers are open.
pub(crate) fn check_fork() -> PyResult<()> {
    if !IS_UNKNOWN_FORK.load(Ordering::Relaxed) {
        return Ok(());
    }
    let why = "this process was forked by C code that did not run Python's fork handlers, while ledgers were in use. Fork with \
               os.fork() or multiprocessing, or open no ledger before such a fork";
    Err(Python::attach(|py| error::named(py, "StoreUnavailable", why, &About::default())))
}

/// Notices forks of which Python's handlers are not told.
pub(crate) fn watch_forks() {
    #[cfg(unix)]
    every_fork::watch();
}

#[cfg(unix)]
#[allow(unsafe_code)]
mod every_fork {
    use std::ffi::c_int;

    use super::{FORKS, IS_HOOKED, IS_UNKNOWN_FORK, Ordering, runtime};

    type Handler = Option<extern "C" fn()>;

    unsafe extern "C" {
        fn pthread_atfork(before: Handler, in_parent: Handler, in_child: Handler) -> c_int;
    }

    pub(super) fn watch() {
        // SAFETY: the handler only uses atomics. The module is never unloaded. Without memory, such forks are not noticed.
        unsafe { pthread_atfork(None, None, Some(in_child)) };
    }

    extern "C" fn in_child() {
        if !IS_HOOKED.load(Ordering::Relaxed) {
            FORKS.fetch_add(1, Ordering::Relaxed);
            if runtime::known().is_some() {
                IS_UNKNOWN_FORK.store(true, Ordering::Relaxed);
            }
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

/// Whether the handlers for forks and for the end have to be registered: true once in each process and its children.
#[pyfunction]
pub(crate) fn is_first_import() -> bool {
    !IS_REGISTERED.swap(true, Ordering::SeqCst)
}

/// The gate of this process.
#[allow(unsafe_code)]
fn gate() -> &'static RwLock<()> {
    let replaced = GATE.load(Ordering::Acquire);
    // SAFETY: it is null, or was made by `Box::leak` after a fork, and is never freed.
    unsafe { replaced.as_ref() }.unwrap_or(&FIRST_GATE)
}

/// Keeps forks and the end of the interpreter waiting until the guard is dropped.
pub(crate) fn enter_gate() -> RwLockReadGuard<'static, ()> {
    gate().read().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the interpreter is ending.
pub(crate) fn is_ending() -> bool {
    IS_ENDING.load(Ordering::SeqCst)
}

/// Whether another thread than this one is ending the interpreter. This one may be stopped at any moment.
pub(crate) fn is_ending_elsewhere() -> bool {
    is_ending() && !ENDS_INTERPRETER.get()
}

/// Refuses to begin work that the end of the interpreter would stop halfway: its intent would be in doubt.
pub(crate) fn check_may_begin(py: Python<'_>) -> PyResult<()> {
    if is_ending_elsewhere() { Err(ending(py)) } else { Ok(()) }
}

/// The error for work that may not begin any more.
pub(crate) fn ending(py: Python<'_>) -> PyErr {
    py.detach(|| std::thread::sleep(REFUSED_PAUSE));
    error::named(py, "StoreUnavailable", "the interpreter is ending, so nothing ran", &About::default())
}

/// Waits until no thread of the runtime uses the interpreter, and keeps them out from then on. Returns false in a process where
/// that cannot be known.
pub(crate) fn begin_end(py: Python<'_>) -> bool {
    if IS_UNKNOWN_FORK.load(Ordering::Relaxed) {
        return false;
    }
    ENDS_INTERPRETER.set(true);
    py.detach(|| {
        // Threads that are inside finish first; every later one sees the mark.
        let _all_outside = gate().write().unwrap_or_else(PoisonError::into_inner);
        IS_ENDING.store(true, Ordering::SeqCst);
    });
    true
}

/// Runs work in the background that takes the interpreter. If the interpreter is ending, the value that the work needs comes
/// back: what it has of Python cannot be freed any more. The work must not wait for anything, as handlers of `logging` may:
/// forks and the end of the interpreter wait for it.
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

/// To be called before a fork. Until the fork is over, no thread of the runtime uses the interpreter: one that is about to take
/// it may hold a lock of Python, and Python before 3.12 would wait for that lock in the child.
#[pyfunction]
pub(crate) fn before_fork(py: Python<'_>) {
    if !IS_UNKNOWN_FORK.load(Ordering::Relaxed) {
        py.detach(|| {
            let all_outside = gate().write().unwrap_or_else(PoisonError::into_inner);
            CLOSED_GATE.with(|closed| *closed.borrow_mut() = Some(all_outside));
        });
        onceward::fork::prepare();
    }
    IS_HOOKED.store(true, Ordering::Relaxed);
}

/// To be called in the parent after a fork.
#[pyfunction]
pub(crate) fn after_fork_in_parent() {
    IS_HOOKED.store(false, Ordering::Relaxed);
    onceward::fork::resume_parent();
    drop(CLOSED_GATE.with(|closed| closed.borrow_mut().take()));
}

/// To be called in the child after a fork: threads are gone, and so is everything that they kept alive.
#[pyfunction]
pub(crate) fn after_fork_in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    std::mem::forget(CLOSED_GATE.with(|closed| closed.borrow_mut().take()));
    GATE.store(Box::leak(Box::new(RwLock::new(()))), Ordering::Release);
    runtime::after_fork_in_child();
    crate::log::after_fork_in_child();
    onceward::fork::resume_child();
    IS_HOOKED.store(false, Ordering::Relaxed);
}
