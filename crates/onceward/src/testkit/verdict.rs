//! Judges a scenario: did the effect happen once?

use std::collections::BTreeMap;
use std::fmt;

use super::call_result::CallResult;
use super::cause::{self, Cause};
use super::runner::ScenarioRun;
use super::scenario::Scenario;

/// The verdict on a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The effect happened once.
    Once,
    /// The effect did not happen, and the repeats were refused because the outcome is unknown.
    Held,
    /// The effect did not happen, and the caller knows it.
    NotDone,
    /// The effect happened more than once.
    Again,
    /// The effect never happened, and the caller does not know it.
    Never,
    /// A call panicked.
    Panicked,
    /// A call did not return in time.
    TimedOut,
    /// The scenario does not apply to this tool.
    NotTried,
}

impl Verdict {
    /// Whether this verdict is a failure of a tool whose effect must happen once.
    pub fn is_broken(self) -> bool {
        matches!(self, Self::Again | Self::Never | Self::Panicked | Self::TimedOut)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Once => "once",
            Self::Held => "held",
            Self::NotDone => "not done",
            Self::Again => "AGAIN",
            Self::Never => "NEVER",
            Self::Panicked => "PANICKED",
            Self::TimedOut => "TIMED OUT",
            Self::NotTried => "not tried",
        })
    }
}

/// How often the effects of a tool happened: the rarest and the most frequent one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) least: usize,
    pub(super) most: usize,
    /// The most frequent effect, if the tool has several.
    pub(super) of: Option<String>,
}

impl Tally {
    /// Compares with the effects of one undisturbed call. For a tool with one effect, every effect counts, whatever its name; for
    /// a tool with several, effects with unexpected names are added to the most frequent one.
    pub(super) fn of(expected: &BTreeMap<String, usize>, happened: &BTreeMap<String, usize>) -> Self {
        let total: usize = happened.values().sum();
        if expected.len() <= 1 {
            return Self { least: total, most: total, of: None };
        }
        let times = |what: &String| happened.get(what).copied().unwrap_or_default();
        let least = expected.keys().map(times).min().unwrap_or_default();
        let (most, of) = expected.keys().map(|what| (times(what), what)).max().unzip();
        let known: usize = expected.keys().map(times).sum();
        let unexpected = happened.keys().find(|what| !expected.contains_key(*what));
        let of = unexpected.or(of).cloned();
        Self { least, most: most.unwrap_or_default() + total - known, of }
    }
}

/// Judges a scenario, and finds the cause if it failed.
pub(super) fn judge(
    scenario: &Scenario,
    run: &ScenarioRun,
    undisturbed: &ScenarioRun,
) -> (Tally, Verdict, Option<Cause>) {
    let tally = Tally::of(&undisturbed.happened, &run.happened);
    let last = run.results.last();
    let verdict = if tally.most > 1 {
        Verdict::Again
    } else if run.results.iter().any(|result| matches!(result, CallResult::Panicked(_))) {
        Verdict::Panicked
    } else if run.results.contains(&CallResult::TimedOut) {
        Verdict::TimedOut
    } else if tally.least == 1 {
        Verdict::Once
    } else {
        match (scenario, last) {
            (scenario, Some(CallResult::Held)) if !scenario.is_undisturbed() => Verdict::Held,
            (
                Scenario::Refused { .. },
                Some(CallResult::Refused(_) | CallResult::Failed(_) | CallResult::ReplayedFailure),
            ) => Verdict::NotDone,
            _ => Verdict::Never,
        }
    };
    let cause = match verdict {
        Verdict::Again if *scenario == Scenario::Once => Some(Cause::TwiceInOneCall),
        Verdict::Never if *scenario == Scenario::Once => Some(Cause::Unseen),
        Verdict::Again => Some(cause::of_repeated_effect(&undisturbed.log, &run.log, tally.of.as_deref())),
        Verdict::Never => Some(cause::of_missing_effect(&undisturbed.log, &run.log, last)),
        Verdict::Panicked => Some(Cause::Panicked),
        Verdict::TimedOut => Some(Cause::TimedOut),
        Verdict::Once | Verdict::Held | Verdict::NotDone | Verdict::NotTried => None,
    };
    (tally, verdict, cause)
}
