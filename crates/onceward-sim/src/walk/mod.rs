//! Random calls through the ledger, by several tenants on few keys, beside an oracle that says what each of them must be
//! told. Everything happens one after another, on a clock of its own, so that every answer is known beforehand.
//!
//! - `life`: the oracle.
//! - `scene`: the ledgers of one run, and who calls what in which words.
//! - `play`: the calls, each compared with what the oracle says.
//! - `end`: how an attempt ends.
//! - `gate`: a store that can be unplugged.

mod end;
mod gate;
mod life;
mod play;
mod scene;

use std::time::Instant;

use crate::dice::Dice;
use play::Walk;

/// Steps in one run.
const STEPS: u64 = 120;

/// What is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many runs.
    pub runs: u64,
    /// The seed.
    pub seed: u64,
}

/// Walks until something is broken or all is done, tells, and says whether all is well.
pub fn run(options: &Options) -> bool {
    // Planned panics are not news.
    std::panic::set_hook(Box::new(|_| {}));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime starts");
    let started = Instant::now();
    let mut tally = play::Tally::default();
    for run in 0..options.runs {
        let walked = runtime.block_on(walk(Dice::of(&[options.seed, run]), run, &mut tally));
        if let Err(broken) = walked {
            println!("VIOLATION run {run}, {broken}");
            println!("again: onceward-sim walk --runs {} --seed {}", run + 1, options.seed);
            return false;
        }
    }
    println!("{} runs of {STEPS} steps, seed {}, {:.1} s", options.runs, options.seed, started.elapsed().as_secs_f64());
    println!("{tally}");
    true
}

async fn walk(dice: Dice, run: u64, tally: &mut play::Tally) -> Result<(), String> {
    let mut walk = Walk::begin(dice, run).await;
    for step in 0..STEPS {
        walk.step().await.map_err(|broken| format!("step {step}: {broken}"))?;
    }
    tally.add(&walk.tally);
    walk.end().await;
    Ok(())
}
