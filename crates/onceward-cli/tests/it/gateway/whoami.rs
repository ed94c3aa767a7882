//! `tenant = "whoami:PATH#POINTER"`: the upstream names the tenant of a request.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{HeaderMap, Response};
use http_body_util::{BodyExt, Full};
use serde_json::Value;

use super::test_gateway::TestGateway;
use super::upstream::{Body, TestUpstream};
use crate::test_folder::TestFolder;

/// The lookups and the charges that the API got, by their headers.
#[derive(Clone, Default)]
struct SeenRequests {
    lookups: Arc<Mutex<Vec<HeaderMap>>>,
    charges: Arc<Mutex<Vec<HeaderMap>>>,
}

impl SeenRequests {
    fn counts(&self) -> (usize, usize) {
        (self.lookups.lock().unwrap().len(), self.charges.lock().unwrap().len())
    }
}

fn answer(status: u16, body: &str) -> Response<Body> {
    let body = Full::from(body.to_owned()).map_err(|never: Infallible| match never {}).boxed_unsync();
    Response::builder().status(status).header("location", "/v1/me/else").body(body).unwrap()
}

/// An API whose tokens start with the name of their user. Some names cause trouble.
async fn api(seen: SeenRequests) -> TestUpstream {
    TestUpstream::start(move |request| {
        let headers = request.headers().clone();
        let is_question = request.uri().path().starts_with("/v1/me");
        let told = if is_question { &seen.lookups } else { &seen.charges };
        told.lock().unwrap().push(headers.clone());
        let user =
            headers.get("authorization").or(headers.get("cookie")).map(|value| value.to_str().unwrap().to_owned());
        let user = user.unwrap_or_default().replace("Bearer ", "");
        let user = user.split('-').next().unwrap_or_default().to_owned();
        async move {
            if !is_question {
                return answer(201, &format!("charged {user}"));
            }
            match user.as_str() {
                "stranger" => answer(401, "{}"),
                "banned" => answer(403, "{}"),
                "moved" => answer(302, r#"{"id": "moved"}"#),
                "broken" => answer(500, r#"{"id": "broken"}"#),
                "missing" => answer(404, r#"{"id": "missing"}"#),
                "empty" => answer(200, r#"{"id": ""}"#),
                "null" => answer(200, r#"{"id": null}"#),
                "object" => answer(200, r#"{"id": {}}"#),
                "large" => answer(200, &format!(r#"{{"id": "large", "more": "{}"}}"#, "x".repeat(100_000))),
                "slow" => {
                    tokio::time::sleep(Duration::from_secs(60)).await;
                    answer(200, r#"{"id": "slow"}"#)
                }
                "late" => {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    answer(200, r#"{"id": "late"}"#)
                }
                user => answer(200, &format!(r#"{{"id": {user:?}}}"#)),
            }
        }
    })
    .await
}

/// Sends a charge with a key. Returns the status, whether it is a replay, and the body.
fn charged(url: &str, headers: &[(&str, &str)], key: &str) -> (u16, bool, String) {
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let charge = headers.iter().fold(agent.post(url), |charge, (name, value)| charge.header(*name, *value));
    let mut answer = charge.header("idempotency-key", key).header("x-trace", "7").send("{}").unwrap();
    let replayed = answer.headers().contains_key("idempotent-replayed");
    (answer.status().as_u16(), replayed, answer.body_mut().read_to_string().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refreshed_token_is_the_same_tenant_and_another_user_is_not() {
    let seen = SeenRequests::default();
    let upstream = api(seen.clone()).await;
    let gateway = TestGateway::start(&["--upstream", &upstream.url(), "--tenant", "whoami:/v1/me?full=0#/id"]);
    let url = format!("{}/v1/charges", gateway.url);
    let with = |token: &str| charged(&url, &[("authorization", &format!("Bearer {token}"))], "k");
    assert_eq!(with("ann-1"), (201, false, "charged ann".to_owned()));
    assert_eq!(with("ann-1"), (201, true, "charged ann".to_owned()));
    assert_eq!(with("ann-2"), (201, true, "charged ann".to_owned()), "refreshed");
    assert_eq!(with("bob-1"), (201, false, "charged bob".to_owned()));
    assert_eq!(seen.counts(), (3, 2), "each credential is looked up once");
    for question in seen.lookups.lock().unwrap().iter() {
        for absent in ["idempotency-key", "x-trace", "content-type", "content-length", "forwarded", "x-forwarded-for"] {
            assert!(!question.contains_key(absent), "{absent}");
        }
    }
    let listed = gateway.folder.json(&["list", "--json", "--store", "ledger.db"]);
    let text = listed.to_string();
    assert!(!text.contains("ann") && !text.contains("bob"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn if_the_lookup_fails_there_is_no_tenant_and_nothing_runs() {
    let seen = SeenRequests::default();
    let upstream = api(seen.clone()).await;
    let gateway = TestGateway::start(&["--upstream", &upstream.url(), "--tenant", "whoami:/v1/me#/id"]);
    let url = format!("{}/v1/charges", gateway.url);
    for (user, status, kind) in [
        ("stranger", 401, "bad-credential"),
        // A refusal is cached for a moment.
        ("stranger", 401, "bad-credential"),
        ("banned", 403, "bad-credential"),
        ("moved", 503, "tenant-unknown"),
        ("broken", 503, "tenant-unknown"),
        ("missing", 503, "tenant-unknown"),
        ("empty", 503, "tenant-unknown"),
        ("null", 503, "tenant-unknown"),
        ("object", 503, "tenant-unknown"),
        ("large", 503, "tenant-unknown"),
        ("slow", 503, "tenant-unknown"),
    ] {
        let (told, _, body) = charged(&url, &[("authorization", &format!("Bearer {user}-1"))], "k");
        let problem: Value = serde_json::from_str(&body).unwrap();
        let named = format!("/.well-known/onceward/problems/{kind}");
        assert_eq!(
            (told, &problem["type"], &problem["status"]),
            (status, &named.into(), &status.into()),
            "{user} {body}"
        );
        assert!(!body.contains(user), "{body}");
    }
    assert_eq!(charged(&url, &[], "k").0, 401);
    assert_eq!(charged(&url, &[("authorization", "")], "k").0, 401);
    assert_eq!(charged(&url, &[("x-unknown-key", "ann-1")], "k").0, 401);
    let twice = [("authorization", "Bearer ann-1"), ("authorization", "Bearer bob-1")];
    assert_eq!(charged(&url, &twice, "k").0, 401);
    assert_eq!(seen.counts(), (10, 0), "redirects are not followed, and a missing credential is not looked up");
    charged(&url, &[("authorization", "Bearer broken-1")], "k");
    assert_eq!(seen.counts(), (11, 0), "an unknown result is looked up again");
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_concurrent_lookups_share_one_request() {
    let seen = SeenRequests::default();
    let upstream = api(seen.clone()).await;
    let gateway = TestGateway::start(&["--upstream", &upstream.url(), "--tenant", "whoami:/v1/me#/id"]);
    let url = Arc::new(format!("{}/v1/charges", gateway.url));
    let asked: Vec<_> = (0..16)
        .map(|number| {
            let url = Arc::clone(&url);
            tokio::task::spawn_blocking(move || {
                charged(&url, &[("authorization", "Bearer late-1")], &format!("k{number}")).0
            })
        })
        .collect();
    for asked in asked {
        assert_eq!(asked.await.unwrap(), 201);
    }
    assert_eq!(seen.counts(), (1, 16));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_cookie_is_a_credential_if_it_is_listed() {
    let seen = SeenRequests::default();
    let upstream = api(seen.clone()).await;
    let flags = ["--tenant", "whoami:/v1/me#/id", "--identity-header", "Cookie", "--key-mode", "derived"];
    let gateway = TestGateway::start(&[&["--upstream", &upstream.url()][..], &flags].concat());
    let url = format!("{}/v1/charges", gateway.url);
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let with = |cookie: &str| {
        let mut answer = agent.post(&url).header("cookie", cookie).send("{}").unwrap();
        (answer.headers().contains_key("idempotent-replayed"), answer.body_mut().read_to_string().unwrap())
    };
    assert_eq!(with("ann-1"), (false, "charged ann".to_owned()));
    assert_eq!(with("bob-1"), (false, "charged bob".to_owned()));
    assert_eq!(with("ann-2"), (true, "charged ann".to_owned()), "a new session of the same user");
    assert_eq!(seen.counts(), (3, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_subject_at_two_upstreams_is_two_tenants() {
    let (one, other) = (api(SeenRequests::default()).await, api(SeenRequests::default()).await);
    let route = |path: &str, upstream: &TestUpstream| {
        let url = upstream.url();
        format!("[[gateway.route]]\npath = {path:?}\nupstream = {url:?}\ntenant = \"whoami:/v1/me#/id\"\n")
    };
    let routes = route("/a/*", &one) + &route("/b/*", &other);
    let gateway = TestGateway::configured(TestFolder::new(), &format!("[gateway]\nlisten = \"127.0.0.1:0\"\n{routes}"));
    for path in ["a", "b"] {
        let url = format!("{}/{path}/charges", gateway.url);
        assert_eq!(charged(&url, &[("x-api-key", "unused"), ("authorization", "Bearer ann-1")], "k").0, 201);
    }
    let listed = gateway.folder.json(&["list", "--json", "--store", "ledger.db"]);
    let intents = listed["intents"].as_array().unwrap();
    let tenants: HashSet<&str> = intents.iter().map(|intent| intent["tenant"].as_str().unwrap()).collect();
    assert_eq!((intents.len(), tenants.len()), (2, 2), "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_relies_on_a_hash_of_the_credential_logs_its_limits() {
    let upstream = api(SeenRequests::default()).await;
    let says = |flags: &[&str]| {
        let gateway = TestGateway::start(&[&["--upstream", &upstream.url()], flags].concat());
        gateway.folder.read("log").contains("a revoked credential still gets")
    };
    assert!(says(&[]));
    assert!(!says(&["--tenant", "whoami:/v1/me#/id"]));
    assert!(!says(&["--tenant", "fixed:hooks"]));
    let wrong = ["gateway", "--upstream", "http://127.0.0.1:9", "--listen", "127.0.0.1:0", "--tenant", "whoami:/v1/me"];
    TestFolder::new().onceward(&wrong).says(64, &["--tenant", "whoami:PATH#POINTER"]);
}
