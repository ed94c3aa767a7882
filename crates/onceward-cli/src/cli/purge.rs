//! `onceward purge`: frees expired records, in batches.

use onceward::store::{MAX_PURGE_SIZE, Purged};

use super::opening::{open_reachable, report};
use super::{Global, block_on};
use onceward_runtime::exit::Fault;
use onceward_runtime::output;

/// Free the space of expired records
///
/// A ledger does this by itself from time to time; this command frees all of them now. Records that are running, in doubt or
/// dead are never freed. If a named store cannot be reached, purges the others and exits with 69.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  onceward purge --store /var/lib/onceward/onceward.db")]
pub(super) struct Purge {
    /// Print one JSON object with `tombstones` and `removed`
    #[arg(long)]
    json: bool,
}

impl Purge {
    pub(super) fn execute(self, global: &Global) -> Result<u8, Fault> {
        let settings = global.settings()?;
        block_on(async {
            let ledger = open_reachable(&settings).await?;
            let mut all = Purged::default();
            let failed = loop {
                let (batch, failed) = ledger.purge_reachable(MAX_PURGE_SIZE).await.any()?;
                all = Purged { tombstones: all.tombstones + batch.tombstones, removed: all.removed + batch.removed };
                // Records that expire during this run are left to the next one.
                if batch.total() < MAX_PURGE_SIZE {
                    break failed;
                }
                output::progress(&format!("{} freed so far", all.total()));
            };
            output::progress("");
            ledger.close().await;
            if self.json {
                output::json(&all);
            } else {
                output::out(&format!(
                    "{} outcomes dropped (their keys are still held), {} records removed",
                    all.tombstones, all.removed
                ));
            }
            Ok(report(&failed, "purged"))
        })
    }
}
