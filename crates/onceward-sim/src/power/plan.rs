//! Where the power is cut.

use std::time::Duration;

use crate::rng::Rng;
use crate::vfs::Moment;

/// What the ledger does when the power goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It is being opened: created, or recovered after the last cut.
    Opening,
    /// Callers are at work.
    Working,
    /// It is being closed.
    Closing,
    /// It was closed properly.
    Closed,
}

impl Phase {
    /// All of them, in order.
    pub const ALL: [Self; 4] = [Self::Opening, Self::Working, Self::Closing, Self::Closed];
}

/// The plan of one cycle.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What the ledger does when the power goes. The cut may come later than planned, and never earlier.
    pub phase: Phase,
    /// The kind of moment.
    pub moment: Moment,
    /// The number of the moment.
    pub nth: u64,
    /// How long the machine was off before.
    pub dark_for: Duration,
    /// The side file with the locks of owners is still there.
    pub keeps_owners: bool,
}

impl Plan {
    /// The plan from random numbers.
    pub fn of(rng: &mut Rng, is_new: bool) -> Self {
        let opening = if is_new { 10 } else { 3 };
        let (phase, moment, within) = rng.weighted(&[
            (opening, (Phase::Opening, Moment::Change, if is_new { 60 } else { 25 })),
            (6, (Phase::Working, Moment::Change, 250)),
            (3, (Phase::Working, Moment::LogSync, 25)),
            (2, (Phase::Working, Moment::FileWrite, 40)),
            (2, (Phase::Working, Moment::FileSync, 3)),
            (2, (Phase::Working, Moment::LogStart, 2)),
            (2, (Phase::Closing, Moment::Change, 12)),
            (1, (Phase::Closed, Moment::Change, 1)),
        ]);
        let minutes = rng.weighted(&[(4, 0), (4, 1), (2, 5), (1, 60 * 24), (1, 60 * 24 * 4)]);
        Self {
            phase,
            moment,
            nth: 1 + rng.below(within),
            dark_for: Duration::from_secs(60 * minutes),
            keeps_owners: !rng.one_in(5),
        }
    }
}
