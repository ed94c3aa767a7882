//! The gateway harness: gateways are killed under load. Nothing happens twice, and no answer is lost.

use crate::command::{finds, passes};

#[test]
fn fifty_kills_make_nothing_happen_twice_and_lose_no_answer() {
    let run = passes("gateway --kills 50 --seed 20260101");
    // Otherwise the run would prove nothing.
    assert!(run.number("effects") >= 200, "{}", run.text);
    assert!(run.number("keys answered in doubt") >= 10, "{}", run.text);
    assert!(run.number("answered: done, replayed") >= 20, "{}", run.text);
    assert!(run.number("answers that did not arrive") >= 50, "{}", run.text);
}

#[test]
fn two_gateways_on_one_ledger_survive_kills_while_the_next_one_starts() {
    let run = passes("gateway --kills 20 --seed 20260101 --gateways 2");
    assert!(run.number("effects") >= 50, "{}", run.text);
    assert!(run.number("answered: done, replayed") >= 10, "{}", run.text);
}

#[test]
fn a_retry_after_the_upstream_forgot_the_key_is_found_without_a_kill() {
    let run = finds("gateway --kills 0 --honours-key --plant store-time-stands", "");
    assert!(run.text.contains("after the memory a retry was answered"), "{}", run.text);
}

#[test]
fn an_upstream_that_remembers_keys_gets_retries_until_it_forgets_them() {
    let run = passes("gateway --kills 20 --seed 20260101 --honours-key");
    assert!(run.number("requests at the upstream") > run.number("effects"), "{}", run.text);
}

#[test]
fn a_gateway_that_runs_held_work_again_is_found() {
    let run = finds("gateway --kills 50 --seed 20260101 --plant phase-not-stored", "");
    assert!(run.text.contains("happened 2 times"), "{}", run.text);
}
