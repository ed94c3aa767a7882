//! The crash harness by its own binary: the ledger survives it, and each misdeed is caught.

use std::process::{Command, Output};

fn crash(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_onceward-sim")).arg("crash").args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn three_hundred_cycles_of_kills_break_nothing_and_hit_every_step() {
    let output = crash(&["--cycles", "300", "--seed", "20260101"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let kills: Vec<(&str, u64)> = text
        .lines()
        .filter_map(|line| line.strip_prefix("killed at "))
        .filter_map(|line| {
            let (step, kills) = line.split_once(char::is_whitespace)?;
            Some((step, kills.trim().parse().ok()?))
        })
        .collect();
    assert_eq!(kills.len(), onceward::step::Step::ALL.len(), "{text}");
    assert!(kills.iter().all(|(_, kills)| *kills > 0), "{text}");
}

/// The misdeed is caught in its scene, which leaves nothing to chance, in words that say what is wrong.
fn caught(misdeed: &str, words: &str) {
    let output = crash(&["--cycles", "0", "--seed", "7", "--misdeed", misdeed]);
    let text = stdout(&output);
    remove_kept(&text);
    let said = text.lines().any(|line| line.starts_with("VIOLATION the scene: ") && line.contains(words));
    assert!(said, "{misdeed} is overlooked: {text}");
    assert_eq!(output.status.code(), Some(1), "{text}");
}

/// A run that found something keeps its files; a misdeed is nothing to look into.
fn remove_kept(text: &str) {
    if let Some(folder) = text.lines().find_map(|line| line.strip_prefix("ledger and journal are in ")) {
        std::fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn an_effect_without_permission_is_caught() {
    caught("rogue", "an effect took place without a claim");
}

#[test]
fn a_claim_that_is_released_although_nobody_knows_is_caught() {
    caught("release", "may have happened");
}

#[test]
fn a_lost_outcome_is_caught() {
    caught("lose", "is lost: the ledger says None");
}

#[test]
fn a_changed_outcome_is_caught() {
    caught("forge", "the ledger now says forged");
}

#[test]
fn an_outcome_that_is_dropped_too_soon_is_caught() {
    caught("hasten", "dropped before its time");
}

#[test]
fn a_forgotten_doubt_is_caught() {
    caught("forget", "the doubt is forgotten");
}

#[test]
fn a_doubt_about_nothing_is_caught() {
    caught("doubt", "no attempt came as far as `sent`");
}

#[test]
fn a_claim_that_is_taken_from_a_living_owner_is_caught() {
    caught("steal", "is alive and its lease lasts");
}

#[test]
fn a_step_that_is_never_hit_fails_the_run() {
    let output = crash(&["--cycles", "1", "--seed", "1"]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("never killed at: "), "{text}");
    remove_kept(&text);
}
