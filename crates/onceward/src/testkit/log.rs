//! What took place in one scenario, in order: what the ledger wrote and what it was told, and what the provider did.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onceward_core::hash::Digest;
use onceward_core::policy::InDoubt;

/// Something that a call did.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Which call of the tool, from 1.
    pub(super) call: usize,
    pub(super) event: Event,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The ledger asked the store for something.
    Asked,
    Claimed(Claimed),
    /// `sent` is marked.
    Marked,
    /// `sent` could not be marked: the claim was lost.
    MarkLost,
    /// The other side was asked, and knew of nothing.
    NotFound,
    /// The outcome is written.
    Recorded,
    /// The claim was given back as harmless.
    Released,
    /// The claim ended in doubt.
    Doubted,
    /// The store handed back a record that stands like this.
    Told(Told),
    Acted(Acted),
}

/// A claim that was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claimed {
    pub(super) id: Digest,
    pub(super) operation: String,
    pub(super) key: String,
    /// The caller promised to mark `sent`.
    pub(super) marks_sent: bool,
    /// An earlier attempt may have happened.
    pub(super) over_doubt: bool,
    pub(super) in_doubt: InDoubt,
}

/// An effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Acted {
    pub(super) what: String,
    pub(super) key: Option<String>,
    /// It happened now; otherwise the provider knew the key, and it had happened before.
    pub(super) anew: bool,
}

/// How a record stood that the store handed back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Somebody is at it, or it may not be tried yet.
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
pub(super) struct Log(Mutex<Written>);

#[derive(Debug, Default)]
struct Written {
    entries: Vec<Entry>,
    longest_wait: Duration,
}

impl Log {
    pub(super) fn add(&self, call: usize, event: Event) {
        self.written().entries.push(Entry { call, event });
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        self.written().entries.clone()
    }

    /// A record was written that nobody may take for this long.
    pub(super) fn waits(&self, wait: Duration) {
        let mut written = self.written();
        written.longest_wait = written.longest_wait.max(wait);
    }

    /// After this long, every lease and every not-before time of the scenario is over.
    pub(super) fn longest_wait(&self) -> Duration {
        self.written().longest_wait
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
