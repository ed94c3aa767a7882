//! The MCP gateway over stdio: interrupted calls are held, keys are the same on every attempt, and answers and tools
//! are not mixed up.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Child;

use super::{Outcome, effects, same};
use crate::kills::KillRun;
use crate::kills::product::{end, this_program};
use crate::mcp::Agent;

/// A call that takes longer hangs.
const LONGEST: Duration = Duration::from_secs(10);

const CONFIG: &str = "[mcp]\nnotice = false\n\
    [mcp.server.sim.tool.pay]\nkey_argument = \"idempotency_key\"\nin_doubt = \"retry\"\n";

async fn start(run: &KillRun) -> (Agent, Child) {
    let file = run.folder().join("onceward.toml");
    std::fs::write(&file, CONFIG).expect("the folder can be written");
    let mut command = run.product.command(&["mcp", "--server", "sim", "--config"]);
    command.arg(file).arg("--store").arg(run.store()).arg("--").arg(this_program());
    command.args(["scenario-server", "--effects"]).arg(run.effects.path());
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    let agent = Agent::of(&mut child);
    agent.begin().await;
    (agent, child)
}

/// The text of a result, or the state that the gateway reports instead.
pub(super) fn text(answer: Option<Value>) -> String {
    let result = answer.map(|answer| answer["result"].clone()).unwrap_or_default();
    let state = result["_meta"]["onceward"]["state"].as_str().filter(|_| result["isError"] == json!(true));
    state.or(result["content"][0]["text"].as_str()).unwrap_or("nothing").to_owned()
}

fn params(tool: &str, key: &str) -> Value {
    json!({ "name": tool, "arguments": { "order": key }, "_meta": { "onceward/key": key } })
}

async fn call(agent: &Agent, tool: &str, key: &str) -> String {
    let asked = tokio::time::timeout(LONGEST, agent.request("tools/call", params(tool, key))).await;
    text(asked.unwrap_or_default())
}

pub(super) async fn play(run: &KillRun, check: &mut impl FnMut(&str, Outcome)) {
    let (agent, mut child) = start(run).await;
    check("mcp: an error after a cancellation is held", interrupted(run, &agent).await);
    check("mcp: answers go to the calls that they are for", pair(run, &agent).await);
    check("mcp: two tools may use the same key", tools(run, &agent).await);
    check("mcp: every attempt fills in the same key", pay(run, &agent).await);
    end(&mut child).await;
}

async fn interrupted(run: &KillRun, agent: &Agent) -> Outcome {
    let first = agent.request("tools/call", params("interrupted", "stop"));
    let cancelled = async {
        while effects(run, "stop") == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let reason = json!({ "requestId": agent.last(), "reason": "the user pressed stop" });
        agent.say(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": reason })).await;
        // The answer to a cancelled call is not sent, so the next question follows it.
        call(agent, "interrupted", "stop").await
    };
    let again = tokio::select! {
        again = cancelled => again,
        first = async { let _ = first.await; std::future::pending::<String>().await } => first,
    };
    same("effects", &effects(run, "stop"), &1)?;
    same("the repeat is held", &["in_doubt", "attempt_unknown"].contains(&again.as_str()), &true)
}

async fn pair(run: &KillRun, agent: &Agent) -> Outcome {
    let (one, two) = tokio::join!(call(agent, "pair", "one"), call(agent, "pair", "two"));
    same("the answers", &(one.as_str(), two.as_str()), &("one", "two"))?;
    let (one, two) = (call(agent, "pair", "one").await, call(agent, "pair", "two").await);
    same("the repeats", &(one.as_str(), two.as_str()), &("one", "two"))?;
    same("effects", &(effects(run, "one"), effects(run, "two")), &(1, 1))
}

async fn tools(run: &KillRun, agent: &Agent) -> Outcome {
    let (send, erase) = (call(agent, "send", "shared").await, call(agent, "erase", "shared").await);
    same("the answers", &(send.as_str(), erase.as_str()), &("send", "erase"))?;
    same("effects", &effects(run, "shared"), &2)
}

/// The server dies during the first attempt; the next gateway makes the second one.
async fn pay(run: &KillRun, agent: &Agent) -> Outcome {
    call(agent, "pay", "invoice").await;
    run.effects.calm_down();
    let (next, mut child) = start(run).await;
    call(&next, "pay", "invoice").await;
    end(&mut child).await;
    let keys = run.effects.read().remove("invoice").unwrap_or_default();
    same("attempts", &keys.len(), &2)?;
    same("a key was given", &(keys[0] != "no key"), &true)?;
    same("the key of the second attempt", &keys[1], &keys[0])
}
