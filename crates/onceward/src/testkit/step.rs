//! The steps at which a scenario can stop a call: before and after each write of the ledger, and before and after each effect.

use std::fmt;

/// A point in a call at which a process may die, pause, or lose its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Before or after it.
    pub side: Side,
    /// What the call does at this step.
    pub kind: StepKind,
    /// Which effect or operation, if the tool has several.
    pub of: Option<String>,
    /// The count, from 1, if a call passes the same step more than once.
    pub nth: usize,
}

/// Before or after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The step is about to be done.
    Before,
    /// The step is done, and the process does not know it yet.
    After,
}

/// What a call does at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepKind {
    /// The claim is written.
    Claim,
    /// `sent` is marked.
    Sent,
    /// The provider acts.
    Effect,
    /// A probe found nothing, and this is written.
    NotFound,
    /// The outcome is written.
    Outcome,
    /// The claim is released.
    Release,
    /// The doubt is written.
    Doubt,
}

impl Step {
    pub(super) fn new(side: Side, kind: StepKind, of: &str) -> Self {
        Self { side, kind, of: Some(of.to_owned()), nth: 1 }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.side {
            Side::Before => "before",
            Side::After => "after",
        };
        let (what, done) = match self.kind {
            StepKind::Claim => ("the claim", " is written"),
            StepKind::Sent => ("`sent`", " is marked"),
            StepKind::Effect => ("the effect", ""),
            StepKind::NotFound => ("\"not found\"", " is written"),
            StepKind::Outcome => ("the outcome", " is written"),
            StepKind::Release => ("the claim", " is released"),
            StepKind::Doubt => ("the doubt", " is written"),
        };
        write!(f, "{side} {what}")?;
        if let Some(of) = &self.of {
            write!(f, " ({of})")?;
        }
        f.write_str(done)?;
        if self.nth > 1 {
            write!(f, " for the {}. time", self.nth)?;
        }
        Ok(())
    }
}

/// The steps of one undisturbed call, with the shortest names that are distinct.
pub(super) fn named(mut trace: Vec<Step>) -> Vec<Step> {
    for effect in [true, false] {
        let is_kind = |step: &Step| (step.kind == StepKind::Effect) == effect;
        let mut names: Vec<_> = trace.iter().filter(|step| is_kind(step)).map(|step| step.of.clone()).collect();
        names.sort();
        names.dedup();
        if names.len() == 1 {
            trace.iter_mut().filter(|step| is_kind(step)).for_each(|step| step.of = None);
        }
    }
    for index in 0..trace.len() {
        let (before, rest) = trace.split_at_mut(index);
        let step = &mut rest[0];
        let same = |other: &&Step| other.side == step.side && other.kind == step.kind && other.of == step.of;
        step.nth = before.iter().filter(same).count() + 1;
    }
    trace
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_only_as_long_as_needed_to_be_distinct() {
        let step = |kind, of| Step::new(Side::Before, kind, of);
        let one =
            named(vec![step(StepKind::Claim, "pay"), step(StepKind::Effect, "charge"), step(StepKind::Outcome, "pay")]);
        let texts: Vec<_> = one.iter().map(Step::to_string).collect();
        assert_eq!(texts, ["before the claim is written", "before the effect", "before the outcome is written"]);

        let two = named(vec![
            step(StepKind::Claim, "pay"),
            step(StepKind::Effect, "charge"),
            step(StepKind::Effect, "mail"),
            step(StepKind::Claim, "pay"),
        ]);
        let texts: Vec<_> = two.iter().map(Step::to_string).collect();
        assert_eq!(
            texts,
            [
                "before the claim is written",
                "before the effect (charge)",
                "before the effect (mail)",
                "before the claim is written for the 2. time"
            ]
        );
    }
}
