//! Asking for a claim and owning it: every decision, and every way to end a claim.

use std::time::{Duration, Instant};

use onceward::core::decide::{Command, Enqueue, Write, decide};
use onceward::core::hash::digest;
use onceward::core::name::{Identity, Key, Operation, Tenant};
use onceward::core::outbox::Entry;
use onceward::core::record::State;
use serde_json::{Value, json};

use super::server::{ApiClient, TestServer, is};

const POLICIES: &str = r#"
[operation.charge]
key = ["/customer", "/invoice"]
match = ["/amount"]

[operation.again]
in_doubt = "retry"

[operation.asked]
in_doubt = "probe"

[operation.small]
keep_limit = 10
"#;

/// Waits until a lease of some milliseconds has lapsed.
fn lapse() {
    std::thread::sleep(Duration::from_millis(150));
}

#[track_caller]
fn begin_for(client: &ApiClient, operation: &str, key: &str, more: Value) -> Value {
    let mut request = json!({ "operation": operation, "key": key });
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    client.ok("/v1/begin", request)
}

#[track_caller]
fn own(client: &ApiClient, what: &str, operation: &str, key: &str, begun: &Value) -> Value {
    client.ok(&format!("/v1/{what}"), json!({ "operation": operation, "key": key, "fence": begun["fence"] }))
}

#[test]
fn a_repeat_gets_the_outcome_byte_for_byte() {
    let server = TestServer::start("");
    let client = server.client();
    let begun = client.begin("op", "k");
    is(&begun, "decision", "acquired");
    is(&begun, "attempt", 1);
    is(&begun, "phase", "sent");
    is(&begun, "lease_ms", 180_000);
    let every_byte = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+P0BBQkNERUZHSElKS0xNTk9QUVJTVFVWV1hZWltcXV5fYGFiY2RlZmdoaWprbG1ub3BxcnN0dXZ3eHl6e3x9fn+AgYKDhIWGh4iJiouMjY6PkJGSk5SVlpeYmZqbnJ2en6ChoqOkpaanqKmqq6ytrq+wsbKztLW2t7i5uru8vb6/wMHCw8TFxsfIycrLzM3Oz9DR0tPU1dbX2Nna29zd3t/g4eLj5OXm5+jp6uvs7e7v8PHy8/T19vf4+fr7/P3+/w==";
    let outcome = json!({
        "verdict": "failure",
        "status": 402,
        "content_type": "image/png",
        "headers": [{ "name": "ETag", "value": "\"7\"" }, { "name": "Set-Cookie", "value": "a=b" }],
        "body": { "base64": every_byte },
    });
    let finish = json!({ "operation": "op", "key": "k", "fence": begun["fence"], "outcome": outcome });
    let finished = client.ok("/v1/finish", finish.clone());
    is(&finished, "result", "written");
    is(&finished, "state", "done");
    assert!(finished["expires_at"].is_string());
    let replay = client.begin("op", "k");
    is(&replay, "decision", "replay");
    let mut kept = outcome;
    kept["headers"].as_array_mut().unwrap().truncate(1);
    is(&replay, "outcome", kept);
    is(&replay, "expires_at", finished["expires_at"].clone());
    // The response to the first finish may have been lost.
    is(&client.ok("/v1/finish", finish), "result", "written");
}

#[test]
fn exactly_one_of_many_concurrent_callers_gets_the_claim() {
    let server = TestServer::start("");
    let decisions: Vec<String> = std::thread::scope(|scope| {
        let begin = || server.client().begin("op", "k")["decision"].as_str().unwrap().to_owned();
        let callers: Vec<_> = (0..16).map(|_| scope.spawn(begin)).collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    assert_eq!(decisions.iter().filter(|decision| *decision == "acquired").count(), 1, "{decisions:?}");
    assert_eq!(decisions.iter().filter(|decision| *decision == "in_flight").count(), 15, "{decisions:?}");
}

#[test]
fn a_recipe_derives_the_key_and_detects_a_different_amount() {
    let server = TestServer::start(POLICIES);
    let client = server.client();
    let begin = |intent: Value| client.post("/v1/begin", &json!({ "operation": "charge", "intent": intent }));
    let first = begin(json!({ "customer": "c7", "invoice": 42, "amount": 1999, "memo": "thanks" })).json();
    is(&first, "decision", "acquired");
    let reworded = begin(json!({ "memo": "thank you", "amount": 1999, "invoice": 42, "customer": "c7" })).json();
    is(&reworded, "decision", "in_flight");
    is(&reworded, "key", first["key"].clone());
    is(&begin(json!({ "customer": "c7", "invoice": 42, "amount": 2000 })).json(), "decision", "mismatch");
    let detail = begin(json!({ "customer": "c7" })).is_problem(422, "invalid");
    assert!(detail.contains("/invoice"), "{detail}");
    // The derived key works like any other key.
    is(&client.finish("charge", first["key"].as_str().unwrap(), &first["fence"], "1"), "result", "written");
}

#[test]
fn an_intent_keeps_all_digits_of_its_numbers() {
    let server = TestServer::start("");
    let begin = |text: &str| {
        let body = format!(r#"{{"operation":"op","intent":{{"cents":{text}}}}}"#);
        server.client().send("/v1/begin", "application/json", body.as_bytes())
    };
    let one = begin("9007199254740993").json();
    assert_ne!(one["key"], begin("9007199254740992").json()["key"]);
    begin(r#"1,"cents":2"#).is_problem(422, "invalid");
}

#[test]
fn a_waiting_caller_gets_the_outcome_of_the_owner() {
    let server = TestServer::start("");
    let client = server.client();
    let begun = client.begin("op", "k");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| begin_for(&server.client(), "op", "k", json!({ "wait_ms": 60_000 })));
        std::thread::sleep(Duration::from_millis(300));
        assert!(!waiting.is_finished(), "the caller waits");
        let from = Instant::now();
        client.finish("op", "k", &begun["fence"], "paid");
        let answer = waiting.join().unwrap();
        is(&answer, "decision", "replay");
        is(&answer["outcome"]["body"], "text", "paid");
        assert!(from.elapsed() < Duration::from_secs(5), "the caller is woken early");
    });
}

#[test]
fn a_caller_that_waits_for_a_failed_attempt_is_told_and_does_not_run() {
    let server = TestServer::start("");
    let client = server.client();
    let begun = client.begin("op", "k");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| begin_for(&server.client(), "op", "k", json!({ "wait_ms": 60_000 })));
        std::thread::sleep(Duration::from_millis(300));
        let release = json!({ "operation": "op", "key": "k", "fence": begun["fence"], "error": "no route" });
        is(&client.ok("/v1/release", release), "state", "open");
        let answer = waiting.join().unwrap();
        is(&answer, "decision", "try_again");
        is(&answer, "reason", "no route");
    });
    is(&client.begin("op", "k"), "attempt", 2);
}

#[test]
fn a_wait_ends_at_its_limit() {
    let server = TestServer::start("");
    server.client().begin("op", "k");
    let from = Instant::now();
    is(&begin_for(&server.client(), "op", "k", json!({ "wait_ms": 300 })), "decision", "in_flight");
    assert!(from.elapsed() >= Duration::from_millis(300));
}

#[test]
fn a_late_owner_cannot_overwrite_the_outcome_and_is_recorded_once_in_the_trail() {
    let server = TestServer::start(POLICIES);
    let client = server.client();
    let first = begin_for(&client, "again", "k", json!({ "lease_ms": 50 }));
    lapse();
    let second = client.begin("again", "k");
    is(&second, "decision", "acquired");
    is(&second, "attempt", 2);
    is(&second, "downstream_key", first["downstream_key"].clone());
    assert_ne!(first["fence"], second["fence"]);
    for _ in 0..3 {
        is(&client.finish("again", "k", &first["fence"], "late"), "result", "stale");
    }
    for end in ["sent", "renew", "release", "doubt", "not_found"] {
        is(&own(&client, end, "again", "k", &first), "result", "stale");
    }
    is(&client.finish("again", "k", &second["fence"], "in time"), "result", "written");
    is(&client.begin("again", "k")["outcome"]["body"], "text", "in time");
    let seen = client.seen("/v1/intents/again/k");
    let trail = seen["trail"].as_array().unwrap();
    assert_eq!(trail.len(), 1, "{seen:#}");
    assert!(trail[0]["note"].as_str().unwrap().contains("late"), "{seen:#}");
}

#[test]
fn an_owner_that_is_late_but_was_not_superseded_finishes_normally() {
    let server = TestServer::start("");
    let client = server.client();
    let begun = begin_for(&client, "op", "k", json!({ "lease_ms": 50 }));
    lapse();
    is(&client.begin("op", "k"), "decision", "in_doubt");
    is(&client.finish("op", "k", &begun["fence"], "after all"), "result", "written");
    is(&client.begin("op", "k"), "decision", "replay");
}

#[test]
fn a_caller_that_marks_sent_is_in_doubt_only_after_the_mark() {
    let server = TestServer::start("");
    let client = server.client();
    let marks = json!({ "marks_sent": true, "lease_ms": 50 });
    let first = begin_for(&client, "op", "k", marks.clone());
    is(&first, "phase", "claimed");
    lapse();
    let second = begin_for(&client, "op", "k", marks);
    is(&second, "attempt", 2);
    is(&own(&client, "sent", "op", "k", &first), "result", "stale");
    let sent = json!({ "operation": "op", "key": "k", "fence": second["fence"], "lease_ms": 50 });
    is(&client.ok("/v1/sent", sent), "result", "written");
    lapse();
    is(&client.begin("op", "k"), "decision", "in_doubt");
}

#[test]
fn a_renewed_claim_does_not_lapse() {
    let server = TestServer::start("");
    let client = server.client();
    let begun = begin_for(&client, "op", "k", json!({ "lease_ms": 1_000 }));
    let renew = json!({ "operation": "op", "key": "k", "fence": begun["fence"], "lease_ms": 60_000 });
    let renewed = client.ok("/v1/renew", renew);
    is(&renewed, "state", "running");
    assert!(renewed["lease_until"].as_str() > begun["lease_until"].as_str());
    std::thread::sleep(Duration::from_millis(1_100));
    is(&client.begin("op", "k"), "running", true);
}

#[test]
fn a_released_claim_waits_for_its_time() {
    let server = TestServer::start("");
    let client = server.client();
    let begun = client.begin("op", "k");
    let release = json!({ "operation": "op", "key": "k", "fence": begun["fence"], "not_before_ms": 60_000 });
    is(&client.ok("/v1/release", release), "state", "open");
    let early = client.begin("op", "k");
    is(&early, "decision", "in_flight");
    is(&early, "running", false);
    assert!(early["retry_after_ms"].as_u64().unwrap() > 50_000, "{early}");
}

#[test]
fn under_probe_only_a_caller_that_probes_first_gets_the_claim() {
    let server = TestServer::start(POLICIES);
    let client = server.client();
    let begun = client.begin("asked", "k");
    is(&own(&client, "doubt", "asked", "k", &begun), "state", "in_doubt");
    is(&client.begin("asked", "k"), "decision", "in_doubt");
    let probing = begin_for(&client, "asked", "k", json!({ "probes": true }));
    is(&probing, "decision", "acquired");
    is(&probing, "probe_first", true);
    is(&own(&client, "not_found", "asked", "k", &probing), "result", "written");
    let seen = client.seen("/v1/intents/asked/k");
    is(&seen["intent"], "doubt_since", Value::Null);
    is(&client.finish("asked", "k", &probing["fence"], "1"), "result", "written");
}

#[test]
fn an_outcome_that_is_too_large_to_keep_is_still_done() {
    let server = TestServer::start(POLICIES);
    let client = server.client();
    let begun = client.begin("small", "k");
    is(&client.finish("small", "k", &begun["fence"], "more than ten bytes"), "state", "done");
    let again = client.begin("small", "k");
    is(&again, "decision", "outcome_not_kept");
    is(&again, "status", 0);
    let seen = client.seen("/v1/intents/small/k");
    is(&seen["outcome"]["body"]["too_large"], "size", 19);
}

/// States that only the courier, or an accident, can create.
#[tokio::test]
async fn states_left_by_other_surfaces_are_reported() {
    let server = TestServer::start("");
    let store = onceward::store::open(server.folder.path("ledger.db").to_str().unwrap()).await.unwrap();
    let call = onceward::Ledger::open("memory:").await.unwrap();
    let call = call.operation("op").intent(&json!({ "a": 1 })).call().unwrap();
    let queued = |key: &str| {
        let identity = Identity {
            tenant: Tenant::default(),
            operation: Operation::new("op").unwrap(),
            key: Key::new(key).unwrap(),
        };
        let enqueue = Enqueue {
            identity,
            key_digest: None,
            fingerprint: onceward::core::fingerprint::Fingerprint::none(),
            terms: call.policy.terms(),
            payload: "1".into(),
            entry: Entry::default(),
            delay: Duration::ZERO,
        };
        match decide(None, &Command::Enqueue(enqueue)).write {
            Write::Insert(draft) => draft,
            other => panic!("{other:?}"),
        }
    };
    store.insert(queued("queued"), None).await.unwrap();
    let mut dead = queued("dead");
    dead.state = State::Dead;
    store.insert(dead, None).await.unwrap();
    let mut item = queued("orders/head");
    item.sequence = Some(1);
    store.insert(item, None).await.unwrap();
    let mut other = queued(call.identity.key.as_str());
    other.key_digest = Some(digest(b"of another intent"));
    store.insert(other, None).await.unwrap();
    store.close().await;
    let client = server.client();
    is(&client.begin("op", "queued"), "decision", "queued");
    is(&client.begin("op", "dead"), "decision", "dead");
    is(&client.begin("op", "orders/head"), "decision", "mixed_use");
    let collides = client.ok("/v1/begin", json!({ "operation": "op", "intent": { "a": 1 } }));
    is(&collides, "decision", "collision");
    is(&client.seen("/v1/stats")["decisions"], "collision", 1);
}
