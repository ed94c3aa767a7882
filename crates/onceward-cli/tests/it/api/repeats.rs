//! Requests that are repeated because their responses were lost.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::server::{ApiClient, TestServer, is};

const CONFIG: &str = r#"
[operation.again]
in_doubt = "retry"

[[api.token]]
tenant = "acme"
secret = "file:one"
scopes = ["use", "read", "operate"]

[[api.token]]
tenant = "acme"
secret = "file:two"
scopes = ["use"]

[[api.token]]
tenant = "other"
secret = "file:three"
scopes = ["use"]
"#;

const SECRETS: [(&str, &str); 3] =
    [("one", "one-0123456789abcdef"), ("two", "two-0123456789abcdef"), ("three", "three-0123456789abcdef")];

fn with_tokens() -> TestServer {
    TestServer::with_files(CONFIG, &SECRETS)
}

#[track_caller]
fn begin(client: &ApiClient, operation: &str, claim_id: &str) -> Value {
    client.ok("/v1/begin", json!({ "operation": operation, "key": "k", "claim_id": claim_id }))
}

#[track_caller]
fn own(client: &ApiClient, what: &str, fence: &Value) -> Value {
    client.ok(&format!("/v1/{what}"), json!({ "operation": "op", "key": "k", "fence": fence }))
}

/// Sends a begin over its own connection and does not wait for the response.
fn begin_without_reading(server: &TestServer, claim_id: &str) {
    let address = server.url.strip_prefix("http://").unwrap();
    let body = json!({ "operation": "op", "key": "k", "claim_id": claim_id }).to_string();
    let mut connection = TcpStream::connect(address).unwrap();
    let head = format!("POST /v1/begin HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n");
    connection.write_all(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes()).unwrap();
}

#[test]
fn a_key_that_clients_derived_from_two_intents_is_a_collision() {
    let server = TestServer::start("");
    let client = server.client();
    let ask = |digest: &str| client.ok("/v1/begin", json!({ "operation": "op", "key": "k", "key_digest": digest }));
    let (one, other) = ("a1".repeat(32), "b2".repeat(32));
    let claim = ask(&one);
    is(&claim, "decision", "acquired");
    is(&ask(&other), "decision", "collision");
    is(&own(&client, "doubt", &claim["fence"]), "result", "written");
    is(&ask(&one.to_uppercase()), "decision", "in_doubt");
    is(&ask(&other), "decision", "collision");
    for wrong in [
        json!({ "operation": "op", "key": "k", "key_digest": "a1" }),
        json!({ "operation": "op", "key": "k", "key_digest": "g1".repeat(32) }),
        json!({ "operation": "op", "intent": {"n": 1}, "key_digest": one }),
    ] {
        assert_eq!(client.post("/v1/begin", &wrong).status, 422, "{wrong}");
    }
}

#[test]
fn a_begin_whose_response_was_lost_gets_the_same_claim_from_any_server_and_after_a_restart() {
    let mut server = TestServer::start("");
    let first = begin(&server.client(), "op", "c1");
    is(&first, "decision", "acquired");
    let again = begin(&server.client(), "op", "c1");
    for field in ["decision", "fence", "attempt", "downstream_key", "phase", "probe_first"] {
        is(&again, field, first[field].clone());
    }
    is(&server.client().begin("op", "k"), "decision", "in_flight");
    is(&begin(&server.client(), "op", "c2"), "decision", "in_flight");
    server.signal("-KILL");
    server.ended();
    server.restart();
    is(&begin(&server.client(), "op", "c1"), "fence", first["fence"].clone());
    is(&server.client().finish("op", "k", &first["fence"], "paid"), "result", "written");
    is(&begin(&server.client(), "op", "c1"), "decision", "replay");
}

#[test]
fn a_claim_id_has_no_meaning_with_another_token_or_tenant() {
    let server = with_tokens();
    let [one, two, three] = SECRETS.map(|(_, secret)| server.with_token(secret));
    let first = begin(&one, "op", "c1");
    is(&first, "decision", "acquired");
    is(&begin(&two, "op", "c1"), "decision", "in_flight");
    let other = begin(&three, "op", "c1");
    is(&other, "decision", "acquired");
    assert_ne!(other["fence"], first["fence"]);
    is(&begin(&one, "op", "c1"), "fence", first["fence"].clone());
    // The same id for another intent is another claim.
    let elsewhere = begin(&one, "again", "c1");
    is(&elsewhere, "decision", "acquired");
    assert_ne!(elsewhere["fence"], first["fence"]);
}

#[test]
fn concurrent_callers_with_the_same_claim_id_share_one_claim() {
    let server = TestServer::start("");
    let answers: Vec<Value> = std::thread::scope(|scope| {
        let begin = || begin(&server.client(), "op", "c1");
        let callers: Vec<_> = (0..16).map(|_| scope.spawn(begin)).collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    for answer in &answers {
        is(answer, "decision", "acquired");
        is(answer, "fence", answers[0]["fence"].clone());
        is(answer, "attempt", 1);
    }
}

#[test]
fn a_used_claim_id_is_stale_until_the_work_is_done() {
    let server = TestServer::start("");
    let client = server.client();
    let first = begin(&client, "op", "c1");
    is(&own(&client, "release", &first["fence"]), "state", "open");
    is(&begin(&client, "op", "c1"), "decision", "stale");
    let second = begin(&client, "op", "c2");
    is(&second, "decision", "acquired");
    is(&begin(&client, "op", "c1"), "decision", "stale");
    is(&client.finish("op", "k", &second["fence"], "paid"), "result", "written");
    is(&begin(&client, "op", "c1"), "decision", "replay");
}

#[test]
fn a_connection_that_breaks_before_the_response_does_not_take_the_claim_from_the_repeat() {
    let server = TestServer::start("");
    let client = server.client();
    for round in 0..20 {
        let claim_id = format!("c{round}");
        for _ in 0..5 {
            begin_without_reading(&server, &claim_id);
        }
        let begun = begin(&client, "op", &claim_id);
        is(&begun, "decision", "acquired");
        // All lost responses have been handled by now, or soon will be; the claim stays.
        let until = Instant::now() + Duration::from_millis(100);
        while Instant::now() < until {
            is(&client.begin("op", "k"), "decision", "in_flight");
        }
        is(&own(&client, "renew", &begun["fence"]), "result", "written");
        is(&own(&client, "release", &begun["fence"]), "result", "written");
    }
}

#[test]
fn a_release_and_a_doubt_can_be_repeated_until_another_caller_has_the_claim() {
    let server = TestServer::start("");
    let client = server.client();
    let first = client.begin("op", "k");
    let released = own(&client, "release", &first["fence"]);
    is(&released, "result", "written");
    assert_eq!(own(&client, "release", &first["fence"]), released);
    is(&own(&client, "renew", &first["fence"]), "result", "stale");
    let second = client.begin("op", "k");
    is(&own(&client, "release", &first["fence"]), "result", "stale");
    let doubted = own(&client, "doubt", &second["fence"]);
    is(&doubted, "state", "in_doubt");
    assert_eq!(own(&client, "doubt", &second["fence"]), doubted);
}

#[test]
fn a_resolve_can_be_repeated_and_leaves_one_entry_in_the_trail() {
    let server = TestServer::start("");
    let client = server.client();
    let begun = client.begin("op", "k");
    let doubted = own(&client, "doubt", &begun["fence"]);
    let resolve = |resolution: Value| {
        let request = json!({ "operation": "op", "key": "k", "version": doubted["version"], "resolution": resolution });
        client.ok("/v1/resolve", request)
    };
    let happened = json!({ "happened": { "verdict": "success", "body": { "text": "paid" } } });
    let settled = resolve(happened.clone());
    is(&settled, "result", "settled");
    assert_eq!(resolve(happened), settled);
    is(&resolve(json!("did_not_happen")), "reason", "changed");
    let seen = client.seen("/v1/intents/op/k");
    assert_eq!(seen["trail"].as_array().unwrap().len(), 1, "{seen:#}");
}

#[test]
fn a_claim_id_is_a_short_single_line() {
    let server = TestServer::start("");
    let client = server.client();
    for wrong in [json!(""), json!("x".repeat(256)), json!("x".repeat(10_000)), json!("a\u{0}b"), json!(7), json!(null)]
    {
        let request = json!({ "operation": "op", "key": "k", "claim_id": wrong });
        let detail = client.post("/v1/begin", &request).is_problem(422, "invalid");
        assert!(detail.contains("claim_id"), "{detail}");
    }
    is(&begin(&client, "op", &"é".repeat(255)), "decision", "acquired");
}

#[test]
fn a_lapsed_claim_is_granted_again_to_the_same_request_only_if_nothing_was_sent() {
    let server = TestServer::start("");
    let client = server.client();
    for (key, marks_sent, lapsed) in [("sent", false, "in_doubt"), ("claimed", true, "open")] {
        let ask = |claim_id: &str, lease_ms: u64| {
            let names = json!({ "operation": "op", "key": key, "claim_id": claim_id });
            let mut request = json!({ "marks_sent": marks_sent, "lease_ms": lease_ms });
            request.as_object_mut().unwrap().extend(names.as_object().unwrap().clone());
            client.ok("/v1/begin", request)
        };
        let first = ask("c1", 1);
        let until = Instant::now() + Duration::from_secs(10);
        while client.seen(&format!("/v1/intents/op/{key}"))["intent"]["state"] != lapsed {
            assert!(Instant::now() < until, "the claim does not lapse");
        }
        let again = ask("c1", 60_000);
        if marks_sent {
            is(&again, "fence", first["fence"].clone());
            is(&ask("c2", 60_000), "decision", "in_flight");
        } else {
            // The caller may have acted and died.
            is(&again, "decision", "in_doubt");
        }
    }
}
