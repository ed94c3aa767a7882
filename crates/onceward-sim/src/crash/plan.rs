//! What a run does: which intents each worker goes through, how each attempt goes, and who dies where. All of it
//! follows from the seed; only the scheduling of the operating system does not.

use std::time::Duration;

use onceward::core::policy::{Policy, Retention};
use onceward::step::Step;
use onceward::{InDoubt, OnError};

use crate::dice::Dice;

/// New intents in each cycle.
const FRESH: u64 = 4;

/// For how many cycles an intent is tried again: retries, resumes and races of neighbours.
pub const LIFE: u64 = 3;

/// Keys whose outcome is kept for moments, so that they expire, are swept and are used again all the time.
const BRIEF: u64 = 6;

/// The first intent that is not brief.
const FIRST: u64 = 1000;

/// A lease so short that work has to renew it, and that a process which is stopped loses it.
const SHORT_RUNTIME: Duration = Duration::from_millis(5);

/// A lease that only the death of its owner ends within a run.
const LONG_RUNTIME: Duration = Duration::from_secs(100);

/// How long a brief outcome is kept, and then its tombstone.
const BRIEF_RETENTION: Duration = Duration::from_millis(25);
const BRIEF_TOMBSTONE: Duration = Duration::from_millis(25);

/// How long the other side knows the key of a brief one: longer than the key is held, so that it counts.
const BRIEF_MEMORY: Duration = Duration::from_millis(60);

/// How long a forgetful other side knows a key: some attempts come within that time and some after it.
pub const FORGETFUL: Duration = Duration::from_millis(120);

/// How long an attempt may take where the other side soon forgets: well below its memory, so that attempts are granted
/// both early and so late that they could only just arrive in time.
const FORGETFUL_RUNTIME: Duration = Duration::from_millis(20);

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What an intent is like; always the same for the same intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sort {
    /// What happens in doubt.
    pub in_doubt: InDoubt,
    /// The work marks `sent`.
    pub marks: bool,
    /// What an error means that nobody classified.
    pub on_error: OnError,
    /// The lease is short, and the work outlasts a third of it.
    pub slow: bool,
    /// The outcome is kept for moments only.
    pub brief: bool,
    /// The other side knows the downstream key for moments only, and then a retry becomes a hold.
    pub forgetful: bool,
}

impl Sort {
    /// The sort of an intent.
    pub fn of(seed: u64, intent: u64) -> Self {
        let mut dice = Dice::of(&[seed, 1, intent]);
        let brief = intent < FIRST;
        // Every cycle has a new intent with a short lease and one that marks, so that every step can be reached. Brief
        // ones have long leases: one that changed hands while its owner is alive could not be told apart from the
        // next one of the same key.
        let slow = !brief && intent.is_multiple_of(FRESH);
        let marks = (!brief && intent % FRESH == 1) || dice.one_in(4);
        // No probe can see what a stopped owner is yet to do, nor further back than a few cycles.
        let probes = u64::from(!slow && !brief);
        let in_doubt = dice.weighted(&[(5, InDoubt::Hold), (3, InDoubt::Retry), (probes, InDoubt::Probe)]);
        let on_error =
            dice.weighted(&[(1, OnError::Classify), (1, OnError::Retry), (2, OnError::Doubt), (1, OnError::Keep)]);
        let forgetful = in_doubt == InDoubt::Retry && !slow && !brief && dice.one_in(2);
        Self { in_doubt, marks, on_error, slow, brief, forgetful }
    }

    /// The policy that says so.
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

    /// The longest that an attempt may take, as the policy promises it to the ledger.
    pub fn max_runtime(self) -> Duration {
        match self {
            Self { slow: true, .. } => SHORT_RUNTIME,
            Self { forgetful: true, .. } => FORGETFUL_RUNTIME,
            _ => LONG_RUNTIME,
        }
    }

    /// Whether a process that is stopped for a while may find that its lease has lapsed.
    pub fn can_lose_its_lease(self) -> bool {
        self.slow || self.forgetful
    }

    /// How long the other side knows the key. A brief one that is held is never tried again for that, so it may be short.
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

    /// Whether nobody may go on with what may have happened until a person has settled it.
    pub fn holds(self) -> bool {
        self.in_doubt == InDoubt::Hold
    }

    /// Whether it happens at most once, however it went.
    pub fn at_most_once(self) -> bool {
        self.in_doubt != InDoubt::Retry
    }

    /// How long the key is taken, from done.
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
pub enum Turn {
    /// The effect happens and its answer comes.
    Succeed,
    /// It fails for good, and nothing happens.
    Final,
    /// The answer is lost.
    Unknown,
    /// It never reaches the other side.
    NotSent,
    /// The other side refuses.
    Refused,
    /// An error that nobody classified.
    Unclassified,
    /// The work panics.
    Panic,
    /// The caller goes away while the work runs.
    Cancel,
}

/// One call of a worker.
#[derive(Clone, Copy, Debug)]
pub struct Visit {
    /// The intent.
    pub intent: u64,
    /// How the attempt ends, if this call gets the claim.
    pub turn: Turn,
    /// Whether the effect happens although the answer does not say so.
    pub happens: bool,
    /// How long the work takes before the effect.
    pub before: Duration,
    /// How long it takes after the effect.
    pub after: Duration,
    /// How long the caller waits for a running one.
    pub wait: Duration,
    /// The caller goes away after this long, most likely before it has its claim.
    pub leaves: Option<Duration>,
    /// The caller asks once more, with another request under the same key.
    pub misuse: bool,
}

impl Visit {
    /// A worker that is to die at a step has to get there.
    fn suit(&mut self, fate: Fate) {
        let (turn, happens) = match fate {
            Fate::AtStep(Step::DoubtWritten, _) => (Turn::Unknown, self.happens),
            Fate::AtStep(Step::ReleaseWritten, _) => (Turn::NotSent, false),
            Fate::AtStep(Step::Renewed, _) => {
                self.leaves = None;
                return;
            }
            _ => return,
        };
        *self = Self { turn, happens, leaves: None, ..*self };
    }
}

/// What happens to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It comes to its end.
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
pub struct Part {
    /// Its calls, in order.
    pub visits: Vec<Visit>,
    /// What happens to it.
    pub fate: Fate,
}

impl Part {
    /// The part of a worker.
    pub fn of(seed: u64, cycle: u64, worker: u64, workers: u64) -> Self {
        let mut dice = Dice::of(&[seed, 2, cycle, worker]);
        let mut intents: Vec<u64> = window(cycle).collect();
        dice.shuffle(&mut intents);
        intents.truncate(7);
        intents.extend([dice.below(BRIEF), dice.below(BRIEF)]);
        // Ask once more for the first one: a repeat in the same process.
        intents.push(intents[0]);
        dice.shuffle(&mut intents);
        let mut visits: Vec<Visit> = intents.into_iter().map(|intent| visit(seed, intent, &mut dice)).collect();
        let fate = fate(cycle, worker, workers, &mut dice);
        visits.iter_mut().for_each(|visit| visit.suit(fate));
        Self { visits, fate }
    }

    /// A part of opening the ledger and nothing else.
    pub fn birth() -> Self {
        Self { visits: Vec::new(), fate: Fate::Live }
    }

    /// A part without mishaps over all the intents of the last cycles, so that what can be finished is.
    pub fn calm(seed: u64, intents: &[u64]) -> Self {
        let mut dice = Dice::of(&[seed, 3]);
        let visits = intents.iter().map(|intent| Visit {
            turn: Turn::Succeed,
            happens: true,
            misuse: false,
            leaves: None,
            ..visit(seed, *intent, &mut dice)
        });
        Self { visits: visits.collect(), fate: Fate::Live }
    }
}

/// The intents of a cycle.
pub fn window(cycle: u64) -> impl Iterator<Item = u64> {
    let end = FIRST + FRESH * (cycle + 1);
    end.saturating_sub(FRESH * LIFE).max(FIRST)..end
}

/// Intents that are not brief, from the first one on.
pub fn lasting() -> std::ops::Range<u64> {
    FIRST..FIRST + 10_000
}

/// The brief intents, which are in every cycle.
pub fn brief() -> impl Iterator<Item = u64> {
    0..BRIEF
}

fn visit(seed: u64, intent: u64, dice: &mut Dice) -> Visit {
    let sort = Sort::of(seed, intent);
    let turn = dice.weighted(&[
        (60, Turn::Succeed),
        (4, Turn::Final),
        (10, Turn::Unknown),
        (6, Turn::NotSent),
        (6, Turn::Refused),
        (7, Turn::Unclassified),
        (3, Turn::Panic),
        (4, Turn::Cancel),
    ]);
    let happens = match turn {
        Turn::Succeed => true,
        Turn::Final | Turn::NotSent | Turn::Refused => false,
        // An error that the policy calls harmless is harmless: the harness does not blame the ledger for a policy
        // that does not fit the work.
        Turn::Unclassified => (sort.marks || matches!(sort.on_error, OnError::Doubt | OnError::Keep)) && dice.one_in(2),
        Turn::Unknown | Turn::Panic | Turn::Cancel => !dice.one_in(3),
    };
    let pause = |dice: &mut Dice, slow: u64| {
        let micros = if sort.slow { slow * 1000 } else { dice.weighted(&[(3, 0), (1, 500), (1, 3000)]) };
        Duration::from_micros(micros)
    };
    let slow = 6 + dice.below(14);
    Visit {
        intent,
        turn,
        happens,
        before: pause(dice, slow),
        after: pause(dice, slow / 2),
        wait: Duration::from_millis(dice.weighted(&[(3, 0), (1, 30)])),
        leaves: dice.one_in(20).then(|| Duration::from_micros(dice.below(3000))),
        misuse: dice.one_in(8),
    }
}

/// Every cycle kills somebody at a step, the steps in turn; the others live, are killed at some moment, or stop.
fn fate(cycle: u64, worker: u64, workers: u64, dice: &mut Dice) -> Fate {
    let steps = Step::ALL.len() as u64;
    if worker == cycle % workers {
        let step = Step::ALL[usize::try_from(cycle % steps).unwrap_or(0)];
        return Fate::AtStep(step, 1 + u32::try_from(dice.below(usual(step))).unwrap_or(0));
    }
    let moment = Duration::from_micros(dice.below(60_000));
    match dice.below(10) {
        0..4 => Fate::After(moment),
        4..7 => Fate::Stop(moment, Duration::from_millis(20 + dice.below(40))),
        _ => Fate::Live,
    }
}

/// How often a worker comes by a step in one cycle, about.
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
        let plan = |seed| format!("{:?}", Part::of(seed, 5, 1, 3));
        assert_eq!(plan(1), plan(1));
        assert_ne!(plan(1), plan(2));
    }

    #[test]
    fn an_intent_is_in_the_windows_of_neighbouring_cycles() {
        let shared = window(9).filter(|intent| window(10).any(|other| other == *intent)).count();
        assert_eq!(shared as u64, FRESH * (LIFE - 1));
        assert_eq!(window(0).count() as u64, FRESH);
    }

    #[test]
    fn every_step_is_somebodys_fate() {
        for step in Step::ALL {
            let planned = (0..36).any(|cycle| {
                (0..3).any(|worker| matches!(Part::of(1, cycle, worker, 3).fate, Fate::AtStep(at, _) if at == step))
            });
            assert!(planned, "{step:?}");
        }
    }
}
