//! Invalid input, limits, and what must never be logged.

use serde_json::json;

use super::server::{TestServer, is};

#[test]
fn each_kind_of_invalid_input_has_its_own_clear_error() {
    let server = TestServer::start("");
    let client = server.client();
    let begin = |text: &str| client.send("/v1/begin", "application/json", text.as_bytes());
    let invalid = |text: &str, said: &str| {
        let detail = begin(text).is_problem(422, "invalid");
        assert!(detail.contains(said), "{text}: {detail}");
    };
    begin("{").is_problem(400, "not-json");
    begin("").is_problem(400, "not-json");
    begin("{} {}").is_problem(422, "invalid");
    client.send("/v1/begin", "text/plain", b"{}").is_problem(415, "not-json-type");
    invalid("[]", "the body must be an object");
    invalid(r#"["op","k"]"#, "the body must be an object");
    invalid("{}", "missing field `operation`");
    invalid(r#"{"operation":"op"}"#, "needs a key or an intent");
    invalid(r#"{"operation":"op","kee":"k"}"#, "kee: unknown field `kee`, expected one of `operation`, `key`");
    invalid(r#"{"operation":"op","key":null}"#, "key: expected a string");
    invalid(r#"{"operation":"op","key":""}"#, "the key is empty");
    invalid(r#"{"operation":"","key":"k"}"#, "the operation is empty");
    invalid(r#"{"operation":"op","key":"a\nb"}"#, "control character at position 2");
    invalid(&json!({ "operation": "op", "key": "k".repeat(256) }).to_string(), "at most 255");
    invalid(r#"{"operation":"op","key":"k","wait_ms":60001}"#, "wait_ms: the maximum is 60000");
    invalid(r#"{"operation":"op","key":"k","lease_ms":0}"#, "lease_ms: the range is 1 to");
    invalid(r#"{"operation":"op","key":"k","wait_ms":-1}"#, "wait_ms: expected an integer in range");
    invalid(r#"{"operation":"op","key":"k","wait_ms":0.5}"#, "wait_ms: expected an integer in range");
    invalid(r#"{"operation":"op","key":"k","lease_ms":1e300}"#, "lease_ms: expected an integer in range");
    invalid(r#"{"operation":"op","intent":{"a":1,"a":2}}"#, "the intent is refused");
    invalid(r#"{"operation":"op","intent":1e400}"#, "the intent is refused");
    let finish = |outcome: serde_json::Value| {
        let body = json!({ "operation": "op", "key": "k", "fence": "0".repeat(32), "outcome": outcome });
        client.post("/v1/finish", &body).is_problem(422, "invalid")
    };
    assert!(finish(json!({})).contains("outcome: missing field `verdict`"));
    assert!(finish(json!({ "verdict": "perhaps" })).contains("outcome.verdict: expected `success` or `failure`"));
    assert!(finish(json!({ "verdict": "success", "body": { "base64": "?" } })).contains("base64"));
    assert!(finish(json!({ "verdict": "success", "content_type": "" })).contains("content_type"));
    assert!(finish(json!({ "verdict": "success", "headers": [{ "name": "a b", "value": "" }] })).contains("headers"));
    let fence = json!({ "operation": "op", "key": "k", "fence": "12" });
    assert!(client.post("/v1/not_found", &fence).is_problem(422, "invalid").contains("32 hex digits"));
    assert_eq!(client.seen("/v1/intents")["intents"], json!([]), "nothing reached the store");
}

#[test]
fn an_integer_is_accepted_in_every_notation() {
    let server = TestServer::start("");
    let body = br#"{"operation":"op","key":"k","lease_ms":60000.0,"wait_ms":0.0}"#;
    is(&server.client().send("/v1/begin", "application/json", body).json(), "lease_ms", 60_000);
}

#[test]
fn a_body_over_the_limit_is_refused_and_one_at_the_limit_is_not() {
    let server = TestServer::start("");
    let client = server.client();
    let of_size = |size: usize| {
        let empty = json!({ "operation": "op", "key": "k", "intent": "" }).to_string();
        json!({ "operation": "op", "key": "k", "intent": "x".repeat(size - empty.len()) })
    };
    client.post("/v1/begin", &of_size(1024 * 1024 + 1)).is_problem(413, "too-large");
    is(&client.ok("/v1/begin", of_size(1024 * 1024)), "decision", "acquired");
}

#[test]
fn keys_arguments_and_secrets_are_never_logged() {
    let token = "secret-token-0123456789";
    let hash = onceward::core::hash::digest(token.as_bytes());
    let server = TestServer::start(&format!(
        "[[api.token]]\ntenant = \"acme\"\nsecret = \"sha256:{hash}\"\nscopes = [\"use\", \"read\", \"operate\"]\n"
    ));
    let client = server.with_token(token);
    let key = "ann@secret.example";
    let begun =
        client.ok("/v1/begin", json!({ "operation": "mail", "key": key, "intent": { "to": "secret argument" } }));
    client.finish("mail", key, &begun["fence"], "secret outcome");
    client.finish("mail", key, &json!("0".repeat(32)), "secret contradiction");
    client.get("/v1/intents/mail/ann%40secret.example");
    client.get("/v1/secret/ann%40secret.example?secret=1");
    client.get("/v1/intents?secret=1");
    client.send("/v1/begin", "application/json", br#"{"operation":"mail","wait_ms":"secret value"}"#);
    client.send("/v1/begin", "application/json", br#"{"operation":"mail","key":"secret"#);
    server.with_token("secret-wrong-token").begin_refused();
    let fence = begun["fence"].as_str().unwrap();
    let log = server.log();
    assert!(!log.contains("secret") && !log.contains("ann") && !log.contains(fence), "{log}");
    let masked = onceward::core::name::Identity {
        tenant: onceward::core::name::Tenant::new("acme").unwrap(),
        operation: onceward::core::name::Operation::new("mail").unwrap(),
        key: onceward::core::name::Key::new(key).unwrap(),
    };
    assert!(log.contains(&format!("intent=\"{masked}\" answer=\"acquired\"")), "{log}");
    assert!(log.contains("route=\"/v1/intents/{operation}/{key}\" status=200"), "{log}");
    assert!(log.contains("status=401") && log.contains("tenant=\"acme\""), "{log}");
    assert_eq!(log.lines().filter(|line| line.contains("onceward::access")).count(), 9, "{log}");
}

#[test]
fn the_headers_of_an_outcome_are_limited_in_number_and_size_and_count_towards_keep_limit() {
    let server = TestServer::start("[operation.small]\nkeep_limit = 100\n");
    let client = server.client();
    let finish = |operation: &str, key: &str, headers: Vec<serde_json::Value>| {
        let begun = client.begin(operation, key);
        let outcome = json!({ "verdict": "success", "headers": headers, "body": { "text": "x" } });
        let request = json!({ "operation": operation, "key": key, "fence": begun["fence"], "outcome": outcome });
        client.post("/v1/finish", &request)
    };
    let header = |size: usize| json!({ "name": "x-a", "value": "v".repeat(size) });
    let detail = finish("op", "large", vec![header(8000); 64]).is_problem(413, "too-large");
    assert!(detail.contains("outcome.headers") && detail.contains("32768"), "{detail}");
    finish("op", "many", vec![header(1); 65]).is_problem(422, "invalid");
    assert_eq!(finish("op", "fits", vec![header(8000); 4]).status, 200);
    is(&client.begin("op", "fits"), "decision", "replay");
    // Done, but not kept.
    is(&finish("small", "k", vec![header(101)]).json(), "state", "done");
    is(&client.begin("small", "k"), "decision", "outcome_not_kept");
}

#[test]
fn a_new_key_over_the_quota_is_refused_and_recorded_keys_keep_working() {
    let tokens = ["acme", "other"].map(|tenant| {
        let hash = onceward::core::hash::digest(format!("secret-token-of-{tenant}").as_bytes());
        format!("[[api.token]]\ntenant = \"{tenant}\"\nsecret = \"sha256:{hash}\"\nscopes = [\"use\", \"read\"]\n")
    });
    let server = TestServer::start(&format!("[limits]\nrecords_per_tenant = 2\n{}", tokens.concat()));
    let client = server.with_token("secret-token-of-acme");
    let first = client.begin("op", "a");
    client.begin("op", "b");
    let refused = client.post("/v1/begin", &json!({ "operation": "op", "key": "secret key" }));
    let detail = refused.is_problem(429, "quota");
    assert!(detail.contains("quota of 2 records") && !detail.contains("secret key"), "{detail}");
    assert_eq!(refused.header("retry-after"), Some("60"));
    assert_eq!(client.get("/.well-known/onceward/problems/quota").status, 200);
    client.finish("op", "a", &first["fence"], "1");
    is(&client.ok("/v1/begin", json!({ "operation": "op", "key": "a" })), "decision", "replay");
    is(&client.ok("/v1/begin", json!({ "operation": "op", "key": "b" })), "decision", "in_flight");
    is(&server.with_token("secret-token-of-other").begin("op", "a"), "decision", "acquired");
    assert_eq!(client.seen("/v1/intents")["intents"].as_array().map(Vec::len), Some(2), "nothing is evicted");
}
