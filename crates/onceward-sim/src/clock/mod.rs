//! Clocks jump by an hour and by ten years, forward and back, between and within calls, while several ledgers work on
//! few keys: in memory, and two with separate clocks on one file.
//!
//! Rules: nothing runs again that its policy does not permit; a caller that takes over from a living owner has its
//! fence, and the late write of that owner is refused; no outcome is lost before a clock has seen it expire; soon after
//! the clocks are right again, nothing is stuck.
//!
//! - `jumping_clock`: the clock.
//! - `judge`: the rules.
//! - `run`: the calls.

mod judge;
mod jumping_clock;
mod run;

use tokio::runtime::Runtime;

use crate::rng::Rng;
use crate::seeded::{self, Counts, Harness};
use run::Run;

/// Steps in one run.
const STEPS: u64 = 80;

/// The harness: the runtime on which runs are played.
pub struct Clocks(Runtime);

impl Clocks {
    pub fn new() -> Self {
        Self(seeded::runtime())
    }
}

impl Harness for Clocks {
    const COMMAND: &'static str = "clock";
    const REQUIRED: &'static [&'static str] = &run::COUNTED;

    fn play(&mut self, number: u64, rng: Rng, counts: &mut Counts) -> Vec<String> {
        let played = self.0.block_on(async {
            let mut run = Run::begin(rng, number).await;
            seeded::steps(STEPS, async || run.step().await).await?;
            run.set_right().await.map_err(|broken| format!("at the end: {broken}"))?;
            run.end(counts).await;
            Ok(())
        });
        played.err().into_iter().collect()
    }
}
