//! Records what clients were answered, and judges it. Every doubt is held, so nothing may happen twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::effects::Effects;
use crate::mcp::WITHOUT_KEY_PREFIX;
use crate::report::row;
use crate::rng::Rng;

/// How many keys stay in use: older ones are not asked for again before the end.
const KEYS_IN_USE: u64 = 60;

/// More violations are not printed.
const SHOWN: usize = 20;

/// An answer to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// It is done: the answer, which is the value of the effect.
    Done(String),
    /// An attempt may have happened.
    Doubt,
    /// Another client is at work.
    Busy,
    /// Nothing happened, and the client may retry.
    Refused,
    /// No answer: the process or the connection was gone.
    Nothing,
    /// An answer that a correct client never gets.
    Wrong(String),
}

#[derive(Debug, Default)]
struct KeyHistory {
    /// Every final answer.
    answers: BTreeSet<String>,
    in_doubt: bool,
}

#[derive(Debug, Default)]
struct State {
    histories: BTreeMap<String, KeyHistory>,
    next: u64,
    counts: BTreeMap<&'static str, u64>,
    settled: u64,
    violations: Vec<String>,
}

/// What clients asked and were answered.
#[derive(Debug, Default)]
pub struct Judge(Mutex<State>);

impl Judge {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A key to ask for: mostly a new one, sometimes one that another client has asked for.
    pub fn pick(&self, rng: &mut Rng) -> String {
        let mut state = self.state();
        if state.next > 0 && rng.one_in(3) {
            let back = rng.below(state.next.min(KEYS_IN_USE));
            return format!("k-{}", state.next - 1 - back);
        }
        state.next += 1;
        let key = format!("k-{}", state.next - 1);
        state.histories.entry(key.clone()).or_default();
        key
    }

    /// A client got an answer.
    pub fn record(&self, key: &str, response: &Response) {
        let mut state = self.state();
        *state.counts.entry(response.name()).or_default() += 1;
        let history = state.histories.entry(key.to_owned()).or_default();
        match response {
            Response::Done(text) => {
                history.answers.insert(text.clone());
                if history.answers.len() > 1 {
                    let answers = history.answers.clone();
                    state.violations.push(format!("{key}: two different answers: {answers:?}"));
                }
            }
            Response::Doubt => {
                let answers = history.answers.clone();
                history.in_doubt = true;
                if !answers.is_empty() {
                    state.violations.push(format!("{key}: answered {answers:?}, and later in doubt"));
                }
            }
            Response::Wrong(what) => state.violations.push(format!("{key}: answered {what}")),
            Response::Busy | Response::Refused | Response::Nothing => {}
        }
    }

    /// Every key that was asked for.
    pub fn keys(&self) -> Vec<String> {
        self.state().histories.keys().cloned().collect()
    }

    /// The answer to a client that asks for the last time, from a process that knows only the ledger.
    pub fn record_last(&self, key: &str, response: &Response) {
        let answer = self.state().histories.get(key).and_then(|history| history.answers.first().cloned());
        match (answer, response) {
            (Some(answer), Response::Done(text)) if answer == *text => {}
            (Some(answer), other) => self.violation(format!("{key}: answered {answer:?}, and at the end {other:?}")),
            (None, Response::Busy | Response::Nothing) => {
                self.violation(format!("{key}: never ends: answered {response:?} when nothing runs"));
            }
            (None, _) => self.record(key, response),
        }
    }

    /// A doubt was settled, and its client got this answer afterwards.
    pub fn settled(&self, key: &str, expected: &str, response: &Response) {
        self.state().settled += 1;
        match response {
            Response::Done(text) if text == expected => self.record(key, response),
            other => self.violation(format!("{key}: settled as {expected:?}, and then answered {other:?}")),
        }
    }

    /// Records a violation.
    pub fn violation(&self, what: String) {
        self.state().violations.push(what);
    }

    pub fn violations(&self) -> usize {
        self.state().violations.len()
    }

    /// Compares answers with effects. Without a policy that permits it, nothing happens twice; and an answer is the
    /// value of an effect of its own key.
    pub fn judge(&self, effects: &Effects) {
        let effects = effects.read();
        let mut state = self.state();
        let mut found = Vec::new();
        // Calls without keys are judged elsewhere.
        for (key, values) in effects.iter().filter(|(key, _)| !key.starts_with(WITHOUT_KEY_PREFIX)) {
            if values.len() > 1 {
                found.push(format!("{key}: happened {} times: {values:?}", values.len()));
            }
        }
        for (key, history) in &state.histories {
            let values = effects.get(key);
            for answer in history.answers.iter().filter(|answer| !values.is_some_and(|values| values.contains(answer)))
            {
                found.push(format!("{key}: answered {answer:?}, which is not what happened: {values:?}"));
            }
        }
        state.violations.extend(found);
    }

    /// One line of progress.
    pub fn line(&self) -> String {
        let state = self.state();
        format!("{} keys, {} violations", state.histories.len(), state.violations.len())
    }

    /// The summary.
    pub fn print(&self, effects: &Effects, took: Duration) {
        let state = self.state();
        row("seconds", took.as_secs());
        row("keys", state.histories.len() as u64);
        row("effects", effects.read().values().map(|values| values.len() as u64).sum());
        row(
            "keys with a final answer",
            state.histories.values().filter(|history| !history.answers.is_empty()).count() as u64,
        );
        row("keys answered in doubt", state.histories.values().filter(|history| history.in_doubt).count() as u64);
        row("doubts settled", state.settled);
        for (name, count) in &state.counts {
            row(&format!("answered: {name}"), *count);
        }
        for violation in state.violations.iter().take(SHOWN) {
            println!("VIOLATION {violation}");
        }
        row("violations", state.violations.len() as u64);
    }
}

impl Response {
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

    /// Whether a client retries.
    pub fn should_retry(&self) -> bool {
        matches!(self, Self::Busy | Self::Refused | Self::Nothing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(tell: impl FnOnce(&Judge), happen: &[(&str, &str)]) -> usize {
        let folder = tempfile::tempdir().unwrap();
        let effects = Effects::at(&folder.path().join("effects"));
        happen.iter().for_each(|(key, value)| effects.happen(key, value));
        let judge = Judge::default();
        tell(&judge);
        judge.judge(&effects);
        judge.violations()
    }

    fn done(text: &str) -> Response {
        Response::Done(text.to_owned())
    }

    #[test]
    fn each_rule_is_kept_by_one_story_and_broken_by_another() {
        assert_eq!(judged(|judge| judge.record("a", &done("1")), &[("a", "1")]), 0);
        assert_eq!(judged(|_| (), &[("a", "1"), ("a", "2")]), 1, "an effect twice");
        assert_eq!(judged(|judge| judge.record("a", &done("1")), &[]), 1, "an answer without an effect");
        assert_eq!(
            judged(|judge| judge.record("a", &done("2")), &[("a", "1"), ("b", "2")]),
            1,
            "the answer of another key"
        );
        let two = |judge: &Judge| ["1", "2"].iter().for_each(|text| judge.record("a", &done(text)));
        assert_eq!(judged(two, &[("a", "1"), ("a", "2")]), 2, "two answers and two effects");
        let later =
            |judge: &Judge| [done("1"), Response::Doubt].iter().for_each(|response| judge.record("a", response));
        assert_eq!(judged(later, &[("a", "1")]), 1, "a doubt about an intent that was answered as done");
    }

    #[test]
    fn at_the_end_answers_are_repeated_and_nothing_is_stuck() {
        let acknowledged = |last: Response| {
            move |judge: &Judge| {
                judge.record("a", &done("1"));
                judge.record_last("a", &last);
            }
        };
        assert_eq!(judged(acknowledged(done("1")), &[("a", "1")]), 0);
        assert_eq!(judged(acknowledged(Response::Busy), &[("a", "1")]), 1);
        assert_eq!(judged(|judge| judge.record_last("a", &Response::Busy), &[]), 1);
        assert_eq!(judged(|judge| judge.record_last("a", &Response::Doubt), &[]), 0);
        assert_eq!(judged(|judge| judge.settled("a", "1", &Response::Doubt), &[]), 1);
    }
}
