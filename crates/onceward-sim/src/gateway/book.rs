//! What was told to whom, and whether it can be true.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Options, RUNTIME};
use crate::dice::Dice;

/// How many keys stay in play: old ones are asked for again.
const IN_PLAY: u64 = 60;

/// How many of the last questions for a key are remembered: more cannot be under way within the time of an attempt.
const ASKED: usize = 64;

/// What a client was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// It is done.
    Done { text: String, replayed: bool },
    /// It failed for good.
    Failed { text: String, replayed: bool },
    /// The upstream's own answer to an attempt that is not kept.
    Passed(u16),
    /// A problem of the gateway's, by its name.
    Problem(String),
}

impl Told {
    /// Whether a real client would try again.
    pub fn is_to_be_asked_again(&self) -> bool {
        match self {
            Self::Done { .. } | Self::Failed { .. } => false,
            Self::Passed(status) => *status != 400,
            Self::Problem(name) => !matches!(name.as_str(), "in-doubt" | "mismatch" | "not-kept"),
        }
    }
}

#[derive(Debug, Default)]
struct Page {
    /// When clients asked, the first time and the last times.
    first_asked: Option<Instant>,
    asked: Vec<Instant>,
    arrivals: u64,
    effects: u64,
    /// Since when the upstream knows the key.
    known_since: Option<Instant>,
    /// Effects that no policy permits.
    doubled: u64,
    /// Every final answer that was given.
    answers: BTreeSet<String>,
    in_doubt: bool,
}

#[derive(Debug, Default)]
struct State {
    pages: BTreeMap<String, Page>,
    next: u64,
    violations: Vec<String>,
    told: BTreeMap<String, u64>,
    unheard: u64,
    /// Keys that have happened and have no final answer yet.
    unfinished: BTreeSet<String>,
    /// Effects after the upstream had forgotten the key, by attempts that took longer than they may.
    overran: u64,
}

/// Everything that is known.
#[derive(Debug)]
pub struct Book {
    state: Mutex<State>,
    /// How long the upstream remembers keys, if it does.
    memory: Option<Duration>,
}

impl Book {
    pub fn new(options: &Options) -> Self {
        Self { state: Mutex::default(), memory: options.memory }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A key to ask for: mostly one that is new.
    pub fn pick(&self, dice: &mut Dice) -> String {
        let mut state = self.state();
        // What clients have given up on comes back after a while: before the upstream has forgotten it, or later.
        if self.memory.is_some() && dice.one_in(6) {
            let from = format!("k-{}", dice.below(state.next.max(1)));
            let found = state.unfinished.range(from..).next().or(state.unfinished.first());
            if let Some(found) = found {
                return found.clone();
            }
        }
        if state.next > 0 && dice.one_in(3) {
            let back = dice.below(state.next.min(IN_PLAY));
            return format!("k-{}", state.next - 1 - back);
        }
        state.next += 1;
        format!("k-{}", state.next - 1)
    }

    /// A client is about to ask.
    pub fn asked(&self, key: &str) {
        let now = Instant::now();
        let mut state = self.state();
        let page = state.pages.entry(key.to_owned()).or_default();
        page.first_asked.get_or_insert(now);
        page.asked.push(now);
        if page.asked.len() > ASKED {
            page.asked.remove(0);
        }
    }

    /// A request has arrived at the upstream. Says how many did before.
    pub fn arrived(&self, key: &str) -> u64 {
        let mut state = self.state();
        let page = state.pages.entry(key.to_owned()).or_default();
        page.arrivals += 1;
        page.arrivals - 1
    }

    /// The effect takes place, unless the upstream still remembers that it did. Says which one it is. A second one is a
    /// double effect, unless the upstream has forgotten the key and no client asked within the time that an attempt may
    /// take: then an attempt took longer than it may.
    pub fn happened(&self, key: &str) -> u64 {
        let now = Instant::now();
        let mut state = self.state();
        let page = state.pages.entry(key.to_owned()).or_default();
        let remembered = self.memory.zip(page.known_since).is_some_and(|(memory, since)| now < since + memory);
        if remembered {
            return page.effects;
        }
        let overran = self.memory.is_some() && page.asked.iter().all(|asked| now.duration_since(*asked) > RUNTIME);
        page.effects += 1;
        page.known_since = Some(now);
        let is_second = page.effects > 1;
        page.doubled += u64::from(is_second && !overran);
        let (effects, is_open) = (page.effects, page.answers.is_empty());
        if is_open {
            state.unfinished.insert(key.to_owned());
        }
        state.overran += u64::from(is_second && overran);
        effects
    }

    /// How often it has taken place.
    pub fn effects(&self, key: &str) -> u64 {
        self.state().pages.get(key).map_or(0, |page| page.effects)
    }

    /// A client was told something.
    pub fn told(&self, key: &str, told: Told) {
        let mut state = self.state();
        let name = match &told {
            Told::Done { replayed, .. } => if *replayed { "done, replayed" } else { "done" }.to_owned(),
            Told::Failed { replayed, .. } => if *replayed { "failed, replayed" } else { "failed" }.to_owned(),
            Told::Passed(status) => format!("passed {status}"),
            Told::Problem(name) => name.clone(),
        };
        *state.told.entry(name).or_default() += 1;
        let page = state.pages.entry(key.to_owned()).or_default();
        match told {
            Told::Done { text, .. } | Told::Failed { text, .. } => {
                page.answers.insert(text);
                if page.answers.len() > 1 {
                    let answers = page.answers.clone();
                    state.violations.push(format!("{key}: two final answers: {answers:?}"));
                }
                state.unfinished.remove(key);
            }
            Told::Problem(name) if name == "in-doubt" => {
                page.in_doubt = true;
                // The gateway counts from when it first sent the key, which is not before the first client asked.
                let too_soon = self
                    .memory
                    .zip(page.first_asked)
                    .is_some_and(|(memory, first)| Instant::now() + RUNTIME < first + memory);
                if too_soon {
                    state.violations.push(format!("{key}: held in doubt while the upstream remembers the key"));
                }
            }
            Told::Problem(name) if name == "mismatch" || name == "collision" => {
                state.violations.push(format!("{key}: told {name} although every request is the same"));
            }
            Told::Problem(_) | Told::Passed(_) => {}
        }
    }

    /// A client heard nothing.
    pub fn unheard(&self) {
        self.state().unheard += 1;
    }

    /// Every key that was asked for.
    pub fn keys(&self) -> Vec<String> {
        self.state().pages.keys().cloned().collect()
    }

    /// What was acknowledged must be told again, word for word, as a repeat; and nothing is under way when nothing runs.
    pub fn told_at_the_end(&self, key: &str, told: &Told) {
        let first = self.state().pages.get(key).and_then(|page| page.answers.first().cloned());
        let Some(first) = first else {
            if let Told::Problem(name) = told
                && name != "in-doubt"
            {
                self.violation(format!("{key}: never comes to an end: told {name} when nothing runs"));
            }
            return self.told(key, told.clone());
        };
        let same = match told {
            Told::Done { text, replayed: true } | Told::Failed { text, replayed: true } => *text == first,
            _ => false,
        };
        if !same {
            self.violation(format!("{key}: acknowledged {first:?}, and at the end {told:?}"));
        }
    }

    /// Something that must not be.
    pub fn violation(&self, what: String) {
        self.state().violations.push(what);
    }

    /// How many there are.
    pub fn violations(&self) -> usize {
        self.state().violations.len()
    }

    /// Looks at the whole: nothing has happened twice, and every answer tells of an effect of its own key.
    pub fn judge(&self) {
        let mut state = self.state();
        let mut found = Vec::new();
        for (key, page) in &state.pages {
            if page.doubled > 0 {
                found.push(format!("{key}: happened {} times", page.effects));
            }
            for answer in page.answers.iter().filter(|answer| answer.contains(" effect ")) {
                if page.effects == 0 || !answer.starts_with(&format!("{key} ")) {
                    found.push(format!("{key}: told {answer:?} after {} effects", page.effects));
                }
            }
        }
        state.violations.extend(found);
    }

    /// One line for who waits.
    pub fn line(&self) -> String {
        let state = self.state();
        let effects: u64 = state.pages.values().map(|page| page.effects).sum();
        format!("{} keys, {effects} effects, {} violations", state.pages.len(), state.violations.len())
    }

    /// The summary.
    pub fn print(&self, took: Duration) {
        let state = self.state();
        let line = |name: &str, number: u64| println!("{name:<46}{number:>10}");
        line("seconds", took.as_secs());
        line("keys", state.pages.len() as u64);
        line("requests at the upstream", state.pages.values().map(|page| page.arrivals).sum());
        line("effects", state.pages.values().map(|page| page.effects).sum());
        line("... too late, by attempts that overran", state.overran);
        line("keys with a final answer", state.pages.values().filter(|page| !page.answers.is_empty()).count() as u64);
        line("keys told to be in doubt", state.pages.values().filter(|page| page.in_doubt).count() as u64);
        line("answers that did not arrive", state.unheard);
        for (name, count) in &state.told {
            line(&format!("told: {name}"), *count);
        }
        for violation in state.violations.iter().take(20) {
            println!("VIOLATION {violation}");
        }
        line("violations", state.violations.len() as u64);
    }
}
