//! The crash harness: the ledger survives kills at every named step, and each fault is found.

use crate::command::{Run, finds, passes, sim};

#[test]
fn three_hundred_cycles_of_kills_break_nothing_and_hit_every_step() {
    let run = passes("crash --cycles 300 --seed 20260101");
    let kills: Vec<u64> = run
        .text
        .lines()
        .filter_map(|line| line.strip_prefix("killed at "))
        .filter_map(|line| line.split_once(char::is_whitespace)?.1.trim().parse().ok())
        .collect();
    assert_eq!(kills.len(), onceward::step::Step::OF_CALLS.len(), "{}", run.text);
    assert!(kills.iter().all(|kills| *kills > 0), "{}", run.text);
}

/// The fault is found in its scenario, which leaves nothing to chance, with a message that says what is wrong.
fn finds_fault(fault: &str, message: &str) {
    let run = finds(&format!("crash --cycles 0 --seed 7 --fault {fault}"), "scenario: ");
    remove_kept(&run);
    let said = run.text.lines().any(|line| line.starts_with("VIOLATION scenario: ") && line.contains(message));
    assert!(said, "{fault}: {}", run.text);
}

/// A run that found something keeps its files; these runs were meant to.
fn remove_kept(run: &Run) {
    if let Some(folder) = run.line_after("ledger and journal are in ") {
        std::fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn an_effect_without_a_claim_is_found() {
    finds_fault("rogue", "an effect took place without a claim");
}

#[test]
fn a_release_without_proof_is_found() {
    finds_fault("release", "may have happened");
}

#[test]
fn a_lost_outcome_is_found() {
    finds_fault("lose", "is lost: the ledger says None");
}

#[test]
fn a_changed_outcome_is_found() {
    finds_fault("forge", "the ledger now says forged");
}

#[test]
fn an_outcome_that_is_dropped_too_soon_is_found() {
    finds_fault("hasten", "dropped before its time");
}

#[test]
fn a_forgotten_doubt_is_found() {
    finds_fault("forget", "the doubt is forgotten");
}

#[test]
fn a_doubt_about_an_attempt_that_sent_nothing_is_found() {
    finds_fault("doubt", "no attempt came as far as `sent`");
}

#[test]
fn a_claim_that_is_taken_from_a_living_owner_is_found() {
    finds_fault("steal", "is alive and its lease lasts");
}

#[test]
fn a_step_that_is_never_hit_fails_the_run() {
    let run = sim("crash --cycles 1 --seed 1");
    assert_eq!(run.code, Some(1), "{}", run.text);
    assert!(run.text.contains("never killed at: "), "{}", run.text);
    remove_kept(&run);
}
