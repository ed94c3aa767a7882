//! The Python worker of the guide, for real: killed after it has acted, it costs no entry and doubles no effect.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::server::{ApiClient, TestServer};
use crate::test_folder::wait_until;

const CONFIG: &str = r#"
[operation.mail]
in_doubt = "retry"
max_runtime = "500ms"

[operation.charge]
max_runtime = "500ms"
"#;

/// A provider that does each request at once, and answers it unless it is told to keep silent.
#[derive(Clone)]
struct ExampleProvider {
    url: String,
    keys: Arc<Mutex<Vec<String>>>,
    silent: Arc<AtomicBool>,
}

impl ExampleProvider {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let provider = Self { url, keys: Arc::default(), silent: Arc::default() };
        let this = provider.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let this = this.clone();
                std::thread::spawn(move || this.serve(connection.unwrap()));
            }
        });
        provider
    }

    fn serve(&self, mut connection: TcpStream) {
        let mut reader = BufReader::new(connection.try_clone().unwrap());
        let (mut key, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            let Some((name, value)) =
                line.trim().split_once(": ").or_else(|| line.trim().is_empty().then_some(("", "")))
            else {
                continue;
            };
            match name.to_ascii_lowercase().as_str() {
                "" => break,
                "idempotency-key" => key = value.to_owned(),
                "content-length" => length = value.parse().unwrap(),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        self.keys.lock().unwrap().push(key);
        if self.silent.load(Ordering::SeqCst) {
            // Until the client is gone.
            let _ = reader.read(&mut [0]);
            return;
        }
        let _ = connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}");
    }

    fn requests(&self) -> usize {
        self.keys.lock().unwrap().len()
    }

    fn effects(&self) -> usize {
        self.keys.lock().unwrap().iter().collect::<BTreeSet<_>>().len()
    }
}

struct Worker(Child);

impl Worker {
    fn start(server: &TestServer, provider: &ExampleProvider, operation: &str) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/outbox_worker.py");
        let mut command = Command::new("python3");
        command.arg(script).arg(operation).env("ONCEWARD_API", &server.url).env("PROVIDER", &provider.url);
        command.env("no_proxy", "127.0.0.1").stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Worker {
    /// As `kill -9` does.
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_missing() -> bool {
    let missing = Command::new("python3").arg("--version").output().is_err();
    if missing {
        println!("skipped: the example needs python3");
    }
    missing
}

fn enqueue(client: &ApiClient, operation: &str, count: usize) {
    let entries: Vec<Value> =
        (0..count).map(|n| json!({ "operation": operation, "key": format!("k{n}"), "payload": { "n": n } })).collect();
    client.ok("/v1/enqueue", json!({ "entries": entries }));
}

fn count(client: &ApiClient, operation: &str, state: &str) -> usize {
    let found = client.seen(&format!("/v1/intents?limit=200&operation={operation}&state={state}"));
    found["intents"].as_array().unwrap().len()
}

/// Starts a worker and kills it when the provider has acted and has not answered.
fn killed_after_acting(server: &TestServer, provider: &ExampleProvider, operation: &str) {
    let before = provider.requests();
    provider.silent.store(true, Ordering::SeqCst);
    let worker = Worker::start(server, provider, operation);
    wait_until(|| provider.requests() > before);
    drop(worker);
    provider.silent.store(false, Ordering::SeqCst);
}

#[test]
fn workers_that_are_killed_after_acting_lose_no_entry_and_the_provider_sees_the_same_key_again() {
    if is_missing() {
        return;
    }
    let (server, provider) = (TestServer::start(CONFIG), ExampleProvider::start());
    let client = server.client();
    enqueue(&client, "mail", 20);
    for _ in 0..3 {
        killed_after_acting(&server, &provider, "mail");
    }
    let workers: Vec<_> = (0..2).map(|_| Worker::start(&server, &provider, "mail")).collect();
    wait_until(|| count(&client, "mail", "done") == 20);
    drop(workers);
    assert_eq!(provider.effects(), 20, "the provider recognises the repeats by their keys");
    assert_eq!(provider.requests(), 23, "only what was cut off was sent again");
}

#[test]
fn under_hold_a_worker_that_was_killed_after_acting_leaves_one_doubt_for_a_person_and_no_second_effect() {
    if is_missing() {
        return;
    }
    let (server, provider) = (TestServer::start(CONFIG), ExampleProvider::start());
    let client = server.client();
    enqueue(&client, "charge", 5);
    killed_after_acting(&server, &provider, "charge");
    let worker = Worker::start(&server, &provider, "charge");
    wait_until(|| count(&client, "charge", "done") == 4);
    wait_until(|| count(&client, "charge", "in_doubt") == 1);
    drop(worker);
    assert_eq!((provider.requests(), provider.effects()), (5, 5), "nothing was sent twice");
    // The record changes once more when a look for work finds that the lease has lapsed: then the person looks again.
    wait_until(|| {
        let doubted = client.seen("/v1/intents?operation=charge&state=in_doubt")["intents"][0].clone();
        let resolve = json!({
            "operation": "charge", "key": doubted["key"], "version": doubted["version"],
            "resolution": { "happened": { "verdict": "success" } },
        });
        let answer = client.ok("/v1/resolve", resolve);
        assert!(answer["result"] == "settled" || answer["reason"] == "changed", "{answer}");
        answer["result"] == "settled"
    });
    assert_eq!((count(&client, "charge", "done"), provider.effects()), (5, 5));
}
