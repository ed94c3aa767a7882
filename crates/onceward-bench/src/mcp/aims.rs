//! The aims, fixed before the measurement, and whether they are met.

use super::super::aim::{Aim, Unit};
use super::case::{Case, Load, Step};
use super::figures::{Rounds, added};

/// An unguarded call should not be noticeably slower.
const PASS_THROUGH_US: f64 = 200.0;

/// A claim and an outcome have to be on disk; everything else should not be noticeable either.
const GUARDED_US: f64 = 500.0;

/// All aims.
pub(super) fn all(rounds: &Rounds) -> Vec<Aim> {
    // Syncs at the pace of calls: after a pause they take longer than one right after the other.
    let steps = [Step::Calls(Case::Guarded, Load::One), Step::Synced];
    let beyond = rounds.median_across(steps, |[guarded, synced]| Some(guarded.p50_us - synced.p50_us));
    vec![
        Aim::at_most(
            "a tool that reads: added to a call (p50), at most 200 µs",
            PASS_THROUGH_US,
            Unit::Us,
            added(rounds, Case::PassThrough, Load::One),
        ),
        Aim::at_most(
            "a tool that acts: added to a call (p50), at most two syncs + 500 µs",
            GUARDED_US,
            Unit::Us,
            beyond,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::figures::example;
    use super::*;

    fn rounds(read: f64, acted: f64) -> Rounds {
        let mut rounds = Rounds::default();
        // In the second round the disk was slow, which the aim allows for.
        for sync in [100.0, 900.0, 110.0] {
            rounds.note(Step::Calls(Case::Direct, Load::One), example(20.0));
            rounds.note(Step::Calls(Case::PassThrough, Load::One), example(20.0 + read));
            rounds.note(Step::Calls(Case::Guarded, Load::One), example(20.0 + 2.0 * sync + acted));
            rounds.note(Step::Synced, example(20.0 + 2.0 * sync));
        }
        rounds
    }

    #[test]
    fn every_aim_is_met_at_its_limit_and_missed_beyond() {
        let told = |rounds: &Rounds| all(rounds).iter().map(Aim::text).collect::<Vec<_>>();
        assert_eq!(told(&rounds(200.0, 500.0)), ["200.0 µs, met", "500.0 µs, met"]);
        assert_eq!(told(&rounds(201.0, 502.0)), ["201.0 µs, MISSED by 1.0 µs", "502.0 µs, MISSED by 2.0 µs"]);
        assert_eq!(told(&Rounds::default()), ["not measured", "not measured"]);
    }
}
