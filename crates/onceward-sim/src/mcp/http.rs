//! One gateway in front of an HTTP server, killed over and over while clients continue.

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use super::without_keys::{CLIENTS, Tried};
use super::{CALLERS, KillRun, LONGEST, TRIES, as_result, lifetime, remote, response};
use crate::kills::judge::Response;
use crate::kills::product::end;
use crate::kills::{ANSWERED_WITHIN, HELD, HELD_FOR, web};
use crate::rng::Rng;

/// The address of the gateway; `None` while it is gone.
type Address = Arc<Mutex<Option<String>>>;

pub(super) async fn play(run: &Arc<KillRun>) {
    let port = remote::start(run).await;
    let address = Address::default();
    let mut gateway = start(run, port, &address).await;
    tokio::select! {
        response = ask(run, &address, HELD, HELD_FOR) => run.judge.violation(format!("{HELD}: answered {response:?} before the end")),
        () = run.has_acted() => {}
    }
    end(&mut gateway).await;
    gateway = start(run, port, &address).await;
    run.end_opening_scenario(&ask(run, &address, HELD, ANSWERED_WITHIN).await);
    let stopped = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| tokio::spawn(live(caller, Arc::clone(run), Arc::clone(&address), Arc::clone(&stopped))))
        .collect();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            tokio::spawn(live_without_keys(client, Arc::clone(run), Arc::clone(&address), Arc::clone(&stopped)))
        })
        .collect();
    let mut rng = Rng::of(&[run.options.seed, 7]);
    for kill in 1..=run.options.kills {
        tokio::time::sleep(lifetime(&mut rng)).await;
        put(&address, None);
        end(&mut gateway).await;
        gateway = start(run, port, &address).await;
        if !run.should_continue(kill) {
            break;
        }
    }
    stopped.store(true, Ordering::SeqCst);
    for caller in callers.into_iter().chain(clients) {
        caller.await.expect("a caller");
    }
    end(&mut gateway).await;
    gateway = start(run, port, &address).await;
    let ask_at_last = |key: String| {
        let address = Arc::clone(&address);
        async move {
            let mut response = Response::Nothing;
            for _ in 0..TRIES {
                response = ask(run, &address, &key, LONGEST).await;
                if !response.should_retry() {
                    break;
                }
            }
            response
        }
    };
    run.finish(as_result, ask_at_last).await;
    end(&mut gateway).await;
}

fn put(address: &Address, at: Option<String>) {
    *address.lock().unwrap_or_else(PoisonError::into_inner) = at;
}

async fn start(run: &KillRun, port: u16, address: &Address) -> Child {
    let file = run.folder().join("http.toml");
    std::fs::write(&file, "[mcp]\nnotice = false\n").expect("the folder can be written");
    let (store, file) = (run.store().to_string_lossy().into_owned(), file.to_string_lossy().into_owned());
    let upstream = format!("http://127.0.0.1:{port}/mcp");
    let mut command = run.product.command(&["mcp", "--store", &store, "--config", &file, "--server", "sim"]);
    command.args(["--tenant", "fixed:sim", "--upstream", &upstream, "--listen", "127.0.0.1:0"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the product can be started");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let line = lines.next_line().await.expect("its first line").expect("a gateway says where it listens");
    let at = line.rsplit_once("http://").map(|(_, at)| at.trim_end_matches("/mcp").to_owned());
    put(address, Some(at.expect("an address")));
    child
}

async fn live(caller: u64, run: Arc<KillRun>, address: Address, stopped: Arc<AtomicBool>) {
    let mut rng = Rng::of(&[run.options.seed, 5, caller]);
    while !stopped.load(Ordering::SeqCst) {
        let key = run.judge.pick(&mut rng);
        for _ in 0..TRIES {
            let timeout = if rng.one_in(6) { Duration::from_millis(20) } else { LONGEST };
            let response = ask(&run, &address, &key, timeout).await;
            run.judge.record(&key, &response);
            if !response.should_retry() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(rng.below(25))).await;
        }
    }
}

/// A client that sends no keys.
async fn live_without_keys(client: u64, run: Arc<KillRun>, address: Address, stopped: Arc<AtomicBool>) {
    let mut rng = Rng::of(&[run.options.seed, 9, client]);
    let ask = |order: String, _| {
        let at = address.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let params = json!({ "name": run.transport.tool(&order), "arguments": { "order": order } });
        async move {
            let Some(at) = at else { return Tried { response: Response::Nothing, answered: false, gateway: 0 } };
            let port = at.rsplit(':').next().and_then(|port| port.parse().ok());
            let (response, answered) = asked(&at, params, LONGEST).await;
            Tried { response, answered, gateway: port.unwrap_or_default() }
        }
    };
    run.without_keys.live(&mut rng, &stopped, ask).await;
}

/// One call with a key, on a new connection.
async fn ask(run: &KillRun, address: &Address, key: &str, timeout: Duration) -> Response {
    let Some(at) = address.lock().unwrap_or_else(PoisonError::into_inner).clone() else { return Response::Nothing };
    let params =
        json!({ "name": run.transport.tool(key), "arguments": { "order": key }, "_meta": { "onceward/key": key } });
    asked(&at, params, timeout).await.0
}

/// The answer to a call, and whether there was one.
async fn asked(at: &str, params: Value, timeout: Duration) -> (Response, bool) {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let id = NEXT.fetch_add(1, Ordering::SeqCst);
    let message = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
    let headers = [("accept", "application/json, text/event-stream"), ("mcp-protocol-version", "2025-11-25")];
    match tokio::time::timeout(timeout, web::ask(at, "/mcp", &headers, Some(message.to_string()))).await {
        Ok(Ok((status, _, text))) if status.is_success() => match answer_in(&text, id) {
            Some(response) => (response::read(&response), true),
            None => (Response::Nothing, false),
        },
        // A gateway that cannot reach the server, or passes on its refusal.
        Ok(Ok((status, _, _))) if status.is_server_error() => (Response::Nothing, true),
        Ok(Ok((status, _, text))) => (Response::Wrong(format!("{status} {text}")), true),
        Ok(Err(_)) | Err(_) => (Response::Nothing, false),
    }
}

/// The answer to a request, in a plain body or in a stream of events.
fn answer_in(text: &str, id: u64) -> Option<Value> {
    let whole = text.lines().map(|line| line.strip_prefix("data: ").unwrap_or(line));
    whole.filter_map(|line| serde_json::from_str::<Value>(line).ok()).find(|response| response["id"] == id)
}
