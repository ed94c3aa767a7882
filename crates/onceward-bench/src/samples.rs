//! Durations and their percentiles. All of them are kept, so nothing is rounded into a bucket.

use std::time::Duration;

/// Durations in units of 100 nanoseconds: four bytes each, up to seven minutes.
#[derive(Debug, Default)]
pub(super) struct Samples(Vec<u32>);

impl Samples {
    pub(super) fn note(&mut self, duration: Duration) {
        self.0.push(u32::try_from(duration.as_nanos() / 100).unwrap_or(u32::MAX));
    }

    pub(super) fn add(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The value at this percentile, in microseconds; `None` without samples.
    pub(super) fn percentile(&mut self, share: f64) -> Option<f64> {
        let last = self.0.len().checked_sub(1)?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let index = ((last as f64) * share).round() as usize;
        let (_, value, _) = self.0.select_nth_unstable(index.min(last));
        Some(f64::from(*value) / 10.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_match_the_sorted_values() {
        let mut samples = Samples::default();
        for micros in (1..=101).rev() {
            samples.note(Duration::from_micros(micros));
        }
        assert_eq!(samples.percentile(0.0), Some(1.0));
        assert_eq!(samples.percentile(0.5), Some(51.0));
        assert_eq!(samples.percentile(0.99), Some(100.0));
        assert_eq!(samples.percentile(1.0), Some(101.0));
        assert_eq!(samples.len(), 101);
    }

    #[test]
    fn an_empty_set_has_no_percentile() {
        assert_eq!(Samples::default().percentile(0.5), None);
    }
}
