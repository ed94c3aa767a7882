//! The power harness: power cuts lose nothing that was acknowledged, and disks that swallow syncs are found.

use crate::command::{finds, passes};

#[test]
fn fifty_power_cuts_lose_nothing_that_was_acknowledged() {
    let run = passes("power --cycles 50 --seed 20260101");
    assert_eq!(run.number("power cuts"), 50, "{}", run.text);
    // Otherwise the run would prove nothing.
    assert!(run.number("cuts that lost something unsynced") >= 10, "{}", run.text);
    assert!(run.number("unsynced changes lost") >= 10, "{}", run.text);
    assert!(run.number("unsynced changes torn") >= 10, "{}", run.text);
    assert!(run.number("cut while opening or recovering") >= 3, "{}", run.text);
    assert!(run.number("acknowledged records compared") >= 500, "{}", run.text);
}

/// The loss is found within the cycles of the test, and printed with the command that repeats it.
fn finds_loss(option: &str) {
    let command = format!("power --cycles 50 --seed 20260101 {option}");
    let run = finds(&command, "cycle ");
    assert!(run.text.contains(&format!("again: onceward-sim {command}")), "{}", run.text);
    // A run that found something keeps its files; this one was meant to.
    if let Some(folder) = run.line_after("files are in ") {
        std::fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn a_disk_that_swallows_every_sync_is_found() {
    finds_loss("--no-sync");
}

#[test]
fn a_disk_that_swallows_the_syncs_of_the_log_is_found() {
    finds_loss("--no-log-sync");
}

#[test]
fn a_disk_that_swallows_the_syncs_of_the_file_is_found() {
    finds_loss("--no-file-sync");
}
