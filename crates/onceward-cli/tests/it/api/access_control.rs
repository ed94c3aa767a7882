//! Access control: tokens, scopes, tenants, and the clients that a server without tokens accepts.

use std::io::{Read, Write};

use serde_json::{Value, json};

use super::server::{TestServer, is};
use crate::test_folder::TestFolder;

const ACME: &str = "acme-token-0123456789";
const RIVAL: &str = "rival-token-0123456789";
const READER: &str = "reader-token-0123456789";
const OPERATOR: &str = "operator-token-0123456789";

fn config() -> String {
    let token = |tenant: &str, secret: &str, scopes: &str| {
        let hash = onceward::core::hash::digest(secret.as_bytes());
        format!("[[api.token]]\ntenant = \"{tenant}\"\nsecret = \"sha256:{hash}\"\nscopes = [{scopes}]\n")
    };
    [
        token("acme", ACME, "\"use\", \"read\""),
        token("rival", RIVAL, "\"use\", \"read\", \"operate\""),
        token("acme", READER, "\"read\""),
        token("acme", OPERATOR, "\"operate\""),
    ]
    .concat()
}

#[test]
fn a_tenant_neither_affects_nor_sees_another() {
    let server = TestServer::start(&config());
    let (acme, rival) = (server.with_token(ACME), server.with_token(RIVAL));
    let ours = acme.begin("charge", "invoice-42");
    is(&ours, "decision", "acquired");
    rival.get("/v1/intents/charge/invoice-42").is_problem(404, "no-intent");
    is(&rival.seen("/v1/intents"), "intents", json!([]));
    let theirs = rival.begin("charge", "invoice-42");
    is(&theirs, "decision", "acquired");
    assert_ne!(ours["downstream_key"], theirs["downstream_key"]);
    // A stolen fence is useless with another token.
    is(&rival.finish("charge", "invoice-42", &ours["fence"], "stolen"), "result", "stale");
    is(&acme.finish("charge", "invoice-42", &ours["fence"], "paid"), "result", "written");
    is(&rival.begin("charge", "invoice-42"), "decision", "in_flight");
    for (client, tenant) in [(&acme, "acme"), (&rival, "rival")] {
        let listed = client.seen("/v1/intents");
        let tenants: Vec<&Value> =
            listed["intents"].as_array().unwrap().iter().map(|intent| &intent["tenant"]).collect();
        assert_eq!(tenants, [tenant]);
    }
    let counts = |client: &super::server::ApiClient| client.seen("/v1/stats");
    is(&counts(&acme)["counts"], "done", 1);
    is(&counts(&acme)["counts"], "running", 0);
    is(&counts(&rival)["counts"], "running", 1);
    is(&counts(&rival), "decisions", json!({ "acquired": 1, "in_flight": 1 }));
    // Nor can a tenant settle the intents of another.
    let resolve = json!({ "operation": "charge", "key": "nothing", "version": 1, "resolution": "reset" });
    is(&rival.ok("/v1/resolve", resolve), "reason", "absent");
}

#[test]
fn a_request_without_a_token_is_refused() {
    let server = TestServer::start(&config());
    let body = json!({ "operation": "op", "key": "k" });
    for client in [server.client(), server.with_token("wrong"), server.with_token(&format!("{ACME}x"))] {
        let reply = client.post("/v1/begin", &body);
        reply.is_problem(401, "no-token");
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
        client.get("/v1/intents").is_problem(401, "no-token");
        client.get("/v1/intents/op/k").is_problem(401, "no-token");
        client.get("/v1/stats").is_problem(401, "no-token");
        // A client without a token learns nothing about its body either.
        client.send("/v1/finish", "text/plain", b"{").is_problem(401, "no-token");
    }
    for path in ["/healthz", "/readyz", "/v1/openapi.json"] {
        assert_eq!(server.client().get(path).status, 200, "{path}");
    }
}

#[test]
fn a_token_permits_what_its_scopes_say() {
    let server = TestServer::start(&config());
    let (user, reader, operator) = (server.with_token(ACME), server.with_token(READER), server.with_token(OPERATOR));
    let claim = json!({ "operation": "op", "key": "k", "fence": "0".repeat(32) });
    for path in ["/v1/begin", "/v1/sent", "/v1/renew", "/v1/finish", "/v1/release", "/v1/doubt", "/v1/not_found"] {
        for client in [&reader, &operator] {
            client.post(path, &claim).is_problem(403, "not-allowed");
        }
    }
    for path in ["/v1/intents", "/v1/intents/op/k", "/v1/stats"] {
        operator.get(path).is_problem(403, "not-allowed");
    }
    let resolve = json!({ "operation": "op", "key": "k", "version": 1, "resolution": "did_not_happen" });
    for client in [&user, &reader] {
        client.post("/v1/resolve", &resolve).is_problem(403, "not-allowed");
    }
    is(&operator.ok("/v1/resolve", resolve), "reason", "absent");
    is(&reader.seen("/v1/intents"), "intents", json!([]));
    assert_eq!(user.get("/v1/intents").status, 200);
}

#[test]
fn a_new_token_works_as_printed() {
    let folder = TestFolder::new();
    let printed = folder.onceward(&["token", "new", "--tenant", "new one", "--scopes", "read,use"]);
    printed.says(0, &[]);
    let token = printed.out().lines().map(str::trim).find(|line| line.starts_with("onceward_")).unwrap().to_owned();
    let stanza = printed.out().split_once("[[api.token]]").unwrap().1.to_owned();
    assert!(!stanza.contains(&token), "the file never contains the token itself");
    folder.write("onceward.toml", &format!("store = \"ledger.db\"\n[[api.token]]{stanza}"));
    let server = TestServer::started_in(folder);
    is(&server.with_token(&token).begin("op", "k"), "decision", "acquired");
    is(&server.with_token(&token).seen("/v1/intents")["intents"][0], "tenant", "new one");
    let json = server.folder.json(&["token", "new", "--json"]);
    assert_ne!(json["token"], token);
    is(&json, "scopes", json!(["use"]));
}

#[test]
fn secrets_come_from_files_and_from_the_environment() {
    let folder = TestFolder::new();
    folder.write("secret", &format!("{ACME}\n"));
    folder.write(
        "onceward.toml",
        "store = \"ledger.db\"\n[[api.token]]\ntenant = \"acme\"\nsecret = \"file:secret\"\nscopes = [\"use\"]\n",
    );
    let server = TestServer::started_in(folder);
    is(&server.with_token(ACME).begin("op", "k"), "decision", "acquired");
    let folder = TestFolder::new();
    let token = "[[api.token]]\ntenant = \"acme\"\nsecret = \"env:SOME_TOKEN\"\nscopes = [\"use\"]\n";
    folder.write("onceward.toml", token);
    let serve = ["serve", "--listen", "127.0.0.1:0"];
    folder.onceward(&serve).says(78, &["api.token[0].secret: the variable SOME_TOKEN is not set"]);
    let short = folder.command(&serve).env("SOME_TOKEN", "hunter2").output().unwrap();
    let short = crate::test_folder::CommandOutput::of(short);
    short.says(78, &["api.token[0].secret: the secret in the variable SOME_TOKEN is shorter than 16 characters"]);
    assert!(!short.stderr.contains("hunter2"));
    folder.write("onceward.toml", &[token, token].concat());
    let twice = folder.command(&serve).env("SOME_TOKEN", ACME).output().unwrap();
    crate::test_folder::CommandOutput::of(twice).says(78, &["api.token[1].secret: another token has the same secret"]);
}

#[test]
fn a_server_without_tokens_is_only_for_this_machine() {
    let folder = TestFolder::new();
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let answer = folder.onceward(&["serve", "--listen", address]);
        answer.says(78, &["can be reached from other machines", "[[api.token]]"]);
        assert!(answer.stdout.is_empty() && !folder.path("onceward.db").exists(), "nothing was started");
    }
}

#[test]
fn a_web_page_cannot_reach_it_through_another_host_name() {
    let server = TestServer::start("");
    let address = server.url.strip_prefix("http://").unwrap();
    let ask = |host: &str| {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        write!(stream, "GET /v1/intents HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(ask("rebound.example").starts_with("HTTP/1.1 421 "));
    assert!(ask("localhost:8787").starts_with("HTTP/1.1 200 "));
}

#[test]
fn mistakes_in_the_file_are_reported_with_their_lines() {
    let folder = TestFolder::new();
    let refused = |toml: &str, said: &str| {
        folder.write("onceward.toml", toml);
        let answer = folder.onceward(&["serve", "--listen", "127.0.0.1:0"]);
        answer.says(78, &[said]);
        assert!(!answer.stderr.contains("hunter2"), "{}", answer.stderr);
    };
    let token = "[[api.token]]\ntenant = \"acme\"\nscopes = [\"use\"]\n";
    refused(
        "[api]\nlissten = \"127.0.0.1:1\"\n",
        "onceward.toml:2: api.lissten: unknown field; did you mean `listen`?",
    );
    refused(
        "[api]\nlisten = \"localhost\"\n",
        "onceward.toml:2: api.listen: invalid address \"localhost\"; write for example 127.0.0.1:8787",
    );
    refused(
        &format!("{token}secret = \"hunter2hunter2hunter2\"\n"),
        "onceward.toml:4: api.token[0].secret: a secret must not be in the file itself: write \"env:NAME\"",
    );
    refused(
        &format!("{token}secret = \"sha256:hunter2\"\n"),
        "api.token[0].secret: `sha256:` must be followed by 64 hex digits",
    );
    refused(
        &format!("{token}secret = \"env:A\"\n{token}secret = \"env:B\"\nscope = 1\n"),
        "onceward.toml:9: api.token[1].scope: unknown field; did you mean `scopes`?",
    );
    let token = "[[api.token]]\ntenant = \"acme\"\nsecret = \"env:A\"\n";
    refused(&format!("{token}scopes = []\n"), "onceward.toml:4: api.token[0].scopes: a token needs at least one scope");
    refused(
        &format!("{token}scopes = [\"admin\"]\n"),
        "onceward.toml:4: api.token[0].scopes[0]: unknown variant `admin`",
    );
    refused(
        "[[api.token]]\ntenant = \"\"\nsecret = \"env:A\"\nscopes = [\"use\"]\n",
        "onceward.toml:2: api.token[0].tenant: the tenant is empty",
    );
}

#[test]
fn the_trail_has_the_name_of_the_token_and_the_name_that_its_bearer_gave() {
    let named = config().replacen("tenant = \"rival\"\n", "tenant = \"rival\"\nname = \"night shift\"\n", 1);
    for (config, name) in
        [(named, "night shift".to_owned()), (config(), onceward::core::hash::digest(RIVAL.as_bytes()).short())]
    {
        let server = TestServer::start(&config);
        let client = server.with_token(RIVAL);
        let begun = client.begin("op", "k");
        let doubted = client.ok("/v1/doubt", json!({ "operation": "op", "key": "k", "fence": begun["fence"] }));
        let version = &doubted["version"];
        let resolve =
            json!({ "operation": "op", "key": "k", "version": version, "resolution": "reset", "by": "the boss" });
        is(&client.ok("/v1/resolve", resolve), "result", "settled");
        let entry = client.seen("/v1/intents/op/k")["trail"][0].clone();
        is(&entry, "by", "the boss");
        is(&entry, "token", name.clone());
        let shown = server.folder.onceward(&["get", "--tenant", "rival", "--operation", "op", "--key", "k"]);
        let shown = String::from_utf8(shown.stdout).unwrap();
        assert!(shown.contains(&format!("by the boss (token {name})")), "{shown}");
    }
}

#[test]
fn a_cursor_reveals_nothing_about_other_tenants() {
    let server = TestServer::start(&config());
    let (acme, rival) = (server.with_token(ACME), server.with_token(RIVAL));
    for number in 0..4 {
        acme.begin("op", &format!("ours {number}"));
        rival.begin("op", &format!("theirs {number}"));
    }
    let keys = |page: &Value| -> Vec<String> {
        page["intents"].as_array().unwrap().iter().map(|intent| intent["key"].as_str().unwrap().to_owned()).collect()
    };
    let first = acme.seen("/v1/intents?limit=2");
    assert_eq!(keys(&first), ["ours 3", "ours 2"]);
    let next = first["next"].as_str().unwrap();
    // The id and the time of the record at which the page ended, and nothing else.
    assert!(next.ends_with(first["intents"][1]["id"].as_str().unwrap()), "{next}");
    let second = acme.seen(&format!("/v1/intents?limit=2&cursor={next}"));
    assert_eq!(keys(&second), ["ours 1", "ours 0"]);
    let theirs = keys(&rival.seen(&format!("/v1/intents?cursor={next}")));
    assert!(theirs.iter().all(|key| key.starts_with("theirs")), "{theirs:?}");
    for wrong in ["", "7", "-1", &"0".repeat(79), &"x".repeat(80)] {
        acme.get(&format!("/v1/intents?cursor={wrong}")).is_problem(422, "invalid");
    }
}
