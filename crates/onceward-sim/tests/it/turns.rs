//! Processes that share one ledger file take turns.

use std::process::{Command, Output};

fn turns(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_onceward-sim")).arg("turns").args(arguments).output().unwrap()
}

/// The limits are wide, for a machine that does other things too: without turns one process gets a few per cent, and
/// waits for seconds. `onceward-sim turns` alone has the limits that are aimed at.
#[test]
fn no_process_that_shares_a_ledger_starves() {
    let limits = ["--seconds", "4", "--least", "20", "--longest", "300"];
    let output = turns(&[&["--processes", "3"][..], &limits[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn a_process_that_is_stopped_during_its_turn_does_not_stop_the_others() {
    let output = turns(&["--stop"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}
