//! What is measured.

use serde::Serialize;

/// One way of calling a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Case {
    /// The server, asked directly.
    Direct,
    /// Through the gateway, a tool that only reads.
    PassThrough,
    /// Through the gateway, a tool that acts, with other arguments each time.
    Guarded,
    /// The same with the same arguments: the gateway has the result.
    Replay,
}

impl Case {
    pub(super) const ALL: [Self; 4] = [Self::Direct, Self::PassThrough, Self::Guarded, Self::Replay];

    /// As the table says it.
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Direct => "server, direct",
            Self::PassThrough => "gateway → server, a tool that reads",
            Self::Guarded => "gateway → server, a tool that acts",
            Self::Replay => "gateway, repeats of one call",
        }
    }

    /// How often the tool has to have acted, after so many calls of it.
    pub(super) const fn effects(self, calls: u64) -> u64 {
        match self {
            Self::Direct | Self::Guarded => calls,
            Self::PassThrough => 0,
            Self::Replay => 1,
        }
    }
}

/// How many calls are under way at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Load {
    One,
    Several,
}

/// More than any agent has.
pub(super) const SEVERAL: usize = 16;

impl Load {
    pub(super) const fn in_flight(self) -> usize {
        match self {
            Self::One => 1,
            Self::Several => SEVERAL,
        }
    }
}

/// What takes a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    Calls(Case, Load),
    /// The server, asked directly, one call at a time, by somebody who syncs before and after: what nobody can go below who
    /// puts the intent on the disk, and then the outcome.
    Synced,
    /// The disk alone: a small append and a sync, and nobody else who asks.
    Sync,
}

impl Step {
    /// Those that are compared stand side by side.
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
