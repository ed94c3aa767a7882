//! The results, round by round. Ratios are computed within a round, because its measurements lie close together in
//! time.

use std::collections::BTreeMap;

/// The figures of every case in every round.
#[derive(Debug)]
pub(super) struct Rounds<C, F>(BTreeMap<C, Vec<F>>);

impl<C, F> Default for Rounds<C, F> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<C: Ord, F: Copy> Rounds<C, F> {
    pub(super) fn note(&mut self, case: C, figures: F) {
        self.0.entry(case).or_default().push(figures);
    }

    /// The median of a figure of a case.
    pub(super) fn median(&self, case: &C, figure: impl Fn(&F) -> Option<f64>) -> Option<f64> {
        median(self.0.get(case)?.iter().filter_map(figure))
    }

    /// The median of a value that is computed from several cases of one round.
    pub(super) fn median_across<const N: usize>(
        &self,
        cases: [C; N],
        compute: impl Fn([F; N]) -> Option<f64>,
    ) -> Option<f64> {
        median(self.across(cases, compute).into_iter())
    }

    /// A value that is computed from several cases of one round, for each round.
    pub(super) fn across<const N: usize>(&self, cases: [C; N], compute: impl Fn([F; N]) -> Option<f64>) -> Vec<f64> {
        let of: Vec<&Vec<F>> = cases.iter().filter_map(|case| self.0.get(case)).collect();
        let rounds = of.iter().map(|rounds| rounds.len()).min().unwrap_or_default();
        let values = (0..rounds).filter_map(|round| {
            let figures: Vec<F> = of.iter().map(|rounds| rounds[round]).collect();
            // A case that was left out cannot be compared.
            compute(figures.try_into().ok()?)
        });
        values.collect()
    }
}

/// The order of one round. Every round starts at another case, and every other one runs backwards, so that no case always
/// runs under the same conditions.
pub(super) fn order<C: Copy>(cases: &[C], round: u32) -> Vec<C> {
    let mut order = cases.to_vec();
    if !order.is_empty() {
        let start = round as usize * 2 % order.len();
        order.rotate_left(start);
    }
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// The median; the mean of the two middle values of an even number; `None` without values.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    let upper = sorted.get(half)?;
    Some(if sorted.len() % 2 == 1 { *upper } else { f64::midpoint(sorted[half - 1], *upper) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_not_the_mean() {
        assert_eq!(median([9.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([1.0, 2.0].into_iter()), Some(1.5));
        assert_eq!(median([].into_iter()), None);
    }

    #[test]
    fn ratios_are_computed_within_a_round() {
        let mut rounds = Rounds::default();
        // The machine was busy in one round, which affects both cases.
        for busy in [1.0, 7.0, 1.0] {
            rounds.note("echo", 100.0 / busy);
            rounds.note("replay", 80.0 / busy);
        }
        let ratio = rounds.median_across(["replay", "echo"], |[replay, echo]| Some(replay / echo));
        assert!((ratio.unwrap() - 0.8).abs() < 1e-9);
        assert_eq!(rounds.median(&"echo", |rate| Some(*rate)), Some(100.0));
        assert_eq!(rounds.median_across(["nginx", "echo"], |_| Some(1.0)), None);
        assert_eq!(rounds.median(&"nginx", |rate| Some(*rate)), None);
    }

    #[test]
    fn every_round_has_every_case_in_a_different_order() {
        let cases = [1, 2, 3, 4, 5, 6, 7];
        let rounds: Vec<_> = (0..4).map(|round| order(&cases, round)).collect();
        for (number, round) in rounds.iter().enumerate() {
            let mut sorted = round.clone();
            sorted.sort();
            assert_eq!(sorted, cases);
            assert!(rounds[..number].iter().all(|earlier| earlier != round));
        }
        assert!(order::<u8>(&[], 3).is_empty());
    }
}
