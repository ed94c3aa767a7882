//! Records what clients were answered, and judges whether it can be true.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Options, RUNTIME};
use crate::report::row;
use crate::rng::Rng;

/// How many keys stay in use: old ones are asked for again.
const KEYS_IN_USE: u64 = 60;

/// How many of the last questions for a key are remembered: more cannot be in flight within the time of an attempt.
const ASKED: usize = 64;

/// An answer to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// It is done.
    Done { text: String, replayed: bool },
    /// It failed for good.
    Failed { text: String, replayed: bool },
    /// The upstream's own answer to an attempt that is not recorded.
    Passed(u16),
    /// A problem of the gateway, by its name.
    Problem(String),
}

impl Response {
    /// Whether a real client would retry.
    pub fn should_retry(&self) -> bool {
        match self {
            Self::Done { .. } | Self::Failed { .. } => false,
            Self::Passed(status) => *status != 400,
            Self::Problem(name) => !matches!(name.as_str(), "in-doubt" | "mismatch" | "not-kept"),
        }
    }
}

#[derive(Debug, Default)]
struct KeyHistory {
    /// When clients asked, the first time and the last times.
    first_asked: Option<Instant>,
    asked: Vec<Instant>,
    arrivals: u64,
    effects: u64,
    /// Since when the upstream knows the key.
    known_since: Option<Instant>,
    /// Effects that no policy permits.
    doubled: u64,
    /// Every final answer.
    answers: BTreeSet<String>,
    in_doubt: bool,
}

#[derive(Debug, Default)]
struct State {
    histories: BTreeMap<String, KeyHistory>,
    next: u64,
    violations: Vec<String>,
    counts: BTreeMap<String, u64>,
    unheard: u64,
    /// Keys that have happened and have no final answer yet.
    unfinished: BTreeSet<String>,
    /// Effects after the upstream had forgotten the key, by attempts that took too long.
    overran: u64,
}

/// Everything that is known.
#[derive(Debug)]
pub struct Judge {
    state: Mutex<State>,
    /// How long the upstream remembers keys, if it does.
    memory: Option<Duration>,
}

impl Judge {
    pub fn new(options: &Options) -> Self {
        Self { state: Mutex::default(), memory: options.memory }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A key to ask for, mostly a new one.
    pub fn pick(&self, rng: &mut Rng) -> String {
        let mut state = self.state();
        // A key that clients gave up on comes back after a while: before the upstream has forgotten it, or later.
        if self.memory.is_some() && rng.one_in(6) {
            let from = format!("k-{}", rng.below(state.next.max(1)));
            let found = state.unfinished.range(from..).next().or(state.unfinished.first());
            if let Some(found) = found {
                return found.clone();
            }
        }
        if state.next > 0 && rng.one_in(3) {
            let back = rng.below(state.next.min(KEYS_IN_USE));
            return format!("k-{}", state.next - 1 - back);
        }
        state.next += 1;
        format!("k-{}", state.next - 1)
    }

    /// A client is about to ask.
    pub fn asked(&self, key: &str) {
        let now = Instant::now();
        let mut state = self.state();
        let history = state.histories.entry(key.to_owned()).or_default();
        history.first_asked.get_or_insert(now);
        history.asked.push(now);
        if history.asked.len() > ASKED {
            history.asked.remove(0);
        }
    }

    /// A request has arrived at the upstream. Returns how many did before.
    pub fn arrived(&self, key: &str) -> u64 {
        let mut state = self.state();
        let history = state.histories.entry(key.to_owned()).or_default();
        history.arrivals += 1;
        history.arrivals - 1
    }

    /// The effect takes place, unless the upstream still remembers it. Returns its number. A second one is a double
    /// effect, unless the upstream has forgotten the key and no client asked within the time of an attempt: then an
    /// attempt took too long.
    pub fn happened(&self, key: &str) -> u64 {
        let now = Instant::now();
        let mut state = self.state();
        let history = state.histories.entry(key.to_owned()).or_default();
        let remembered = self.memory.zip(history.known_since).is_some_and(|(memory, since)| now < since + memory);
        if remembered {
            return history.effects;
        }
        let overran = self.memory.is_some() && history.asked.iter().all(|asked| now.duration_since(*asked) > RUNTIME);
        history.effects += 1;
        history.known_since = Some(now);
        let is_second = history.effects > 1;
        history.doubled += u64::from(is_second && !overran);
        let (effects, is_open) = (history.effects, history.answers.is_empty());
        if is_open {
            state.unfinished.insert(key.to_owned());
        }
        state.overran += u64::from(is_second && overran);
        effects
    }

    /// How often it has taken place.
    pub fn effects(&self, key: &str) -> u64 {
        self.state().histories.get(key).map_or(0, |history| history.effects)
    }

    /// A client got an answer.
    pub fn record(&self, key: &str, response: Response) {
        let mut state = self.state();
        let name = match &response {
            Response::Done { replayed, .. } => if *replayed { "done, replayed" } else { "done" }.to_owned(),
            Response::Failed { replayed, .. } => if *replayed { "failed, replayed" } else { "failed" }.to_owned(),
            Response::Passed(status) => format!("passed {status}"),
            Response::Problem(name) => name.clone(),
        };
        *state.counts.entry(name).or_default() += 1;
        let history = state.histories.entry(key.to_owned()).or_default();
        match response {
            Response::Done { text, .. } | Response::Failed { text, .. } => {
                history.answers.insert(text);
                if history.answers.len() > 1 {
                    let answers = history.answers.clone();
                    state.violations.push(format!("{key}: two final answers: {answers:?}"));
                }
                state.unfinished.remove(key);
            }
            Response::Problem(name) if name == "in-doubt" => {
                history.in_doubt = true;
                // The gateway counts from when it first sent the key, which is not before the first client asked.
                let too_soon = self
                    .memory
                    .zip(history.first_asked)
                    .is_some_and(|(memory, first)| Instant::now() + RUNTIME < first + memory);
                if too_soon {
                    state.violations.push(format!("{key}: in doubt while the upstream remembers the key"));
                }
            }
            Response::Problem(name) if name == "mismatch" || name == "collision" => {
                state.violations.push(format!("{key}: answered {name} although every request is the same"));
            }
            Response::Problem(_) | Response::Passed(_) => {}
        }
    }

    /// A client got no answer.
    pub fn unheard(&self) {
        self.state().unheard += 1;
    }

    /// Every key that was asked for.
    pub fn keys(&self) -> Vec<String> {
        self.state().histories.keys().cloned().collect()
    }

    /// An acknowledged answer must be replayed byte for byte, and no key is in flight when nothing runs.
    pub fn record_last(&self, key: &str, response: &Response) {
        let first = self.state().histories.get(key).and_then(|history| history.answers.first().cloned());
        let Some(first) = first else {
            if let Response::Problem(name) = response
                && name != "in-doubt"
            {
                self.violation(format!("{key}: never ends: answered {name} when nothing runs"));
            }
            return self.record(key, response.clone());
        };
        let same = match response {
            Response::Done { text, replayed: true } | Response::Failed { text, replayed: true } => *text == first,
            _ => false,
        };
        if !same {
            self.violation(format!("{key}: acknowledged {first:?}, and at the end {response:?}"));
        }
    }

    /// Records a violation.
    pub fn violation(&self, what: String) {
        self.state().violations.push(what);
    }

    /// How many there are.
    pub fn violations(&self) -> usize {
        self.state().violations.len()
    }

    /// Judges the whole run: nothing has happened twice, and every answer is about an effect of its own key.
    pub fn judge(&self) {
        let mut state = self.state();
        let mut found = Vec::new();
        for (key, history) in &state.histories {
            if history.doubled > 0 {
                found.push(format!("{key}: happened {} times", history.effects));
            }
            for answer in history.answers.iter().filter(|answer| answer.contains(" effect ")) {
                if history.effects == 0 || !answer.starts_with(&format!("{key} ")) {
                    found.push(format!("{key}: told {answer:?} after {} effects", history.effects));
                }
            }
        }
        state.violations.extend(found);
    }

    /// One line of progress.
    pub fn line(&self) -> String {
        let state = self.state();
        let effects: u64 = state.histories.values().map(|history| history.effects).sum();
        format!("{} keys, {effects} effects, {} violations", state.histories.len(), state.violations.len())
    }

    /// The summary.
    pub fn print(&self, took: Duration) {
        let state = self.state();
        row("seconds", took.as_secs());
        row("keys", state.histories.len() as u64);
        row("requests at the upstream", state.histories.values().map(|history| history.arrivals).sum());
        row("effects", state.histories.values().map(|history| history.effects).sum());
        row("... too late, by attempts that overran", state.overran);
        row(
            "keys with a final answer",
            state.histories.values().filter(|history| !history.answers.is_empty()).count() as u64,
        );
        row("keys answered in doubt", state.histories.values().filter(|history| history.in_doubt).count() as u64);
        row("answers that did not arrive", state.unheard);
        for (name, count) in &state.counts {
            row(&format!("answered: {name}"), *count);
        }
        for violation in state.violations.iter().take(20) {
            println!("VIOLATION {violation}");
        }
        row("violations", state.violations.len() as u64);
    }
}
