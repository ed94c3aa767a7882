//! Clients that give their calls no keys. Each repeats a call until it is answered, and then makes the same call again, which
//! it means. The judge knows what they asked, what they were told and what happened.
//!
//! What a client was not answered happens once however often it asks; unless it was told that this is unknown, and asked
//! again. What it means happens again; unless the gateway died before it could write down that its answer arrived.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::TRIES;
use crate::dice::Dice;
use crate::kills::book::Told;
use crate::kills::effects::Effects;

/// What the keys of such calls begin with in the file of effects.
pub const MEANT: &str = "m-";

/// Clients at once.
pub(super) const CLIENTS: u64 = 4;

/// The same call is made this often at the most.
const MOST: u64 = 4;

/// An answer that took longer may count as one that came too late for its client.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a client heard of one try.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) told: Told,
    /// There was an answer, whatever it says.
    pub(super) answered: bool,
    /// Which gateway was asked: another one each time that one is started.
    pub(super) gateway: u64,
}

/// What is known of one call.
#[derive(Debug, Default)]
struct Page {
    /// How often it was meant.
    meant: usize,
    /// How often its client was told that it is unknown, or got an error, and asked again.
    told: usize,
    answers: Vec<String>,
}

#[derive(Debug, Default)]
struct State {
    pages: BTreeMap<String, Page>,
    repeated: u64,
    ran: u64,
    replayed: u64,
    violations: Vec<String>,
}

/// What clients asked without keys, and what they were told.
#[derive(Debug, Default)]
pub(super) struct Meant(Mutex<State>);

impl Meant {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call that no client has made before.
    fn next(&self) -> String {
        let mut state = self.state();
        let name = format!("{MEANT}{}", state.pages.len());
        state.pages.insert(name.clone(), Page::default());
        name
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut Page)) {
        if let Some(page) = self.state().pages.get_mut(name) {
            change(page);
        }
    }

    /// One client, until it is over. `ask` makes one try.
    pub(super) async fn live<Asking: Future<Output = Heard>>(
        &self,
        dice: &mut Dice,
        over: &AtomicBool,
        ask: impl Fn(String, u64) -> Asking,
    ) {
        while !over.load(Ordering::SeqCst) {
            let (name, place) = (self.next(), dice.below(1000));
            let mut last: Option<(String, u64, bool)> = None;
            for _ in 0..=dice.below(MOST) {
                self.change(&name, |page| page.meant += 1);
                let began = Instant::now();
                let Some((value, gateway)) = self.answered(dice, &name, place, &ask).await else { break };
                let in_time = began.elapsed() < PATIENCE;
                self.judge_answer(&name, last.as_ref(), &value, gateway);
                last = Some((value, gateway, in_time));
            }
        }
    }

    /// Asks until there is an answer. None when the client gives up on it.
    async fn answered<Asking: Future<Output = Heard>>(
        &self,
        dice: &mut Dice,
        name: &str,
        place: u64,
        ask: &impl Fn(String, u64) -> Asking,
    ) -> Option<(String, u64)> {
        for attempt in 0..TRIES {
            let heard = ask(name.to_owned(), place + attempt).await;
            match heard.told {
                Told::Done(value) => return Some((value, heard.gateway)),
                Told::Wrong(what) => self.state().violations.push(format!("{name}: told {what}")),
                Told::Doubt => self.change(name, |page| page.told += 1),
                _ if heard.answered => self.change(name, |page| page.told += 1),
                _ => self.state().repeated += 1,
            }
            tokio::time::sleep(Duration::from_millis(dice.below(40))).await;
        }
        None
    }

    /// The answer to a call that was meant once more is not that of the last one, if the same gateway gave both.
    fn judge_answer(&self, name: &str, last: Option<&(String, u64, bool)>, value: &str, gateway: u64) {
        let mut state = self.state();
        match last {
            Some((answer, by, in_time)) if answer == value => {
                state.replayed += 1;
                if *by == gateway && *in_time {
                    state
                        .violations
                        .push(format!("{name}: {value:?} was told, the call was made again, and did not run"));
                }
            }
            Some(_) => state.ran += 1,
            None => {}
        }
        state.pages.entry(name.to_owned()).or_default().answers.push(value.to_owned());
    }

    /// Compares what was told with what happened. Gives what is wrong.
    pub(super) fn judge(&self, effects: &Effects) -> Vec<String> {
        let happened = effects.read();
        let mut state = self.state();
        let mut wrong = std::mem::take(&mut state.violations);
        for (name, page) in &state.pages {
            let values = happened.get(name).map(Vec::as_slice).unwrap_or_default();
            if values.len() > page.meant + page.told {
                let (meant, told) = (page.meant, page.told);
                wrong.push(format!(
                    "{name}: happened {} times, was meant {meant} times and told to be unknown {told} times",
                    values.len()
                ));
            }
            let untrue = page.answers.iter().filter(|answer| !values.contains(answer));
            wrong.extend(
                untrue.map(|answer| format!("{name}: told {answer:?}, which is not what happened: {values:?}")),
            );
        }
        wrong
    }

    pub(super) fn print(&self) {
        let state = self.state();
        let line = |name: &str, number: u64| println!("{name:<46}{number:>10}");
        line("calls without a key", state.pages.len() as u64);
        line("calls without an answer, made again", state.repeated);
        line("calls after an answer that ran", state.ran);
        line("calls after an answer that were told it again", state.replayed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(meant: usize, told: usize, answers: &[&str], happened: &[&str]) -> usize {
        let folder = tempfile::tempdir().unwrap();
        let effects = Effects::at(&folder.path().join("effects"));
        happened.iter().for_each(|value| effects.happen("m-0", value));
        let book = Meant::default();
        let answers = answers.iter().map(|answer| (*answer).to_owned()).collect();
        let name = book.next();
        book.change(&name, |page| *page = Page { meant, told, answers });
        book.judge(&effects).len()
    }

    #[test]
    fn each_rule_is_kept_by_one_story_and_broken_by_another() {
        assert_eq!(judged(1, 0, &["1"], &["1"]), 0);
        assert_eq!(judged(1, 0, &["1"], &["1", "2"]), 1, "a repeat of an unanswered call ran");
        assert_eq!(judged(1, 1, &["2"], &["1", "2"]), 0, "its client was told");
        assert_eq!(judged(2, 0, &["1", "2"], &["1", "2"]), 0, "it was meant");
        assert_eq!(judged(1, 0, &["3"], &["1"]), 1, "an answer without an effect");
    }

    #[test]
    fn a_call_that_is_meant_again_must_run_where_the_same_gateway_lives() {
        let book = Meant::default();
        let last = ("1".to_owned(), 7, true);
        book.judge_answer("m-0", Some(&last), "2", 7);
        book.judge_answer("m-0", Some(&last), "1", 8);
        assert_eq!(book.state().violations.len(), 0);
        book.judge_answer("m-0", Some(&last), "1", 7);
        assert_eq!(book.state().violations.len(), 1);
    }
}
