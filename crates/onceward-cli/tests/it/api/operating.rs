//! Reading and settling intents.

use serde_json::{Value, json};

use super::server::{ApiClient, TestServer, is};

#[track_caller]
fn resolve(client: &ApiClient, key: &str, version: &Value, resolution: Value) -> Value {
    client.ok(
        "/v1/resolve",
        json!({ "operation": "op", "key": key, "version": version, "resolution": resolution, "by": "ana", "note": "seen in the books" }),
    )
}

/// Puts an intent in doubt and returns its version.
fn in_doubt(client: &ApiClient, key: &str) -> Value {
    let begun = client.begin("op", key);
    let doubted =
        client.ok("/v1/doubt", json!({ "operation": "op", "key": key, "fence": begun["fence"], "error": "timed out" }));
    is(&doubted, "state", "in_doubt");
    doubted["version"].clone()
}

#[test]
fn a_person_settles_a_doubt() {
    let server = TestServer::start("");
    let client = server.client();
    let version = in_doubt(&client, "happened");
    let outcome = json!({ "happened": { "verdict": "success", "body": { "text": "receipt 17" } } });
    let settled = resolve(&client, "happened", &version, outcome);
    is(&settled, "result", "settled");
    is(&settled["intent"], "state", "done");
    is(&client.begin("op", "happened")["outcome"]["body"], "text", "receipt 17");
    let seen = client.seen("/v1/intents/op/happened");
    is(&seen["trail"][0], "what", "resolved_happened");
    is(&seen["trail"][0], "by", "ana");

    let version = in_doubt(&client, "not");
    is(&resolve(&client, "not", &version, json!("did_not_happen"))["intent"], "state", "open");
    is(&client.begin("op", "not"), "attempt", 2);

    let begun = client.ok("/v1/begin", json!({ "operation": "op", "key": "slip", "intent": { "a": 1 } }));
    let doubted = client.ok("/v1/doubt", json!({ "operation": "op", "key": "slip", "fence": begun["fence"] }));
    is(
        &client.ok("/v1/begin", json!({ "operation": "op", "key": "slip", "intent": { "a": 2 } })),
        "decision",
        "mismatch",
    );
    is(&resolve(&client, "slip", &doubted["version"], json!("reset")), "result", "settled");
    let again = client.ok("/v1/begin", json!({ "operation": "op", "key": "slip", "intent": { "a": 2 } }));
    is(&again, "decision", "acquired");
    assert_ne!(again["downstream_key"], begun["downstream_key"]);
}

#[test]
fn a_refused_resolve_says_why() {
    let server = TestServer::start("");
    let client = server.client();
    is(&resolve(&client, "none", &json!(1), json!("reset")), "reason", "absent");
    let begun = client.begin("op", "k");
    is(&resolve(&client, "k", &json!(1), json!("reset")), "reason", "running");
    client.finish("op", "k", &begun["fence"], "1");
    is(&resolve(&client, "k", &json!(1), json!("reset")), "reason", "changed");
    let done = resolve(&client, "k", &json!(2), json!("did_not_happen"));
    is(&done, "reason", "nothing_to_do");
    is(&done, "state", "done");
    // A late owner is told that the intent was settled.
    let version = in_doubt(&client, "late");
    let fence = json!("0123456789abcdef0123456789abcdef");
    is(&resolve(&client, "late", &version, json!("did_not_happen")), "result", "settled");
    is(&client.finish("op", "late", &fence, "after all"), "result", "stale");
    is(&client.seen("/v1/intents/op/late")["trail"][1], "what", "contradiction");
}

#[test]
fn lists_are_filtered_and_continue_after_a_page() {
    let server = TestServer::start("");
    let client = server.client();
    for number in 0..5 {
        client.begin("a", &format!("k{number}"));
    }
    in_doubt(&client, "doubted");
    let keys = |path: &str| -> Vec<String> {
        let page = client.seen(path);
        page["intents"].as_array().unwrap().iter().map(|intent| intent["key"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(keys("/v1/intents").len(), 6);
    assert_eq!(keys("/v1/intents?state=in_doubt"), ["doubted"]);
    assert_eq!(keys("/v1/intents?state=in_doubt,running").len(), 6);
    assert_eq!(keys("/v1/intents?operation=op"), ["doubted"]);
    assert_eq!(keys("/v1/intents?created_since=2100-01-01T00:00:00Z").len(), 0);
    assert_eq!(keys("/v1/intents?created_before=2100-01-01T00:00:00%2B02:00").len(), 6);
    let mut path = "/v1/intents?limit=2&operation=a".to_owned();
    let mut found = Vec::new();
    loop {
        found.extend(keys(&path));
        let next = client.seen(&path)["next"].clone();
        let Some(next) = next.as_str() else { break };
        path = format!("/v1/intents?limit=2&operation=a&cursor={next}");
    }
    assert_eq!(found, ["k4", "k3", "k2", "k1", "k0"]);
    for query in [
        "state=lost",
        "state=",
        "limit=0",
        "limit=201",
        "limit=x",
        "cursor=x",
        "created_since=today",
        "color=1",
        "operation=",
    ] {
        client.get(&format!("/v1/intents?{query}")).is_problem(422, "invalid");
    }
}

#[test]
fn names_with_slashes_are_found() {
    let server = TestServer::start("");
    let client = server.client();
    client.begin("POST /v1/charges", "a/b c?d%é");
    let seen = client.seen("/v1/intents/POST%20%2Fv1%2Fcharges/a%2Fb%20c%3Fd%25%C3%A9");
    is(&seen["intent"], "state", "running");
    is(&seen["intent"], "key", "a/b c?d%é");
    let detail = client.get("/v1/intents/op/secret-key").is_problem(404, "no-intent");
    assert!(detail.contains("op#") && !detail.contains("secret-key"), "{detail}");
    client.get("/v1/intents/op/%FF").is_problem(422, "invalid");
    client.get("/v1/intents/op/%0A").is_problem(422, "invalid");
}

#[test]
fn the_command_line_and_the_api_see_the_same_ledger() {
    let server = TestServer::start("");
    let client = server.client();
    let begun = client.begin("op", "k");
    client.finish("op", "k", &begun["fence"], "{\"id\":7}");
    let seen = server.folder.json(&["get", "--operation", "op", "--key", "k", "--json"]);
    is(&seen, "state", "done");
    is(&seen["outcome"]["body"], "text", "{\"id\":7}");
    server.folder.run(&["--key", "by-command"], "echo hello").says(0, &[]);
    is(&client.begin("op", "by-command"), "decision", "mismatch");
}

#[test]
fn keys_that_look_like_personal_data_are_masked_unless_requested() {
    let server = TestServer::start("");
    let client = server.client();
    let begun = client.begin("op", "ann@example.com");
    is(&begun, "key", "ann@example.com");
    for path in ["/v1/intents", "/v1/intents/op/ann@example.com"] {
        let masked = client.get(path).text;
        assert!(!masked.contains("ann@") && masked.contains("\"key_masked\":true"), "{masked}");
        let shown = client.get(&format!("{path}?show_keys=true")).text;
        assert!(shown.contains("ann@example.com") && shown.contains("\"key_masked\":false"), "{shown}");
        client.get(&format!("{path}?show_keys=maybe")).is_problem(422, "invalid");
    }
}
