//! The results of one case.

use std::time::Duration;

use serde::Serialize;

use super::super::rounds;
use super::super::samples::Samples;
use super::case::{Case, Load, Step};
use super::client::SliceResult;

/// One case in one round, or the median of all rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Figures {
    pub(super) calls_per_second: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    /// Processor time of the process under test, without the server behind it. Null if the system does not report it.
    pub(super) cpu_us_per_call: Option<f64>,
}

/// Every step in every round.
pub(super) type Rounds = rounds::Rounds<Step, Figures>;

impl Figures {
    #[expect(clippy::cast_precision_loss)]
    pub(super) fn of_calls(done: SliceResult, processor: Option<Duration>) -> Option<Self> {
        let SliceResult { times, seconds } = done;
        let calls = times.len().max(1) as f64;
        let cpu_us_per_call = processor.map(|used| used.as_secs_f64() * 1e6 / calls);
        Some(Self { cpu_us_per_call, ..Self::of(times, seconds)? })
    }

    /// `None` without samples.
    #[expect(clippy::cast_precision_loss)]
    pub(super) fn of(mut times: Samples, seconds: f64) -> Option<Self> {
        Some(Self {
            calls_per_second: times.len() as f64 / seconds.max(f64::EPSILON),
            p50_us: times.percentile(0.5)?,
            p99_us: times.percentile(0.99)?,
            cpu_us_per_call: None,
        })
    }

    /// The median of every figure of a step.
    pub(super) fn median(rounds: &Rounds, step: Step) -> Option<Self> {
        Some(Self {
            calls_per_second: rounds.median(&step, |round| Some(round.calls_per_second))?,
            p50_us: rounds.median(&step, |round| Some(round.p50_us))?,
            p99_us: rounds.median(&step, |round| Some(round.p99_us))?,
            cpu_us_per_call: rounds.median(&step, |round| round.cpu_us_per_call),
        })
    }
}

/// The latency added to the median of direct calls: the median over all rounds.
pub(super) fn added(rounds: &Rounds, case: Case, load: Load) -> Option<f64> {
    let steps = [Step::Calls(case, load), Step::Calls(Case::Direct, load)];
    rounds.median_across(steps, |[case, direct]| Some(case.p50_us - direct.p50_us))
}

#[cfg(test)]
pub(super) fn example(p50_us: f64) -> Figures {
    Figures { calls_per_second: 1.0, p50_us, p99_us: p50_us * 2.0, cpu_us_per_call: None }
}
