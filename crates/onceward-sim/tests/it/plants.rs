//! Bugs planted in ledger, stores and surfaces: each is found by a check, and by the check that is meant to find it.

use crate::command::{finds, passes};

#[test]
fn every_bug_that_can_be_found_in_seconds_is_found() {
    let run = passes("plants --quick");
    assert!(run.text.contains(" escaped") && run.text.contains("caught by"), "{}", run.text);
}

#[test]
fn every_scenario_on_the_real_surfaces_passes() {
    passes("scenarios");
}

/// The scenarios alone must find a bug in a surface: they leave nothing to chance.
fn found_by_a_scenario(plant: &str, scenario: &str) {
    finds(&format!("scenarios --plant {plant}"), &format!("{scenario}: "));
}

#[test]
fn a_scenario_finds_that_a_lost_connection_counts_as_a_failed_connect() {
    found_by_a_scenario("lost-is-not-sent", "http: a connection lost after the effect is held");
}

#[test]
fn a_scenario_finds_that_held_work_runs_again_after_a_kill() {
    found_by_a_scenario("phase-not-stored", "http: a gateway killed during the effect leaves a doubt");
}

#[test]
fn a_scenario_finds_that_responses_are_mixed_up() {
    found_by_a_scenario("answer-to-another", "mcp: answers go to the calls that they are for");
}

#[test]
fn a_scenario_finds_that_a_signal_counts_as_proof() {
    found_by_a_scenario("signal-released", "run: a command that a signal ended is held");
}

#[test]
fn jumping_clocks_break_nothing() {
    passes("clock --runs 150 --seed 20260101");
}

#[test]
fn random_calls_are_answered_as_the_oracle_says() {
    passes("walk --runs 60 --seed 20260101");
}

#[test]
fn jumping_clocks_find_a_store_whose_time_stands_still() {
    finds("clock --runs 8 --seed 1 --plant store-time-stands", "run ");
}

#[test]
fn random_calls_find_a_store_whose_time_stands_still() {
    finds("walk --runs 16 --seed 1 --plant store-time-stands", "run ");
}
