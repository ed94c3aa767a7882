//! The plan of a run: which intents each worker calls, how each attempt ends, and where workers die. All of it follows
//! from the seed; only the scheduling of the operating system does not.

use std::time::Duration;

use onceward::OnError;
use onceward::step::Step;

use super::intent_kind::IntentKind;
use super::times::Times;
use crate::rng::Rng;

/// New intents in each cycle.
pub const NEW_INTENTS: u64 = 4;

/// For how many cycles an intent is tried again: retries, resumes and races between cycles.
pub const CYCLES_PER_INTENT: u64 = 3;

/// Keys whose outcome is kept for moments, so that they keep expiring, being swept and being used again.
const BRIEF: u64 = 6;

/// The first intent that is not brief.
pub const FIRST: u64 = 1000;

/// What the plan of a run follows from.
#[derive(Clone, Copy, Debug)]
pub struct RunPlan {
    /// The seed.
    pub seed: u64,
    /// How long things take.
    pub times: &'static Times,
}

impl RunPlan {
    /// The plan of a run on a server, if there is one, or else on a file.
    pub fn of(seed: u64, server: Option<&str>) -> Self {
        Self { seed, times: Times::of(server) }
    }

    /// The kind of an intent.
    pub fn kind(self, intent: u64) -> IntentKind {
        IntentKind::of(self, intent)
    }

    /// What a worker does in a cycle.
    pub fn worker(self, cycle: u64, worker: u64, workers: u64) -> WorkerPlan {
        let mut rng = Rng::of(&[self.seed, 2, cycle, worker]);
        let mut intents: Vec<u64> = window(cycle).collect();
        rng.shuffle(&mut intents);
        intents.truncate(7);
        intents.extend([rng.below(BRIEF), rng.below(BRIEF)]);
        // Calls the first intent again: a repeat in the same process.
        intents.push(intents[0]);
        rng.shuffle(&mut intents);
        let mut calls: Vec<PlannedCall> = intents.into_iter().map(|intent| self.call(intent, &mut rng)).collect();
        let fate = self.fate(cycle, worker, workers, &mut rng);
        calls.iter_mut().for_each(|planned| planned.suit(fate));
        if let Fate::AtStep(Step::Renewed, _) = fate {
            // Only slow work renews its lease, and only where another worker has not done it yet.
            let newest = window(cycle).filter(|intent| self.kind(*intent).slow).last();
            calls.splice(..0, newest.map(|intent| PlannedCall { leaves: None, ..self.call(intent, &mut rng) }));
        }
        WorkerPlan { calls, fate }
    }

    /// A plan without faults over these intents, to finish what can be finished.
    pub fn calm(self, intents: &[u64]) -> WorkerPlan {
        let mut rng = Rng::of(&[self.seed, 3]);
        let calls = intents.iter().map(|intent| PlannedCall {
            attempt_end: AttemptEnd::Succeed,
            happens: true,
            misuse: false,
            leaves: None,
            ..self.call(*intent, &mut rng)
        });
        WorkerPlan { calls: calls.collect(), fate: Fate::Live }
    }

    fn call(self, intent: u64, rng: &mut Rng) -> PlannedCall {
        let kind = self.kind(intent);
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
        let (least, more) = self.times.slow_work;
        let slow = least + rng.below(more);
        PlannedCall {
            intent,
            attempt_end,
            happens,
            before: pause(rng, slow),
            after: pause(rng, slow / 2),
            wait: rng.weighted(&[(3, Duration::ZERO), (1, self.times.wait)]),
            leaves: rng.one_in(20).then(|| Duration::from_micros(rng.below(micros(self.times.leaves_within)))),
            misuse: rng.one_in(8),
        }
    }

    /// Every cycle kills one worker at a step, step after step; the others live, are killed at some moment, or are stopped.
    fn fate(self, cycle: u64, worker: u64, workers: u64, rng: &mut Rng) -> Fate {
        let steps = Step::OF_CALLS.len() as u64;
        let step = Step::OF_CALLS[usize::try_from(cycle % steps).unwrap_or(0)];
        // The first sweep of a cycle leaves nothing to free, and any worker may be the one that makes it.
        if worker == cycle % workers || step == Step::PurgeCommitted {
            return Fate::AtStep(
                step,
                1 + u32::try_from(rng.below(usual(step).div_ceil(self.times.fewer_visits))).unwrap_or(0),
            );
        }
        let moment = Duration::from_micros(rng.below(micros(self.times.interrupted_within)));
        match rng.below(10) {
            0..4 => Fate::After(moment),
            4..7 => {
                let (least, more) = self.times.stopped;
                Fate::Stop(moment, Duration::from_millis(least + rng.below(more)))
            }
            _ => Fate::Live,
        }
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
    /// A plan that only opens the ledger.
    pub fn open_only() -> Self {
        Self { calls: Vec::new(), fate: Fate::Live }
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

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// About how often a worker reaches a step in one cycle.
fn usual(step: Step) -> u64 {
    match step {
        Step::PurgeCommitted | Step::DoubtWritten | Step::ReleaseWritten | Step::SentDecided | Step::SentWritten => 1,
        Step::Renewed => 2,
        Step::BeginWritten | Step::FinishDecided | Step::FinishWritten => 4,
        Step::BeginDecided => 8,
        Step::StoreUncommitted | Step::StoreCommitted => 12,
        Step::EntryQueued | Step::EntryTaken | Step::AttemptEnded | Step::UndeliveredWritten | Step::LookUpWritten => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_plan() {
        let plan = |seed| format!("{:?}", RunPlan::of(seed, None).worker(5, 1, 3));
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
        for step in Step::OF_CALLS {
            let planned = (0..36).any(|cycle| {
                (0..3)
                    .any(|worker| matches!(RunPlan::of(1, None).worker(cycle, worker, 3).fate, Fate::AtStep(at, _) if at == step))
            });
            assert!(planned, "{step:?}");
        }
    }
}
