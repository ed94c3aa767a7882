//! The log of one scenario, in order: what the ledger wrote and read, and what the provider did.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onceward_core::hash::Digest;
use onceward_core::policy::InDoubt;

/// An event, and the call that caused it.
#[derive(Clone, Debug)]
pub(super) struct LogEntry {
    /// The number of the call, from 1.
    pub(super) call: usize,
    pub(super) event: LogEvent,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LogEvent {
    /// The ledger called the store.
    StoreCalled,
    Claimed(ClaimGranted),
    /// `sent` was marked.
    Marked,
    /// `sent` could not be marked: the claim was lost.
    MarkLost,
    /// A probe found no effect, and this was written.
    NotFound,
    /// The outcome was written.
    Recorded,
    /// The claim was released as harmless.
    Released,
    /// The claim ended in doubt.
    Doubted,
    /// The store returned a record with this status.
    Seen(SeenStatus),
    Effect(EffectDone),
}

/// A claim that was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClaimGranted {
    pub(super) id: Digest,
    pub(super) operation: String,
    pub(super) key: String,
    /// The caller declared that it marks `sent`.
    pub(super) marks_sent: bool,
    /// An earlier attempt may have happened.
    pub(super) over_doubt: bool,
    pub(super) in_doubt: InDoubt,
}

/// An effect at the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EffectDone {
    pub(super) what: String,
    pub(super) key: Option<String>,
    /// The effect happened now. Otherwise the provider knew the key, and it had happened before.
    pub(super) is_new: bool,
}

/// The status of a record that the store returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SeenStatus {
    /// Another call holds the claim, or it is too early for a retry.
    InFlight,
    InDoubt,
    Done,
    /// A kept failure.
    DoneFailed,
    /// Anything else.
    Other,
}

/// The log of one scenario.
#[derive(Debug, Default)]
pub(super) struct ScenarioLog(Mutex<LogState>);

#[derive(Debug, Default)]
struct LogState {
    entries: Vec<LogEntry>,
    longest_wait: Duration,
}

impl ScenarioLog {
    pub(super) fn add(&self, call: usize, event: LogEvent) {
        self.state().entries.push(LogEntry { call, event });
    }

    pub(super) fn entries(&self) -> Vec<LogEntry> {
        self.state().entries.clone()
    }

    /// Notes that a record was written that no other call can claim for this long.
    pub(super) fn add_wait(&self, wait: Duration) {
        let mut state = self.state();
        state.longest_wait = state.longest_wait.max(wait);
    }

    /// After this long, every lease and every not-before time of the scenario is over.
    pub(super) fn longest_wait(&self) -> Duration {
        self.state().longest_wait
    }

    fn state(&self) -> MutexGuard<'_, LogState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
