//! Bugs planted in the ledger: each is caught by a check, and by the one that is meant to catch it.

use std::process::{Command, Output};

fn sim(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_onceward-sim")).args(arguments.split_whitespace()).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn every_bug_that_can_be_caught_in_seconds_is_caught() {
    let output = sim("plants --quick");
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains(" escaped") && text.contains("caught by"), "{text}");
}

#[test]
fn every_scene_on_the_real_surfaces_goes_as_it_must() {
    let output = sim("scenes");
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), String::from_utf8_lossy(&output.stderr));
}

/// A bug in a surface: the scenes alone must notice, without luck.
fn noticed_by_a_scene(plant: &str, scene: &str) {
    let output = sim(&format!("scenes --plant {plant}"));
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.lines().any(|line| line.starts_with(&format!("VIOLATION {scene}: "))), "{text}");
}

#[test]
fn a_scene_notices_that_a_lost_connection_counts_as_never_made() {
    noticed_by_a_scene("lost-is-not-sent", "http: a connection lost after the effect is held");
}

#[test]
fn a_scene_notices_that_held_work_runs_again_after_a_kill() {
    noticed_by_a_scene("lapse-is-proof", "http: a gateway killed during the effect leaves a doubt");
}

#[test]
fn a_scene_notices_that_answers_are_mixed_up() {
    noticed_by_a_scene("answer-to-another", "mcp: answers go to the calls that they are for");
}

#[test]
fn a_scene_notices_that_a_signal_counts_as_proof() {
    noticed_by_a_scene("signal-released", "run: a command that a signal ended is held");
}

/// A rule taken out of `decide`: the model checker alone must notice.
fn noticed_by_the_model(plant: &str) {
    let output = sim(&format!("model --begins 3 --ticks 7 --plant {plant}"));
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.lines().any(|line| line.starts_with("VIOLATION ")), "{text}");
}

#[test]
fn the_model_checker_notices_that_the_fence_is_gone() {
    noticed_by_the_model("no-fence");
}

#[test]
fn the_model_checker_notices_a_doubt_that_a_takeover_forgets() {
    noticed_by_the_model("doubt-forgotten");
}

#[test]
fn the_model_checker_notices_elapsed_time_that_counts_as_proof() {
    noticed_by_the_model("lapse-is-proof");
}

#[test]
fn the_model_checker_notices_a_proof_that_speaks_for_all_attempts() {
    noticed_by_the_model("proof-speaks-for-all");
}

#[test]
fn the_model_checker_notices_that_the_tombstone_is_ignored() {
    noticed_by_the_model("tombstone-ignored");
}

#[test]
fn the_model_checker_notices_an_effect_that_arrives_after_the_key_was_forgotten() {
    noticed_by_the_model("attempt-outlives-memory");
}

#[test]
fn the_model_checker_notices_a_retry_after_the_key_was_forgotten() {
    noticed_by_the_model("retry-past-memory");
}

#[test]
fn clocks_that_jump_break_nothing() {
    let output = sim("clock --runs 150 --seed 20260101");
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
}

#[test]
fn random_calls_are_answered_as_the_oracle_says() {
    let output = sim("walk --runs 60 --seed 20260101");
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
}
