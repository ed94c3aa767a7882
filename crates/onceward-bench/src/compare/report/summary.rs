//! The median of all rounds, for one system on one storage.

use crate::figures::{Figures, Spread};
use crate::plan::{Storage, System};
use crate::run::Results;

/// The median of a figure that all systems have.
pub fn spread(results: &Results, storage: Storage, system: System, figure: fn(&Figures) -> f64) -> Option<Spread> {
    let samples = results.samples.iter().filter(|sample| sample.storage == storage && sample.system == system);
    Spread::of(samples.map(|sample| figure(&sample.figures)))
}

/// The median of a figure that only `onceward bench store` reports.
pub fn onceward_figure(results: &Results, storage: Storage, name: &str) -> Option<Spread> {
    let samples =
        results.samples.iter().filter(|sample| sample.storage == storage && sample.system == System::Onceward);
    Spread::of(samples.filter_map(|sample| sample.extra.get(name).copied()))
}

/// Onceward's pairs relative to those of a system: the median of the ratios of each round, because samples of one round lie
/// close together in time.
pub fn times(results: &Results, storage: Storage, peer: System) -> Option<Spread> {
    let pairs = |round: usize, system: System| {
        let of_round = |sample: &&crate::run::Sample| {
            sample.round == round && sample.storage == storage && sample.system == system
        };
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
    fn the_median_round_is_reported() {
        let results = example();
        let pairs = spread(&results, Storage::Tmpfs, System::RedisAlways, |figures| figures.pairs_per_second);
        assert!((pairs.unwrap().median - 22_000.0).abs() < 1e-6);
        assert!((onceward_figure(&results, Storage::Disk, "fsync_p50_us").unwrap().median - 100.0).abs() < 1e-6);
        assert_eq!(onceward_figure(&results, Storage::Disk, "other"), None);
    }

    #[test]
    fn ratios_are_computed_within_a_round() {
        let mut results = example();
        // In one round the machine was busy, which affects all systems.
        for sample in results.samples.iter_mut().filter(|sample| sample.round == 1) {
            sample.figures.pairs_per_second /= 7.0;
        }
        let calm = times(&results, Storage::Tmpfs, System::RedisAlways).unwrap();
        assert!((calm.least - 3.0).abs() < 1e-6 && (calm.most - 3.0).abs() < 1e-6, "{calm:?}");
        // In another round only Redis was faster.
        for sample in results.samples.iter_mut().filter(|sample| sample.round == 2) {
            if sample.system == System::RedisAlways {
                sample.figures.pairs_per_second *= 2.0;
            }
        }
        let faster = times(&results, Storage::Tmpfs, System::RedisAlways).unwrap();
        assert!((faster.least - 1.5).abs() < 1e-6 && (faster.median - 3.0).abs() < 1e-6, "{faster:?}");
    }

    #[test]
    fn a_system_that_was_not_measured_has_no_ratio() {
        let mut results = example();
        results.samples.retain(|sample| sample.system != System::Postgres);
        assert_eq!(times(&results, Storage::Tmpfs, System::Postgres), None);
    }
}
