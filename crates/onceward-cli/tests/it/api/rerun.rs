//! `POST /v1/rerun`: a finished entry is handed to a worker once more.

use serde_json::{Value, json};

use super::server::{ApiClient, TestServer, is};

#[track_caller]
fn enqueue(client: &ApiClient, key: &str, keep: bool) {
    let entry = json!({ "operation": "op", "key": key, "payload": { "to": key }, "keep_payload": keep });
    is(&client.ok("/v1/enqueue", entry), "result", "enqueued");
}

#[track_caller]
fn lease(client: &ApiClient, id: &str) -> Value {
    let leased = client.ok("/v1/lease", json!({ "operation": "op", "lease_id": id, "wait_ms": 60_000 }));
    leased["entries"][0].clone()
}

#[track_caller]
fn deliver(client: &ApiClient, id: &str) -> Value {
    let entry = lease(client, id);
    client.finish("op", entry["key"].as_str().unwrap(), &entry["fence"], "1");
    entry
}

fn request(key: &str, payload: Option<&str>) -> Value {
    let mut request = json!({ "operation": "op", "key": key, "why": "it was lost", "by": "ana" });
    if let Some(to) = payload {
        request["payload"] = json!({ "to": to });
    }
    request
}

#[test]
fn a_finished_entry_is_run_again_once_with_another_downstream_key() {
    let server = TestServer::start("");
    let client = server.client();
    enqueue(&client, "k", false);
    let first = deliver(&client, "l1");
    let queued = client.ok("/v1/rerun", request("k", Some("k")));
    is(&queued, "result", "enqueued");
    is(&queued, "run", 2);
    is(&queued["intent"], "state", "queued");
    is(&queued["intent"]["entry"]["rerun"], "of", "k");
    // The response may have been lost.
    let again = client.ok("/v1/rerun", request("k", Some("k")));
    is(&again, "result", "already_enqueued");
    assert_eq!((&again["key"], &again["intent"]), (&queued["key"], &queued["intent"]));
    let second = deliver(&client, "l2");
    assert_eq!(second["key"], queued["key"]);
    assert_eq!(second["payload"], json!({ "to": "k" }));
    assert_ne!(second["downstream_key"], first["downstream_key"]);
    is(&client.ok("/v1/lease", json!({ "operation": "op", "lease_id": "l3" })), "entries", json!([]));
    let done = client.ok("/v1/rerun", request("k", Some("k")));
    is(&done, "result", "already_enqueued");
    is(&done["intent"], "state", "done");
    let third = client.ok("/v1/rerun", request(queued["key"].as_str().unwrap(), Some("k")));
    is(&third, "run", 3);
    let trail = client.seen("/v1/intents/op/k")["trail"].clone();
    assert_eq!(trail.as_array().unwrap().len(), 1, "{trail:#}");
    is(&trail[0], "what", "rerun");
    is(&trail[0], "by", "ana");
}

#[test]
fn what_is_not_done_and_what_has_another_payload_is_refused() {
    let server = TestServer::start("");
    let client = server.client();
    let refused = |key: &str, payload, reason: &str| {
        let response = client.ok("/v1/rerun", request(key, payload));
        is(&response, "result", "refused");
        is(&response, "reason", reason);
        response["state"].clone()
    };
    refused("none", None, "absent");
    enqueue(&client, "k", false);
    assert_eq!(refused("k", Some("k"), "not_done"), "queued");
    let entry = lease(&client, "l1");
    assert_eq!(refused("k", Some("k"), "not_done"), "running");
    let doubt = json!({ "operation": "op", "key": "k", "fence": entry["fence"], "error": "timed out" });
    let version = client.ok("/v1/doubt", doubt)["version"].clone();
    assert_eq!(refused("k", Some("k"), "not_done"), "in_doubt");
    let resolution = json!({ "happened": { "verdict": "success", "body": { "text": "1" } } });
    let resolve = json!({ "operation": "op", "key": "k", "version": version, "resolution": resolution });
    is(&client.ok("/v1/resolve", resolve), "result", "settled");
    refused("k", None, "payload_erased");
    refused("k", Some("other"), "mismatch");
    enqueue(&client, "dead", false);
    client.ok("/v1/cancel", json!({ "operation": "op", "key": "dead", "version": 1 }));
    assert_eq!(refused("dead", Some("dead"), "not_done"), "dead");
    let begun = client.ok("/v1/begin", json!({ "operation": "op", "key": "direct" }));
    client.finish("op", "direct", &begun["fence"], "1");
    refused("direct", None, "not_an_entry");
    enqueue(&client, "kept", true);
    deliver(&client, "l2");
    is(&client.ok("/v1/rerun", request("kept", None)), "result", "enqueued");
    let mut unexplained = request("kept", None);
    for why in ["", &"w".repeat(1001)] {
        unexplained["why"] = json!(why);
        client.post("/v1/rerun", &unexplained).is_problem(422, "invalid");
    }
}

#[test]
fn it_needs_the_scope_operate_and_stays_in_the_tenant() {
    let secrets =
        [("acme", "use-token-0123456789"), ("acme", "ops-token-0123456789"), ("other", "not-token-0123456789")];
    let scopes = ["\"use\", \"read\"", "\"use\", \"read\", \"operate\"", "\"use\", \"operate\""];
    let tokens = secrets.iter().zip(scopes).map(|((tenant, secret), scopes)| {
        let hash = onceward::core::hash::digest(secret.as_bytes());
        format!("[[api.token]]\ntenant = \"{tenant}\"\nsecret = \"sha256:{hash}\"\nscopes = [{scopes}]\n")
    });
    let server = TestServer::start(&tokens.collect::<String>());
    let [user, operator, stranger] = secrets.map(|(_, secret)| server.with_token(secret));
    enqueue(&user, "k", false);
    deliver(&user, "l1");
    user.post("/v1/rerun", &request("k", Some("k"))).is_problem(403, "not-allowed");
    server.client().post("/v1/rerun", &request("k", Some("k"))).is_problem(401, "no-token");
    is(&stranger.ok("/v1/rerun", request("k", Some("k"))), "reason", "absent");
    let queued = operator.ok("/v1/rerun", request("k", Some("k")));
    is(&queued, "result", "enqueued");
    let trail = operator.seen(&format!("/v1/intents/op/{}", queued["key"].as_str().unwrap()))["trail"].clone();
    assert!(trail[0]["token"].is_string(), "{trail:#}");
    is(&stranger.ok("/v1/rerun", request(queued["key"].as_str().unwrap(), None)), "reason", "absent");
}
