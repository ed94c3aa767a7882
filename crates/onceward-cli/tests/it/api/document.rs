//! The OpenAPI document and the problem pages.

use std::path::Path;

use serde_json::Value;

use super::server::TestServer;
use crate::test_folder::TestFolder;

#[test]
fn the_openapi_document_is_up_to_date() {
    let answer = TestFolder::new().onceward(&["reference", "openapi"]);
    answer.says(0, &[]);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/openapi.json");
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(&path, &answer.stdout).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == answer.out(),
        "spec/openapi.json is stale; update it with:\n  UPDATE_REFERENCE=1 cargo test -p onceward-cli openapi"
    );
    let served = TestServer::start("").client().get("/v1/openapi.json");
    assert_eq!(served.text, written);
}

#[test]
fn every_path_of_the_document_exists_and_every_problem_has_a_page() {
    let server = TestServer::start("");
    let client = server.client();
    let document: Value = client.get("/v1/openapi.json").json();
    assert_eq!(document["openapi"].as_str().unwrap().get(..4), Some("3.1."));
    let paths = document["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 20);
    for (path, methods) in paths {
        for (method, operation) in methods.as_object().unwrap() {
            let reply = match method.as_str() {
                "get" => client.get(&path.replace(['{', '}'], "")),
                _ => client.send(path, "application/json", b"{}"),
            };
            assert!(
                operation["responses"].get(reply.status.to_string()).is_some(),
                "{method} {path} responds with {}, which is not in the document",
                reply.status
            );
            if reply.status == 200 {
                continue;
            }
            let kind = reply.json()["type"].as_str().unwrap().to_owned();
            let page = client.get(&kind);
            assert_eq!(page.status, 200, "{kind}");
            assert!(page.text.contains("<h1>"), "{kind}");
        }
    }
    // The gateway's problems have their pages at the same paths.
    assert!(client.get("/.well-known/onceward/problems/key-missing").text.contains("<h1>"));
    client.get("/.well-known/onceward/problems/nothing").is_problem(404, "no-route");
    client.get("/nothing").is_problem(404, "no-route");
    let reply = client.get("/v1/begin");
    reply.is_problem(405, "no-method");
    assert_eq!(reply.header("allow"), Some("POST"));
}
