//! `onceward accept`: accepts a ledger that is older than the mark next to it.

use onceward::store::sqlite::{Accepted, accept};

use super::Global;
use onceward_runtime::exit::Fault;
use onceward_runtime::output;

/// Accept a ledger that was restored from an older copy
///
/// Onceward refuses to open a ledger that is older than the mark next to it: work that was done after the copy was made is
/// missing in it and would run again. This command accepts the ledger as it is. If the ledger is gone and only its mark is
/// left, this command creates a new ledger.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  onceward accept --store /var/lib/onceward/onceward.db")]
pub(super) struct Accept {
    /// Print one JSON object with `ledger` and `mark`: the position of each
    #[arg(long)]
    json: bool,
}

impl Accept {
    pub(super) fn execute(self, global: &Global) -> Result<u8, Fault> {
        let settings = global.settings()?;
        let store = settings.store()?;
        let Some(path) = store.file() else {
            return Err(Fault::usage("only a ledger in a file has a mark; name the file with --store"));
        };
        let Accepted { ledger, mark } = accept(path)?;
        let path = path.display();
        if self.json {
            output::json(&serde_json::json!({ "ledger": ledger, "mark": mark }));
            return Ok(0);
        }
        output::out(&match mark {
            Some(mark) if mark > ledger => format!(
                "accepted {path} (ledger {ledger}, mark {mark}). Work done between the two is missing in it: settle it before \
                 clients retry."
            ),
            Some(_) => format!("{path} is not older than its mark (ledger {ledger}); nothing had to be accepted"),
            None => {
                format!("accepted {path}, which had no mark. Check what the previous ledger recorded.")
            }
        });
        Ok(0)
    }
}
