//! Clients that send no keys. Each repeats a call until it is answered, and then makes the same call again on purpose.
//! The judge knows what they asked, what they were answered and what happened.
//!
//! A call without an answer happens once however often it is repeated, unless its client was told that the outcome is
//! unknown and asked again. A call on purpose happens again, unless the gateway died before it could record that its
//! answer arrived.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::TRIES;
use crate::kills::effects::Effects;
use crate::kills::judge::Response;
use crate::report::row;
use crate::rng::Rng;

/// The prefix of such calls in the file of effects.
pub const WITHOUT_KEY_PREFIX: &str = "m-";

/// Clients at once.
pub(super) const CLIENTS: u64 = 4;

/// The most times that one client makes the same call on purpose.
const MAX_CALLS: u64 = 4;

/// An answer that took longer may count as too late for its client.
const IN_TIME: Duration = Duration::from_secs(2);

/// The result of one try.
#[derive(Debug)]
pub(super) struct Tried {
    pub(super) response: Response,
    /// There was an answer, whatever it says.
    pub(super) answered: bool,
    /// The gateway that was asked: a new number for each start.
    pub(super) gateway: u64,
}

/// What is known of one call.
#[derive(Debug, Default)]
struct KeyHistory {
    /// How often it was made on purpose.
    on_purpose: usize,
    /// How often its client was told that it is unknown, or got an error, and asked again.
    unknown: usize,
    answers: Vec<String>,
}

#[derive(Debug, Default)]
struct State {
    histories: BTreeMap<String, KeyHistory>,
    repeated: u64,
    ran: u64,
    replayed: u64,
    violations: Vec<String>,
}

/// What clients asked without keys, and what they were answered.
#[derive(Debug, Default)]
pub(super) struct WithoutKeys(Mutex<State>);

impl WithoutKeys {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call that no client has made before.
    fn next(&self) -> String {
        let mut state = self.state();
        let name = format!("{WITHOUT_KEY_PREFIX}{}", state.histories.len());
        state.histories.insert(name.clone(), KeyHistory::default());
        name
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut KeyHistory)) {
        if let Some(history) = self.state().histories.get_mut(name) {
            change(history);
        }
    }

    /// One client, until the run is over. `ask` makes one try.
    pub(super) async fn live<Asking: Future<Output = Tried>>(
        &self,
        rng: &mut Rng,
        stopped: &AtomicBool,
        ask: impl Fn(String, u64) -> Asking,
    ) {
        while !stopped.load(Ordering::SeqCst) {
            let (name, slot) = (self.next(), rng.below(1000));
            let mut last: Option<(String, u64, bool)> = None;
            for _ in 0..=rng.below(MAX_CALLS) {
                self.change(&name, |history| history.on_purpose += 1);
                let began = Instant::now();
                let Some((value, gateway)) = self.answered(rng, &name, slot, &ask).await else { break };
                let in_time = began.elapsed() < IN_TIME;
                self.judge_answer(&name, last.as_ref(), &value, gateway);
                last = Some((value, gateway, in_time));
            }
        }
    }

    /// Asks until there is an answer. `None` when the client gives up.
    async fn answered<Asking: Future<Output = Tried>>(
        &self,
        rng: &mut Rng,
        name: &str,
        slot: u64,
        ask: &impl Fn(String, u64) -> Asking,
    ) -> Option<(String, u64)> {
        for attempt in 0..TRIES {
            let tried = ask(name.to_owned(), slot + attempt).await;
            match tried.response {
                Response::Done(value) => return Some((value, tried.gateway)),
                Response::Wrong(what) => self.state().violations.push(format!("{name}: answered {what}")),
                Response::Doubt => self.change(name, |history| history.unknown += 1),
                _ if tried.answered => self.change(name, |history| history.unknown += 1),
                _ => self.state().repeated += 1,
            }
            tokio::time::sleep(Duration::from_millis(rng.below(40))).await;
        }
        None
    }

    /// The answer to a call on purpose is not that of the last one, if the same gateway gave both.
    fn judge_answer(&self, name: &str, last: Option<&(String, u64, bool)>, value: &str, gateway: u64) {
        let mut state = self.state();
        match last {
            Some((response, by, in_time)) if response == value => {
                state.replayed += 1;
                if *by == gateway && *in_time {
                    state.violations.push(format!(
                        "{name}: {value:?} was answered, the call was made again on purpose, and did not run"
                    ));
                }
            }
            Some(_) => state.ran += 1,
            None => {}
        }
        state.histories.entry(name.to_owned()).or_default().answers.push(value.to_owned());
    }

    /// Compares answers with effects. Returns what is wrong.
    pub(super) fn judge(&self, effects: &Effects) -> Vec<String> {
        let happened = effects.read();
        let mut state = self.state();
        let mut wrong = std::mem::take(&mut state.violations);
        for (name, history) in &state.histories {
            let values = happened.get(name).map(Vec::as_slice).unwrap_or_default();
            if values.len() > history.on_purpose + history.unknown {
                let (on_purpose, unknown) = (history.on_purpose, history.unknown);
                wrong.push(format!(
                    "{name}: happened {} times, was made on purpose {on_purpose} times and answered as unknown {unknown} times",
                    values.len()
                ));
            }
            let untrue = history.answers.iter().filter(|response| !values.contains(response));
            wrong.extend(
                untrue.map(|response| format!("{name}: answered {response:?}, which is not what happened: {values:?}")),
            );
        }
        wrong
    }

    pub(super) fn print(&self) {
        let state = self.state();
        row("calls without a key", state.histories.len() as u64);
        row("calls without an answer, made again", state.repeated);
        row("calls after an answer that ran", state.ran);
        row("calls after an answer that got it again", state.replayed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(on_purpose: usize, unknown: usize, answers: &[&str], happened: &[&str]) -> usize {
        let folder = tempfile::tempdir().unwrap();
        let effects = Effects::at(&folder.path().join("effects"));
        happened.iter().for_each(|value| effects.happen("m-0", value));
        let judge = WithoutKeys::default();
        let answers = answers.iter().map(|response| (*response).to_owned()).collect();
        let name = judge.next();
        judge.change(&name, |history| *history = KeyHistory { on_purpose, unknown, answers });
        judge.judge(&effects).len()
    }

    #[test]
    fn each_rule_is_kept_by_one_story_and_broken_by_another() {
        assert_eq!(judged(1, 0, &["1"], &["1"]), 0);
        assert_eq!(judged(1, 0, &["1"], &["1", "2"]), 1, "a repeat of an unanswered call ran");
        assert_eq!(judged(1, 1, &["2"], &["1", "2"]), 0, "its client was told");
        assert_eq!(judged(2, 0, &["1", "2"], &["1", "2"]), 0, "it was made on purpose");
        assert_eq!(judged(1, 0, &["3"], &["1"]), 1, "an answer without an effect");
    }

    #[test]
    fn a_call_that_is_meant_again_must_run_where_the_same_gateway_lives() {
        let judge = WithoutKeys::default();
        let last = ("1".to_owned(), 7, true);
        judge.judge_answer("m-0", Some(&last), "2", 7);
        judge.judge_answer("m-0", Some(&last), "1", 8);
        assert_eq!(judge.state().violations.len(), 0);
        judge.judge_answer("m-0", Some(&last), "1", 7);
        assert_eq!(judge.state().violations.len(), 1);
    }
}
