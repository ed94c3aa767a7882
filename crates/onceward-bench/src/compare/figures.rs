//! The figures of one run, and the median of several runs.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// One system in one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Claims with their finishes, both acknowledged.
    pub pairs_per_second: f64,
    /// From the call to the claim.
    pub claim_p50_us: f64,
    /// The same, 99th percentile.
    pub claim_p99_us: f64,
    /// From the call to the stored outcome.
    pub pair_p50_us: f64,
    /// The same, 99th percentile.
    pub pair_p99_us: f64,
    /// Replays of finished work.
    pub replays_per_second: f64,
    /// Processor time of server and client together.
    pub cpu_us_per_pair: f64,
}

/// The median of several runs, with minimum and maximum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The median; the mean of the two middle values of an even number.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl Spread {
    /// `None` without values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) };
        Some(Self { median, least, most })
    }
}

/// The value at this percentile (nearest rank), in microseconds. Sorts the samples.
pub fn percentile(samples: &mut [Duration], share: f64) -> f64 {
    if samples.is_empty() {
        return 0.0;
    }
    samples.sort_unstable();
    let rank = (share * samples.len() as f64).ceil() as usize;
    samples[rank.clamp(1, samples.len()) - 1].as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_samples() {
        let mut samples: Vec<Duration> = (1..=100).rev().map(Duration::from_micros).collect();
        assert!((percentile(&mut samples, 0.50) - 50.0).abs() < 1e-9);
        assert!((percentile(&mut samples, 0.99) - 99.0).abs() < 1e-9);
        assert!((percentile(&mut samples, 1.0) - 100.0).abs() < 1e-9);
        let mut few = [Duration::from_micros(7), Duration::from_micros(3)];
        assert!((percentile(&mut few, 0.5) - 3.0).abs() < 1e-9);
        assert!((percentile(&mut few, 0.99) - 7.0).abs() < 1e-9);
        assert!(percentile(&mut [], 0.5).abs() < 1e-9);
    }

    #[test]
    fn the_median_is_not_the_mean() {
        let spread = Spread::of([100.0, 1.0, 3.0]);
        assert_eq!(spread, Some(Spread { median: 3.0, least: 1.0, most: 100.0 }));
        assert_eq!(Spread::of([1.0, 2.0]).map(|spread| spread.median), Some(1.5));
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([f64::NAN]), None);
    }
}
