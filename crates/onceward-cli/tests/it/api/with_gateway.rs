//! The API and the gateway in one server, with the same tokens and the same ledger.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};

use super::server::TestServer;
use crate::test_folder::{CommandOutput, TestFolder};

/// An upstream that responds to everything with 201, and reports the heads of its requests.
fn upstream() -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (tell, heads) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let (mut head, mut length) = (String::new(), 0);
            while stream.read_line(&mut head).unwrap() > 2 {
                let last = head.lines().last().unwrap_or_default().to_ascii_lowercase();
                length = last.strip_prefix("content-length: ").map_or(length, |text| text.parse().unwrap());
            }
            stream.read_exact(&mut vec![0; length]).unwrap();
            let answer = "HTTP/1.1 201 Created\r\nContent-Length: 4\r\nConnection: close\r\n\r\npaid";
            stream.get_mut().write_all(answer.as_bytes()).unwrap();
            tell.send(head.to_ascii_lowercase()).unwrap();
        }
    });
    (url, heads)
}

/// As a name, `token` would put all callers into one tenant, which cannot be intended.
#[test]
fn onceward_gateway_has_no_tokens_and_reports_that() {
    let flags = ["gateway", "--upstream", "http://127.0.0.1:9", "--listen", "127.0.0.1:0", "--tenant", "token"];
    TestFolder::new().onceward(&flags).says(64, &["`token` needs tokens", "[[api.token]]"]);
}

/// A bare name would put all callers into one tenant, and each would get the stored responses of the others.
#[test]
fn a_gateway_takes_a_source_of_the_tenant_and_not_a_name() {
    let folder = TestFolder::new();
    for command in ["gateway", "mcp"] {
        let flags = [command, "--upstream", "http://127.0.0.1:9", "--listen", "127.0.0.1:0", "--tenant", "acme"];
        folder.onceward(&flags).says(64, &["--tenant acme: write fixed:acme"]);
    }
    for source in ["whoami:/me#/id", "token", "jwt:sub"] {
        let flags = ["mcp", "--upstream", "http://127.0.0.1:9", "--listen", "127.0.0.1:0", "--tenant", source];
        folder.onceward(&flags).says(64, &["only for the HTTP gateway", "authorization or header:NAME"]);
    }
    let all = ["mcp", "--upstream", "http://127.0.0.1:9", "--listen", "0.0.0.0:0"];
    let answer = CommandOutput::of(folder.command(&all).env("ONCEWARD_TENANT", "acme").output().unwrap());
    answer.says(64, &["name the tenant of each call"]);
    folder.onceward(&["serve", "--tenant", "acme"]).says(64, &["--tenant is not for `serve`"]);
}

#[test]
fn a_tenant_in_the_environment_does_not_merge_all_customers() {
    let (url, heads) = upstream();
    let folder = TestFolder::new();
    let mut gateway = folder.command(&["gateway", "--upstream", &url, "--listen", "127.0.0.1:0"]);
    let mut gateway = gateway.env("ONCEWARD_TENANT", "acme").stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(gateway.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().rsplit(' ').next().unwrap().to_owned();
    let pay = |credential: Option<&str>| {
        let mut request = ureq::post(format!("{address}/pay")).header("idempotency-key", "order-7");
        if let Some(credential) = credential {
            request = request.header("authorization", credential);
        }
        let response = request.config().http_status_as_error(false).build().send("{}").unwrap();
        (response.status().as_u16(), response.headers().contains_key("idempotent-replayed"))
    };
    let answers = [Some("Bearer alice"), Some("Bearer bob"), None, Some("Bearer alice")].map(pay);
    gateway.kill().unwrap();
    gateway.wait().unwrap();
    assert_eq!(answers, [(201, false), (201, false), (401, false), (201, true)], "{}", heads.iter().take(2).count());
}

#[test]
fn a_token_names_the_tenant_for_api_and_gateway_and_is_not_forwarded() {
    let (url, heads) = upstream();
    let config = format!(
        "[gateway]\nlisten = \"127.0.0.1:0\"\n[[gateway.route]]\nupstream = {url:?}\ntenant = \"token\"\n\
         [[api.token]]\ntenant = \"acme\"\nscopes = [\"use\", \"read\"]\nsecret = \"file:acme\"\n\
         [[api.token]]\ntenant = \"eve\"\nscopes = [\"use\", \"read\"]\nsecret = \"file:eve\"\n"
    );
    let files = [("acme", "token-of-acme-0123456789"), ("eve", "token-of-eve-0123456789ab")];
    let server = TestServer::with_files(&config, &files);
    let gateway = server.gateway.clone().unwrap();
    let pay = |headers: &[(&str, &str)]| {
        let mut request = ureq::post(format!("{gateway}/pay")).header("idempotency-key", "order-7");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut response = request.config().http_status_as_error(false).build().send("{}").unwrap();
        let replayed = response.headers().contains_key("idempotent-replayed");
        (response.status().as_u16(), replayed, response.body_mut().read_to_string().unwrap())
    };
    let theirs = ("authorization", "Bearer sk_live_7");
    let paid = |replayed| (201, replayed, "paid".to_owned());
    assert_eq!(pay(&[("onceward-token", files[0].1), theirs]), paid(false));
    assert_eq!(pay(&[("authorization", "Bearer token-of-acme-0123456789")]), paid(true));
    assert_eq!(pay(&[("onceward-token", files[1].1)]), paid(false));
    assert_eq!(pay(&[theirs]).0, 401);
    let (first, second) = (heads.recv().unwrap(), heads.recv().unwrap());
    assert!(first.contains("authorization: bearer sk_live_7") && !first.contains("token-of"), "{first}");
    assert!(!second.contains("authorization") && !second.contains("token-of"), "{second}");
    assert!(heads.try_recv().is_err(), "a repeat or a client without a token got through");

    // The API uses the same ledger, and each tenant sees only its own intents.
    let acme = server.with_token(files[0].1).seen("/v1/intents");
    assert_eq!(acme["intents"].as_array().unwrap().len(), 1, "{acme}");
    assert_eq!(acme["intents"][0]["operation"], "POST /pay");
    let listed = server.folder.onceward(&["list", "--tenant", "acme"]);
    assert!(listed.out().contains("status 201, 4 bytes"), "{}", listed.out());
}
