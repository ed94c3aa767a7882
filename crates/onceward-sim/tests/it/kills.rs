//! The harnesses of the MCP gateway, the API, `onceward run` and the outbox, which are killed under load: nothing happens twice, no
//! answer is lost, and nothing is stuck. The same run with a planted bug fails.

use crate::command::{Run, finds, passes};

/// A run that breaks nothing, and has effects, kills and doubts: without them it would prove nothing.
fn survives(arguments: &str, effects: u64) -> Run {
    let run = passes(arguments);
    assert!(run.number("effects") >= effects, "{}", run.text);
    assert!(run.number("answered: nothing") > 0, "{}", run.text);
    assert!(run.number("doubts settled") > 0, "{}", run.text);
    run
}

/// The same with clients that send no keys.
fn survives_without_keys(arguments: &str, effects: u64) {
    let run = survives(arguments, effects);
    assert!(run.number("calls without an answer, made again") > 0, "{}", run.text);
    assert!(run.number("calls after an answer that ran") > 0, "{}", run.text);
}

#[test]
fn an_mcp_gateway_over_stdio_survives_kills() {
    survives_without_keys("mcp --over stdio --kills 25 --seed 20260101", 25);
}

#[test]
fn an_mcp_gateway_over_http_survives_kills() {
    survives_without_keys("mcp --over http --kills 25 --seed 20260101", 25);
}

#[test]
fn an_mcp_gateway_in_front_of_several_servers_survives_kills() {
    survives_without_keys("mcp --over several --kills 25 --seed 20260101", 25);
}

#[test]
fn the_api_survives_kills() {
    survives("api --kills 25 --seed 20260101", 25);
}

#[test]
fn a_command_survives_kills_of_itself_and_of_onceward() {
    survives("run --kills 40 --seed 20260101", 15);
}

#[test]
fn couriers_and_their_enqueuers_survive_kills() {
    let run = passes("outbox --kills 20 --seed 20260101 --couriers 3 --enqueuers 6");
    assert!(run.number("kills at a named step") >= 5, "{}", run.text);
    assert!(run.number("effects") >= 40 && run.number("in doubt") > 0, "{}", run.text);
}

#[test]
fn an_entry_that_is_delivered_twice_is_found() {
    finds("outbox --kills 0 --seed 20260101 --plant phase-not-stored", "held acted-0: happened 2 times");
    finds("outbox --kills 0 --seed 20260101 --plant sink-changed-in-doubt", "moved acted-1: happened 2 times");
}

/// Each harness opens with a scripted kill, which shows held work that runs again without a single random kill.
#[test]
fn a_product_that_runs_held_work_again_is_found() {
    for harness in ["mcp --over stdio", "mcp --over http", "mcp --over several", "api", "run"] {
        let arguments = format!("{harness} --kills 0 --seed 20260101 --plant phase-not-stored");
        finds(&arguments, "held-0: happened ");
    }
}
