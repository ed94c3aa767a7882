//! What came out, round by round. Rounds are compared with themselves: what was measured in one lies close together in
//! time.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::super::pairs::Work;
use super::case::Case;
use super::load::Done;

/// One case, once; or the middle of all rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Figures {
    pub(super) requests_per_second: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    /// Of the process that was asked, and of nobody behind it. Null where the system does not tell.
    pub(super) cpu_us_per_request: Option<f64>,
}

impl Figures {
    #[expect(clippy::cast_precision_loss)]
    pub(super) fn of_load(done: &Done, processor: Option<Duration>) -> Self {
        let requests = done.requests.max(1) as f64;
        Self {
            requests_per_second: requests / done.seconds.max(f64::EPSILON),
            p50_us: done.p50_us,
            p99_us: done.p99_us,
            cpu_us_per_request: processor.map(|used| used.as_secs_f64() * 1e6 / requests),
        }
    }

    #[expect(clippy::cast_precision_loss)]
    pub(super) fn of_store(mut work: Work) -> Self {
        let pairs = work.pairs.len().max(1) as f64;
        Self {
            requests_per_second: work.per_second().unwrap_or_default(),
            p50_us: work.pairs.percentile(0.5).unwrap_or_default(),
            p99_us: work.pairs.percentile(0.99).unwrap_or_default(),
            cpu_us_per_request: Some(work.processor.as_secs_f64() * 1e6 / pairs),
        }
    }
}

/// Every case in every round.
#[derive(Debug, Default)]
pub(super) struct Rounds(BTreeMap<Case, Vec<Figures>>);

impl Rounds {
    pub(super) fn note(&mut self, case: Case, figures: Figures) {
        self.0.entry(case).or_default().push(figures);
    }

    /// The middle of every figure of a case.
    pub(super) fn middle(&self, case: Case) -> Option<Figures> {
        let rounds = self.0.get(&case)?;
        let of = |figure: fn(&Figures) -> f64| middle(rounds.iter().map(figure));
        Some(Figures {
            requests_per_second: of(|round| round.requests_per_second)?,
            p50_us: of(|round| round.p50_us)?,
            p99_us: of(|round| round.p99_us)?,
            cpu_us_per_request: middle(rounds.iter().filter_map(|round| round.cpu_us_per_request)),
        })
    }

    /// The middle of something that is worked out from several cases of one round.
    pub(super) fn across<const N: usize>(
        &self,
        cases: [Case; N],
        work_out: impl Fn([Figures; N]) -> Option<f64>,
    ) -> Option<f64> {
        let of: Vec<&Vec<Figures>> = cases.iter().filter_map(|case| self.0.get(case)).collect();
        let rounds = of.iter().map(|rounds| rounds.len()).min()?;
        let values = (0..rounds).filter_map(|round| {
            let figures: Vec<Figures> = of.iter().map(|rounds| rounds[round]).collect();
            // One that was left out leaves nothing to compare.
            work_out(figures.try_into().ok()?)
        });
        middle(values)
    }
}

/// The middle one; of an even number, the mean of the two in the middle; of nothing, nothing.
fn middle(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    let upper = sorted.get(half)?;
    Some(if sorted.len() % 2 == 1 { *upper } else { f64::midpoint(sorted[half - 1], *upper) })
}

#[cfg(test)]
pub(super) fn example(requests_per_second: f64, cpu: f64) -> Figures {
    Figures { requests_per_second, p50_us: 10.0, p99_us: 20.0, cpu_us_per_request: Some(cpu) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_not_the_mean() {
        assert_eq!(middle([9.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(middle([1.0, 2.0].into_iter()), Some(1.5));
        assert_eq!(middle([].into_iter()), None);
    }

    #[test]
    fn rounds_are_compared_with_themselves() {
        let mut rounds = Rounds::default();
        // The machine was busy in one round, for both.
        for busy in [1.0, 7.0, 1.0] {
            rounds.note(Case::Echo, example(100.0 / busy, 10.0 * busy));
            rounds.note(Case::ReplayOne, example(80.0 / busy, 12.0 * busy));
        }
        let ratio = rounds.across([Case::ReplayOne, Case::Echo], |[replay, echo]| {
            Some(replay.requests_per_second / echo.requests_per_second)
        });
        assert!((ratio.unwrap() - 0.8).abs() < 1e-9);
        assert_eq!(rounds.middle(Case::Echo).unwrap().requests_per_second, 100.0);
        assert_eq!(rounds.across([Case::Nginx, Case::Echo], |_| Some(1.0)), None);
        assert_eq!(rounds.middle(Case::Nginx), None);
    }
}
