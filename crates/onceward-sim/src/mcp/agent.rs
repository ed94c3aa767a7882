//! A client over stdio, and the gateway process that it talks to.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin};
use tokio::sync::oneshot;

use super::{KillRun, Transport, response};
use crate::kills::judge::Response;
use crate::kills::product::{end, kill_now, this_program};

/// A gateway and its server start within this time, also on a busy machine.
const START: Duration = Duration::from_secs(60);

/// The requests that wait for an answer; `None` once the gateway is gone.
type Pending = Arc<Mutex<Option<HashMap<u64, oneshot::Sender<Value>>>>>;

/// The client of one gateway.
pub struct Agent {
    input: tokio::sync::Mutex<ChildStdin>,
    pending: Pending,
    next: AtomicU64,
    /// Different for each gateway.
    pub(super) number: u64,
}

/// The gateway process, and the pid files of its servers.
pub(super) struct Gateway {
    child: Child,
    servers: Vec<PathBuf>,
    /// A part of the command line of its servers.
    marker: PathBuf,
}

/// Starts a gateway.
pub(super) fn start(run: &KillRun, slot: u64) -> (Agent, Gateway) {
    let names: &[&str] = if run.transport == Transport::Several { &["one", "two"] } else { &["act"] };
    let servers: Vec<PathBuf> = names.iter().map(|name| run.folder().join(format!("pid-{slot}-{name}"))).collect();
    let command = |pid_file: &PathBuf| {
        let arguments = ["effect-server", "--effects"].map(str::to_owned);
        let program = this_program().to_string_lossy().into_owned();
        let effects = run.effects.path().to_string_lossy().into_owned();
        let pid_file = pid_file.to_string_lossy().into_owned();
        let seed = run.options.seed.to_string();
        let mut whole = vec![program];
        whole.extend(arguments);
        whole.extend([effects, "--seed".to_owned(), seed, "--pid-file".to_owned(), pid_file]);
        whole
    };
    let mut config = "[mcp]\nnotice = false\n".to_owned();
    if run.transport == Transport::Several {
        for (name, pid_file) in names.iter().zip(&servers) {
            config += &format!("[mcp.server.{name}]\ncommand = {:?}\n", command(pid_file));
        }
    }
    let file = run.folder().join(format!("slot-{slot}.toml"));
    std::fs::write(&file, config).expect("the folder can be written");
    let (store, file) = (run.store().to_string_lossy().into_owned(), file.to_string_lossy().into_owned());
    let mut process = run.product.command(&["mcp", "--store", &store, "--config", &file]);
    if run.transport == Transport::Stdio {
        process.args(["--server", "sim", "--"]).args(command(&servers[0]));
    }
    process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = process.spawn().expect("the product can be started");
    let agent = Agent::of(&mut child);
    (agent, Gateway { child, servers, marker: run.effects.path().to_owned() })
}

impl Agent {
    /// The client of a gateway that was just started.
    pub fn of(child: &mut Child) -> Self {
        let (input, output) = (child.stdin.take().expect("its input"), child.stdout.take().expect("its output"));
        let pending: Pending = Arc::new(Mutex::new(Some(HashMap::new())));
        let tried = Arc::clone(&pending);
        tokio::spawn(async move {
            let mut lines = BufReader::new(output).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
                let id = message["id"].as_u64().filter(|_| message.get("method").is_none());
                let waiting =
                    id.and_then(|id| tried.lock().unwrap_or_else(PoisonError::into_inner).as_mut()?.remove(&id));
                if let Some(waiting) = waiting {
                    let _ = waiting.send(message);
                }
            }
            // Requests that still wait end: the gateway is gone.
            *tried.lock().unwrap_or_else(PoisonError::into_inner) = None;
        });
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let number = NUMBERS.fetch_add(1, Ordering::SeqCst);
        Self { input: tokio::sync::Mutex::new(input), pending, next: AtomicU64::new(1), number }
    }

    /// The id of the last request.
    pub fn last(&self) -> u64 {
        self.next.load(Ordering::SeqCst) - 1
    }

    /// The handshake. False if the gateway was gone before its end.
    pub async fn begin(&self) -> bool {
        self.begin_as("sim").await
    }

    /// The handshake of a client with this name.
    pub async fn begin_as(&self, name: &str) -> bool {
        let client = json!({ "name": name, "version": "1" });
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
        let response = tokio::time::timeout(START, self.request("initialize", params)).await;
        let begun = matches!(response, Ok(Some(_)));
        begun && self.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await
    }

    /// Calls the tool under the client's own key.
    pub(super) async fn call(&self, tool: &str, key: &str) -> Response {
        let params = json!({ "name": tool, "arguments": { "order": key }, "_meta": { "onceward/key": key } });
        match self.request("tools/call", params).await {
            Some(response) => response::read(&response),
            None => Response::Nothing,
        }
    }

    /// Calls the tool without a key.
    pub(super) async fn call_unnamed(&self, tool: &str, order: &str) -> (Response, bool) {
        match self.request("tools/call", json!({ "name": tool, "arguments": { "order": order } })).await {
            Some(response) => (response::read(&response), true),
            None => (Response::Nothing, false),
        }
    }

    /// Sends a request, and waits for its answer; `None` if the gateway is gone.
    pub async fn request(&self, method: &str, params: Value) -> Option<Value> {
        let id = self.next.fetch_add(1, Ordering::SeqCst);
        let (sender, response) = oneshot::channel();
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).as_mut()?.insert(id, sender);
        let said = self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        if said { response.await.ok() } else { None }
    }

    /// Sends a message. False if the gateway is gone.
    pub async fn say(&self, message: &Value) -> bool {
        let line = format!("{message}\n");
        self.input.lock().await.write_all(line.as_bytes()).await.is_ok()
    }
}

impl Gateway {
    /// Kills the gateway, its servers, or all of them at once.
    pub(super) async fn kill(mut self, gateway: bool, servers: bool) {
        let pids = self.servers.iter().filter_map(|file| std::fs::read_to_string(file).ok()?.parse().ok());
        let pids: Vec<u32> = pids.collect();
        if servers {
            pids.into_iter().for_each(|pid| {
                kill_now(pid, &self.marker);
            });
        }
        if !gateway {
            // A gateway whose servers are gone may end by itself, and may also wait for its client.
            let _ = tokio::time::timeout(Duration::from_millis(200), self.child.wait()).await;
        }
        end(&mut self.child).await;
    }
}
