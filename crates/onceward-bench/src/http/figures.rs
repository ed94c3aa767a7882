//! The results of one case.

use std::time::Duration;

use serde::Serialize;

use super::super::pairs::PairSamples;
use super::super::rounds;
use super::case::Case;
use super::load::LoadResult;

/// One case in one round, or the median of all rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Figures {
    pub(super) requests_per_second: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    /// Processor time of the server under test, without the service behind it. Null if the system does not report it.
    pub(super) cpu_us_per_request: Option<f64>,
}

impl Figures {
    /// The median of every figure of a case.
    pub(super) fn median(rounds: &Rounds, case: Case) -> Option<Self> {
        Some(Self {
            requests_per_second: rounds.median(&case, |round| Some(round.requests_per_second))?,
            p50_us: rounds.median(&case, |round| Some(round.p50_us))?,
            p99_us: rounds.median(&case, |round| Some(round.p99_us))?,
            cpu_us_per_request: rounds.median(&case, |round| round.cpu_us_per_request),
        })
    }

    #[expect(clippy::cast_precision_loss)]
    pub(super) fn of_load(done: &LoadResult, processor: Option<Duration>) -> Self {
        let requests = done.requests.max(1) as f64;
        Self {
            requests_per_second: requests / done.seconds.max(f64::EPSILON),
            p50_us: done.p50_us,
            p99_us: done.p99_us,
            cpu_us_per_request: processor.map(|used| used.as_secs_f64() * 1e6 / requests),
        }
    }

    #[expect(clippy::cast_precision_loss)]
    pub(super) fn of_store(mut work: PairSamples) -> Self {
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
pub(super) type Rounds = rounds::Rounds<Case, Figures>;

#[cfg(test)]
pub(super) fn example(requests_per_second: f64, cpu: f64) -> Figures {
    Figures { requests_per_second, p50_us: 10.0, p99_us: 20.0, cpu_us_per_request: Some(cpu) }
}
