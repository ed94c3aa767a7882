//! What the kill harnesses share: real processes, clients that retry, a file to which every effect appends itself, and
//! a judge that knows only what clients asked, what they were answered and what happened.
//!
//! - `kill_run`: one run, and how it ends.
//! - `product`: the binary under test as a process.
//! - `effects`: the file of effects.
//! - `judge`: what clients were answered, and which rules that broke.
//! - `doubts`: settles doubts as an operator does.
//! - `web`: one HTTP request.

pub mod doubts;
pub mod effects;
pub mod judge;
mod kill_run;
pub mod product;
pub mod web;

use std::path::PathBuf;
use std::time::Duration;

use crate::mcp::WITHOUT_KEY_PREFIX;
pub use kill_run::KillRun;

/// The options of a kill harness.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many kills.
    pub kills: u64,
    /// The seed of the plan.
    pub seed: u64,
    /// The binary to kill; without one, this program runs the product's code.
    pub binary: Option<PathBuf>,
}

/// The key of the opening scenario of each run: its effect takes place, and its answer is held back until a process is
/// killed.
pub const HELD: &str = "held-0";

/// How long the answer is held back: the process is dead by then.
pub const HELD_FOR: Duration = Duration::from_secs(5);

/// A doubt is answered within this time.
pub const ANSWERED_WITHIN: Duration = Duration::from_secs(3);

impl Options {
    /// The number of a key, which decides how its effect behaves.
    pub fn number(key: &str) -> u64 {
        key.trim_start_matches("k-").trim_start_matches(WITHOUT_KEY_PREFIX).parse().unwrap_or(0)
    }
}

/// Runs a harness on a runtime.
pub fn on_runtime<T>(play: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(play)
}
