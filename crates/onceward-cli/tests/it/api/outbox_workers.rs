//! Workers that lease entries: each entry goes to one, and no answer that is lost costs an entry.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::server::{ApiClient, TestServer, is};
use crate::test_folder::wait_until;

const TOKENS: &str = r#"
[operation.again]
in_doubt = "retry"

[[api.token]]
tenant = "acme"
secret = "file:one"
scopes = ["use", "read", "operate"]

[[api.token]]
tenant = "acme"
secret = "file:two"
scopes = ["use", "read"]

[[api.token]]
tenant = "other"
secret = "file:three"
scopes = ["use", "read"]
"#;

const SECRETS: [(&str, &str); 3] =
    [("one", "one-0123456789abcdef"), ("two", "two-0123456789abcdef"), ("three", "three-0123456789abcdef")];

#[track_caller]
fn enqueue(client: &ApiClient, operation: &str, count: usize) {
    let entries: Vec<Value> = (0..count)
        .map(|number| json!({ "operation": operation, "key": format!("k{number:04}"), "payload": number }))
        .collect();
    let results = client.ok("/v1/enqueue", json!({ "entries": entries }));
    assert!(results["entries"].as_array().unwrap().iter().all(|result| result["result"] == "enqueued"), "{results}");
}

#[track_caller]
fn lease(client: &ApiClient, operation: &str, id: &str, more: Value) -> Value {
    let mut request = json!({ "operation": operation, "lease_id": id });
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    client.ok("/v1/lease", request)
}

fn pairs(leased: &Value) -> Vec<(String, String)> {
    let text = |entry: &Value, name: &str| entry[name].as_str().unwrap().to_owned();
    leased["entries"].as_array().unwrap().iter().map(|entry| (text(entry, "key"), text(entry, "fence"))).collect()
}

#[track_caller]
fn own(client: &ApiClient, what: &str, entry: &Value, more: Value) -> Value {
    let mut request = json!({ "operation": entry["operation"], "key": entry["key"], "fence": entry["fence"] });
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    client.ok(&format!("/v1/{what}"), request)
}

/// Sends a lease over its own connection and does not read the response.
fn lease_without_reading(server: &TestServer, id: &str, wait_ms: u64) -> TcpStream {
    let address = server.url.strip_prefix("http://").unwrap();
    let body = json!({ "operation": "op", "lease_id": id, "limit": 10, "wait_ms": wait_ms }).to_string();
    let mut connection = TcpStream::connect(address).unwrap();
    let head = format!("POST /v1/lease HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n");
    connection.write_all(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes()).unwrap();
    connection
}

#[test]
fn a_repeated_lease_gets_the_same_batch_and_never_a_second_one() {
    let mut server = TestServer::start("");
    enqueue(&server.client(), "op", 25);
    let first = lease(&server.client(), "op", "l1", json!({ "limit": 10 }));
    is(&first, "repeated", false);
    assert_eq!(pairs(&first).len(), 10);
    let again = lease(&server.client(), "op", "l1", json!({ "limit": 10 }));
    is(&again, "repeated", true);
    assert_eq!(pairs(&again), pairs(&first));
    // Any server answers the same, also after a crash.
    server.signal("-KILL");
    server.ended();
    server.restart();
    let client = server.client();
    assert_eq!(pairs(&lease(&client, "op", "l1", json!({ "limit": 3 }))), pairs(&first));
    for entry in first["entries"].as_array().unwrap().iter().take(4) {
        is(&client.finish("op", entry["key"].as_str().unwrap(), &entry["fence"], "1"), "state", "done");
    }
    assert_eq!(pairs(&lease(&client, "op", "l1", json!({ "limit": 10 }))), pairs(&first)[4..]);
    let second = lease(&client, "op", "l2", json!({ "limit": 100 }));
    assert_eq!(pairs(&second).len(), 15);
    for entry in second["entries"].as_array().unwrap() {
        assert!(!pairs(&first).iter().any(|(key, _)| entry["key"] == *key), "{entry}");
    }
    // The same id for another request is a mistake of the worker.
    let other = json!({ "operation": "other", "lease_id": "l1" });
    assert_eq!(client.ok("/v1/lease", other), json!({ "result": "mismatch" }));
    // What the server keeps of batches is not listed, and cannot be touched.
    let listed = client.seen("/v1/intents?limit=200");
    assert!(listed["intents"].as_array().unwrap().iter().all(|intent| intent["operation"] == "op"), "{listed}");
    client.post("/v1/begin", &json!({ "operation": "onceward/leases", "key": "k" })).is_problem(422, "invalid");
}

#[test]
fn two_requests_with_one_id_at_once_get_one_batch() {
    let server = TestServer::start("");
    enqueue(&server.client(), "op", 200);
    for round in 0..8 {
        let id = format!("l{round}");
        let batches: Vec<Value> = std::thread::scope(|scope| {
            let ask = || lease(&server.client(), "op", &id, json!({ "limit": 10 }));
            let workers: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        assert_eq!(pairs(&batches[0]).len(), 10, "{}", batches[0]);
        for batch in &batches {
            assert_eq!(pairs(batch), pairs(&batches[0]));
        }
    }
    is(&server.client().seen("/v1/stats")["counts"], "queued", 120);
}

#[test]
fn each_entry_goes_to_one_of_many_workers_on_two_servers() {
    let server = TestServer::start("");
    let other = {
        let mut other = server.folder.command(&["serve", "--listen", "127.0.0.1:0"]);
        let mut child = other.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
        (child, line.trim().rsplit(' ').next().unwrap().to_owned())
    };
    let (mut child, url) = other;
    enqueue(&server.client(), "op", 300);
    let leased: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..8)
            .map(|worker| {
                let client = if worker % 2 == 0 { server.client() } else { server.client().at(&url) };
                scope.spawn(move || {
                    let mut keys = Vec::new();
                    // An empty batch can also mean that others were faster.
                    for round in 0..10_000 {
                        let batch = lease(&client, "op", &format!("w{worker}-{round}"), json!({ "limit": 7 }));
                        let left = &client.seen("/v1/stats")["counts"]["queued"];
                        keys.extend(pairs(&batch).into_iter().map(|(key, _)| key));
                        if pairs(&batch).is_empty() && *left == 0 {
                            return keys;
                        }
                    }
                    keys
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    let _ = child.kill();
    let _ = child.wait();
    let different: BTreeSet<_> = leased.iter().collect();
    assert_eq!((leased.len(), different.len()), (300, 300));
}

#[test]
fn a_waiting_worker_gets_an_entry_as_soon_as_it_is_queued_and_an_empty_wait_is_not_recorded() {
    let server = TestServer::start("");
    let empty = lease(&server.client(), "op", "l1", json!({ "wait_ms": 300 }));
    assert_eq!(empty, json!({ "result": "leased", "entries": [], "repeated": false }));
    is(&server.client().seen("/v1/stats")["counts"], "done", 0);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| lease(&server.client(), "op", "l1", json!({ "wait_ms": 60_000 })));
        std::thread::sleep(Duration::from_millis(300));
        assert!(!waiting.is_finished(), "the worker waits");
        let from = Instant::now();
        enqueue(&server.client(), "op", 1);
        assert_eq!(pairs(&waiting.join().unwrap()).len(), 1);
        assert!(from.elapsed() < Duration::from_secs(20), "{:?}", from.elapsed());
    });
}

#[test]
fn a_waiting_worker_is_answered_when_the_server_stops() {
    let mut server = TestServer::start("");
    let client = server.client();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| lease(&client, "op", "l1", json!({ "wait_ms": 60_000 })));
        std::thread::sleep(Duration::from_millis(300));
        server.signal("-TERM");
        is(&waiting.join().unwrap(), "entries", json!([]));
    });
    assert_eq!(server.ended(), 0);
}

#[test]
fn a_worker_that_goes_away_before_it_has_the_answer_leaves_no_lease_behind() {
    let server = TestServer::start("");
    let client = server.client();
    let connections: Vec<_> = (0..5).map(|id| lease_without_reading(&server, &format!("gone-{id}"), 60_000)).collect();
    std::thread::sleep(Duration::from_millis(200));
    drop(connections);
    std::thread::sleep(Duration::from_millis(200));
    enqueue(&client, "op", 3);
    let leased = lease(&client, "op", "l1", json!({ "limit": 10, "wait_ms": 60_000 }));
    assert_eq!(pairs(&leased).len(), 3, "{leased:#}");
    is(&leased["entries"][0], "attempt", 1);
}

#[test]
fn a_worker_that_acted_and_died_leaves_a_doubt_or_a_retry_with_the_same_downstream_key() {
    let server = TestServer::with_files(TOKENS, &SECRETS);
    let client = server.with_token(SECRETS[0].1);
    for operation in ["held", "again"] {
        enqueue(&client, operation, 1);
        let ids = [format!("{operation} 1"), format!("{operation} 2")];
        let first = lease(&client, operation, &ids[0], json!({ "lease_ms": 50 }))["entries"][0].clone();
        std::thread::sleep(Duration::from_millis(150));
        let second = lease(&client, operation, &ids[1], json!({ "lease_ms": 60_000, "wait_ms": 400 }));
        let seen = client.seen(&format!("/v1/intents/{operation}/k0000"));
        if operation == "held" {
            assert_eq!(pairs(&second).len(), 0, "{second}");
            is(&seen["intent"], "state", "in_doubt");
            // Nor does a repeat of its own request bring it back.
            is(&lease(&client, operation, &ids[0], json!({ "lease_ms": 50 })), "entries", json!([]));
            // A late worker settles its own doubt.
            is(&client.finish(operation, "k0000", &first["fence"], "late"), "state", "done");
        } else {
            is(&second["entries"][0], "attempt", 2);
            is(&second["entries"][0], "downstream_key", first["downstream_key"].clone());
            is(&client.finish(operation, "k0000", &first["fence"], "late"), "result", "stale");
            is(&client.finish(operation, "k0000", &second["entries"][0]["fence"], "1"), "state", "done");
        }
    }
}

#[test]
fn a_worker_that_marks_what_it_sends_must_mark_before_it_finishes() {
    let server = TestServer::start("");
    let client = server.client();
    enqueue(&client, "op", 1);
    let marks = json!({ "marks_sent": true, "lease_ms": 60_000 });
    let entry = lease(&client, "op", "l1", marks)["entries"][0].clone();
    is(&entry, "phase", "claimed");
    assert_eq!(client.finish("op", "k0000", &entry["fence"], "1"), json!({ "result": "not_sent" }));
    is(&client.seen("/v1/intents/op/k0000")["intent"], "state", "running");
    is(&own(&client, "sent", &entry, json!({})), "result", "written");
    is(&client.finish("op", "k0000", &entry["fence"], "1"), "state", "done");
    // A repeat of the finish is accepted, and so is a finish of a claim that `begin` granted.
    is(&client.finish("op", "k0000", &entry["fence"], "1"), "result", "written");
    let begun = client.ok("/v1/begin", json!({ "operation": "op", "key": "direct", "marks_sent": true }));
    is(&client.finish("op", "direct", &begun["fence"], "1"), "state", "done");
}

#[test]
fn a_lapsed_lease_that_sent_nothing_goes_to_the_next_worker() {
    let server = TestServer::start("");
    let client = server.client();
    enqueue(&client, "op", 1);
    lease(&client, "op", "l1", json!({ "marks_sent": true, "lease_ms": 50 }));
    std::thread::sleep(Duration::from_millis(150));
    let next = lease(&client, "op", "l2", json!({ "wait_ms": 60_000 }));
    is(&next["entries"][0], "attempt", 2);
    is(&next["entries"][0], "phase", "sent");
}

#[test]
fn a_release_tries_again_later_and_giving_up_makes_it_dead() {
    let server = TestServer::start("");
    let client = server.client();
    enqueue(&client, "op", 2);
    let leased = lease(&client, "op", "l1", json!({ "limit": 2 }));
    let [first, second] = [&leased["entries"][0], &leased["entries"][1]];
    let released = own(&client, "release", first, json!({ "error": "no route", "retry_in_ms": 200 }));
    is(&released, "state", "queued");
    is(&own(&client, "release", first, json!({ "error": "no route", "retry_in_ms": 200 })), "result", "written");
    is(&own(&client, "release", second, json!({ "error": "no such user", "give_up": true })), "state", "dead");
    let seen = client.seen("/v1/intents/op/k0000");
    is(&seen["trail"][0], "what", "attempt_failed");
    assert_eq!(seen["trail"].as_array().unwrap().len(), 1, "{seen:#}");
    is(&seen["trail"][0], "note", "attempt 1 to pull: no route");
    is(&seen["intent"]["entry"], "sink", "pull");
    assert!(seen["intent"]["entry"]["due_at"].is_string(), "{seen:#}");
    let again = lease(&client, "op", "l2", json!({ "limit": 2, "wait_ms": 60_000 }));
    assert_eq!(pairs(&again).len(), 1, "{again}");
    is(&again["entries"][0], "attempt", 2);
    is(&client.seen("/v1/intents/op/k0001")["intent"], "state", "dead");
    // A direct claim has no attempts to give up.
    let begun = client.begin("direct", "k");
    let release = json!({ "operation": "direct", "key": "k", "fence": begun["fence"], "give_up": true });
    assert_eq!(client.ok("/v1/release", release), json!({ "result": "not_an_entry" }));
    let doubt = json!({ "operation": "direct", "key": "k", "fence": begun["fence"], "retry_in_ms": 1 });
    assert_eq!(client.ok("/v1/doubt", doubt), json!({ "result": "not_an_entry" }));
    is(&client.seen("/v1/intents/direct/k")["intent"], "state", "running");
    // A claim that is over is stale, whatever it was about.
    let late = json!({ "operation": "none", "key": "k", "fence": begun["fence"], "give_up": true });
    is(&client.ok("/v1/release", late), "result", "stale");
}

#[test]
fn attempts_are_counted_and_the_last_one_makes_it_dead() {
    let server = TestServer::start("");
    let client = server.client();
    enqueue(&client, "op", 1);
    let mut states = Vec::new();
    for attempt in 1..=8 {
        let leased = lease(&client, "op", &format!("l{attempt}"), json!({ "wait_ms": 60_000 }));
        is(&leased["entries"][0], "attempt", attempt);
        let end = json!({ "error": "refused", "retry_in_ms": 1 });
        states.push(own(&client, "release", &leased["entries"][0], end)["state"].as_str().unwrap().to_owned());
    }
    assert_eq!(states[..7], ["queued"; 7]);
    assert_eq!(states[7], "dead");
    assert_eq!(client.seen("/v1/intents/op/k0000")["trail"].as_array().unwrap().len(), 8);
}

#[test]
fn a_doubt_waits_for_a_person_or_for_its_time() {
    let server = TestServer::with_files(TOKENS, &SECRETS);
    let client = server.with_token(SECRETS[0].1);
    for operation in ["held", "again"] {
        enqueue(&client, operation, 1);
        let leased = lease(&client, operation, operation, json!({}));
        let doubt = json!({ "error": "timed out", "retry_in_ms": 100 });
        is(&own(&client, "doubt", &leased["entries"][0], doubt.clone()), "state", "in_doubt");
        is(&own(&client, "doubt", &leased["entries"][0], doubt), "result", "written");
        let seen = client.seen(&format!("/v1/intents/{operation}/k0000"));
        is(&seen["trail"][0], "what", "attempt_unknown");
        assert_eq!(seen["intent"]["entry"]["due_at"].is_string(), operation == "again", "{seen:#}");
    }
    let again = lease(&client, "again", "l2", json!({ "wait_ms": 60_000 }));
    is(&again["entries"][0], "attempt", 2);
    is(&lease(&client, "held", "l3", json!({ "wait_ms": 300 })), "entries", json!([]));
}

#[test]
fn a_lease_never_crosses_tenants_and_its_id_belongs_to_the_token() {
    let server = TestServer::with_files(TOKENS, &SECRETS);
    let [one, two, three] = SECRETS.map(|(_, secret)| server.with_token(secret));
    enqueue(&one, "op", 2);
    is(&lease(&three, "op", "l1", json!({ "limit": 10, "wait_ms": 400 })), "entries", json!([]));
    let ours = lease(&one, "op", "l1", json!({ "limit": 1 }));
    assert_eq!(pairs(&ours).len(), 1);
    // The same id with another token is another request, and gets the other entry.
    let theirs = lease(&two, "op", "l1", json!({ "limit": 10 }));
    assert_eq!(pairs(&theirs).len(), 1);
    assert_ne!(pairs(&ours), pairs(&theirs));
    is(&lease(&three, "op", "l1", json!({})), "entries", json!([]));
    let entry = &ours["entries"][0];
    is(&own(&three, "release", entry, json!({})), "result", "stale");
    // A reader of the tenant sees neither fences nor lease ids.
    let batches = one.get("/v1/intents?operation=onceward%2Fleases");
    assert_eq!(batches.status, 200);
    let key = batches.json()["intents"][0]["key"].as_str().unwrap().to_owned();
    let batch = one.get(&format!("/v1/intents/onceward%2Fleases/{key}")).text;
    for fence in [&pairs(&ours)[0].1, &pairs(&theirs)[0].1] {
        assert!(!batch.contains(fence.as_str()), "{batch}");
    }
    two.get("/v1/intents/op/k0000?show_payload=true").is_problem(403, "not-allowed");
    assert_eq!(one.get("/v1/intents/op/k0000?show_payload=true").status, 200);
}

#[test]
fn several_operations_are_leased_in_turn() {
    let server = TestServer::start("");
    let client = server.client();
    enqueue(&client, "a", 50);
    enqueue(&client, "b", 50);
    let mut operations = BTreeSet::new();
    for id in 0..20 {
        let request = json!({ "operations": ["a", "b"], "lease_id": format!("l{id}"), "limit": 2 });
        for entry in client.ok("/v1/lease", request)["entries"].as_array().unwrap() {
            operations.insert(entry["operation"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(operations.len(), 2, "the backlog of one does not hold up the other");
    let request = json!({ "operations": ["b", "a"], "lease_id": "l0" });
    is(&client.ok("/v1/lease", request), "repeated", true);
}

#[test]
fn an_entry_that_is_too_late_or_used_up_is_set_aside_and_the_next_one_is_leased() {
    let server = TestServer::start("");
    let client = server.client();
    for number in 0..30 {
        let late = json!({ "operation": "op", "key": format!("late{number}"), "payload": 1, "deliver_within_ms": 1 });
        is(&client.ok("/v1/enqueue", late), "result", "enqueued");
    }
    std::thread::sleep(Duration::from_millis(20));
    enqueue(&client, "op", 1);
    let leased = lease(&client, "op", "l1", json!({ "limit": 2 }));
    assert_eq!(pairs(&leased).len(), 1, "{leased}");
    is(&leased["entries"][0], "key", "k0000");
    wait_until(|| client.seen("/v1/stats")["counts"]["dead"] == 30);
}

#[test]
fn under_probe_a_worker_asks_first_and_reports_what_it_found() {
    let server = TestServer::start("[operation.op]\nin_doubt = \"probe\"\n");
    let client = server.client();
    enqueue(&client, "op", 1);
    let probes = json!({ "probes": true, "wait_ms": 60_000 });
    let first = lease(&client, "op", "l1", probes.clone())["entries"][0].clone();
    is(&first, "probe_first", false);
    is(&own(&client, "doubt", &first, json!({ "retry_in_ms": 1 })), "state", "in_doubt");
    let second = lease(&client, "op", "l2", probes)["entries"][0].clone();
    is(&second, "probe_first", true);
    is(&own(&client, "not_found", &second, json!({})), "result", "written");
    is(&client.finish("op", "k0000", &second["fence"], "1"), "state", "done");
}

#[test]
fn entries_that_a_courier_delivers_cannot_be_leased() {
    let config = "[sink.provider]\ntype = \"http\"\nurl = \"http://127.0.0.1:1/\"\nallow_private = true\n\n[sink.workers]\ntype = \"pull\"\n\n\
                  [operation.delivered]\nsink = \"provider\"\n\n[operation.fetched]\nsink = \"workers\"\n";
    let server = TestServer::start(config);
    let client = server.client();
    for request in [
        json!({ "operation": "delivered", "lease_id": "l" }),
        json!({ "operations": ["fetched", "delivered"], "lease_id": "l" }),
    ] {
        let detail = client.post("/v1/lease", &request).is_problem(422, "invalid");
        assert!(detail.contains("`provider`"), "{detail}");
    }
    enqueue(&client, "fetched", 1);
    assert_eq!(pairs(&lease(&client, "fetched", "l", json!({}))).len(), 1);
}

#[test]
fn invalid_lease_requests_are_refused() {
    let server = TestServer::start("");
    let client = server.client();
    let invalid = |more: Value, said: &str| {
        let mut request = json!({ "lease_id": "l", "operation": "op" });
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let detail = client.post("/v1/lease", &request).is_problem(422, "invalid");
        assert!(detail.contains(said), "{request}: {detail}");
    };
    invalid(json!({ "lease_id": "" }), "lease_id: 1 to 255");
    invalid(json!({ "lease_id": "a\u{0}" }), "lease_id: 1 to 255");
    invalid(json!({ "lease_id": "a".repeat(256) }), "lease_id: 1 to 255");
    invalid(json!({ "limit": 0 }), "limit: the range is 1 to 100");
    invalid(json!({ "limit": 101 }), "limit: the range is 1 to 100");
    invalid(json!({ "wait_ms": 60_001 }), "wait_ms: the maximum is 60000");
    invalid(json!({ "lease_ms": 0 }), "lease_ms: the range is 1 to");
    invalid(json!({ "operation": "" }), "the operation is empty");
    invalid(json!({ "operations": ["op"] }), "either `operation` or `operations`");
    invalid(json!({ "operation": "onceward/leases" }), "reserved");
    invalid(json!({ "tenant": "other" }), "unknown field `tenant`");
    let many = json!({ "lease_id": "l", "operations": vec!["op"; 21] });
    client.post("/v1/lease", &many).is_problem(422, "invalid");
    client.post("/v1/lease", &json!({ "lease_id": "l", "operations": [] })).is_problem(422, "invalid");
    client.post("/v1/lease", &json!({ "lease_id": "l" })).is_problem(422, "invalid");
}
