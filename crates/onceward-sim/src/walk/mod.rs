//! Makes random calls through the ledger, by several tenants on few keys, and compares every answer with an oracle. The
//! calls are made one after another on a manual clock, so that every answer is known in advance.
//!
//! - `oracle`: the oracle.
//! - `setup`: the ledgers of one run, its intents and their calls.
//! - `run`: the calls, each compared with the oracle.
//! - `end`: how an attempt ends.
//! - `entry`, `entry_oracle`: the same for entries of the outbox.
//! - `store_switch`: a store that can be made unavailable.

mod end;
mod entry;
mod entry_oracle;
mod oracle;
mod run;
mod setup;
mod store_switch;

use tokio::runtime::Runtime;

use crate::rng::Rng;
use crate::seeded::{self, Counts, Harness};
use entry::EntryWalk;
use run::Walk;

/// Steps in one run.
const STEPS: u64 = 120;

/// The harness: the runtime on which runs are played, and the server on which their ledgers are, if not in this process.
pub struct Walks {
    runtime: Runtime,
    server: Option<String>,
}

impl Walks {
    pub fn new(server: Option<String>) -> Self {
        // Work that panics on purpose prints nothing.
        std::panic::set_hook(Box::new(|_| {}));
        Self { runtime: seeded::runtime(), server }
    }
}

impl Harness for Walks {
    const COMMAND: &'static str = "walk";

    fn play(&mut self, number: u64, rng: Rng, counts: &mut Counts) -> Vec<String> {
        let entry_rng = Rng::of(&[number, rng.clone().bits()]);
        let walked = self.runtime.block_on(async {
            let mut walk = Walk::begin(rng, number, self.server.as_deref()).await;
            seeded::steps(STEPS, async || walk.step().await).await?;
            walk.tally.add_to(counts);
            walk.end().await;
            // Servers have no outbox yet.
            if self.server.is_none() {
                let mut entries = EntryWalk::begin(entry_rng, number).await;
                seeded::steps(STEPS, async || entries.step().await).await?;
                entries.add_to(counts);
            }
            Ok(())
        });
        walked.err().into_iter().collect()
    }
}
