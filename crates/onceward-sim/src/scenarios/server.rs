//! An MCP server that does what the tool's name says, one line after the other.

use std::io::{BufRead, Write};
use std::time::Duration;

use serde_json::{Value, json};

use crate::kills::effects::Effects;

/// How long a slow tool takes to answer.
const SLOW: Duration = Duration::from_millis(500);

/// Serves until the client closes.
pub fn run(effects: &Effects) {
    let mut held: Vec<Value> = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        match message["method"].as_str().unwrap_or_default() {
            "tools/call" => call(effects, message, &mut held),
            // Answers a cancelled call as interrupted tools do.
            "notifications/cancelled" => held.drain(..).for_each(|held| say(&held, "interrupted", true)),
            _ => {
                if let Some(answer) = crate::mcp::formality(&message) {
                    write(&answer);
                }
            }
        }
    }
}

fn call(effects: &Effects, message: Value, held: &mut Vec<Value>) {
    let arguments = &message["params"]["arguments"];
    let order = arguments["order"].as_str().unwrap_or_default();
    match message["params"]["name"].as_str().unwrap_or_default() {
        // Acts, and waits to be cancelled.
        "interrupted" => {
            effects.happen(order, "interrupted");
            held.push(message);
        }
        // Acts under the given key, and dies before it answers; when calm, it answers.
        "pay" => {
            let key = arguments["idempotency_key"].as_str().unwrap_or("no key");
            effects.happen(order, key);
            if !effects.is_calm() {
                std::process::exit(1);
            }
            say(&message, key, false);
        }
        // Acts, and dies before it answers; when calm, it answers.
        "crash" if !effects.is_calm() => {
            effects.happen(order, "crash");
            std::process::exit(1);
        }
        // Acts, and answers slowly.
        "slow" => {
            effects.happen(order, "slow");
            std::thread::sleep(SLOW);
            say(&message, "slow", false);
        }
        // Waits until there are two, and answers the second one first.
        "pair" => {
            effects.happen(order, order);
            held.push(message);
            if held.len() == 2 {
                for held in held.drain(..).rev() {
                    let order = held["params"]["arguments"]["order"].as_str().unwrap_or_default().to_owned();
                    say(&held, &order, false);
                }
            }
        }
        name => {
            effects.happen(order, name);
            say(&message, name, false);
        }
    }
}

fn say(request: &Value, text: &str, is_error: bool) {
    let result = json!({ "content": [{ "type": "text", "text": text }], "isError": is_error });
    write(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }));
}

fn write(message: &Value) {
    let mut out = std::io::stdout().lock();
    // The gateway may be gone.
    let _ = out.write_all(format!("{message}\n").as_bytes()).and_then(|()| out.flush());
}
