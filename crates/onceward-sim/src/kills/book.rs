//! What clients were told, and which rules that broke. Every doubt is held, so nothing may happen twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::effects::Effects;
use crate::dice::Dice;
use crate::mcp::MEANT;

/// How many keys stay in play: older ones are not asked for again before the end.
const IN_PLAY: u64 = 60;

/// More violations than this say nothing new.
const SHOWN: usize = 20;

/// What a client was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// It is done: the answer, which is the value of the effect.
    Done(String),
    /// An attempt may have happened.
    Doubt,
    /// Another client is at it.
    Busy,
    /// Nothing happened, and it may be tried again.
    Refused,
    /// Nothing: the process or the connection was gone.
    Nothing,
    /// What a right client is never told.
    Wrong(String),
}

#[derive(Debug, Default)]
struct Page {
    /// Every final answer that was given.
    answers: BTreeSet<String>,
    in_doubt: bool,
}

#[derive(Debug, Default)]
struct State {
    pages: BTreeMap<String, Page>,
    next: u64,
    told: BTreeMap<&'static str, u64>,
    settled: u64,
    violations: Vec<String>,
}

/// Everything that clients asked and were told.
#[derive(Debug, Default)]
pub struct Book(Mutex<State>);

impl Book {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A key to ask for: mostly a new one, sometimes one that another client has asked for.
    pub fn pick(&self, dice: &mut Dice) -> String {
        let mut state = self.state();
        if state.next > 0 && dice.one_in(3) {
            let back = dice.below(state.next.min(IN_PLAY));
            return format!("k-{}", state.next - 1 - back);
        }
        state.next += 1;
        let key = format!("k-{}", state.next - 1);
        state.pages.entry(key.clone()).or_default();
        key
    }

    /// A client was told something.
    pub fn told(&self, key: &str, told: &Told) {
        let mut state = self.state();
        *state.told.entry(told.name()).or_default() += 1;
        let page = state.pages.entry(key.to_owned()).or_default();
        match told {
            Told::Done(text) => {
                page.answers.insert(text.clone());
                if page.answers.len() > 1 {
                    let answers = page.answers.clone();
                    state.violations.push(format!("{key}: two different answers: {answers:?}"));
                }
            }
            Told::Doubt => {
                let answers = page.answers.clone();
                page.in_doubt = true;
                if !answers.is_empty() {
                    state.violations.push(format!("{key}: told {answers:?}, and later that it is in doubt"));
                }
            }
            Told::Wrong(what) => state.violations.push(format!("{key}: told {what}")),
            Told::Busy | Told::Refused | Told::Nothing => {}
        }
    }

    /// Every key that was asked for.
    pub fn keys(&self) -> Vec<String> {
        self.state().pages.keys().cloned().collect()
    }

    /// What was told to a client that asks for the last time, from a process that knows nothing but the ledger.
    pub fn told_at_the_end(&self, key: &str, told: &Told) {
        let answer = self.state().pages.get(key).and_then(|page| page.answers.first().cloned());
        match (answer, told) {
            (Some(answer), Told::Done(text)) if answer == *text => {}
            (Some(answer), other) => self.violation(format!("{key}: told {answer:?}, and at the end {other:?}")),
            (None, Told::Busy | Told::Nothing) => {
                self.violation(format!("{key}: never comes to an end: told {told:?} when nothing runs"));
            }
            (None, _) => self.told(key, told),
        }
    }

    /// A doubt was settled, and its client was told this afterwards.
    pub fn settled(&self, key: &str, expected: &str, told: &Told) {
        self.state().settled += 1;
        match told {
            Told::Done(text) if text == expected => self.told(key, told),
            other => self.violation(format!("{key}: settled as {expected:?}, and then told {other:?}")),
        }
    }

    /// Something that must not be.
    pub fn violation(&self, what: String) {
        self.state().violations.push(what);
    }

    pub fn violations(&self) -> usize {
        self.state().violations.len()
    }

    /// Compares what was told with what happened. Without a policy that permits it, nothing happens twice; and an answer is
    /// the value of an effect of that very key.
    pub fn judge(&self, effects: &Effects) {
        let effects = effects.read();
        let mut state = self.state();
        let mut found = Vec::new();
        // Those of calls without keys are judged elsewhere.
        for (key, values) in effects.iter().filter(|(key, _)| !key.starts_with(MEANT)) {
            if values.len() > 1 {
                found.push(format!("{key}: happened {} times: {values:?}", values.len()));
            }
        }
        for (key, page) in &state.pages {
            let values = effects.get(key);
            for answer in page.answers.iter().filter(|answer| !values.is_some_and(|values| values.contains(answer))) {
                found.push(format!("{key}: told {answer:?}, which is not what happened: {values:?}"));
            }
        }
        state.violations.extend(found);
    }

    /// One line of progress.
    pub fn line(&self) -> String {
        let state = self.state();
        format!("{} keys, {} violations", state.pages.len(), state.violations.len())
    }

    /// The summary.
    pub fn print(&self, effects: &Effects, took: Duration) {
        let state = self.state();
        let line = |name: &str, number: u64| println!("{name:<46}{number:>10}");
        line("seconds", took.as_secs());
        line("keys", state.pages.len() as u64);
        line("effects", effects.read().values().map(|values| values.len() as u64).sum());
        line("keys with a final answer", state.pages.values().filter(|page| !page.answers.is_empty()).count() as u64);
        line("keys told to be in doubt", state.pages.values().filter(|page| page.in_doubt).count() as u64);
        line("doubts settled", state.settled);
        for (name, count) in &state.told {
            line(&format!("told: {name}"), *count);
        }
        for violation in state.violations.iter().take(SHOWN) {
            println!("VIOLATION {violation}");
        }
        line("violations", state.violations.len() as u64);
    }
}

impl Told {
    fn name(&self) -> &'static str {
        match self {
            Self::Done(_) => "done",
            Self::Doubt => "in doubt",
            Self::Busy => "in flight",
            Self::Refused => "refused",
            Self::Nothing => "nothing",
            Self::Wrong(_) => "something wrong",
        }
    }

    /// Whether a client tries again.
    pub fn is_to_be_asked_again(&self) -> bool {
        matches!(self, Self::Busy | Self::Refused | Self::Nothing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(tell: impl FnOnce(&Book), happen: &[(&str, &str)]) -> usize {
        let folder = tempfile::tempdir().unwrap();
        let effects = Effects::at(&folder.path().join("effects"));
        happen.iter().for_each(|(key, value)| effects.happen(key, value));
        let book = Book::default();
        tell(&book);
        book.judge(&effects);
        book.violations()
    }

    fn done(text: &str) -> Told {
        Told::Done(text.to_owned())
    }

    #[test]
    fn each_rule_is_kept_by_one_story_and_broken_by_another() {
        assert_eq!(judged(|book| book.told("a", &done("1")), &[("a", "1")]), 0);
        assert_eq!(judged(|_| (), &[("a", "1"), ("a", "2")]), 1, "an effect twice");
        assert_eq!(judged(|book| book.told("a", &done("1")), &[]), 1, "an answer without an effect");
        assert_eq!(
            judged(|book| book.told("a", &done("2")), &[("a", "1"), ("b", "2")]),
            1,
            "the answer of another key"
        );
        let two = |book: &Book| ["1", "2"].iter().for_each(|text| book.told("a", &done(text)));
        assert_eq!(judged(two, &[("a", "1"), ("a", "2")]), 2, "two answers and two effects");
        let later = |book: &Book| [done("1"), Told::Doubt].iter().for_each(|told| book.told("a", told));
        assert_eq!(judged(later, &[("a", "1")]), 1, "a doubt about what was told to be done");
    }

    #[test]
    fn at_the_end_answers_are_repeated_and_nothing_is_stuck() {
        let acknowledged = |last: Told| {
            move |book: &Book| {
                book.told("a", &done("1"));
                book.told_at_the_end("a", &last);
            }
        };
        assert_eq!(judged(acknowledged(done("1")), &[("a", "1")]), 0);
        assert_eq!(judged(acknowledged(Told::Busy), &[("a", "1")]), 1);
        assert_eq!(judged(|book| book.told_at_the_end("a", &Told::Busy), &[]), 1);
        assert_eq!(judged(|book| book.told_at_the_end("a", &Told::Doubt), &[]), 0);
        assert_eq!(judged(|book| book.settled("a", "1", &Told::Doubt), &[]), 1);
    }
}
