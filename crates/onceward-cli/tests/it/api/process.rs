//! The server as a process: it is stopped, killed and restarted, and its clients disconnect.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;

use super::server::{TestServer, is};
use crate::test_folder::{TestFolder, wait_until};

#[test]
fn a_fence_stays_valid_after_the_server_restarts() {
    let mut server = TestServer::start("");
    let stopped = server.client().begin("op", "stopped");
    server.signal("-TERM");
    assert_eq!(server.ended(), 0);
    server.restart();
    is(&server.client().begin("op", "stopped"), "decision", "in_flight");
    is(&server.client().finish("op", "stopped", &stopped["fence"], "1"), "result", "written");
    let killed = server.client().begin("op", "killed");
    server.signal("-KILL");
    assert_eq!(server.ended(), -1);
    server.restart();
    // Its owner is another process, which may still be working.
    is(&server.client().begin("op", "killed"), "decision", "in_flight");
    is(
        &server.client().ok("/v1/renew", json!({ "operation": "op", "key": "killed", "fence": killed["fence"] })),
        "state",
        "running",
    );
    is(&server.client().finish("op", "killed", &killed["fence"], "2"), "result", "written");
    is(&server.client().begin("op", "killed"), "decision", "replay");
}

#[test]
fn two_servers_on_one_ledger_grant_one_claim() {
    let server = TestServer::start("");
    let folder = TestFolder::new();
    folder.write("onceward.toml", &format!("store = {:?}\n", server.folder.path("ledger.db")));
    let other = TestServer::started_in(folder);
    let begun = server.client().begin("op", "k");
    std::thread::scope(|scope| {
        let waiting =
            scope.spawn(|| other.client().ok("/v1/begin", json!({ "operation": "op", "key": "k", "wait_ms": 60_000 })));
        std::thread::sleep(Duration::from_millis(200));
        is(&other.client().finish("op", "k", &begun["fence"], "paid"), "result", "written");
        is(&waiting.join().unwrap()["outcome"]["body"], "text", "paid");
    });
    is(&server.client().begin("op", "k"), "decision", "replay");
}

/// With HTTP/2 it would be unknown how much of a response was received: a claim that its client never got would stay.
#[test]
fn http2_is_not_supported() {
    let server = TestServer::start("");
    let mut stream = std::net::TcpStream::connect(server.url.trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    stream.write_all(&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &settings[..]].concat()).unwrap();
    let mut heard = Vec::new();
    // The connection may be closed before everything was read.
    let _ = stream.read_to_end(&mut heard);
    assert!(heard.is_empty() || heard.starts_with(b"HTTP/1.1 400"), "{heard:?}");
    is(&server.client().begin("op", "k"), "decision", "acquired");
}

#[test]
fn a_server_that_stops_answers_waiting_callers_and_accepts_no_new_ones() {
    let mut server = TestServer::start("");
    server.client().begin("op", "k");
    let client = server.client();
    let waiting =
        std::thread::spawn(move || client.ok("/v1/begin", json!({ "operation": "op", "key": "k", "wait_ms": 60_000 })));
    std::thread::sleep(Duration::from_millis(300));
    let from = Instant::now();
    server.signal("-TERM");
    is(&waiting.join().unwrap(), "decision", "in_flight");
    assert_eq!(server.ended(), 0);
    assert!(from.elapsed() < Duration::from_secs(9), "{:?}", from.elapsed());
    assert!(std::net::TcpStream::connect(server.url.strip_prefix("http://").unwrap()).is_err());
}

#[test]
fn a_client_that_disconnects_while_waiting_gets_no_claim() {
    let server = TestServer::start("[operation.op]\nin_doubt = \"retry\"\n");
    let client = server.client();
    let begun = client.ok("/v1/begin", json!({ "operation": "op", "key": "k", "lease_ms": 1_500 }));
    let body = json!({ "operation": "op", "key": "k", "wait_ms": 60_000 }).to_string();
    let address = server.url.strip_prefix("http://").unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let length = body.len();
    write!(stream, "POST /v1/begin HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
    std::thread::sleep(Duration::from_millis(300));
    drop(stream);
    wait_until(|| server.log().lines().filter(|line| line.contains("/v1/begin")).count() == 2);
    std::thread::sleep(Duration::from_millis(1_700));
    // The lease has lapsed, and a caller that was still waiting would have taken it over.
    let seen = client.seen("/v1/intents/op/k");
    is(&seen["intent"], "state", "in_doubt");
    is(&seen["intent"], "attempts", 1);
    is(&client.finish("op", "k", &begun["fence"], "1"), "result", "written");
}

#[test]
fn an_unwritable_store_grants_nothing_unless_the_policy_says_so() {
    let server = TestServer::start("[operation.low]\nstore_down = \"open\"\n");
    let client = server.client();
    is(&client.seen("/healthz"), "status", "ok");
    is(&client.seen("/readyz"), "status", "ready");
    // Another process locks the file for longer than the ledger waits.
    let lock = rusqlite::Connection::open(server.folder.path("ledger.db")).unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let begun = client.post("/v1/begin", &json!({ "operation": "op", "key": "k" }));
            let detail = begun.is_problem(503, "store-down");
            assert_eq!(begun.header("retry-after"), Some("1"));
            assert!(!detail.contains("ledger.db"), "{detail}");
        });
        let unguarded = server.client().begin("low", "k");
        is(&unguarded, "decision", "unguarded");
        assert!(unguarded["downstream_key"].as_str().unwrap().starts_with("once_v1_"));
    });
    assert!(server.log().contains("ledger.db"), "the log names the file: {}", server.log());
    lock.execute_batch("ROLLBACK").unwrap();
    is(&client.begin("op", "k"), "decision", "acquired");
}

#[test]
fn an_address_in_use_is_reported() {
    let server = TestServer::start("");
    let address = server.url.strip_prefix("http://").unwrap();
    let answer = TestFolder::new().onceward(&["serve", "--listen", address]);
    answer.says(69, &[&format!("api: cannot listen on {address}")]);
}

#[test]
fn api_and_gateway_run_together_on_one_ledger_and_stop_together() {
    let upstream = TestServer::start("");
    let folder = TestFolder::new();
    folder.write(
        "onceward.toml",
        &format!(
            "store = \"ledger.db\"\n[api]\nlisten = \"127.0.0.1:0\"\n[gateway]\nlisten = \"127.0.0.1:0\"\n\
             [[gateway.route]]\nupstream = \"{}\"\ntenant = \"fixed:default\"\n",
            upstream.url
        ),
    );
    let mut child = folder.command(&["serve"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines: Vec<String> = BufReader::new(child.stdout.take().unwrap()).lines().take(2).map(Result::unwrap).collect();
    let url = |name: &str| {
        let line = lines.iter().find(|line| line.starts_with(&format!("onceward {name} listens on "))).unwrap();
        line.rsplit(' ').next().unwrap().to_owned()
    };
    let body = json!({ "operation": "op", "key": "k" });
    let through = |path: &str| {
        let request = ureq::post(format!("{}{path}", url("gateway"))).header("content-type", "application/json");
        let mut answer = request.header("idempotency-key", "once").send(body.to_string().as_bytes()).unwrap();
        answer.body_mut().read_to_string().unwrap()
    };
    let first = through("/v1/begin");
    assert!(first.contains("acquired"), "{first}");
    assert_eq!(through("/v1/begin"), first, "the upstream is called once");
    let listed = ureq::get(format!("{}/v1/intents", url("api"))).call().unwrap().body_mut().read_to_string().unwrap();
    assert!(listed.contains("\"key\":\"once\"") && listed.contains("\"done\""), "{listed}");
    assert!(std::process::Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
