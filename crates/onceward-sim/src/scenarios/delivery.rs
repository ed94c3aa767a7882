//! The MCP gateway over stdio, with calls without a key: which answers count as delivered, and what happens to the next
//! equal call.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

use super::mcp::text;
use super::{Outcome, effects, same};
use crate::kills::KillRun;
use crate::kills::product::{end, this_program};
use crate::mcp::Agent;

/// A call that takes longer hangs.
const LONGEST: Duration = Duration::from_secs(10);

/// Longer than a slow tool takes, and than a gateway takes to record its result.
const AFTERWARDS: Duration = Duration::from_millis(1200);

/// Clients give up silently sooner than a slow tool answers.
const IMPATIENT: &str = "patience = \"200ms\"\n";

/// All at once: each has its own gateway and client, and they wait most of the time.
pub(super) async fn play(run: &KillRun, check: &mut impl FnMut(&str, Outcome)) {
    let played = tokio::join!(
        meant(run),
        at_once(run),
        steps(run),
        outward(run),
        silent(run),
        in_order(run),
        cancelled(run),
        cancelled_late(run),
        unread(run),
        response(run),
        untold(run),
    );
    check("mcp: a call after a delivered answer runs", played.0);
    check("mcp: equal calls at once are one", played.1);
    check("mcp: steps run one after the other", played.2);
    check("mcp: an outward effect is not repeated", played.3);
    check("mcp: an answer that came late for a silent client is replayed", played.4);
    check("mcp: a client that ended normally had its answer", played.5);
    check("mcp: the outcome of a cancelled call is replayed", played.6);
    check("mcp: a late cancellation takes the delivery back", played.7);
    check("mcp: an answer that a killed client left unread is replayed", played.8);
    check("mcp: a doubt that was told is run by the next call", played.9);
    check("mcp: a gateway killed during a call leaves a doubt that is told first", played.10);
}

/// The gateway process. Each has its own configuration file, because several may run.
fn command(run: &KillRun, name: &str, settings: &str) -> Command {
    let file = run.folder().join(format!("{name}.toml"));
    std::fs::write(&file, format!("[mcp]\nnotice = false\n{settings}")).expect("the folder can be written");
    let mut command = run.product.command(&["mcp", "--server", "sim", "--config"]);
    command.arg(file).arg("--store").arg(run.store()).arg("--").arg(this_program());
    command.args(["scenario-server", "--effects"]).arg(run.effects.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

/// A gateway whose client has this name: the gateway remembers the behaviour of clients by name.
async fn start(run: &KillRun, name: &str, settings: &str) -> (Agent, Child) {
    let mut child = command(run, name, settings).spawn().expect("the product can be started");
    let agent = Agent::of(&mut child);
    agent.begin_as(name).await;
    (agent, child)
}

fn params(tool: &str, order: &str) -> Value {
    json!({ "name": tool, "arguments": { "order": order } })
}

async fn call(agent: &Agent, tool: &str, order: &str) -> String {
    let asked = tokio::time::timeout(LONGEST, agent.request("tools/call", params(tool, order))).await;
    text(asked.unwrap_or_default())
}

async fn cancel(agent: &Agent) {
    let params = json!({ "requestId": agent.last(), "reason": "it took too long" });
    agent.say(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params })).await;
}

/// Waits until the effect has happened, within a limit.
async fn happens(run: &KillRun, order: &str) {
    let looking = async {
        while effects(run, order) == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let _ = tokio::time::timeout(LONGEST, looking).await;
}

async fn meant(run: &KillRun) -> Outcome {
    let (agent, _child) = start(run, "meant", "").await;
    for times in 1..=3 {
        same("the answer", &call(&agent, "set", "light").await.as_str(), &"set")?;
        same("effects", &effects(run, "light"), &times)?;
    }
    Ok(())
}

async fn at_once(run: &KillRun) -> Outcome {
    let (agent, _child) = start(run, "at-once", "").await;
    let (one, two) = tokio::join!(call(&agent, "slow", "shared call"), call(&agent, "slow", "shared call"));
    same("the answers", &(one.as_str(), two.as_str()), &("slow", "slow"))?;
    same("effects", &effects(run, "shared call"), &1)
}

async fn steps(run: &KillRun) -> Outcome {
    let (agent, _child) = start(run, "steps", "").await;
    tokio::join!(call(&agent, "press_key", "down"), call(&agent, "press_key", "down"));
    same("effects", &effects(run, "down"), &2)
}

async fn outward(run: &KillRun) -> Outcome {
    let (agent, _child) = start(run, "outward", "").await;
    call(&agent, "send_mail", "letter").await;
    call(&agent, "send_mail", "letter").await;
    same("effects", &effects(run, "letter"), &1)
}

async fn silent(run: &KillRun) -> Outcome {
    let (agent, _child) = start(run, "silent", IMPATIENT).await;
    same("the first answer", &call(&agent, "slow", "late").await.as_str(), &"slow")?;
    same("the second answer", &call(&agent, "slow", "late").await.as_str(), &"slow")?;
    same("effects", &effects(run, "late"), &1)
}

async fn in_order(run: &KillRun) -> Outcome {
    let (agent, mut child) = start(run, "in-order", IMPATIENT).await;
    call(&agent, "slow", "last").await;
    drop(agent);
    same("the gateway ends with its client", &tokio::time::timeout(LONGEST, child.wait()).await.is_ok(), &true)?;
    let (agent, _child) = start(run, "in-order", IMPATIENT).await;
    call(&agent, "slow", "last").await;
    same("effects", &effects(run, "last"), &2)
}

async fn cancelled(run: &KillRun) -> Outcome {
    let (agent, _child) = start(run, "cancelled", "").await;
    let cancelling = async {
        happens(run, "stopped").await;
        cancel(&agent).await;
        tokio::time::sleep(AFTERWARDS).await;
        call(&agent, "slow", "stopped").await
    };
    // The answer to a cancelled call need not be sent.
    let again = tokio::select! {
        again = cancelling => again,
        again = async { call(&agent, "slow", "stopped").await; std::future::pending().await } => again,
    };
    same("the second answer", &again.as_str(), &"slow")?;
    same("effects", &effects(run, "stopped"), &1)
}

async fn cancelled_late(run: &KillRun) -> Outcome {
    let (agent, _child) = start(run, "late", "").await;
    call(&agent, "set", "late word").await;
    cancel(&agent).await;
    same("the second answer", &call(&agent, "set", "late word").await.as_str(), &"set")?;
    same("effects", &effects(run, "late word"), &1)?;
    call(&agent, "set", "late word").await;
    same("effects after a delivered repeat", &effects(run, "late word"), &2)
}

/// A client that dies without reading leaves an answer unread in the pipe.
async fn unread(run: &KillRun) -> Outcome {
    let mut child = command(run, "unread", "").spawn().expect("the product can be started");
    let (mut input, output) = (child.stdin.take().expect("its input"), child.stdout.take());
    let client = json!({ "name": "unread", "version": "1" });
    let opening = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    let lines = [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": opening }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params("set", "unread") }),
    ];
    for line in lines {
        input.write_all(format!("{line}\n").as_bytes()).await.map_err(|error| error.to_string())?;
    }
    happens(run, "unread").await;
    tokio::time::sleep(AFTERWARDS).await;
    drop((output, input));
    same("the gateway ends with its client", &tokio::time::timeout(LONGEST, child.wait()).await.is_ok(), &true)?;
    let (agent, _child) = start(run, "unread", "").await;
    same("the second answer", &call(&agent, "set", "unread").await.as_str(), &"set")?;
    same("effects", &effects(run, "unread"), &1)
}

fn is_doubt(answer: &str) -> bool {
    ["in_doubt", "attempt_unknown"].contains(&answer)
}

/// The server dies during a call.
async fn response(run: &KillRun) -> Outcome {
    let (agent, _child) = start(run, "told", "").await;
    let first = call(&agent, "crash", "broken").await;
    same("the first answer is a doubt", &is_doubt(&first), &true)?;
    // By now it is recorded that the client has read its answer.
    tokio::time::sleep(AFTERWARDS).await;
    run.effects.calm_down();
    let (next, _other) = start(run, "told", "").await;
    same("the second answer", &call(&next, "crash", "broken").await.as_str(), &"crash")?;
    same("effects", &effects(run, "broken"), &2)
}

/// The gateway is killed during a call.
async fn untold(run: &KillRun) -> Outcome {
    let (agent, mut child) = start(run, "untold", "").await;
    tokio::select! {
        _ = call(&agent, "interrupted", "cut off") => {}
        () = happens(run, "cut off") => {}
    }
    end(&mut child).await;
    let (agent, _child) = start(run, "untold", "").await;
    let first = call(&agent, "interrupted", "cut off").await;
    same("the caller is told", &(is_doubt(&first), effects(run, "cut off")), &(true, 1))?;
    tokio::select! {
        _ = call(&agent, "interrupted", "cut off") => {}
        () = tokio::time::sleep(AFTERWARDS) => {}
    }
    same("effects after the next call", &effects(run, "cut off"), &2)
}
