//! What a scenario came to, against what may be expected of it.

use std::collections::BTreeMap;
use std::fmt;

use super::answer::Answer;
use super::cause::{self, Cause};
use super::scenario::Scenario;
use super::stage::Trial;

/// What came of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It happened once.
    Once,
    /// It did not happen, and the repeats were told that it is in doubt: nobody could know.
    Held,
    /// It did not happen, and the caller was told so.
    NotDone,
    /// It happened more than once.
    Again,
    /// It never happened, and nobody was told.
    Never,
    /// A call panicked.
    Panicked,
    /// A call did not come back.
    Silent,
    /// The scenario could not be played with this tool.
    NotTried,
}

impl Verdict {
    /// Whether an effect that must happen once may end like this.
    pub fn is_broken(self) -> bool {
        matches!(self, Self::Again | Self::Never | Self::Panicked | Self::Silent)
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
            Self::Silent => "SILENT",
            Self::NotTried => "not tried",
        })
    }
}

/// How often the effects of a tool happened: the one that happened least, and the one that happened most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) least: usize,
    pub(super) most: usize,
    /// The one that happened most, where the tool has several.
    pub(super) of: Option<String>,
}

impl Tally {
    /// Counts against the effects of one undisturbed call. Of a tool with one effect everything counts, however it is
    /// called; of one with several, what has a new name counts on top.
    pub(super) fn of(expected: &BTreeMap<String, usize>, happened: &BTreeMap<String, usize>) -> Self {
        let total: usize = happened.values().sum();
        if expected.len() <= 1 {
            return Self { least: total, most: total, of: None };
        }
        let times = |what: &String| happened.get(what).copied().unwrap_or_default();
        let least = expected.keys().map(times).min().unwrap_or_default();
        let (most, of) = expected.keys().map(|what| (times(what), what)).max().unzip();
        let known: usize = expected.keys().map(times).sum();
        let strange = happened.keys().find(|what| !expected.contains_key(*what));
        let of = strange.or(of).cloned();
        Self { least, most: most.unwrap_or_default() + total - known, of }
    }
}

/// Judges a scenario, and says why it went wrong if it did.
pub(super) fn judge(scenario: &Scenario, trial: &Trial, undisturbed: &Trial) -> (Tally, Verdict, Option<Cause>) {
    let tally = Tally::of(&undisturbed.happened, &trial.happened);
    let last = trial.answers.last();
    let verdict = if tally.most > 1 {
        Verdict::Again
    } else if trial.answers.iter().any(|answer| matches!(answer, Answer::Panicked(_))) {
        Verdict::Panicked
    } else if trial.answers.contains(&Answer::Silent) {
        Verdict::Silent
    } else if tally.least == 1 {
        Verdict::Once
    } else {
        match (scenario, last) {
            (scenario, Some(Answer::Held)) if !scenario.is_calm() => Verdict::Held,
            (Scenario::Refused { .. }, Some(Answer::Refused(_) | Answer::Failed(_) | Answer::ReplayedFailure)) => {
                Verdict::NotDone
            }
            _ => Verdict::Never,
        }
    };
    let cause = match verdict {
        Verdict::Again if *scenario == Scenario::Once => Some(Cause::TwiceInOneCall),
        Verdict::Never if *scenario == Scenario::Once => Some(Cause::Unseen),
        Verdict::Again => Some(cause::of_again(&undisturbed.log, &trial.log, tally.of.as_deref())),
        Verdict::Never => Some(cause::of_never(&undisturbed.log, &trial.log, last)),
        Verdict::Panicked => Some(Cause::Panicked),
        Verdict::Silent => Some(Cause::Silent),
        Verdict::Once | Verdict::Held | Verdict::NotDone | Verdict::NotTried => None,
    };
    (tally, verdict, cause)
}
