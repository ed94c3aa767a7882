//! A real server in a temporary folder, and a client for it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::test_folder::TestFolder;

/// Longer than any response takes.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(90);

pub(super) struct TestServer {
    pub(super) folder: TestFolder,
    child: Child,
    pub(super) url: String,
    /// The URL of the gateway, if one is configured.
    pub(super) gateway: Option<String>,
}

/// A client of a server.
#[derive(Clone)]
pub(super) struct ApiClient {
    agent: ureq::Agent,
    url: String,
    token: Option<String>,
}

/// The response to a request.
#[derive(Debug)]
pub(super) struct ApiResponse {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) text: String,
}

impl TestServer {
    /// With this configuration, in addition to its store.
    pub(super) fn start(config: &str) -> Self {
        Self::with_files(config, &[])
    }

    /// With additional files next to the configuration.
    pub(super) fn with_files(config: &str, files: &[(&str, &str)]) -> Self {
        let folder = TestFolder::new();
        folder.write("onceward.toml", &format!("store = \"ledger.db\"\n{config}"));
        for (name, text) in files {
            folder.write(name, text);
        }
        Self::started_in(folder)
    }

    pub(super) fn started_in(folder: TestFolder) -> Self {
        let (child, url, gateway) = spawn(&folder);
        Self { folder, child, url, gateway }
    }

    /// Starts another process on the same ledger. Its log is appended to the same file.
    pub(super) fn restart(&mut self) {
        (self.child, self.url, self.gateway) = spawn(&self.folder);
    }

    pub(super) fn signal(&self, signal: &str) {
        let status = std::process::Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(status.unwrap().success());
    }

    /// Waits for the exit code; -1 for a signal.
    pub(super) fn ended(&mut self) -> i32 {
        self.child.wait().unwrap().code().unwrap_or(-1)
    }

    pub(super) fn client(&self) -> ApiClient {
        let config =
            ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(RESPONSE_TIMEOUT)).build();
        ApiClient { agent: config.into(), url: self.url.clone(), token: None }
    }

    pub(super) fn with_token(&self, token: &str) -> ApiClient {
        ApiClient { token: Some(token.to_owned()), ..self.client() }
    }

    /// The server's stderr so far.
    pub(super) fn log(&self) -> String {
        self.folder.read("log")
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(folder: &TestFolder) -> (Child, String, Option<String>) {
    let log = std::fs::OpenOptions::new().create(true).append(true).open(folder.path("log")).unwrap();
    let mut child =
        folder.command(&["serve", "--listen", "127.0.0.1:0"]).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut listens = |name: &str| {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix(&format!("onceward {name} listens on "));
        url.unwrap_or_else(|| panic!("{line:?}: {}", folder.read("log"))).to_owned()
    };
    let url = listens("api");
    let gateway = folder.read("onceward.toml").contains("[gateway]").then(|| listens("gateway"));
    (child, url, gateway)
}

impl ApiClient {
    /// The same client for another server.
    pub(super) fn at(&self, url: &str) -> Self {
        Self { url: url.to_owned(), ..self.clone() }
    }

    pub(super) fn post(&self, path: &str, body: &Value) -> ApiResponse {
        self.send(path, "application/json", body.to_string().as_bytes())
    }

    pub(super) fn send(&self, path: &str, content_type: &str, body: &[u8]) -> ApiResponse {
        let mut request = self.agent.post(format!("{}{path}", self.url)).header("content-type", content_type);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        ApiResponse::of(request.send(body))
    }

    pub(super) fn get(&self, path: &str) -> ApiResponse {
        let mut request = self.agent.get(format!("{}{path}", self.url));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        ApiResponse::of(request.call())
    }

    /// Posts, and expects status 200.
    #[track_caller]
    pub(super) fn ok(&self, path: &str, body: Value) -> Value {
        let reply = self.post(path, &body);
        assert_eq!(reply.status, 200, "{path}: {reply:?}");
        reply.json()
    }

    #[track_caller]
    pub(super) fn seen(&self, path: &str) -> Value {
        let reply = self.get(path);
        assert_eq!(reply.status, 200, "{path}: {reply:?}");
        reply.json()
    }

    /// Begins and returns the decision.
    #[track_caller]
    pub(super) fn begin(&self, operation: &str, key: &str) -> Value {
        self.ok("/v1/begin", json!({ "operation": operation, "key": key }))
    }

    /// A begin that is refused because of its token.
    #[track_caller]
    pub(super) fn begin_refused(&self) {
        self.post("/v1/begin", &json!({ "operation": "op", "key": "k" })).is_problem(401, "no-token");
    }

    #[track_caller]
    pub(super) fn finish(&self, operation: &str, key: &str, fence: &Value, text: &str) -> Value {
        let outcome = json!({ "verdict": "success", "body": { "text": text } });
        self.ok("/v1/finish", json!({ "operation": operation, "key": key, "fence": fence, "outcome": outcome }))
    }
}

impl ApiResponse {
    fn of(response: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Self {
        let mut response = response.unwrap();
        let header = |(name, value): (&ureq::http::HeaderName, &ureq::http::HeaderValue)| {
            (name.as_str().to_owned(), value.to_str().unwrap().to_owned())
        };
        let headers = response.headers().iter().map(header).collect();
        let status = response.status().as_u16();
        Self { status, headers, text: response.body_mut().read_to_string().unwrap() }
    }

    #[track_caller]
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    /// Checks that this is the given problem, in status, type and content type, and returns the detail.
    #[track_caller]
    pub(super) fn is_problem(&self, status: u16, name: &str) -> String {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        let problem = self.json();
        assert_eq!(problem["type"], format!("/.well-known/onceward/problems/{name}"));
        assert_eq!(problem["status"], status);
        problem["detail"].as_str().unwrap_or_default().to_owned()
    }
}

/// Checks one field of a response.
#[track_caller]
pub(super) fn is(answer: &Value, name: &str, expected: impl Into<Value>) {
    assert_eq!(answer[name], expected.into(), "{answer:#}");
}
