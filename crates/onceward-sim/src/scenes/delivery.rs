//! The MCP gateway over stdio, with calls that no key names: which answers count as delivered, and what the next equal call
//! comes to.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

use super::mcp::text;
use super::{Outcome, effects, same};
use crate::kills::Stage;
use crate::kills::product::{end, this_program};
use crate::mcp::Agent;

/// A call that takes longer hangs: the next thing to say is what is wrong.
const LONGEST: Duration = Duration::from_secs(10);

/// Longer than a slow tool takes, and than a gateway takes to record what it came to.
const AFTERWARDS: Duration = Duration::from_millis(1200);

/// Clients give up silently sooner than a slow tool answers.
const IMPATIENT: &str = "patience = \"200ms\"\n";

/// All at once: each has a gateway and a client of its own, and most of them wait for most of their time.
pub(super) async fn play(stage: &Stage, tell: &mut impl FnMut(&str, Outcome)) {
    let played = tokio::join!(
        meant(stage),
        at_once(stage),
        steps(stage),
        outward(stage),
        silent(stage),
        in_order(stage),
        cancelled(stage),
        cancelled_late(stage),
        unread(stage),
        told(stage),
        untold(stage),
    );
    tell("mcp: a call after a delivered answer runs", played.0);
    tell("mcp: equal calls at once are one", played.1);
    tell("mcp: steps run one after the other", played.2);
    tell("mcp: what reaches other people is not repeated", played.3);
    tell("mcp: an answer that came late for a silent client is told again", played.4);
    tell("mcp: a client that ended in order had its answer", played.5);
    tell("mcp: what a cancelled call came to is told again", played.6);
    tell("mcp: a late cancellation takes the delivery back", played.7);
    tell("mcp: an answer that a killed client left unread is told again", played.8);
    tell("mcp: a doubt that was told is run by the next call", played.9);
    tell("mcp: a gateway killed during a call leaves a doubt that is told first", played.10);
}

/// The gateway's process. Each has a file of its own, because more than one may be there.
fn command(stage: &Stage, name: &str, settings: &str) -> Command {
    let file = stage.folder().join(format!("{name}.toml"));
    std::fs::write(&file, format!("[mcp]\nnotice = false\n{settings}")).expect("the folder can be written");
    let mut command = stage.product.command(&["mcp", "--server", "sim", "--config"]);
    command.arg(file).arg("--store").arg(stage.store()).arg("--").arg(this_program());
    command.args(["scene-server", "--effects"]).arg(stage.effects.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

/// A gateway whose client calls itself by this name: what a client does is remembered by its name.
async fn start(stage: &Stage, name: &str, settings: &str) -> (Agent, Child) {
    let mut child = command(stage, name, settings).spawn().expect("the product can be started");
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

/// Waits until something has happened, or for as long as it may take at the most.
async fn happens(stage: &Stage, order: &str) {
    let looking = async {
        while effects(stage, order) == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let _ = tokio::time::timeout(LONGEST, looking).await;
}

async fn meant(stage: &Stage) -> Outcome {
    let (agent, _child) = start(stage, "meant", "").await;
    for times in 1..=3 {
        same("the answer", &call(&agent, "set", "light").await.as_str(), &"set")?;
        same("effects", &effects(stage, "light"), &times)?;
    }
    Ok(())
}

async fn at_once(stage: &Stage) -> Outcome {
    let (agent, _child) = start(stage, "at-once", "").await;
    let (one, two) = tokio::join!(call(&agent, "slow", "shared call"), call(&agent, "slow", "shared call"));
    same("the answers", &(one.as_str(), two.as_str()), &("slow", "slow"))?;
    same("effects", &effects(stage, "shared call"), &1)
}

async fn steps(stage: &Stage) -> Outcome {
    let (agent, _child) = start(stage, "steps", "").await;
    tokio::join!(call(&agent, "press_key", "down"), call(&agent, "press_key", "down"));
    same("effects", &effects(stage, "down"), &2)
}

async fn outward(stage: &Stage) -> Outcome {
    let (agent, _child) = start(stage, "outward", "").await;
    call(&agent, "send_mail", "letter").await;
    call(&agent, "send_mail", "letter").await;
    same("effects", &effects(stage, "letter"), &1)
}

async fn silent(stage: &Stage) -> Outcome {
    let (agent, _child) = start(stage, "silent", IMPATIENT).await;
    same("the first answer", &call(&agent, "slow", "late").await.as_str(), &"slow")?;
    same("the second answer", &call(&agent, "slow", "late").await.as_str(), &"slow")?;
    same("effects", &effects(stage, "late"), &1)
}

async fn in_order(stage: &Stage) -> Outcome {
    let (agent, mut child) = start(stage, "in-order", IMPATIENT).await;
    call(&agent, "slow", "last").await;
    drop(agent);
    same("the gateway ends with its client", &tokio::time::timeout(LONGEST, child.wait()).await.is_ok(), &true)?;
    let (agent, _child) = start(stage, "in-order", IMPATIENT).await;
    call(&agent, "slow", "last").await;
    same("effects", &effects(stage, "last"), &2)
}

async fn cancelled(stage: &Stage) -> Outcome {
    let (agent, _child) = start(stage, "cancelled", "").await;
    let cancelling = async {
        happens(stage, "stopped").await;
        cancel(&agent).await;
        tokio::time::sleep(AFTERWARDS).await;
        call(&agent, "slow", "stopped").await
    };
    // The answer to a cancelled call need not be told.
    let again = tokio::select! {
        again = cancelling => again,
        again = async { call(&agent, "slow", "stopped").await; std::future::pending().await } => again,
    };
    same("the second answer", &again.as_str(), &"slow")?;
    same("effects", &effects(stage, "stopped"), &1)
}

async fn cancelled_late(stage: &Stage) -> Outcome {
    let (agent, _child) = start(stage, "late", "").await;
    call(&agent, "set", "late word").await;
    cancel(&agent).await;
    same("the second answer", &call(&agent, "set", "late word").await.as_str(), &"set")?;
    same("effects", &effects(stage, "late word"), &1)?;
    call(&agent, "set", "late word").await;
    same("effects after a delivered repeat", &effects(stage, "late word"), &2)
}

/// A client that dies without reading leaves a pipe with something in it that nobody will read.
async fn unread(stage: &Stage) -> Outcome {
    let mut child = command(stage, "unread", "").spawn().expect("the product can be started");
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
    happens(stage, "unread").await;
    tokio::time::sleep(AFTERWARDS).await;
    drop((output, input));
    same("the gateway ends with its client", &tokio::time::timeout(LONGEST, child.wait()).await.is_ok(), &true)?;
    let (agent, _child) = start(stage, "unread", "").await;
    same("the second answer", &call(&agent, "set", "unread").await.as_str(), &"set")?;
    same("effects", &effects(stage, "unread"), &1)
}

fn is_doubt(answer: &str) -> bool {
    ["in_doubt", "attempt_unknown"].contains(&answer)
}

/// The server dies in the middle of a call.
async fn told(stage: &Stage) -> Outcome {
    let (agent, _child) = start(stage, "told", "").await;
    let first = call(&agent, "crash", "broken").await;
    same("the first answer is a doubt", &is_doubt(&first), &true)?;
    // What its client has read is recorded by then.
    tokio::time::sleep(AFTERWARDS).await;
    stage.effects.calm_down();
    let (next, _other) = start(stage, "told", "").await;
    same("the second answer", &call(&next, "crash", "broken").await.as_str(), &"crash")?;
    same("effects", &effects(stage, "broken"), &2)
}

/// The gateway is killed in the middle of a call.
async fn untold(stage: &Stage) -> Outcome {
    let (agent, mut child) = start(stage, "untold", "").await;
    tokio::select! {
        _ = call(&agent, "interrupted", "cut off") => {}
        () = happens(stage, "cut off") => {}
    }
    end(&mut child).await;
    let (agent, _child) = start(stage, "untold", "").await;
    let first = call(&agent, "interrupted", "cut off").await;
    same("the caller is told", &(is_doubt(&first), effects(stage, "cut off")), &(true, 1))?;
    tokio::select! {
        _ = call(&agent, "interrupted", "cut off") => {}
        () = tokio::time::sleep(AFTERWARDS) => {}
    }
    same("effects after the next call", &effects(stage, "cut off"), &2)
}
