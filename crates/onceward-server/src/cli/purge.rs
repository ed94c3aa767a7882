//! `onceward purge`: frees what has expired, in batches.

use onceward::store::{LARGEST_PURGE, Purged};

use super::{Global, block_on, open};
use crate::exit::Fault;
use crate::output;

/// Free what has expired
///
/// A ledger does this by itself now and then; this does all of it now. Nothing that is running, in doubt or dead is ever
/// freed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  onceward purge --store /var/lib/onceward/onceward.db")]
pub(super) struct Purge {
    /// One JSON object with `tombstones` and `removed`
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
                let batch = ledger.purge(LARGEST_PURGE).await?;
                all = Purged { tombstones: all.tombstones + batch.tombstones, removed: all.removed + batch.removed };
                // What expires while this runs is left to the next one.
                if batch.total() < LARGEST_PURGE {
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
