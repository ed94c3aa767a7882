//! What the harnesses share that kill the product under load: real processes, real clients that retry, a file to which
//! every effect writes itself, and a judge that knows only what clients asked, what they were told and what happened.
//!
//! - `stage`: the folder of a run, and how it ends.
//! - `product`: the binary under test as a process.
//! - `effects`: the file of effects.
//! - `book`: what clients were told, and which rules that broke.
//! - `doubts`: settles doubts as an operator does.
//! - `web`: one HTTP request.

pub mod book;
pub mod doubts;
pub mod effects;
pub mod product;
mod stage;
pub mod web;

use std::path::PathBuf;
use std::time::Duration;

use crate::mcp::MEANT;
pub use stage::Stage;

/// What is wanted of such a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many kills.
    pub kills: u64,
    /// The seed of the plan.
    pub seed: u64,
    /// The binary to kill; without one, this program stands in for it.
    pub binary: Option<PathBuf>,
}

/// The key of the first scene of each run: its effect takes place, and its answer is held back until somebody is killed.
pub const HELD: &str = "held-0";

/// How long an answer is held back: whoever is to be killed meanwhile is dead by then.
pub const HOLDS: Duration = Duration::from_secs(5);

/// Whoever asks again for what is in doubt is told so in less time than this.
pub const TOLD_WITHIN: Duration = Duration::from_secs(3);

impl Options {
    /// The number of a key, which decides what its effect is like.
    pub fn number(key: &str) -> u64 {
        key.trim_start_matches("k-").trim_start_matches(MEANT).parse().unwrap_or(0)
    }
}

/// A runtime on which a harness plays.
pub fn on_a_runtime<T>(play: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(play)
}
