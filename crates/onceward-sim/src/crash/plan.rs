//! The plan of a run: which intents each worker calls, how each attempt ends, and where workers die. All of it follows
//! from the seed; only the scheduling of the operating system does not.

use std::time::Duration;

use onceward::core::policy::{Policy, Retention};
use onceward::step::Step;
use onceward::{InDoubt, OnError};

use crate::rng::Rng;

/// New intents in each cycle.
const NEW_INTENTS: u64 = 4;

/// For how many cycles an intent is tried again: retries, resumes and races between cycles.
pub const CYCLES_PER_INTENT: u64 = 3;

/// Keys whose outcome is kept for moments, so that they keep expiring, being swept and being used again.
const BRIEF: u64 = 6;

/// The first intent that is not brief.
const FIRST: u64 = 1000;

/// A lease so short that work has to renew it, and that a stopped process loses it.
const SHORT_RUNTIME: Duration = Duration::from_millis(5);

/// A lease that ends within a run only when its owner dies.
const LONG_RUNTIME: Duration = Duration::from_secs(100);

/// How long a brief outcome is kept, and then its tombstone.
const BRIEF_RETENTION: Duration = Duration::from_millis(25);
const BRIEF_TOMBSTONE: Duration = Duration::from_millis(25);

/// How long the downstream knows a brief key: longer than the key is held, so that it counts.
const BRIEF_MEMORY: Duration = Duration::from_millis(60);

/// How long a forgetful downstream knows a key: some attempts come within that time and some after it.
pub const FORGETFUL: Duration = Duration::from_millis(120);

/// How long an attempt may take where the downstream soon forgets: well below its memory, so that attempts are granted
/// both early and so late that they only just arrive in time.
const FORGETFUL_RUNTIME: Duration = Duration::from_millis(20);

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The kind of an intent; always the same for the same intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntentKind {
    /// Its in-doubt policy.
    pub in_doubt: InDoubt,
    /// The work marks `sent`.
    pub marks: bool,
    /// What an unclassified error means.
    pub on_error: OnError,
    /// The lease is short, and the work outlasts a third of it.
    pub slow: bool,
    /// The outcome is kept for moments only.
    pub brief: bool,
    /// The downstream knows the key for moments only, and then a retry becomes a hold.
    pub forgetful: bool,
}

impl IntentKind {
    /// The kind of an intent.
    pub fn of(seed: u64, intent: u64) -> Self {
        let mut rng = Rng::of(&[seed, 1, intent]);
        let brief = intent < FIRST;
        // Every cycle has a new intent with a short lease and one that marks, so that every step can be reached. Brief
        // intents have long leases: a takeover from a living owner could not be told apart from the next use of the
        // same key.
        let slow = !brief && intent.is_multiple_of(NEW_INTENTS);
        let marks = (!brief && intent % NEW_INTENTS == 1) || rng.one_in(4);
        // A probe cannot see what a stopped owner is yet to do, nor further back than a few cycles.
        let probes = u64::from(!slow && !brief);
        let in_doubt = rng.weighted(&[(5, InDoubt::Hold), (3, InDoubt::Retry), (probes, InDoubt::Probe)]);
        let on_error =
            rng.weighted(&[(1, OnError::Classify), (1, OnError::Retry), (2, OnError::Doubt), (1, OnError::Keep)]);
        let forgetful = in_doubt == InDoubt::Retry && !slow && !brief && rng.one_in(2);
        Self { in_doubt, marks, on_error, slow, brief, forgetful }
    }

    /// The policy of this kind.
    pub fn policy(self) -> Policy {
        Policy {
            in_doubt: self.in_doubt,
            on_error: self.on_error,
            marks_sent: self.marks,
            max_runtime: self.max_runtime(),
            honours_key_for: self.honours_key_for(),
            retention: Some(Retention::For(self.retention())),
            tombstone: Some(if self.brief { BRIEF_TOMBSTONE } else { DAY }),
            ..Policy::default()
        }
    }

    /// The longest that an attempt may take, as the policy promises.
    pub fn max_runtime(self) -> Duration {
        match self {
            Self { slow: true, .. } => SHORT_RUNTIME,
            Self { forgetful: true, .. } => FORGETFUL_RUNTIME,
            _ => LONG_RUNTIME,
        }
    }

    /// Whether a stopped process may find that its lease has lapsed.
    pub fn can_lose_its_lease(self) -> bool {
        self.slow || self.forgetful
    }

    /// How long the downstream knows the key. A brief intent that is held is never retried, so this may be short.
    fn honours_key_for(self) -> Duration {
        match self {
            Self { forgetful: true, .. } => FORGETFUL,
            Self { brief: true, in_doubt: InDoubt::Hold, .. } => BRIEF_MEMORY,
            _ => DAY,
        }
    }

    /// How long the outcome is kept.
    pub fn retention(self) -> Duration {
        if self.brief { BRIEF_RETENTION } else { DAY }
    }

    /// Whether a doubt waits for an operator.
    pub fn holds(self) -> bool {
        self.in_doubt == InDoubt::Hold
    }

    /// Whether the effect happens at most once.
    pub fn at_most_once(self) -> bool {
        self.in_doubt != InDoubt::Retry
    }

    /// How long the key is held, from done.
    pub fn horizon(self) -> Duration {
        self.retention() + if self.brief { BRIEF_TOMBSTONE } else { DAY }
    }

    /// How long it is remembered that nothing happened.
    pub fn untried_horizon(self) -> Duration {
        self.horizon().max(self.honours_key_for())
    }
}

/// How an attempt ends, if it is not killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptEnd {
    /// The effect happens, and the caller gets the answer.
    Succeed,
    /// It fails for good, and nothing happens.
    Final,
    /// The answer is lost.
    Unknown,
    /// It never reaches the downstream.
    NotSent,
    /// The downstream refuses.
    Refused,
    /// An unclassified error.
    Unclassified,
    /// The work panics.
    Panic,
    /// The caller is dropped while the work runs.
    Cancel,
}

/// One call of a worker.
#[derive(Clone, Copy, Debug)]
pub struct PlannedCall {
    /// The intent.
    pub intent: u64,
    /// How the attempt ends, if this call gets the claim.
    pub attempt_end: AttemptEnd,
    /// Whether the effect happens although the answer does not say so.
    pub happens: bool,
    /// How long the work takes before the effect.
    pub before: Duration,
    /// How long it takes after the effect.
    pub after: Duration,
    /// How long the caller waits for a running attempt.
    pub wait: Duration,
    /// The caller is dropped after this long, most likely before it has its claim.
    pub leaves: Option<Duration>,
    /// The caller repeats the call with another request under the same key.
    pub misuse: bool,
}

impl PlannedCall {
    /// Changes the call so that a worker that is to die at a step reaches it.
    fn suit(&mut self, fate: Fate) {
        let (attempt_end, happens) = match fate {
            Fate::AtStep(Step::DoubtWritten, _) => (AttemptEnd::Unknown, self.happens),
            Fate::AtStep(Step::ReleaseWritten, _) => (AttemptEnd::NotSent, false),
            Fate::AtStep(Step::Renewed, _) => {
                self.leaves = None;
                return;
            }
            _ => return,
        };
        *self = Self { attempt_end, happens, leaves: None, ..*self };
    }
}

/// What happens to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It runs to its end.
    Live,
    /// It kills itself when it reaches the step for the n-th time.
    AtStep(Step, u32),
    /// The parent kills it after this long.
    After(Duration),
    /// The parent stops it after this long, for this long, so that leases lapse under a living owner.
    Stop(Duration, Duration),
}

/// What one worker does in one cycle.
#[derive(Clone, Debug)]
pub struct WorkerPlan {
    /// Its calls, in order.
    pub calls: Vec<PlannedCall>,
    /// What happens to it.
    pub fate: Fate,
}

impl WorkerPlan {
    /// The plan of a worker.
    pub fn of(seed: u64, cycle: u64, worker: u64, workers: u64) -> Self {
        let mut rng = Rng::of(&[seed, 2, cycle, worker]);
        let mut intents: Vec<u64> = window(cycle).collect();
        rng.shuffle(&mut intents);
        intents.truncate(7);
        intents.extend([rng.below(BRIEF), rng.below(BRIEF)]);
        // Calls the first intent again: a repeat in the same process.
        intents.push(intents[0]);
        rng.shuffle(&mut intents);
        let mut calls: Vec<PlannedCall> = intents.into_iter().map(|intent| planned(seed, intent, &mut rng)).collect();
        let fate = fate(cycle, worker, workers, &mut rng);
        calls.iter_mut().for_each(|planned| planned.suit(fate));
        Self { calls, fate }
    }

    /// A plan that only opens the ledger.
    pub fn open_only() -> Self {
        Self { calls: Vec::new(), fate: Fate::Live }
    }

    /// A plan without faults over all intents of the last cycles, to finish what can be finished.
    pub fn calm(seed: u64, intents: &[u64]) -> Self {
        let mut rng = Rng::of(&[seed, 3]);
        let calls = intents.iter().map(|intent| PlannedCall {
            attempt_end: AttemptEnd::Succeed,
            happens: true,
            misuse: false,
            leaves: None,
            ..planned(seed, *intent, &mut rng)
        });
        Self { calls: calls.collect(), fate: Fate::Live }
    }
}

/// The intents of a cycle.
pub fn window(cycle: u64) -> impl Iterator<Item = u64> {
    let end = FIRST + NEW_INTENTS * (cycle + 1);
    end.saturating_sub(NEW_INTENTS * CYCLES_PER_INTENT).max(FIRST)..end
}

/// Intents that are not brief, from the first one on.
pub fn lasting() -> std::ops::Range<u64> {
    FIRST..FIRST + 10_000
}

/// The brief intents, which are in every cycle.
pub fn brief() -> impl Iterator<Item = u64> {
    0..BRIEF
}

fn planned(seed: u64, intent: u64, rng: &mut Rng) -> PlannedCall {
    let kind = IntentKind::of(seed, intent);
    let attempt_end = rng.weighted(&[
        (60, AttemptEnd::Succeed),
        (4, AttemptEnd::Final),
        (10, AttemptEnd::Unknown),
        (6, AttemptEnd::NotSent),
        (6, AttemptEnd::Refused),
        (7, AttemptEnd::Unclassified),
        (3, AttemptEnd::Panic),
        (4, AttemptEnd::Cancel),
    ]);
    let happens = match attempt_end {
        AttemptEnd::Succeed => true,
        AttemptEnd::Final | AttemptEnd::NotSent | AttemptEnd::Refused => false,
        // An error that the policy calls harmless is harmless: the harness does not blame the ledger for a policy that
        // does not fit the work.
        AttemptEnd::Unclassified => {
            (kind.marks || matches!(kind.on_error, OnError::Doubt | OnError::Keep)) && rng.one_in(2)
        }
        AttemptEnd::Unknown | AttemptEnd::Panic | AttemptEnd::Cancel => !rng.one_in(3),
    };
    let pause = |rng: &mut Rng, slow: u64| {
        let micros = if kind.slow { slow * 1000 } else { rng.weighted(&[(3, 0), (1, 500), (1, 3000)]) };
        Duration::from_micros(micros)
    };
    let slow = 6 + rng.below(14);
    PlannedCall {
        intent,
        attempt_end,
        happens,
        before: pause(rng, slow),
        after: pause(rng, slow / 2),
        wait: Duration::from_millis(rng.weighted(&[(3, 0), (1, 30)])),
        leaves: rng.one_in(20).then(|| Duration::from_micros(rng.below(3000))),
        misuse: rng.one_in(8),
    }
}

/// Every cycle kills one worker at a step, step after step; the others live, are killed at some moment, or are stopped.
fn fate(cycle: u64, worker: u64, workers: u64, rng: &mut Rng) -> Fate {
    let steps = Step::ALL.len() as u64;
    if worker == cycle % workers {
        let step = Step::ALL[usize::try_from(cycle % steps).unwrap_or(0)];
        return Fate::AtStep(step, 1 + u32::try_from(rng.below(usual(step))).unwrap_or(0));
    }
    let moment = Duration::from_micros(rng.below(60_000));
    match rng.below(10) {
        0..4 => Fate::After(moment),
        4..7 => Fate::Stop(moment, Duration::from_millis(20 + rng.below(40))),
        _ => Fate::Live,
    }
}

/// About how often a worker reaches a step in one cycle.
fn usual(step: Step) -> u64 {
    match step {
        Step::PurgeCommitted | Step::DoubtWritten | Step::ReleaseWritten | Step::SentDecided | Step::SentWritten => 1,
        Step::Renewed => 2,
        Step::BeginWritten | Step::FinishDecided | Step::FinishWritten => 4,
        Step::BeginDecided => 8,
        Step::StoreUncommitted | Step::StoreCommitted => 12,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_plan() {
        let plan = |seed| format!("{:?}", WorkerPlan::of(seed, 5, 1, 3));
        assert_eq!(plan(1), plan(1));
        assert_ne!(plan(1), plan(2));
    }

    #[test]
    fn an_intent_is_in_the_windows_of_neighbouring_cycles() {
        let shared = window(9).filter(|intent| window(10).any(|other| other == *intent)).count();
        assert_eq!(shared as u64, NEW_INTENTS * (CYCLES_PER_INTENT - 1));
        assert_eq!(window(0).count() as u64, NEW_INTENTS);
    }

    #[test]
    fn every_step_kills_a_worker() {
        for step in Step::ALL {
            let planned = (0..36).any(|cycle| {
                (0..3)
                    .any(|worker| matches!(WorkerPlan::of(1, cycle, worker, 3).fate, Fate::AtStep(at, _) if at == step))
            });
            assert!(planned, "{step:?}");
        }
    }
}
