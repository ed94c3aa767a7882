//! Harnesses on PostgreSQL and Redis, which the test command starts. Without a server, these tests are left out.

use crate::command::{Run, finds, passes};

const POSTGRES: &str = "ONCEWARD_TEST_POSTGRES";
const REDIS: &str = "ONCEWARD_TEST_REDIS";
const CLUSTER: &str = "ONCEWARD_TEST_REDIS_CLUSTER";

/// The server that a variable names. `None`, and a message, if there is none; in continuous integration that is a failure.
// The test command counts what is left out.
#[allow(clippy::print_stdout)]
fn server(variable: &str) -> Option<String> {
    let found = std::env::var(variable).ok();
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "{variable} names no server");
        println!("skipped: {variable} names no server");
    }
    found
}

fn passes_on(variable: &str, arguments: &str) -> Option<Run> {
    server(variable).map(|server| passes(&format!("{arguments} --store {server}")))
}

fn finds_on(variable: &str, arguments: &str, violation: &str) {
    if let Some(server) = server(variable) {
        finds(&format!("{arguments} --store {server}"), violation);
    }
}

/// Three gateways on one server, of which one is killed after another.
fn three_gateways_on(variable: &str) {
    let Some(run) = passes_on(variable, "gateway --gateways 3 --kills 20 --seed 20260101") else { return };
    // Otherwise the run would prove nothing.
    assert!(run.number("effects") >= 50, "{}", run.text);
    assert!(run.number("answered: done, replayed") >= 10, "{}", run.text);
    assert!(run.number("keys answered in doubt") >= 2, "{}", run.text);
}

#[test]
fn three_gateways_on_one_postgresql_database_survive_kills() {
    three_gateways_on(POSTGRES);
}

#[test]
fn three_gateways_on_one_redis_server_survive_kills() {
    three_gateways_on(REDIS);
}

#[test]
fn held_work_that_runs_again_on_postgresql_is_found() {
    let arguments = "gateway --gateways 3 --kills 50 --seed 20260101 --plant phase-not-stored";
    finds_on(POSTGRES, arguments, "k-");
}

#[test]
fn random_calls_on_postgresql_are_answered_as_the_oracle_says() {
    passes_on(POSTGRES, "walk --runs 6 --seed 20260101");
}

#[test]
fn random_calls_on_redis_are_answered_as_the_oracle_says() {
    passes_on(REDIS, "walk --runs 12 --seed 20260101");
}

#[test]
fn random_calls_on_a_redis_cluster_are_answered_as_the_oracle_says() {
    passes_on(CLUSTER, "walk --runs 3 --seed 20260101");
}

#[test]
fn random_calls_on_redis_find_a_store_whose_time_stands_still() {
    finds_on(REDIS, "walk --runs 16 --seed 1 --plant store-time-stands", "run ");
}

/// Kills workers at every step. A run goes on until each was hit.
fn survives_crashes_on(variable: &str, cycles: u64) {
    let Some(run) = passes_on(variable, &format!("crash --cycles {cycles} --seed 20260101")) else { return };
    assert_eq!(run.text.matches("killed at ").count(), onceward::step::Step::OF_CALLS.len(), "{}", run.text);
    // Otherwise the run would prove nothing.
    assert!(run.number("effects") >= 50, "{}", run.text);
    assert!(run.number("taken over from the dead or lapsed") >= 5, "{}", run.text);
}

#[test]
fn kills_at_every_step_break_nothing_on_postgresql() {
    survives_crashes_on(POSTGRES, 24);
}

#[test]
fn kills_at_every_step_break_nothing_on_redis() {
    survives_crashes_on(REDIS, 48);
}

#[test]
fn kills_at_every_step_break_nothing_on_a_redis_cluster() {
    survives_crashes_on(CLUSTER, 24);
}

/// The fault or bug is found with a message that contains this text.
fn found_by_crashes_on(variable: &str, cycles: u64, broken: &str, message: &str) {
    let Some(server) = server(variable) else { return };
    let run = finds(&format!("crash --cycles {cycles} --seed 7 --enough 1 {broken} --store {server}"), "");
    // A run that found something keeps its journal; this one was meant to.
    if let Some(folder) = run.line_after("the journal is in ") {
        std::fs::remove_dir_all(folder).unwrap();
    }
    let found = run.text.lines().any(|line| line.starts_with("VIOLATION ") && line.contains(message));
    assert!(found, "{broken}: {}", run.text);
}

#[test]
fn an_effect_without_a_claim_is_found_on_every_server() {
    for variable in [POSTGRES, REDIS] {
        found_by_crashes_on(variable, 0, "--fault rogue", "an effect took place without a claim");
        found_by_crashes_on(variable, 0, "--fault release", "may have happened");
    }
}

#[test]
fn outcomes_that_are_not_written_are_found_by_kills_on_every_server() {
    for variable in [POSTGRES, REDIS] {
        found_by_crashes_on(variable, 24, "--plant finish-not-written", "is lost: the ledger says");
    }
}

#[test]
fn a_doubt_that_postgresql_forgets_is_found_by_kills() {
    found_by_crashes_on(POSTGRES, 24, "--plant phase-not-stored", "may have happened");
}

#[test]
fn work_that_is_dropped_and_released_is_found_by_kills_on_redis() {
    // The record is open, or gone already.
    found_by_crashes_on(REDIS, 24, "--plant dropped-work-released", "intent ");
}

#[test]
fn records_in_redis_expire_only_as_tombstones() {
    passes_on(REDIS, "conformance");
}

#[test]
fn records_in_a_redis_cluster_expire_only_as_tombstones() {
    passes_on(CLUSTER, "conformance");
}

fn found_by_conformance(variable: &str, plant: &str, case: &str) {
    finds_on(variable, &format!("conformance --enough 1 --plant {plant}"), &format!("server: {case}: "));
}

#[test]
fn a_fence_that_is_not_compared_is_found_on_every_server() {
    for variable in [POSTGRES, REDIS] {
        found_by_conformance(variable, "store-fence-not-compared", "a_replace_succeeds_only_with_the_same_fence");
    }
}

#[test]
fn a_seal_that_redis_does_not_check_is_found() {
    found_by_conformance(REDIS, "seal-not-checked", "a_drained_store_grants_no_claim_and_lets_owners_finish");
}

#[test]
fn an_expiry_that_redis_keeps_is_found() {
    let case = "a_tombstone_that_becomes_a_record_again_counts_towards_the_quota";
    found_by_conformance(REDIS, "expiry-kept", case);
}

/// Couriers and enqueuers on one server, killed. Leases end later there than on a file, so that a run has fewer kills.
fn an_outbox_on(variable: &str) {
    let arguments = "outbox --kills 10 --seed 20260101 --couriers 3 --enqueuers 4";
    let Some(run) = passes_on(variable, arguments) else { return };
    // Otherwise the run would prove nothing.
    assert!(run.number("kills at a named step") >= 5, "{}", run.text);
}

#[test]
fn an_outbox_on_postgresql_survives_kills() {
    an_outbox_on(POSTGRES);
}

#[test]
fn an_outbox_on_redis_survives_kills() {
    an_outbox_on(REDIS);
}
