//! Decisions of people about entries: requeue, cancel and resolve.

use serde_json::{Value, json};

use super::server::{ApiClient, TestServer, is};

#[track_caller]
fn enqueue(client: &ApiClient, key: &str) {
    is(&client.ok("/v1/enqueue", json!({ "operation": "op", "key": key, "payload": 1 })), "result", "enqueued");
}

#[track_caller]
fn lease(client: &ApiClient, id: &str) -> Value {
    let leased = client.ok("/v1/lease", json!({ "operation": "op", "lease_id": id, "wait_ms": 60_000 }));
    leased["entries"][0].clone()
}

/// Makes a dead entry, and returns its first lease and its version.
fn dead(client: &ApiClient, key: &str) -> (Value, Value) {
    enqueue(client, key);
    let entry = lease(client, &format!("dead {key}"));
    let release =
        json!({ "operation": "op", "key": key, "fence": entry["fence"], "give_up": true, "error": "no user" });
    let released = client.ok("/v1/release", release);
    is(&released, "state", "dead");
    (entry, released["version"].clone())
}

#[track_caller]
fn decide(client: &ApiClient, what: &str, key: &str, version: &Value, more: Value) -> Value {
    let mut request = json!({ "operation": "op", "key": key, "version": version, "by": "ana", "note": "user is back" });
    request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    client.ok(&format!("/v1/{what}"), request)
}

#[test]
fn a_dead_entry_is_tried_again_with_the_same_downstream_key_or_a_fresh_one() {
    let server = TestServer::start("");
    let client = server.client();
    for fresh in [false, true] {
        let key = format!("fresh {fresh}");
        let (first, version) = dead(&client, &key);
        let more = json!({ "fresh_key": fresh });
        let settled = decide(&client, "requeue", &key, &version, more.clone());
        is(&settled, "result", "settled");
        is(&settled["intent"], "state", "queued");
        is(&settled["intent"], "attempts", 0);
        // The response may have been lost.
        is(&decide(&client, "requeue", &key, &version, more), "result", "settled");
        let second = lease(&client, &key);
        is(&second, "attempt", 1);
        assert_eq!(second["downstream_key"] != first["downstream_key"], fresh);
        let trail = client.seen(&format!("/v1/intents/op/{}", key.replace(' ', "%20")));
        let requeued: Vec<_> =
            trail["trail"].as_array().unwrap().iter().filter(|event| event["what"] == "requeued").collect();
        assert_eq!(requeued.len(), 1, "{trail:#}");
        is(requeued[0], "by", "ana");
        client.finish("op", &key, &second["fence"], "1");
    }
}

#[test]
fn only_a_dead_entry_is_requeued_and_only_a_waiting_one_cancelled() {
    let server = TestServer::start("");
    let client = server.client();
    is(&decide(&client, "requeue", "none", &json!(1), json!({})), "reason", "absent");
    enqueue(&client, "k");
    let waiting = decide(&client, "requeue", "k", &json!(1), json!({}));
    is(&waiting, "reason", "nothing_to_do");
    is(&waiting, "state", "queued");
    is(&decide(&client, "cancel", "k", &json!(7), json!({})), "reason", "changed");
    let entry = lease(&client, "l1");
    is(&decide(&client, "cancel", "k", &json!(2), json!({})), "reason", "running");
    let doubt = json!({ "operation": "op", "key": "k", "fence": entry["fence"], "error": "timed out" });
    let doubted = client.ok("/v1/doubt", doubt);
    for what in ["requeue", "cancel"] {
        let refused = decide(&client, what, "k", &doubted["version"], json!({}));
        is(&refused, "reason", "nothing_to_do");
        is(&refused, "state", "in_doubt");
    }
    // A person who knows that it did not happen has it tried again.
    let resolve =
        json!({ "operation": "op", "key": "k", "version": doubted["version"], "resolution": "did_not_happen" });
    is(&client.ok("/v1/resolve", resolve)["intent"], "state", "queued");
    is(&lease(&client, "l2"), "attempt", 1);
}

#[test]
fn a_cancelled_entry_is_never_leased_and_can_be_requeued() {
    let server = TestServer::start("");
    let client = server.client();
    enqueue(&client, "k");
    let cancelled = decide(&client, "cancel", "k", &json!(1), json!({}));
    is(&cancelled["intent"], "state", "dead");
    is(&decide(&client, "cancel", "k", &json!(1), json!({})), "result", "settled");
    let none = client.ok("/v1/lease", json!({ "operation": "op", "lease_id": "l1" }));
    is(&none, "entries", json!([]));
    is(&client.ok("/v1/enqueue", json!({ "operation": "op", "key": "k", "payload": 1 })), "state", "dead");
    is(&decide(&client, "requeue", "k", &cancelled["intent"]["version"], json!({})), "result", "settled");
    is(&lease(&client, "l2"), "key", "k");
    is(&client.seen("/v1/intents/op/k")["trail"][0], "what", "cancelled");
}

#[test]
fn decisions_need_the_scope_operate() {
    let secret = "use-token-0123456789";
    let hash = onceward::core::hash::digest(secret.as_bytes());
    let config =
        format!("[[api.token]]\ntenant = \"acme\"\nsecret = \"sha256:{hash}\"\nscopes = [\"use\", \"read\"]\n");
    let server = TestServer::start(&config);
    let client = server.with_token(secret);
    enqueue(&client, "k");
    let request = json!({ "operation": "op", "key": "k", "version": 1 });
    for path in ["/v1/requeue", "/v1/cancel"] {
        client.post(path, &request).is_problem(403, "not-allowed");
    }
    is(&client.seen("/v1/intents/op/k")["intent"], "state", "queued");
    for path in ["/v1/enqueue", "/v1/lease", "/v1/requeue", "/v1/cancel"] {
        server.client().post(path, &request).is_problem(401, "no-token");
    }
}
