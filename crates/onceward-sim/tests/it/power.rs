//! Power cuts by the harness's own binary: the ledger survives them, and a disk that swallows syncs is noticed.

use std::process::{Command, Output};

fn power(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_onceward-sim")).arg("power").args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The number behind a line of the summary.
fn number(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.trim().parse().ok()).unwrap_or_else(|| panic!("`{name}` is missing in {text}"))
}

#[test]
fn fifty_power_cuts_lose_nothing_that_was_acknowledged() {
    let output = power(&["--cycles", "50", "--seed", "20260101"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(number(&text, "power cuts"), 50, "{text}");
    // Otherwise the harness would have shown nothing.
    assert!(number(&text, "cuts that lost something unsynced") >= 10, "{text}");
    assert!(number(&text, "unsynced changes lost") >= 10, "{text}");
    assert!(number(&text, "unsynced changes torn") >= 10, "{text}");
    assert!(number(&text, "cut while opening or recovering") >= 3, "{text}");
    assert!(number(&text, "acknowledged records compared") >= 500, "{text}");
}

/// The loss is found within the cycles of the test, and told with what repeats it.
fn found(swallow: &str) {
    let output = power(&["--cycles", "50", "--seed", "20260101", swallow]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.lines().any(|line| line.starts_with("VIOLATION cycle ")), "{text}");
    assert!(text.contains(&format!("again: onceward-sim power --cycles 50 --seed 20260101 {swallow}")), "{text}");
    // A run that found something keeps its files; a disk that lies is nothing to look into.
    if let Some(folder) = text.lines().find_map(|line| line.strip_prefix("files are in ")) {
        std::fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn a_disk_that_swallows_every_sync_is_noticed() {
    found("--no-sync");
}

#[test]
fn a_disk_that_swallows_the_syncs_of_the_log_is_noticed() {
    found("--no-log-sync");
}

#[test]
fn a_disk_that_swallows_the_syncs_of_the_file_is_noticed() {
    found("--no-file-sync");
}
