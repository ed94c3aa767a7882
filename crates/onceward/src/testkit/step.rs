//! The steps of a call at which a scenario can stop it: before and after each write of the ledger, and before and after
//! each effect.

use std::fmt;

/// A place in a call at which a process may die, pause, or be given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Before or after what.
    pub side: Side,
    /// What is done at this place.
    pub moment: Moment,
    /// Which effect or operation, where the tool has several.
    pub of: Option<String>,
    /// Which time, from 1, where a call comes by the same place more than once.
    pub nth: usize,
}

/// On which side of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It is about to be done.
    Before,
    /// It is done, and nobody in the process knows yet.
    After,
}

/// What a call does at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Moment {
    /// The claim is written.
    Claim,
    /// `sent` is marked.
    Sent,
    /// The provider acts.
    Effect,
    /// The other side knew of nothing, and that is written.
    NotFound,
    /// The outcome is written.
    Outcome,
    /// The claim is given back.
    Release,
    /// The doubt is written.
    Doubt,
}

impl Step {
    pub(super) fn new(side: Side, moment: Moment, of: &str) -> Self {
        Self { side, moment, of: Some(of.to_owned()), nth: 1 }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.side {
            Side::Before => "before",
            Side::After => "after",
        };
        let (what, done) = match self.moment {
            Moment::Claim => ("the claim", " is written"),
            Moment::Sent => ("`sent`", " is marked"),
            Moment::Effect => ("the effect", ""),
            Moment::NotFound => ("\"not found\"", " is written"),
            Moment::Outcome => ("the outcome", " is written"),
            Moment::Release => ("the claim", " is given back"),
            Moment::Doubt => ("the doubt", " is written"),
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

/// The steps of one undisturbed call, named so that a reader can tell them apart and no longer than that.
pub(super) fn named(mut trace: Vec<Step>) -> Vec<Step> {
    for effect in [true, false] {
        let is_kind = |step: &Step| (step.moment == Moment::Effect) == effect;
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
        let same = |other: &&Step| other.side == step.side && other.moment == step.moment && other.of == step.of;
        step.nth = before.iter().filter(same).count() + 1;
    }
    trace
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_long_as_they_have_to_be() {
        let step = |moment, of| Step::new(Side::Before, moment, of);
        let one = named(vec![step(Moment::Claim, "pay"), step(Moment::Effect, "charge"), step(Moment::Outcome, "pay")]);
        let texts: Vec<_> = one.iter().map(Step::to_string).collect();
        assert_eq!(texts, ["before the claim is written", "before the effect", "before the outcome is written"]);

        let two = named(vec![
            step(Moment::Claim, "pay"),
            step(Moment::Effect, "charge"),
            step(Moment::Effect, "mail"),
            step(Moment::Claim, "pay"),
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
