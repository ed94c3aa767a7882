//! Interleaves calls of the real ledger: a few callers, two ledgers on one store, and a schedule that decides in which
//! order store calls are carried out and answered, when time passes, which callers are dropped, and what fails. Then
//! every write and every answer is judged against the one order of writes.
//!
//! This is the real code on the real runtime, with one thread and virtual time. What the ledger shares between callers
//! (its cache, its waiters, the guards) is touched only between two store calls, so callers can overtake each other
//! only there.
//!
//! - `plan`: what the callers do. `actor`: does it.
//! - `gate`: the store in which every call waits for the schedule.
//! - `history`: what the store held, when. `judge`: what was wrong.

mod actor;
mod gate;
mod history;
mod judge;
mod plan;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceward::Ledger;
use onceward::clock::Clock;
use onceward::core::hash::Digest;
use onceward::core::time::Timestamp;

use crate::rng::Rng;
use crate::seeded::{Counts, Harness};
use actor::{Context, Exchange, Log, Response};
use gate::{Fate, GatedStore, SharedStore};
use judge::Judge;
use plan::{ACTORS, LEDGERS, Plan};

/// A schedule that takes longer has callers that wait for ever.
const MAX_STEPS: u64 = 20_000;

/// A fault of the store, to prove that the judge finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A conditional write does not compare the record.
    NoCompare,
    /// Every insert is answered as if it had created the record.
    AlwaysCreated,
    /// The clock of the cache is slow.
    SlowClock,
}

impl Fault {
    /// Every fault, with its name on the command line.
    pub const ALL: [(&str, Self); 3] =
        [("no-compare", Self::NoCompare), ("always-created", Self::AlwaysCreated), ("slow-clock", Self::SlowClock)];
}

/// The harness, with a fault in its store or without.
pub struct Schedules {
    pub fault: Option<Fault>,
}

/// The store's clock is the runtime's own time.
#[derive(Debug)]
struct VirtualClock(tokio::time::Instant);

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        // 2026-01-01, so that no time is near the limits of the type.
        Timestamp::from_millis(1_767_225_600_000).after(self.0.elapsed())
    }
}

impl Harness for Schedules {
    const COMMAND: &'static str = "interleave";
    const RUNS_OPTION: &'static str = "--schedules";
    const MAX_VIOLATIONS: usize = 5;

    fn play(&mut self, _: u64, mut rng: Rng, counts: &mut Counts) -> Vec<String> {
        let plan = Arc::new(Plan::of(&mut rng));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let context = runtime.expect("the runtime starts").block_on(play(plan, self.fault, &mut rng));
        let (log, traffic) = (context.log(), context.shared.traffic());
        let mut broken = traffic.missed.clone();
        if traffic.step >= MAX_STEPS {
            broken.push(format!("after {MAX_STEPS} steps, callers still wait"));
        }
        broken.extend(Judge::new(&context.plan, &traffic.history).judge(&log));
        counts.add("schedules", 1);
        counts.add("steps", traffic.step);
        counts.add("effects", log.effects.len() as u64);
        counts.add("callers dropped", log.dropped);
        counts.add("store calls that failed or lost their answer", traffic.faults);
        counts.add("conflicting writes", traffic.conflicts);
        let writes = traffic.history.keys().into_iter().map(|id| traffic.history.changes(id).len() as u64 - 1);
        counts.add("records written", writes.sum());
        counts.add("forgotten because nothing had happened", traffic.history.forgotten() as u64);
        log.exchanges.iter().for_each(|exchange| counts.add(name(exchange), 1));
        broken
    }
}

fn name(exchange: &Exchange) -> &'static str {
    use onceward::core::decide::Decision;
    use onceward::{Error, WriteResult};
    match &exchange.response {
        Response::Claimed(_) => "answered: claimed",
        Response::Decided(Decision::Replay { .. }) => "answered: replay",
        Response::Decided(Decision::InFlight { .. }) => "answered: in flight",
        Response::Decided(Decision::InDoubt { .. }) => "answered: in doubt",
        Response::Decided(Decision::Mismatch) => "answered: mismatch",
        Response::Decided(Decision::OutcomeNotKept { .. }) => "answered: outcome not kept",
        Response::Decided(_) => "answered: another decision",
        Response::Ended(_, _, WriteResult::Written) | Response::Ran(Ok(_)) => "answered: written",
        Response::Ended(_, _, WriteResult::Stale) | Response::Ran(Err(Error::ClaimLost { .. })) => {
            "answered: claim lost"
        }
        Response::Ran(Err(Error::Failed { .. })) => "answered: failed",
        Response::Ran(Err(Error::OwnerUnknown { .. })) => "answered: owner unknown",
        Response::Ran(Err(Error::OwnerFailed { .. })) => "answered: owner failed",
        Response::Ran(Err(_)) | Response::Failed(_) => "answered: store failed",
        Response::Nothing => "answered: resolved or refused",
    }
}

/// Plays a plan to its end.
async fn play(plan: Arc<Plan>, fault: Option<Fault>, rng: &mut Rng) -> Context {
    let clock = Arc::new(VirtualClock(tokio::time::Instant::now()));
    let keys: Vec<Digest> = (0..plan::INTENTS).map(plan::id).collect();
    let shared = SharedStore::new(clock, fault, &keys);
    let ledgers = (0..LEDGERS).map(|ledger| Ledger::builder().on(GatedStore::new(ledger, &shared))).collect();
    let context = Context { shared, ledgers, plan, log: Arc::new(Mutex::new(Log::default())) };
    let players: Vec<_> = (0..ACTORS).map(|actor| tokio::spawn(context.clone().play(actor))).collect();
    while players.iter().any(|player| !player.is_finished()) && context.shared.traffic().step < MAX_STEPS {
        step(&context, rng).await;
    }
    // Callers that are gone may have left work behind.
    for _ in 0..200 {
        step(&context, rng).await;
    }
    context
}

/// Lets one thing happen, and everything that follows from it without the store.
async fn step(context: &Context, rng: &mut Rng) {
    let mut pause = Duration::from_millis(1);
    let next = {
        let mut traffic = context.shared.traffic();
        traffic.step += 1;
        traffic.waiting.retain(|waiting| !waiting.open.is_closed());
        match traffic.waiting.len() as u64 {
            0 => None,
            waiting => Some(rng.below(waiting) as usize).map(|chosen| traffic.waiting.swap_remove(chosen)),
        }
    };
    match next {
        Some(waiting) => {
            let fails = context.plan.faults && waiting.is_call && rng.one_in(25);
            let fate = match fails {
                true => [Fate::Fail, Fate::Lose][rng.below(2) as usize],
                false => Fate::Pass,
            };
            let _ = waiting.open.send(fate);
        }
        None => pause = Duration::from_millis(1 + rng.below(20)),
    }
    // Now and then long enough for leases to lapse before a caller can renew them.
    match rng.below(36) {
        0 => pause = Duration::from_millis(40 + rng.below(100)),
        1 | 2 => pause = Duration::from_millis(1 + rng.below(40)),
        _ => {}
    }
    if context.plan.drops && rng.one_in(60) {
        drop_a_caller(context, rng);
    }
    // With paused time, a sleep ends only when no other task can continue.
    tokio::time::sleep(Duration::from_micros(1)).await;
    context.shared.traffic().look_for_sleepers();
    tokio::time::sleep(pause).await;
}

fn drop_a_caller(context: &Context, rng: &mut Rng) {
    let mut log = context.log();
    log.running.retain(|running| !running.is_finished());
    let chosen = rng.below(log.running.len() as u64) as usize;
    if let Some(running) = log.running.get(chosen) {
        running.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeded::{self, Options, Report};

    /// How many schedules the test command runs.
    const TESTED_SCHEDULES: u64 = 800;

    fn play(runs: u64, seed: u64, fault: Option<Fault>) -> Report {
        seeded::play(&mut Schedules { fault }, Options { runs, seed })
    }

    #[test]
    fn every_answer_was_true_at_some_moment_between_question_and_answer() {
        let Report { counts, violations } = play(TESTED_SCHEDULES, 20_260_101, None);
        assert!(violations.is_empty(), "{violations:#?}");
        for (name, count) in counts.iter() {
            assert!(count > 0, "never: {name}");
        }
        for name in ["answered: claim lost", "answered: replay", "answered: outcome not kept", "conflicting writes"] {
            assert!(counts.get(name) > 10, "too few: {name}: {counts:?}");
        }
    }

    #[test]
    fn the_same_seed_makes_the_same_schedule() {
        assert_eq!(play(20, 5, None).counts, play(20, 5, None).counts);
    }

    #[test]
    fn a_store_with_a_fault_is_caught() {
        for (name, fault) in Fault::ALL {
            assert!(!play(150, 1, Some(fault)).violations.is_empty(), "{name} was not caught");
        }
    }
}
