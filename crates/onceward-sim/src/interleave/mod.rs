//! Interleavings of the real ledger below its callers: a few callers, two ledgers on one store, and a schedule that says
//! in which order store calls are carried out and answered, when time passes, who is dropped, and what fails. Then every
//! write and every answer is judged against the one order of writes.
//!
//! This is the real code on the real runtime, with one thread and its own time: what the ledger shares between callers
//! (its cache, its waiters, the guards) is touched only between two store calls, so that these are where callers can
//! overtake each other.
//!
//! - `plan`: what the callers do. `actor`: doing it.
//! - `gate`: the store in which every call waits for the schedule.
//! - `history`: what the store held, when. `judge`: what was wrong.

mod actor;
mod gate;
mod history;
mod judge;
mod plan;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use onceward::Ledger;
use onceward::clock::Clock;
use onceward::core::hash::Digest;
use onceward::core::time::Timestamp;

use crate::dice::Dice;
use actor::{Exchange, Notes, Stage, Told};
use gate::{Fate, Gated, Shared};
use judge::Judge;
use plan::{ACTORS, LEDGERS, Plan};

/// A schedule that takes longer has callers that wait for nothing.
const MOST_STEPS: u64 = 20_000;

/// How many violations are told; one is enough to look into.
const MOST_TOLD: usize = 5;

/// A store that misbehaves, to show that the judge notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// A conditional write does not look at what is there.
    Blind,
    /// Everybody is told that the record was created.
    Everybody,
    /// The time that the cache goes by is behind.
    SlowClock,
}

impl Lie {
    /// Every fault, by its name.
    pub const ALL: [(&str, Self); 3] =
        [("blind", Self::Blind), ("everybody", Self::Everybody), ("slow-clock", Self::SlowClock)];
}

/// What is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub schedules: u64,
    pub seed: u64,
    pub lie: Option<Lie>,
}

/// What came of the schedules.
#[derive(Debug, Default)]
pub struct Tally {
    counts: BTreeMap<&'static str, u64>,
    /// With the number of the schedule.
    pub broken: Vec<(u64, String)>,
}

/// The store's clock is the runtime's own time.
#[derive(Debug)]
struct Virtual(tokio::time::Instant);

impl Clock for Virtual {
    fn now(&self) -> Timestamp {
        // 2026-01-01, so that no time is near the ends of time.
        Timestamp::from_millis(1_767_225_600_000).after(self.0.elapsed())
    }
}

/// Goes through the schedules, tells, and says whether all is well.
pub fn run(options: &Options) -> bool {
    let started = Instant::now();
    let mut tally = Tally::default();
    for number in 0..options.schedules {
        schedule(options, number, &mut tally);
        if tally.broken.len() >= MOST_TOLD {
            break;
        }
    }
    for (name, count) in &tally.counts {
        println!("{name:<44}{count:>12}");
    }
    println!("{:<44}{:>12}", "violations", tally.broken.len());
    for (number, broken) in &tally.broken {
        println!("VIOLATION in schedule {number} of seed {}: {broken}", options.seed);
    }
    println!("{:.1} s", started.elapsed().as_secs_f64());
    tally.broken.is_empty()
}

/// One schedule, from its number and the seed.
pub fn schedule(options: &Options, number: u64, tally: &mut Tally) {
    let mut dice = Dice::of(&[options.seed, number]);
    let plan = Arc::new(Plan::of(&mut dice));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let stage = runtime.expect("there is room for a runtime").block_on(play(plan, options.lie, &mut dice));
    let (notes, traffic) = (stage.notes(), stage.shared.traffic());
    let mut broken = traffic.missed.clone();
    if traffic.step >= MOST_STEPS {
        broken.push(format!("after {MOST_STEPS} steps, callers still wait"));
    }
    broken.extend(Judge::new(&stage.plan, &traffic.history).judge(&notes));
    tally.broken.extend(broken.into_iter().map(|broken| (number, broken)));
    let mut count = |name, more: u64| *tally.counts.entry(name).or_default() += more;
    count("schedules", 1);
    count("steps", traffic.step);
    count("effects", notes.effects.len() as u64);
    count("callers dropped", notes.dropped);
    count("store calls that failed or lost their answer", traffic.faults);
    count("writes that met another record", traffic.conflicts);
    let writes = traffic.history.keys().into_iter().map(|id| traffic.history.changes(id).len() as u64 - 1);
    count("records written", writes.sum());
    count("forgotten, never having happened", traffic.history.forgotten() as u64);
    notes.exchanges.iter().for_each(|exchange| count(name(exchange), 1));
}

fn name(exchange: &Exchange) -> &'static str {
    use onceward::core::decide::Decision;
    use onceward::{Error, Reach};
    match &exchange.told {
        Told::Claimed(_) => "told: claimed",
        Told::Decided(Decision::Replay { .. }) => "told: replay",
        Told::Decided(Decision::InFlight { .. }) => "told: in flight",
        Told::Decided(Decision::InDoubt { .. }) => "told: in doubt",
        Told::Decided(Decision::Mismatch) => "told: mismatch",
        Told::Decided(Decision::OutcomeNotKept { .. }) => "told: no longer kept",
        Told::Decided(_) => "told: something else",
        Told::Ended(_, _, Reach::Written) | Told::Ran(Ok(_)) => "told: written",
        Told::Ended(_, _, Reach::Stale) | Told::Ran(Err(Error::ClaimLost { .. })) => "told: the claim was lost",
        Told::Ran(Err(Error::Failed { .. })) => "told: failed",
        Told::Ran(Err(Error::OwnerUnknown { .. })) => "told: the awaited owner's end is unknown",
        Told::Ran(Err(Error::OwnerFailed { .. })) => "told: the awaited owner failed",
        Told::Ran(Err(_)) | Told::Failed(_) => "told: the store failed",
        Told::Nothing => "told: resolved or refused",
    }
}

/// Plays a plan to its end.
async fn play(plan: Arc<Plan>, lie: Option<Lie>, dice: &mut Dice) -> Stage {
    let clock = Arc::new(Virtual(tokio::time::Instant::now()));
    let keys: Vec<Digest> = (0..plan::INTENTS).map(plan::id).collect();
    let shared = Shared::new(clock, lie, &keys);
    let ledgers = (0..LEDGERS).map(|ledger| Ledger::builder().on(Gated::new(ledger, &shared))).collect();
    let stage = Stage { shared, ledgers, plan, notes: Arc::new(Mutex::new(Notes::default())) };
    let players: Vec<_> = (0..ACTORS).map(|actor| tokio::spawn(stage.clone().play(actor))).collect();
    while players.iter().any(|player| !player.is_finished()) && stage.shared.traffic().step < MOST_STEPS {
        step(&stage, dice).await;
    }
    // Whoever is gone may have left work behind.
    for _ in 0..200 {
        step(&stage, dice).await;
    }
    stage
}

/// Lets one thing happen, and everything that follows from it without the store.
async fn step(stage: &Stage, dice: &mut Dice) {
    let mut pause = Duration::from_millis(1);
    let next = {
        let mut traffic = stage.shared.traffic();
        traffic.step += 1;
        traffic.waiting.retain(|waiting| !waiting.open.is_closed());
        match traffic.waiting.len() as u64 {
            0 => None,
            waiting => Some(dice.below(waiting) as usize).map(|chosen| traffic.waiting.swap_remove(chosen)),
        }
    };
    match next {
        Some(waiting) => {
            let fails = stage.plan.faults && waiting.is_call && dice.one_in(25);
            let fate = match fails {
                true => [Fate::Fail, Fate::Lose][dice.below(2) as usize],
                false => Fate::Pass,
            };
            let _ = waiting.open.send(fate);
        }
        None => pause = Duration::from_millis(1 + dice.below(20)),
    }
    // Now and then long enough for leases to lapse before anybody gets to renew them.
    match dice.below(36) {
        0 => pause = Duration::from_millis(40 + dice.below(100)),
        1 | 2 => pause = Duration::from_millis(1 + dice.below(40)),
        _ => {}
    }
    if stage.plan.drops && dice.one_in(60) {
        drop_somebody(stage, dice);
    }
    // With paused time, a sleep ends only when nobody else has anything to do.
    tokio::time::sleep(Duration::from_micros(1)).await;
    stage.shared.traffic().look_for_sleepers();
    tokio::time::sleep(pause).await;
}

fn drop_somebody(stage: &Stage, dice: &mut Dice) {
    let mut notes = stage.notes();
    notes.running.retain(|running| !running.is_finished());
    let chosen = dice.below(notes.running.len() as u64) as usize;
    if let Some(running) = notes.running.get(chosen) {
        running.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(schedules: u64, seed: u64, lie: Option<Lie>) -> Tally {
        let options = Options { schedules, seed, lie };
        let mut tally = Tally::default();
        (0..schedules).for_each(|number| schedule(&options, number, &mut tally));
        tally
    }

    #[test]
    fn every_answer_was_true_at_some_moment_between_question_and_answer() {
        let tally = tally(800, 20_260_101, None);
        assert!(tally.broken.is_empty(), "{:#?}", tally.broken);
        for (name, count) in &tally.counts {
            assert!(*count > 0, "never: {name}");
        }
        for name in
            ["told: the claim was lost", "told: replay", "told: no longer kept", "writes that met another record"]
        {
            assert!(tally.counts.get(name).is_some_and(|count| *count > 10), "too few: {name}: {:?}", tally.counts);
        }
    }

    #[test]
    fn the_same_seed_makes_the_same_schedule() {
        assert_eq!(tally(20, 5, None).counts, tally(20, 5, None).counts);
    }

    #[test]
    fn a_store_that_misbehaves_is_caught() {
        for (name, lie) in Lie::ALL {
            assert!(!tally(150, 1, Some(lie)).broken.is_empty(), "{name} was not caught");
        }
    }
}
