//! The aims, fixed before the measurement, and whether they are met.

use super::super::aim::{Aim, Unit};
use super::case::Case;
use super::figures::{Figures, Rounds};
use super::setup::Idle;

/// Percent of the bare echo. Replays come from memory and should cost little more than any other response.
const REPLAYS: f64 = 70.0;

/// An unguarded request should cost little more than with the leanest proxy.
const PASS_THROUGH: f64 = 1.5;

/// Allowance for reading, comparing and keeping a response, in addition to the store's own work.
const GUARDED_US: f64 = 40.0;

/// With [`IDLE`] connections.
const IDLE_MB: f64 = 200.0;
pub(super) const IDLE: u16 = 5_000;

/// All aims.
pub(super) fn all(rounds: &Rounds, idle: Option<&Idle>) -> Vec<Aim> {
    let rates = |replay: Case| {
        let share = |[replay, echo]: [Figures; 2]| Some(replay.requests_per_second / echo.requests_per_second * 100.0);
        rounds.median_across([replay, Case::Echo], share)
    };
    let times = rounds.median_across([Case::Unguarded, Case::Nginx], |[ours, nginx]| {
        Some(ours.cpu_us_per_request? / nginx.cpu_us_per_request?)
    });
    let over = rounds.median_across([Case::Guarded, Case::Unguarded, Case::StorePair], |[guarded, unguarded, pair]| {
        Some(guarded.cpu_us_per_request? - unguarded.cpu_us_per_request? - pair.cpu_us_per_request?)
    });
    let idle = idle.filter(|idle| idle.connections == IDLE).and_then(|idle| idle.after_mb);
    vec![
        Aim::at_least(
            "replays of one key: requests/s, at least 70 % of the bare echo",
            REPLAYS,
            Unit::Percent,
            rates(Case::ReplayOne),
        ),
        Aim::at_least(
            "replays of many keys: requests/s, at least 70 % of the bare echo",
            REPLAYS,
            Unit::Percent,
            rates(Case::ReplayMany),
        ),
        Aim::at_most("pass-through: CPU per request, at most 1.5 times nginx's", PASS_THROUGH, Unit::Times, times),
        Aim::at_most(
            "guarded: CPU per request over the pass-through, at most the store's pair + 40 µs",
            GUARDED_US,
            Unit::Us,
            over,
        ),
        Aim::at_most("5,000 idle connections: memory of the gateway, under 200 MB", IDLE_MB, Unit::Mb, idle),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::figures::example;
    use super::*;

    fn rounds(replay: f64, unguarded: f64, guarded: f64) -> Rounds {
        let mut rounds = Rounds::default();
        for (case, rate, cpu) in [
            (Case::Echo, 100.0, 10.0),
            (Case::Nginx, 50.0, 20.0),
            (Case::Unguarded, 40.0, unguarded),
            (Case::Guarded, 20.0, guarded),
            (Case::ReplayOne, replay, 12.0),
            (Case::ReplayMany, replay, 12.0),
            (Case::StorePair, 30.0, 35.0),
        ] {
            rounds.note(case, example(rate, cpu));
        }
        rounds
    }

    fn idle(connections: u16, after: f64) -> Idle {
        Idle { connections, before_mb: Some(9.0), after_mb: Some(after), not_measured: None }
    }

    #[test]
    fn every_aim_is_met_at_its_limit_and_missed_beyond() {
        let met: Vec<_> = all(&rounds(70.0, 30.0, 105.0), Some(&idle(IDLE, 200.0))).iter().map(|aim| aim.met).collect();
        assert_eq!(met, [Some(true); 5]);
        let missed = all(&rounds(69.0, 31.0, 107.0), Some(&idle(IDLE, 201.0)));
        assert_eq!(missed.iter().map(|aim| aim.met).collect::<Vec<_>>(), [Some(false); 5]);
        let texts: Vec<_> = missed.iter().map(Aim::text).collect();
        assert_eq!(
            texts,
            [
                "69.0 %, MISSED by 1.0 %",
                "69.0 %, MISSED by 1.0 %",
                "1.55 ×, MISSED by 0.05 ×",
                "41.0 µs, MISSED by 1.0 µs",
                "201.0 MB, MISSED by 1.0 MB"
            ]
        );
    }

    #[test]
    fn an_aim_that_was_not_measured_is_neither_met_nor_missed() {
        let few = all(&Rounds::default(), Some(&idle(100, 20.0)));
        assert!(few.iter().all(|aim| aim.met.is_none() && aim.text() == "not measured"));
    }
}
