//! The gateway is killed under load by the harness's own binary: nothing happens twice, and no answer is lost.

use std::process::{Command, Output};

fn gateway(arguments: &[&str]) -> (Output, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_onceward-sim")).arg("gateway").args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output, text)
}

/// The number behind a line of the summary.
fn number(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.trim().parse().ok()).unwrap_or_else(|| panic!("`{name}` is missing in {text}"))
}

#[test]
fn fifty_kills_make_nothing_happen_twice_and_lose_no_answer() {
    let (output, text) = gateway(&["--kills", "50", "--seed", "20260101"]);
    assert_eq!(output.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&output.stderr));
    // Otherwise the harness would have shown nothing.
    assert!(number(&text, "effects") >= 200, "{text}");
    assert!(number(&text, "keys told to be in doubt") >= 10, "{text}");
    assert!(number(&text, "told: done, replayed") >= 50, "{text}");
    assert!(number(&text, "answers that did not arrive") >= 50, "{text}");
}

#[test]
fn two_gateways_on_one_ledger_survive_kills_while_the_next_one_starts() {
    let (output, text) = gateway(&["--kills", "20", "--seed", "20260101", "--gateways", "2"]);
    assert_eq!(output.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(number(&text, "effects") >= 50, "{text}");
    assert!(number(&text, "told: done, replayed") >= 10, "{text}");
}

#[test]
fn a_retry_after_the_upstream_forgot_the_key_is_caught_without_a_kill() {
    let (output, text) = gateway(&["--kills", "0", "--honours-key", "--plant", "retry-past-memory"]);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("after the memory a retry was told"), "{text}");
}

#[test]
fn an_upstream_that_remembers_keys_is_asked_again_until_it_forgets_them() {
    let (output, text) = gateway(&["--kills", "20", "--seed", "20260101", "--honours-key"]);
    assert_eq!(output.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(number(&text, "requests at the upstream") > number(&text, "effects"), "{text}");
}

#[test]
fn a_gateway_that_takes_a_lapse_for_proof_is_caught() {
    let (output, text) = gateway(&["--kills", "50", "--seed", "20260101", "--plant", "lapse-is-proof"]);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("happened 2 times"), "{text}");
}
