//! The MCP gateway, the API and `onceward run`, killed under load by the harness's own binary: nothing happens twice, no
//! answer is lost, and nothing is stuck. The same run with a planted bug fails.

use std::process::{Command, Output};

fn sim(arguments: &str) -> (Output, String) {
    let program = env!("CARGO_BIN_EXE_onceward-sim");
    let output = Command::new(program).args(arguments.split_whitespace()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output, text)
}

/// The number behind a line of the summary.
fn number(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.trim().parse().ok()).unwrap_or_else(|| panic!("`{name}` is missing in {text}"))
}

/// A run that breaks nothing, and has effects, kills and doubts: without them it would have shown nothing.
fn holds(arguments: &str, effects: u64) -> String {
    let (output, text) = sim(arguments);
    assert_eq!(output.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(number(&text, "effects") >= effects, "{text}");
    assert!(number(&text, "told: nothing") > 0, "{text}");
    assert!(number(&text, "doubts settled") > 0, "{text}");
    text
}

/// The same with clients that give their calls no keys.
fn holds_without_keys(arguments: &str, effects: u64) {
    let text = holds(arguments, effects);
    assert!(number(&text, "calls without an answer, made again") > 0, "{text}");
    assert!(number(&text, "calls after an answer that ran") > 0, "{text}");
}

#[test]
fn an_mcp_gateway_over_stdio_survives_kills() {
    holds_without_keys("mcp --over stdio --kills 25 --seed 20260101", 25);
}

#[test]
fn an_mcp_gateway_over_http_survives_kills() {
    holds_without_keys("mcp --over http --kills 25 --seed 20260101", 25);
}

#[test]
fn an_mcp_gateway_in_front_of_several_servers_survives_kills() {
    holds_without_keys("mcp --over several --kills 25 --seed 20260101", 25);
}

#[test]
fn the_api_survives_kills() {
    holds("api --kills 25 --seed 20260101", 25);
}

#[test]
fn a_command_survives_kills_of_itself_and_of_onceward() {
    holds("run --kills 40 --seed 20260101", 15);
}

/// Held work that runs again once its owner is gone shows in the first scene of each harness, without a single random kill.
fn fails_with_a_planted_bug(arguments: &str) {
    let (output, text) = sim(&format!("{arguments} --kills 0 --seed 20260101 --plant lapse-is-proof"));
    assert_eq!(output.status.code(), Some(1), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("VIOLATION held-0: happened "), "{text}");
}

#[test]
fn a_harness_whose_product_runs_held_work_again_fails() {
    for harness in ["mcp --over stdio", "mcp --over http", "mcp --over several", "api", "run"] {
        fails_with_a_planted_bug(harness);
    }
}
