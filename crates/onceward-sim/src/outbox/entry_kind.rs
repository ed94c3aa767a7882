//! How entries are delivered. The kind of an entry is its operation.

use onceward::core::record::Record;
use onceward::{InDoubt, Policy};

/// More attempts than any entry needs, so that none is dead at the end.
const ENOUGH_ATTEMPTS: u32 = 10_000;

/// Keys that begin like this have two attempts, and their downstream cannot say at first whether the first one happened.
pub const ASKED: &str = "asked-";

/// Keys that begin like this act, and their first answer is held back until a courier is killed.
pub const ACTED: &str = "acted-";

/// Keys that begin like this are refused first, and unanswered without an effect next.
pub const STEP: &str = "step-";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// Retried: the downstream honours keys.
    Honoured,
    /// Held: the downstream ignores keys.
    Held,
    /// Probed: the downstream can be asked. It honours keys too, because an attempt of a killed courier may still arrive
    /// after the answer.
    Probed,
    /// Retried, and other couriers have another sink for it.
    Moved,
}

impl EntryKind {
    pub const ALL: [Self; 4] = [Self::Honoured, Self::Held, Self::Probed, Self::Moved];

    /// The kinds that all couriers deliver.
    pub const COMMON: [Self; 3] = [Self::Honoured, Self::Held, Self::Probed];

    pub fn operation(self) -> &'static str {
        match self {
            Self::Honoured => "honoured",
            Self::Held => "held",
            Self::Probed => "probed",
            Self::Moved => "moved",
        }
    }

    pub fn named(operation: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.operation() == operation)
    }

    pub fn of(record: &Record) -> Option<Self> {
        Self::named(record.identity.as_ref()?.operation.as_str())
    }

    pub fn honours_keys(self) -> bool {
        self != Self::Held
    }

    pub fn policy(self, key: &str) -> Policy {
        let in_doubt = match self {
            Self::Honoured | Self::Moved => InDoubt::Retry,
            Self::Held => InDoubt::Hold,
            Self::Probed => InDoubt::Probe,
        };
        let max_attempts = if key.starts_with(ASKED) { 2 } else { ENOUGH_ATTEMPTS };
        Policy { in_doubt, max_attempts: Some(max_attempts), ..Policy::default() }
    }
}
