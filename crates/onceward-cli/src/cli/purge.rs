//! `onceward purge`: frees expired records, in batches.

use onceward::store::{MAX_PURGE_SIZE, Purged};

use super::{Global, block_on, open};
use onceward_runtime::exit::Fault;
use onceward_runtime::output;

/// Free the space of expired records
///
/// A ledger does this by itself from time to time; this command frees all of them now. Records that are running, in doubt or
/// dead are never freed.
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
            let ledger = open(&settings).await?;
            let mut all = Purged::default();
            loop {
                let batch = ledger.purge(MAX_PURGE_SIZE).await?;
                all = Purged { tombstones: all.tombstones + batch.tombstones, removed: all.removed + batch.removed };
                // Records that expire during this run are left to the next one.
                if batch.total() < MAX_PURGE_SIZE {
                    break;
                }
                output::progress(&format!("{} freed so far", all.total()));
            }
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
            Ok(0)
        })
    }
}
