//! Queueing entries: one or many, once, and with a result of its own for each.

use serde_json::{Value, json};

use super::server::{ApiClient, TestServer, is};

const RECIPE: &str = r#"
[operation.mail]
key = ["/to", "/campaign"]
match = ["/subject"]
"#;

#[track_caller]
fn enqueue(client: &ApiClient, entry: Value) -> Value {
    client.ok("/v1/enqueue", entry)
}

#[track_caller]
fn lease_one(client: &ApiClient, operation: &str, lease_id: &str) -> Value {
    let leased = client.ok("/v1/lease", json!({ "operation": operation, "lease_id": lease_id }));
    assert_eq!(leased["entries"].as_array().unwrap().len(), 1, "{leased:#}");
    leased["entries"][0].clone()
}

#[test]
fn an_entry_is_queued_leased_and_finished() {
    let server = TestServer::start("");
    let client = server.client();
    let letter = json!({ "operation": "mail", "key": "welcome-7", "payload": { "to": "ann", "cents": 1 } });
    let queued = enqueue(&client, letter.clone());
    assert_eq!(queued, json!({ "result": "enqueued", "key": "welcome-7", "state": "queued" }));
    let entry = lease_one(&client, "mail", "w1-1");
    is(&entry, "operation", "mail");
    is(&entry, "key", "welcome-7");
    is(&entry, "payload", letter["payload"].clone());
    is(&entry, "attempt", 1);
    is(&entry, "phase", "sent");
    is(&entry, "probe_first", false);
    is(&entry, "sink", "pull");
    is(&entry, "priority", "normal");
    is(&entry, "lease_ms", 180_000);
    assert!(entry["downstream_key"].as_str().unwrap().starts_with("once_v1_"), "{entry}");
    is(&enqueue(&client, letter.clone()), "state", "running");
    is(&client.begin("mail", "welcome-7"), "decision", "mismatch");
    let finish = json!({
        "operation": "mail", "key": "welcome-7", "fence": entry["fence"], "reference": "msg_17",
        "outcome": { "verdict": "success", "body": { "text": "{\"id\":\"msg_17\"}" } },
    });
    is(&client.ok("/v1/finish", finish.clone()), "state", "done");
    is(&client.ok("/v1/finish", finish), "result", "written");
    let again = enqueue(&client, letter);
    is(&again, "result", "already_enqueued");
    is(&again, "state", "done");
    is(&again["outcome"]["body"], "text", "{\"id\":\"msg_17\"}");
    is(&again["outcome"], "reference", "msg_17");
    client.get(&format!("/v1/intents?reference={}", "0".repeat(256))).is_problem(422, "invalid");
    let found = client.seen("/v1/intents?reference=msg_17");
    is(&found["intents"][0], "key", "welcome-7");
    is(&found["intents"][0]["outcome"], "reference", "msg_17");
}

#[test]
fn ten_requests_at_once_make_one_entry() {
    let server = TestServer::start("");
    let letter = json!({ "operation": "mail", "payload": { "to": "ann" } });
    let results: Vec<Value> = std::thread::scope(|scope| {
        let senders: Vec<_> = (0..10).map(|_| scope.spawn(|| enqueue(&server.client(), letter.clone()))).collect();
        senders.into_iter().map(|sender| sender.join().unwrap()).collect()
    });
    assert_eq!(results.iter().filter(|result| result["result"] == "enqueued").count(), 1, "{results:?}");
    assert_eq!(results.iter().filter(|result| result["result"] == "already_enqueued").count(), 9, "{results:?}");
    assert_eq!(server.client().seen("/v1/intents")["intents"].as_array().unwrap().len(), 1);
}

#[test]
fn the_key_comes_from_the_recipe_and_another_payload_is_a_mismatch() {
    let server = TestServer::start(RECIPE);
    let client = server.client();
    let letter = |subject: &str, memo: &str| json!({ "operation": "mail", "payload": { "to": "ann", "campaign": 7, "subject": subject, "memo": memo } });
    let first = enqueue(&client, letter("Hello", "a"));
    is(&first, "result", "enqueued");
    let reworded = enqueue(&client, letter("Hello", "b"));
    is(&reworded, "result", "already_enqueued");
    is(&reworded, "key", first["key"].clone());
    assert_eq!(enqueue(&client, letter("Other", "a")), json!({ "result": "mismatch", "key": first["key"] }));
    is(&lease_one(&client, "mail", "l")["payload"], "memo", "a");
    let keyed = |payload: Value| json!({ "operation": "op", "key": "k", "payload": payload });
    is(&enqueue(&client, keyed(json!(1))), "result", "enqueued");
    is(&enqueue(&client, keyed(json!(2))), "result", "mismatch");
    let session = |name: &str| enqueue(&client, json!({ "operation": "s", "payload": 1, "session": name }));
    assert_ne!(session("a")["key"], session("b")["key"]);
}

#[test]
fn each_entry_of_a_batch_has_its_own_result_in_order() {
    let server = TestServer::start(RECIPE);
    let client = server.client();
    let entry = |key: &str, payload: Value| json!({ "operation": "op", "key": key, "payload": payload });
    let batch = json!({ "entries": [
        entry("a", json!(1)),
        entry("", json!(1)),
        entry("a", json!(1)),
        { "operation": "op", "key": "b" },
        { "operation": "mail", "payload": { "to": "ann" } },
        { "operation": "op", "key": "c", "payload": 1, "color": "red" },
        7,
        entry("d", json!("x".repeat(1024 * 1024))),
        { "operation": "onceward/leases", "key": "k", "payload": 1 },
        entry("e", json!(2)),
    ] });
    let results = client.ok("/v1/enqueue", batch.clone());
    let results = results["entries"].as_array().unwrap().clone();
    assert_eq!(results.len(), 10);
    let details = |index: usize| {
        is(&results[index], "result", "problem");
        is(&results[index]["problem"], "status", 422);
        results[index]["problem"]["detail"].as_str().unwrap().to_owned()
    };
    // Which of two equal entries in one request is first does not matter.
    let both = [&results[0]["result"], &results[2]["result"]];
    assert!(both.contains(&&json!("enqueued")) && both.contains(&&json!("already_enqueued")), "{both:?}");
    for (index, said) in
        [(1, "key is empty"), (3, "missing field `payload`"), (4, "/campaign"), (5, "color"), (8, "reserved")]
    {
        assert!(details(index).contains(said), "{}", results[index]);
    }
    is(&results[6], "result", "problem");
    assert!(details(7).contains("payload"), "{}", results[7]["problem"]);
    assert_eq!(results[9], json!({ "result": "enqueued", "key": "e", "state": "queued" }));
    let again = client.ok("/v1/enqueue", batch);
    is(&again["entries"][9], "result", "already_enqueued");
    assert_eq!(client.seen("/v1/intents")["intents"].as_array().unwrap().len(), 2);
}

#[test]
fn a_thousand_entries_go_in_one_request_and_not_one_more() {
    let server = TestServer::start("");
    let client = server.client();
    let batch = |count: usize| {
        let entries: Vec<Value> =
            (0..count).map(|n| json!({ "operation": "op", "key": n.to_string(), "payload": n })).collect();
        json!({ "entries": entries })
    };
    let refused = client.post("/v1/enqueue", &batch(1001)).is_problem(422, "invalid");
    assert!(refused.contains("1001") || refused.contains("1000"), "{refused}");
    let results = client.ok("/v1/enqueue", batch(1000));
    let enqueued = |result: &&Value| result["result"] == "enqueued";
    assert_eq!(results["entries"].as_array().unwrap().iter().filter(enqueued).count(), 1000);
    assert_eq!(results["entries"][999]["key"], "999");
    is(&client.seen("/v1/stats")["counts"], "queued", 1000);
}

#[test]
fn invalid_requests_queue_nothing() {
    let server = TestServer::start("");
    let client = server.client();
    let invalid = |body: Value, said: &str| {
        let detail = client.post("/v1/enqueue", &body).is_problem(422, "invalid");
        assert!(detail.contains(said), "{body}: {detail}");
    };
    let with = |name: &str, value: Value| {
        let mut entry = json!({ "operation": "op", "key": "k", "payload": 1 });
        entry[name] = value;
        entry
    };
    invalid(json!({}), "missing field `operation`");
    invalid(json!({ "operation": "op" }), "missing field `payload`");
    invalid(json!([]), "must be an object");
    invalid(json!({ "entries": 7 }), "a list of at most 1000");
    invalid(json!({ "entries": [], "operation": "op" }), "unknown field `operation`");
    invalid(with("delay_ms", json!(-1)), "delay_ms: expected an integer in range");
    invalid(with("delay_ms", json!(31_536_000_001_i64)), "delay_ms: the maximum is");
    invalid(with("delay_ms", json!(null)), "delay_ms");
    invalid(with("deliver_within_ms", json!(0)), "deliver_within_ms");
    invalid(with("priority", json!("urgent")), "priority: expected one of `high`");
    invalid(with("key", json!(null)), "key: expected a string");
    invalid(with("operation", json!("onceward/leases")), "reserved");
    let send = |text: &str| client.send("/v1/enqueue", "application/json", text.as_bytes());
    send(r#"{"operation":"op","payload":{"a":1,"a":2}}"#).is_problem(422, "invalid");
    send(r#"{"operation":"op","payload":1e400}"#).is_problem(422, "invalid");
    send(r#"{"operation":"op","payload":"#).is_problem(400, "not-json");
    send(&format!(r#"{{"operation":"op","payload":{}1{}}}"#, "[".repeat(200), "]".repeat(200)));
    client.send("/v1/enqueue", "text/plain", b"{}").is_problem(415, "not-json-type");
    client.send("/v1/enqueue", "application/json", &vec![b' '; 8 * 1024 * 1024 + 1]).is_problem(413, "too-large");
    assert_eq!(client.seen("/v1/intents")["intents"], json!([]), "nothing reached the store");
}

#[test]
fn the_quota_of_a_tenant_refuses_new_entries_and_workers_still_make_room() {
    let server = TestServer::start("[limits]\nrecords_per_tenant = 2\n");
    let client = server.client();
    let entry = |key: &str| json!({ "operation": "op", "key": key, "payload": 1 });
    let results = client.ok("/v1/enqueue", json!({ "entries": [entry("a"), entry("b")] }));
    is(&results["entries"][1], "result", "enqueued");
    client.post("/v1/enqueue", &entry("c")).is_problem(429, "quota");
    let many = client.ok("/v1/enqueue", json!({ "entries": [entry("c"), entry("a")] }));
    is(&many["entries"][0]["problem"], "status", 429);
    is(&many["entries"][1], "result", "already_enqueued");
    let leased = lease_one(&client, "op", "l1");
    is(&client.finish("op", leased["key"].as_str().unwrap(), &leased["fence"], "1"), "state", "done");
}

#[test]
fn a_delayed_entry_is_leased_when_it_is_due_and_a_high_priority_first() {
    let server = TestServer::start("");
    let client = server.client();
    for (key, priority) in [("low", "low"), ("normal", "normal"), ("high", "high")] {
        enqueue(&client, json!({ "operation": "op", "key": key, "payload": 1, "priority": priority }));
    }
    enqueue(&client, json!({ "operation": "op", "key": "later", "payload": 1, "priority": "high", "delay_ms": 700 }));
    let lease = |id: &str, wait: u64| {
        client.ok("/v1/lease", json!({ "operation": "op", "lease_id": id, "limit": 10, "wait_ms": wait }))
    };
    let keys = |leased: &Value| -> Vec<String> {
        leased["entries"].as_array().unwrap().iter().map(|entry| entry["key"].as_str().unwrap().to_owned()).collect()
    };
    let first = lease("l1", 0);
    assert_eq!(keys(&first)[..1], ["high"]);
    assert!(!keys(&first).contains(&"later".to_owned()) || keys(&first).len() == 4, "{first}");
    if keys(&first).len() == 3 {
        assert_eq!(keys(&first), ["high", "normal", "low"]);
        assert_eq!(keys(&lease("l2", 60_000)), ["later"]);
    }
    let seen = client.seen("/v1/intents/op/later");
    is(&seen["intent"]["entry"], "priority", "high");
}

#[test]
fn the_payload_is_shown_only_on_request_and_erased_after_delivery() {
    let server = TestServer::start("");
    let client = server.client();
    for (key, keep) in [("kept", true), ("erased", false)] {
        let entry = json!({ "operation": "op", "key": key, "payload": { "pin": "0815" }, "keep_payload": keep });
        enqueue(&client, entry);
        let path = format!("/v1/intents/op/{key}");
        assert!(!client.get(&path).text.contains("0815"));
        assert!(!client.get("/v1/intents").text.contains("0815"));
        is(&client.seen(&format!("{path}?show_payload=true"))["payload"], "text", "{\"pin\":\"0815\"}");
        let entry = lease_one(&client, "op", key);
        client.finish("op", key, &entry["fence"], "1");
        assert_eq!(client.get(&format!("{path}?show_payload=true")).text.contains("0815"), keep);
    }
    assert!(!server.log().contains("0815"), "{}", server.log());
}
