//! The middle of all rounds: of one system on one ground.

use crate::figures::{Figures, Spread};
use crate::plan::{Ground, System};
use crate::run::Results;

/// The middle of a figure that all systems have.
pub fn spread(results: &Results, ground: Ground, system: System, figure: fn(&Figures) -> f64) -> Option<Spread> {
    let samples = results.samples.iter().filter(|sample| sample.ground == ground && sample.system == system);
    Spread::of(samples.map(|sample| figure(&sample.figures)))
}

/// The middle of a figure that only `onceward bench store` gives.
pub fn own(results: &Results, ground: Ground, name: &str) -> Option<Spread> {
    let samples = results.samples.iter().filter(|sample| sample.ground == ground && sample.system == System::Onceward);
    Spread::of(samples.filter_map(|sample| sample.extra.get(name).copied()))
}

/// How many times as many pairs Onceward did: the middle of the ratios of each round, because samples of one round lie
/// close together in time.
pub fn times(results: &Results, ground: Ground, peer: System) -> Option<Spread> {
    let pairs = |round: usize, system: System| {
        let of_round =
            |sample: &&crate::run::Sample| sample.round == round && sample.ground == ground && sample.system == system;
        results.samples.iter().find(of_round).map(|sample| sample.figures.pairs_per_second)
    };
    let ratios = (0..results.rounds).filter_map(|round| Some(pairs(round, System::Onceward)? / pairs(round, peer)?));
    Spread::of(ratios)
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn the_middle_round_counts() {
        let results = example();
        let pairs = spread(&results, Ground::Tmpfs, System::RedisAlways, |figures| figures.pairs_per_second);
        assert!((pairs.unwrap().median - 22_000.0).abs() < 1e-6);
        assert!((own(&results, Ground::Disk, "fsync_p50_us").unwrap().median - 100.0).abs() < 1e-6);
        assert_eq!(own(&results, Ground::Disk, "other"), None);
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let mut results = example();
        // In one round the machine was busy with something else, for everybody.
        for sample in results.samples.iter_mut().filter(|sample| sample.round == 1) {
            sample.figures.pairs_per_second /= 7.0;
        }
        let calm = times(&results, Ground::Tmpfs, System::RedisAlways).unwrap();
        assert!((calm.least - 3.0).abs() < 1e-6 && (calm.most - 3.0).abs() < 1e-6, "{calm:?}");
        // In another one only Redis was faster.
        for sample in results.samples.iter_mut().filter(|sample| sample.round == 2) {
            if sample.system == System::RedisAlways {
                sample.figures.pairs_per_second *= 2.0;
            }
        }
        let faster = times(&results, Ground::Tmpfs, System::RedisAlways).unwrap();
        assert!((faster.least - 1.5).abs() < 1e-6 && (faster.median - 3.0).abs() < 1e-6, "{faster:?}");
    }

    #[test]
    fn what_was_not_measured_has_no_ratio() {
        let mut results = example();
        results.samples.retain(|sample| sample.system != System::Postgres);
        assert_eq!(times(&results, Ground::Tmpfs, System::Postgres), None);
    }
}
