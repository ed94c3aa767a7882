//! Webhooks are verified, recorded once and delivered later.

use std::process::{Command, Stdio};

use super::downstream::{Downstream, Mode};
use super::server::TestServer;
use crate::test_folder::wait_until;

const SECRET: &str = "a secret of 32 characters or more";

/// The signature, as another implementation computes it.
fn signature(body: &str) -> String {
    let script = "import hmac,hashlib,sys; print(hmac.new(sys.argv[1].encode(), sys.argv[2].encode(), hashlib.sha256).hexdigest())";
    let output = Command::new("python3").args(["-c", script, SECRET, body]).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    format!("sha256={}", String::from_utf8(output.stdout).unwrap().trim())
}

fn post(server: &TestServer, body: &str, signature: &str) -> (u16, String) {
    let config = ureq::Agent::config_builder().http_status_as_error(false).build();
    let agent: ureq::Agent = config.into();
    let request = agent.post(format!("{}/hooks/github", server.url)).header("content-type", "application/json");
    let mut response = request.header("x-hub-signature-256", signature).send(body.as_bytes()).unwrap();
    (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
}

#[test]
fn a_webhook_that_is_redelivered_is_recorded_once_and_delivered_once() {
    let downstream = Downstream::start(Mode::Busy, true);
    let config = format!(
        "[[inbox]]\npath = \"/hooks/github\"\nscheme = \"github\"\nsecret = \"file:secret\"\noperation = \"push\"\n\
         [operation.push]\nsink = \"worker\"\n[sink.worker]\ntype = \"http\"\nurl = \"{}/push\"\nallow_private = true\n\
         retry = {{ base = \"1ms\", cap = \"20ms\", max_attempts = 1000 }}\nbreaker = {{ failures = 10000 }}\n",
        downstream.url()
    );
    let server = TestServer::with_files(&config, &[("secret", SECRET)]);
    let body = "{\"ref\": \"refs/heads/main\", \"after\": \"1\"}";
    for _ in 0..3 {
        let (status, text) = post(&server, body, &signature(body));
        assert_eq!(status, 200, "{text}");
    }
    assert_eq!(post(&server, body, "sha256=00").0, 401, "a bad signature");
    assert_eq!(post(&server, "{\"after\": \"2\"}", &signature(body)).0, 401, "the signature of another body");
    downstream.set(Mode::Works);
    wait_until(|| server.folder.json(&["list", "--state", "done", "--json"])["intents"].as_array().unwrap().len() == 1);
    assert_eq!(downstream.effects().into_values().collect::<Vec<_>>(), [1]);
    assert!(downstream.bodies().iter().all(|delivered| delivered == body), "byte for byte");
    let all = server.folder.json(&["list", "--json"]);
    assert_eq!(all["intents"].as_array().unwrap().len(), 1, "a refused request takes no key");
    assert_eq!(post(&server, body, &signature(body)), (200, "recorded before".to_owned()));
}
