//! One process of a scenario. It can be stopped at any step, as a kill or a long pause stops a real one: whatever of it
//! still runs gets no further, writes nothing and does nothing, until the scenario lets it go on or is over.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::step::Step;

/// A process, as far as the ledger and the provider can tell.
#[derive(Debug)]
pub(super) struct Life {
    progress: Mutex<Progress>,
    mode: watch::Sender<Mode>,
    /// How many calls of the store are under way.
    under_way: AtomicUsize,
    /// It dies where it is stopped.
    dies: bool,
}

#[derive(Debug, Default)]
struct Progress {
    stop_at: Option<usize>,
    trace: Vec<Step>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Running,
    /// Nothing of it moves.
    Stopped,
    /// The scenario is over: what is left of it ends, without any effect.
    Gone,
}

/// What the rest of a process is told that died, once the scenario is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gone;

impl Life {
    /// A process that nothing stops.
    pub(super) fn undisturbed() -> Self {
        Self::stopped_at(None, false)
    }

    /// A process that stops at this step of it, counted from 0.
    pub(super) fn stopped_at(stop_at: Option<usize>, dies: bool) -> Self {
        let progress = Mutex::new(Progress { stop_at, trace: Vec::new() });
        Self { progress, mode: watch::Sender::new(Mode::Running), under_way: AtomicUsize::new(0), dies }
    }

    /// Comes by a step, and stays there if it is the one to stop at.
    pub(super) async fn pass(&self, step: Step) -> Result<(), Gone> {
        self.go_on().await?;
        self.reach(step);
        self.go_on().await
    }

    /// The same for code that cannot wait: it gets no further than its next call of the ledger or the provider.
    pub(super) fn reach(&self, step: Step) {
        let mut progress = self.progress();
        let index = progress.trace.len();
        progress.trace.push(step);
        if progress.stop_at == Some(index) {
            self.change(Mode::Running, Mode::Stopped);
        }
    }

    /// Waits as long as the process is stopped.
    pub(super) async fn go_on(&self) -> Result<(), Gone> {
        match self.mode.subscribe().wait_for(|mode| *mode != Mode::Stopped).await {
            Ok(mode) if *mode == Mode::Running => Ok(()),
            _ => Err(Gone),
        }
    }

    /// Resolves when the process has stopped.
    pub(super) async fn stopped(&self) {
        // The sender is this process itself, so the wait cannot fail.
        let _ = self.mode.subscribe().wait_for(|mode| *mode == Mode::Stopped).await;
    }

    pub(super) fn is_stopped(&self) -> bool {
        *self.mode.borrow() == Mode::Stopped
    }

    /// Whether its code can still bring something about without waiting for anything. A dead process cannot; one that
    /// is merely paused does so sooner or later.
    pub(super) fn can_act(&self) -> bool {
        match *self.mode.borrow() {
            Mode::Running => true,
            Mode::Stopped => !self.dies,
            Mode::Gone => false,
        }
    }

    /// Lets a stopped process go on where it was.
    pub(super) fn resume(&self) {
        self.change(Mode::Stopped, Mode::Running);
    }

    /// Lets what is left of a process end.
    pub(super) fn bury(&self) {
        self.mode.send_replace(Mode::Gone);
    }

    /// The steps that it came by.
    pub(super) fn trace(&self) -> Vec<Step> {
        self.progress().trace.clone()
    }

    /// The step at which it stopped, if it came that far.
    pub(super) fn stopping_place(&self) -> Option<Step> {
        let progress = self.progress();
        progress.trace.get(progress.stop_at?).cloned()
    }

    /// Counts a call of the store for as long as it takes.
    pub(super) fn work(&self) -> Work<'_> {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        Work(self)
    }

    /// Whether no call of the store is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.under_way.load(Ordering::SeqCst) == 0
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

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call of the store that is under way.
pub(super) struct Work<'a>(&'a Life);

impl Drop for Work<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}
