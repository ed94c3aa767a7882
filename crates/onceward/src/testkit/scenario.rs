//! The scenarios: what can go wrong around a call. Each is one line of the report.

use std::fmt;

use super::step::Step;

/// One way to call a tool, with or without a disturbance.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scenario {
    /// One undisturbed call.
    Once,
    /// This many calls, one after the other.
    Repeats(usize),
    /// This many calls at the same time.
    AtOnce(usize),
    /// The provider acts and its response is lost; then the call is repeated.
    LostAnswer {
        /// Which effect, where the tool has several.
        of: Option<String>,
    },
    /// The provider refuses before it acts; then the call is repeated.
    Refused {
        /// Which effect, where the tool has several.
        of: Option<String>,
    },
    /// The process dies at this step; another one repeats the call once the lease is over.
    Killed(Step),
    /// The caller gives up at this step and repeats the call; the process stays alive.
    GivenUp(Step),
    /// The process is paused at this step until its lease is over and another process has repeated the call; then it continues.
    Paused(Step),
}

/// The kinds of scenarios.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScenarioKind {
    /// [`Scenario::Repeats`].
    Repeats,
    /// [`Scenario::AtOnce`].
    AtOnce,
    /// [`Scenario::LostAnswer`].
    LostAnswer,
    /// [`Scenario::Refused`].
    Refused,
    /// [`Scenario::Killed`], at every step.
    Killed,
    /// [`Scenario::GivenUp`], at every step.
    GivenUp,
    /// [`Scenario::Paused`], at every step.
    Paused,
}

impl Scenario {
    /// The kind of the scenario. The single undisturbed call has none, and always runs.
    pub fn kind(&self) -> Option<ScenarioKind> {
        match self {
            Self::Once => None,
            Self::Repeats(_) => Some(ScenarioKind::Repeats),
            Self::AtOnce(_) => Some(ScenarioKind::AtOnce),
            Self::LostAnswer { .. } => Some(ScenarioKind::LostAnswer),
            Self::Refused { .. } => Some(ScenarioKind::Refused),
            Self::Killed(_) => Some(ScenarioKind::Killed),
            Self::GivenUp(_) => Some(ScenarioKind::GivenUp),
            Self::Paused(_) => Some(ScenarioKind::Paused),
        }
    }

    /// Nothing is disturbed in this scenario, so nothing can be in doubt.
    pub(super) fn is_undisturbed(&self) -> bool {
        matches!(self, Self::Once | Self::Repeats(_) | Self::AtOnce(_))
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |of: &Option<String>| of.as_ref().map(|of| format!(" ({of})")).unwrap_or_default();
        match self {
            Self::Once => f.write_str("called once"),
            Self::Repeats(times) => write!(f, "called {times} times"),
            Self::AtOnce(times) => write!(f, "called {times} times at once"),
            Self::LostAnswer { of } => write!(f, "the provider acts{} and its answer is lost", named(of)),
            Self::Refused { of } => write!(f, "the provider refuses before it acts{}", named(of)),
            Self::Killed(step) => write!(f, "killed {step}"),
            Self::GivenUp(step) => write!(f, "given up {step}"),
            Self::Paused(step) => write!(f, "paused {step}"),
        }
    }
}
