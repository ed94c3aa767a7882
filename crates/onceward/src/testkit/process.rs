//! A simulated process of a scenario. It can be stopped at any step, as a kill or a long pause stops a real one: code of a
//! stopped process that still runs waits at its next call, and neither writes nor acts, until the scenario lets it continue or
//! ends.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::step::Step;

/// A simulated process, as the ledger and the provider see it.
#[derive(Debug)]
pub(super) struct Process {
    progress: Mutex<StepTrace>,
    mode: watch::Sender<Mode>,
    /// The number of store calls in progress.
    store_calls: AtomicUsize,
    /// The process dies where it is stopped.
    dies: bool,
}

#[derive(Debug, Default)]
struct StepTrace {
    stop_at: Option<usize>,
    trace: Vec<Step>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Running,
    /// No code of it continues.
    Stopped,
    /// The scenario is over: remaining code ends without any effect.
    Ended,
}

/// The error that remaining code of a dead process gets once the scenario is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProcessEnded;

impl Process {
    /// A process that is never stopped.
    pub(super) fn undisturbed() -> Self {
        Self::stopped_at(None, false)
    }

    /// A process that stops at its step with this number, counted from 0.
    pub(super) fn stopped_at(stop_at: Option<usize>, dies: bool) -> Self {
        let progress = Mutex::new(StepTrace { stop_at, trace: Vec::new() });
        Self { progress, mode: watch::Sender::new(Mode::Running), store_calls: AtomicUsize::new(0), dies }
    }

    /// Passes a step, and waits there if it is the one to stop at.
    pub(super) async fn pass(&self, step: Step) -> Result<(), ProcessEnded> {
        self.wait_while_stopped().await?;
        self.reach(step);
        self.wait_while_stopped().await
    }

    /// Like [`Process::pass`] for code that cannot wait: it continues until its next call of the ledger or the provider.
    pub(super) fn reach(&self, step: Step) {
        let mut progress = self.progress();
        let index = progress.trace.len();
        progress.trace.push(step);
        if progress.stop_at == Some(index) {
            self.change(Mode::Running, Mode::Stopped);
        }
    }

    /// Waits as long as the process is stopped.
    pub(super) async fn wait_while_stopped(&self) -> Result<(), ProcessEnded> {
        match self.mode.subscribe().wait_for(|mode| *mode != Mode::Stopped).await {
            Ok(mode) if *mode == Mode::Running => Ok(()),
            _ => Err(ProcessEnded),
        }
    }

    /// Resolves when the process has stopped.
    pub(super) async fn stopped(&self) {
        // The sender belongs to `self`, so the wait cannot fail.
        let _ = self.mode.subscribe().wait_for(|mode| *mode == Mode::Stopped).await;
    }

    pub(super) fn is_stopped(&self) -> bool {
        *self.mode.borrow() == Mode::Stopped
    }

    /// Whether code that cannot wait may still act. A dead process cannot; a paused one will sooner or later.
    pub(super) fn can_act(&self) -> bool {
        match *self.mode.borrow() {
            Mode::Running => true,
            Mode::Stopped => !self.dies,
            Mode::Ended => false,
        }
    }

    /// Lets a stopped process continue.
    pub(super) fn resume(&self) {
        self.change(Mode::Stopped, Mode::Running);
    }

    /// Lets the remaining code of the process end.
    pub(super) fn end(&self) {
        self.mode.send_replace(Mode::Ended);
    }

    /// The steps that it passed.
    pub(super) fn trace(&self) -> Vec<Step> {
        self.progress().trace.clone()
    }

    /// The step at which it stopped, if it got that far.
    pub(super) fn stop_step(&self) -> Option<Step> {
        let progress = self.progress();
        progress.trace.get(progress.stop_at?).cloned()
    }

    /// Counts a store call until the guard is dropped.
    pub(super) fn store_call(&self) -> StoreCall<'_> {
        self.store_calls.fetch_add(1, Ordering::SeqCst);
        StoreCall(self)
    }

    /// Whether no store call is in progress.
    pub(super) fn is_idle(&self) -> bool {
        self.store_calls.load(Ordering::SeqCst) == 0
    }

    fn change(&self, from: Mode, to: Mode) {
        self.mode.send_if_modified(|mode| {
            let is_from = *mode == from;
            if is_from {
                *mode = to;
            }
            is_from
        });
    }

    fn progress(&self) -> MutexGuard<'_, StepTrace> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A store call in progress.
pub(super) struct StoreCall<'a>(&'a Process);

impl Drop for StoreCall<'_> {
    fn drop(&mut self) {
        self.0.store_calls.fetch_sub(1, Ordering::SeqCst);
    }
}
