//! The measured cases.

use serde::Serialize;

/// A way to call a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Case {
    /// The server, called directly.
    Direct,
    /// Through the gateway, a tool that only reads.
    PassThrough,
    /// Through the gateway, a tool that acts, with different arguments each time.
    Guarded,
    /// The same with the same arguments: the gateway replays the result.
    Replay,
}

impl Case {
    pub(super) const ALL: [Self; 4] = [Self::Direct, Self::PassThrough, Self::Guarded, Self::Replay];

    /// The label in the table.
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Direct => "server, direct",
            Self::PassThrough => "gateway → server, a tool that reads",
            Self::Guarded => "gateway → server, a tool that acts",
            Self::Replay => "gateway, replays of one call",
        }
    }

    /// How often the tool must have acted after this many calls.
    pub(super) const fn effects(self, calls: u64) -> u64 {
        match self {
            Self::Direct | Self::Guarded => calls,
            Self::PassThrough => 0,
            Self::Replay => 1,
        }
    }
}

/// The number of calls in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Load {
    One,
    Several,
}

/// More than agents usually have.
pub(super) const SEVERAL: usize = 16;

impl Load {
    pub(super) const fn in_flight(self) -> usize {
        match self {
            Self::One => 1,
            Self::Several => SEVERAL,
        }
    }
}

/// One measurement of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    Calls(Case, Load),
    /// The server, called directly, one call at a time, by a client that syncs before and after: the lower limit for any
    /// gateway that writes the intent to disk, and then the outcome.
    Synced,
    /// The disk alone: a small append and a sync, without concurrent load.
    Sync,
}

impl Step {
    /// Steps that are compared are adjacent.
    pub(super) fn all() -> Vec<Self> {
        let calls = |load| Case::ALL.into_iter().map(move |case| Self::Calls(case, load));
        calls(Load::One).chain([Self::Synced, Self::Sync]).chain(calls(Load::Several)).collect()
    }

    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Calls(case, _) => case.label(),
            Self::Synced => "server, direct, between two syncs",
            Self::Sync => "bare syncs",
        }
    }
}
