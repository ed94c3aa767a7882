//! One gateway in front of a server that is reached by HTTP, killed over and over while clients go on.

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use super::meant::{CLIENTS, Heard};
use super::{CALLERS, LONGEST, Stage, TRIES, answer, as_result, life, remote};
use crate::dice::Dice;
use crate::kills::book::Told;
use crate::kills::product::end;
use crate::kills::{HELD, HOLDS, TOLD_WITHIN, web};

/// Where the gateway is; none while there is none.
type Address = Arc<Mutex<Option<String>>>;

pub(super) async fn play(stage: &Arc<Stage>) {
    let port = remote::start(stage).await;
    let address = Address::default();
    let mut gateway = start(stage, port, &address).await;
    tokio::select! {
        told = ask(stage, &address, HELD, HOLDS) => stage.book.violation(format!("{HELD}: told {told:?} before the end")),
        () = stage.has_acted() => {}
    }
    end(&mut gateway).await;
    gateway = start(stage, port, &address).await;
    stage.first_scene(&ask(stage, &address, HELD, TOLD_WITHIN).await);
    let over = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| tokio::spawn(live(caller, Arc::clone(stage), Arc::clone(&address), Arc::clone(&over))))
        .collect();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| tokio::spawn(mean(client, Arc::clone(stage), Arc::clone(&address), Arc::clone(&over))))
        .collect();
    let mut dice = Dice::of(&[stage.options.seed, 7]);
    for kill in 1..=stage.options.kills {
        tokio::time::sleep(life(&mut dice)).await;
        put(&address, None);
        end(&mut gateway).await;
        gateway = start(stage, port, &address).await;
        if !stage.goes_on(kill) {
            break;
        }
    }
    over.store(true, Ordering::SeqCst);
    for caller in callers.into_iter().chain(clients) {
        caller.await.expect("a caller");
    }
    end(&mut gateway).await;
    gateway = start(stage, port, &address).await;
    let ask_at_last = |key: String| {
        let address = Arc::clone(&address);
        async move {
            let mut told = Told::Nothing;
            for _ in 0..TRIES {
                told = ask(stage, &address, &key, LONGEST).await;
                if !told.is_to_be_asked_again() {
                    break;
                }
            }
            told
        }
    };
    stage.finish(as_result, ask_at_last).await;
    end(&mut gateway).await;
}

fn put(address: &Address, at: Option<String>) {
    *address.lock().unwrap_or_else(PoisonError::into_inner) = at;
}

async fn start(stage: &Stage, port: u16, address: &Address) -> Child {
    let file = stage.folder().join("http.toml");
    std::fs::write(&file, "[mcp]\nnotice = false\n").expect("the folder can be written");
    let (store, file) = (stage.store().to_string_lossy().into_owned(), file.to_string_lossy().into_owned());
    let upstream = format!("http://127.0.0.1:{port}/mcp");
    let mut command = stage.product.command(&["mcp", "--store", &store, "--config", &file, "--server", "sim"]);
    command.args(["--tenant", "fixed:sim", "--upstream", &upstream, "--listen", "127.0.0.1:0"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the product can be started");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let line = lines.next_line().await.expect("its first line").expect("a gateway says where it listens");
    let at = line.rsplit_once("http://").map(|(_, at)| at.trim_end_matches("/mcp").to_owned());
    put(address, Some(at.expect("an address")));
    child
}

async fn live(caller: u64, stage: Arc<Stage>, address: Address, over: Arc<AtomicBool>) {
    let mut dice = Dice::of(&[stage.options.seed, 5, caller]);
    while !over.load(Ordering::SeqCst) {
        let key = stage.book.pick(&mut dice);
        for _ in 0..TRIES {
            let patience = if dice.one_in(6) { Duration::from_millis(20) } else { LONGEST };
            let told = ask(&stage, &address, &key, patience).await;
            stage.book.told(&key, &told);
            if !told.is_to_be_asked_again() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(dice.below(25))).await;
        }
    }
}

/// A client that gives its calls no keys.
async fn mean(client: u64, stage: Arc<Stage>, address: Address, over: Arc<AtomicBool>) {
    let mut dice = Dice::of(&[stage.options.seed, 9, client]);
    let ask = |order: String, _| {
        let at = address.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let params = json!({ "name": stage.over.tool(&order), "arguments": { "order": order } });
        async move {
            let Some(at) = at else { return Heard { told: Told::Nothing, answered: false, gateway: 0 } };
            let port = at.rsplit(':').next().and_then(|port| port.parse().ok());
            let (told, answered) = asked(&at, params, LONGEST).await;
            Heard { told, answered, gateway: port.unwrap_or_default() }
        }
    };
    stage.meant.live(&mut dice, &over, ask).await;
}

/// One call with a key, on a connection of its own.
async fn ask(stage: &Stage, address: &Address, key: &str, patience: Duration) -> Told {
    let Some(at) = address.lock().unwrap_or_else(PoisonError::into_inner).clone() else { return Told::Nothing };
    let params =
        json!({ "name": stage.over.tool(key), "arguments": { "order": key }, "_meta": { "onceward/key": key } });
    asked(&at, params, patience).await.0
}

/// What a call is told, and whether there was an answer to it.
async fn asked(at: &str, params: Value, patience: Duration) -> (Told, bool) {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let id = NEXT.fetch_add(1, Ordering::SeqCst);
    let message = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
    let headers = [("accept", "application/json, text/event-stream"), ("mcp-protocol-version", "2025-11-25")];
    match tokio::time::timeout(patience, web::ask(at, "/mcp", &headers, Some(message.to_string()))).await {
        Ok(Ok((status, _, text))) if status.is_success() => match answer_in(&text, id) {
            Some(answer) => (answer::read(&answer), true),
            None => (Told::Nothing, false),
        },
        // A gateway that cannot reach the server, or passes on its refusal.
        Ok(Ok((status, _, _))) if status.is_server_error() => (Told::Nothing, true),
        Ok(Ok((status, _, text))) => (Told::Wrong(format!("{status} {text}")), true),
        Ok(Err(_)) | Err(_) => (Told::Nothing, false),
    }
}

/// The answer to a request, in a plain body or in a stream of events.
fn answer_in(text: &str, id: u64) -> Option<Value> {
    let whole = text.lines().map(|line| line.strip_prefix("data: ").unwrap_or(line));
    whole.filter_map(|line| serde_json::from_str::<Value>(line).ok()).find(|answer| answer["id"] == id)
}
