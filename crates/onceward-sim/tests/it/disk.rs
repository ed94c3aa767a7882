//! The disk harness: every operation on the disk fails once.

use crate::command::passes;

#[test]
fn every_write_sync_and_open_may_fail_and_the_ledger_fails_closed_and_recovers() {
    // Reads, locks and lasting failures are sampled here; without the option all of them are tried.
    let run = passes("disk --seed 1 --every 6");
    for kind in ["Open", "Read", "Write", "Truncate", "Sync", "Size", "Delete", "Lock", "Map", "MapLock"] {
        let failed = run.line_after(&format!("failed: {kind} "));
        let failed: u64 = failed.and_then(|rest| rest.trim().parse().ok()).unwrap_or(0);
        assert!(failed > 0, "no {kind} has failed: {}", run.text);
    }
}
