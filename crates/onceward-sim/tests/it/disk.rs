//! A disk whose every operation fails once, by the harness's own binary.

use std::process::Command;

#[test]
fn every_write_sync_and_open_may_fail_and_the_ledger_fails_closed_and_recovers() {
    // Reads, locks and failures that last are sampled here; without the option all of them are tried.
    let output = Command::new(env!("CARGO_BIN_EXE_onceward-sim"))
        .args(["disk", "--seed", "1", "--every", "6"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for kind in ["Open", "Read", "Write", "Truncate", "Sync", "Size", "Delete", "Lock", "Map", "MapLock"] {
        let failed = text.lines().find_map(|line| line.strip_prefix(&format!("failed: {kind} ")));
        let failed: u64 = failed.and_then(|rest| rest.trim().parse().ok()).unwrap_or(0);
        assert!(failed > 0, "no {kind} has failed: {text}");
    }
}
