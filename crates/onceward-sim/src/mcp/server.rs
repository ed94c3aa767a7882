//! An MCP server over stdio whose one tool has effects: it records them before it answers, and sometimes dies in
//! between. What it does with a call follows from the key of the call.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::response;
use crate::kills::effects::Effects;
use crate::kills::{HELD, HELD_FOR, Options};
use crate::rng::Rng;

/// The options of the server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The file of effects.
    pub effects: PathBuf,
    /// The seed of the run.
    pub seed: u64,
    /// Where it writes its process id, for the harness that kills it.
    pub pid_file: Option<PathBuf>,
}

/// How the server handles a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behaviour {
    Answer,
    /// Takes a while before it acts.
    Dawdle,
    /// Acts, and takes a while to answer.
    Linger,
    /// Acts, and dies before it answers.
    Die,
    /// Dies before it acts.
    Vanish,
    /// Acts, and holds its answer back.
    Hold,
}

impl Behaviour {
    /// How the call of a key is handled, and how long it takes.
    pub(super) fn of(seed: u64, key: &str, effects: &Effects) -> (Self, Duration) {
        if effects.is_calm() {
            return (Self::Answer, Duration::ZERO);
        }
        if key == HELD {
            return (Self::Hold, HELD_FOR);
        }
        let mut rng = Rng::of(&[seed, 3, Options::number(key)]);
        let behaviour = rng.weighted(&[
            (50, Self::Answer),
            (12, Self::Dawdle),
            (12, Self::Linger),
            (1, Self::Die),
            (1, Self::Vanish),
        ]);
        (behaviour, Duration::from_millis(rng.below(30)))
    }
}

/// The value of an effect: different each time.
pub(super) fn value(key: &str) -> String {
    static TIMES: AtomicU64 = AtomicU64::new(0);
    format!("{key} effect {}-{}", std::process::id(), TIMES.fetch_add(1, Ordering::SeqCst))
}

/// The answer to every request except a call; `None` for a notification.
pub fn formality(message: &Value) -> Option<Value> {
    let id = message.get("id")?;
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "sim", "version": "1" },
        }),
        "ping" => json!({}),
        "tools/list" => {
            let schema = json!({ "type": "object", "properties": { "order": { "type": "string" } } });
            json!({ "tools": [{ "name": "act", "inputSchema": schema }] })
        }
        method => {
            let error = json!({ "code": -32601, "message": format!("no method {method}") });
            return Some(json!({ "jsonrpc": "2.0", "id": id, "error": error }));
        }
    };
    Some(json!({ "jsonrpc": "2.0", "id": id, "result": result }))
}

/// The key of a call, which its arguments repeat.
pub(super) fn key(message: &Value) -> String {
    message["params"]["arguments"]["order"].as_str().unwrap_or_default().to_owned()
}

/// Serves until the client closes.
pub fn run(role: &ServerOptions) {
    if let Some(path) = &role.pid_file {
        std::fs::write(path, std::process::id().to_string()).expect("the pid file can be written");
    }
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        if message["method"] != "tools/call" {
            if let Some(response) = formality(&message) {
                say(&response);
            }
            continue;
        }
        let role = role.clone();
        std::thread::spawn(move || call(&role, &message));
    }
}

fn call(role: &ServerOptions, message: &Value) {
    let key = key(message);
    let effects = Effects::at(&role.effects);
    let (behaviour, time) = Behaviour::of(role.seed, &key, &effects);
    if behaviour == Behaviour::Vanish {
        std::process::exit(1);
    }
    if behaviour == Behaviour::Dawdle {
        std::thread::sleep(time);
    }
    let value = value(&key);
    effects.happen(&key, &value);
    match behaviour {
        Behaviour::Die => std::process::exit(1),
        Behaviour::Linger | Behaviour::Hold => std::thread::sleep(time),
        _ => {}
    }
    say(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": response::result(&value) }));
}

fn say(message: &Value) {
    let mut out = std::io::stdout().lock();
    // The gateway may be gone.
    let _ = out.write_all(format!("{message}\n").as_bytes()).and_then(|()| out.flush());
}
