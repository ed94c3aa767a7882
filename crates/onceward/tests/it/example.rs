//! The example of a payment API: it is started, charged twice with one key, and the guide shows its source.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

const SOURCE: &str = include_str!("../../../../examples/axum_payments.rs");
const GUIDE: &str = include_str!("../../../../docs/guides/tower.md");

/// The running example. It is stopped when it is dropped.
struct ExampleServer {
    process: Child,
    output: BufReader<std::process::ChildStdout>,
    address: String,
}

impl Drop for ExampleServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Examples are built beside the tests, unless only some targets are built.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().and_then(|deps| deps.parent()).unwrap().join("examples/axum_payments");
    assert!(program.exists(), "build it first: cargo build -p onceward --examples");
    program
}

impl ExampleServer {
    fn start(folder: &std::path::Path) -> Self {
        let mut command = Command::new(program());
        command.arg("127.0.0.1:0").env("TMPDIR", folder).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").unwrap().to_owned();
        Self { process, output, address }
    }

    /// The head and the body of the response.
    fn pay(&self, key: &str, body: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        write!(
            stream,
            "POST /charges HTTP/1.1\r\nhost: api\r\nconnection: close\r\nauthorization: Bearer sk_test_7\r\n\
             idempotency-key: {key}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }
}

#[test]
fn the_example_charges_once_for_repeated_requests() {
    let folder = tempfile::tempdir().unwrap();
    let mut api = ExampleServer::start(folder.path());
    let (head, receipt) = api.pay("order-17", r#"{"customer":"cus_7","cents":4200}"#);
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(receipt.contains("\"cents\":4200"), "{receipt}");
    let (head, again) = api.pay("order-17", r#"{ "cents": 4200, "customer": "cus_7" }"#);
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("idempotent-replayed: true"), "{head}");
    assert_eq!(again, receipt);
    assert!(api.pay("order-17", r#"{"customer":"cus_7","cents":1}"#).0.starts_with("HTTP/1.1 422"));
    for _ in 0..2 {
        assert!(api.pay("order-18", r#"{"customer":"cus_7","cents":9999999}"#).0.starts_with("HTTP/1.1 402"));
    }
    api.process.kill().unwrap();
    let mut printed = String::new();
    api.output.read_to_string(&mut printed).unwrap();
    assert_eq!(printed.lines().count(), 1, "{printed}");
}

#[test]
fn the_guide_shows_the_source_of_the_example() {
    let shown = SOURCE.split_once("\n\n").unwrap().1;
    assert!(GUIDE.contains(&format!("```rust\n{shown}```\n")), "docs/guides/tower.md shows another program");
}
