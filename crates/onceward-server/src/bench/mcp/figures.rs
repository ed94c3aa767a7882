//! What came out of one case.

use std::time::Duration;

use serde::Serialize;

use super::super::rounds;
use super::super::samples::Samples;
use super::case::{Case, Load, Step};
use super::client::Done;

/// One case, once; or the middle of all rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Figures {
    pub(super) calls_per_second: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    /// Of the process that was asked, and of nobody behind it. Null where the system does not tell.
    pub(super) cpu_us_per_call: Option<f64>,
}

/// Every step in every round.
pub(super) type Rounds = rounds::Rounds<Step, Figures>;

impl Figures {
    #[expect(clippy::cast_precision_loss)]
    pub(super) fn of_calls(done: Done, processor: Option<Duration>) -> Option<Self> {
        let Done { times, seconds } = done;
        let calls = times.len().max(1) as f64;
        let cpu_us_per_call = processor.map(|used| used.as_secs_f64() * 1e6 / calls);
        Some(Self { cpu_us_per_call, ..Self::of(times, seconds)? })
    }

    /// `None` without any.
    #[expect(clippy::cast_precision_loss)]
    pub(super) fn of(mut times: Samples, seconds: f64) -> Option<Self> {
        Some(Self {
            calls_per_second: times.len() as f64 / seconds.max(f64::EPSILON),
            p50_us: times.percentile(0.5)?,
            p99_us: times.percentile(0.99)?,
            cpu_us_per_call: None,
        })
    }

    /// The middle of every figure of a step.
    pub(super) fn middle(rounds: &Rounds, step: Step) -> Option<Self> {
        Some(Self {
            calls_per_second: rounds.middle(&step, |round| Some(round.calls_per_second))?,
            p50_us: rounds.middle(&step, |round| Some(round.p50_us))?,
            p99_us: rounds.middle(&step, |round| Some(round.p99_us))?,
            cpu_us_per_call: rounds.middle(&step, |round| round.cpu_us_per_call),
        })
    }
}

/// What half of the calls take longer than direct ones, at most: the middle of what it was in each round.
pub(super) fn added(rounds: &Rounds, case: Case, load: Load) -> Option<f64> {
    let steps = [Step::Calls(case, load), Step::Calls(Case::Direct, load)];
    rounds.across(steps, |[case, direct]| Some(case.p50_us - direct.p50_us))
}

#[cfg(test)]
pub(super) fn example(p50_us: f64) -> Figures {
    Figures { calls_per_second: 1.0, p50_us, p99_us: p50_us * 2.0, cpu_us_per_call: None }
}
