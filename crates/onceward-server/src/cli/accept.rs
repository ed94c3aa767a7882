//! `onceward accept`: takes a ledger as it is, although the mark beside it says that it was further.

use std::path::Path;

use onceward::store::sqlite::{Accepted, accept};

use super::Global;
use crate::exit::Fault;
use crate::output;

/// Accept a ledger that was restored from an older copy
///
/// A ledger that is older than the mark beside it is not opened: what was done since the copy was made is not in it, and
/// would run again. This accepts it as it is. If the ledger is gone and only its mark is left, this creates a new one.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  onceward accept --store /var/lib/onceward/onceward.db")]
pub(super) struct Accept {
    /// One JSON object with `ledger` and `mark`: how far each had come
    #[arg(long)]
    json: bool,
}

impl Accept {
    pub(super) fn execute(self, global: &Global) -> Result<u8, Fault> {
        let settings = global.settings()?;
        let store = settings.store()?;
        let path = store.strip_prefix("file:").unwrap_or(store);
        if store == "memory:" || store.contains("://") {
            return Err(Fault::usage("only a ledger in a file has a mark: name it with --store"));
        }
        let Accepted { ledger, mark } = accept(Path::new(path))?;
        if self.json {
            output::json(&serde_json::json!({ "ledger": ledger, "mark": mark }));
            return Ok(0);
        }
        output::out(&match mark {
            Some(mark) if mark > ledger => format!(
                "accepted {path} (ledger {ledger}, mark {mark}). What was done between the two is not in it: settle that \
                 before retries come."
            ),
            Some(_) => format!("{path} is not older than its mark (ledger {ledger}); nothing had to be accepted"),
            None => {
                format!("accepted {path}, which had no mark of its own. Check what was done in the ledger before it.")
            }
        });
        Ok(0)
    }
}
