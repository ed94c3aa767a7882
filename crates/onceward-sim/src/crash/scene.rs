//! One short play for each misdeed, in which nothing is left to chance: which worker does what, where it dies, and when the
//! next one begins. A judge that overlooks the misdeed here overlooks it always.

use std::time::Duration;

use onceward::InDoubt;
use onceward::step::Step;

use super::misdeed::Misdeed;
use super::plan::{Fate, Part, Sort, Turn, Visit, lasting};

/// When the second worker begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cue {
    /// When the first one has ended.
    Ended,
    /// When the work of the first one has begun.
    Began,
}

/// The intent that the play is about: the first that suits the misdeed.
pub fn intent(seed: u64, misdeed: Misdeed) -> u64 {
    let suits = |sort: Sort| match misdeed {
        Misdeed::Doubt => sort.holds() && sort.marks && !sort.slow,
        Misdeed::Steal => sort.in_doubt == InDoubt::Retry && !sort.marks && !sort.can_lose_its_lease(),
        _ => sort.holds() && !sort.marks && !sort.slow,
    };
    lasting().find(|intent| suits(Sort::of(seed, *intent))).unwrap_or_default()
}

/// When the second worker begins, if there is one.
pub fn cue(misdeed: Misdeed) -> Option<Cue> {
    match misdeed {
        Misdeed::Rogue | Misdeed::Release => Some(Cue::Ended),
        Misdeed::Steal => Some(Cue::Began),
        Misdeed::Lose | Misdeed::Forge | Misdeed::Hasten | Misdeed::Forget | Misdeed::Doubt => None,
    }
}

/// What a worker does: one call.
pub fn part(seed: u64, misdeed: Misdeed, worker: u64) -> Part {
    let turn = match misdeed {
        Misdeed::Release | Misdeed::Forget if worker == 0 => Turn::Unknown,
        _ => Turn::Succeed,
    };
    let fate = match misdeed {
        // The claim is written, and nothing has been sent.
        Misdeed::Doubt => Fate::AtStep(Step::BeginWritten, 1),
        _ => Fate::Live,
    };
    let visit = Visit {
        intent: intent(seed, misdeed),
        turn,
        happens: true,
        before: Duration::ZERO,
        after: Duration::ZERO,
        wait: Duration::ZERO,
        leaves: None,
        misuse: false,
    };
    Part { visits: vec![visit], fate }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_misdeed_has_an_intent_that_suits_it() {
        for (name, misdeed) in Misdeed::ALL {
            assert_ne!(intent(7, misdeed), 0, "{name}");
        }
    }
}
