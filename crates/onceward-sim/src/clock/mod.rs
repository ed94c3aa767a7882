//! Clocks that jump by an hour and by ten years, forwards and back, between calls and in the middle of them, while
//! several ledgers work on few keys: in memory, and two with clocks of their own on one file.
//!
//! What holds however they jump: nothing runs again that its policy does not permit; who takes over from a living owner
//! has its fence, and the owner's late write is refused; no outcome is lost that no clock has seen expire; and soon after
//! the clocks are right again nothing is out of reach.
//!
//! - `jumpy`: the clock.
//! - `judge`: the promises.
//! - `play`: the calls.

mod judge;
mod jumpy;
mod play;

use std::time::Instant;

use crate::dice::Dice;
use judge::Tally;
use play::Play;

/// Steps in one run.
const STEPS: u64 = 80;

/// After so many runs everything must have come up that can go wrong.
const ENOUGH: u64 = 100;

/// What is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many runs.
    pub runs: u64,
    /// The seed.
    pub seed: u64,
}

/// Plays until something is broken or all is done, tells, and says whether all is well.
pub fn run(options: &Options) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime starts");
    let started = Instant::now();
    let (mut total, mut jumps) = (Tally::default(), 0);
    for run in 0..options.runs {
        match runtime.block_on(play(Dice::of(&[options.seed, run]), run)) {
            Ok((tally, jumped)) => {
                total = add(total, tally);
                jumps += jumped;
            }
            Err(broken) => {
                println!("VIOLATION run {run}, {broken}");
                println!("again: onceward-sim clock --runs {} --seed {}", run + 1, options.seed);
                return false;
            }
        }
    }
    println!("{} runs of {STEPS} steps, seed {}, {:.1} s", options.runs, options.seed, started.elapsed().as_secs_f64());
    let rows = [
        ("jumps of clocks", jumps),
        ("claims granted", total.granted),
        ("taken over from an owner at work", total.taken_early),
        ("late writes refused", total.refused),
        ("outcomes replayed", total.replayed),
        ("keys used anew after expiry", total.anew),
        ("started over, never having happened", total.over),
        ("told: in doubt", total.doubts),
        ("settled by hand", total.settled),
    ];
    rows.iter().for_each(|(name, number)| println!("{name:<40}{number:>10}"));
    let missed = rows.iter().filter(|(_, number)| *number == 0 && options.runs >= ENOUGH);
    let missed: Vec<_> = missed.map(|(name, _)| *name).collect();
    if !missed.is_empty() {
        println!("never came up: {}", missed.join(", "));
    }
    missed.is_empty()
}

async fn play(dice: Dice, run: u64) -> Result<(Tally, u64), String> {
    let mut play = Play::begin(dice, run).await;
    for step in 0..STEPS {
        play.step().await.map_err(|broken| format!("step {step}: {broken}"))?;
    }
    play.set_right().await.map_err(|broken| format!("at the end: {broken}"))?;
    Ok(play.end().await)
}

fn add(one: Tally, other: Tally) -> Tally {
    Tally {
        granted: one.granted + other.granted,
        replayed: one.replayed + other.replayed,
        doubts: one.doubts + other.doubts,
        taken_early: one.taken_early + other.taken_early,
        refused: one.refused + other.refused,
        anew: one.anew + other.anew,
        over: one.over + other.over,
        settled: one.settled + other.settled,
    }
}
