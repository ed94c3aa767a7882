//! API and gateway in one server: the same tokens, the same ledger.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};

use super::server::Server;
use crate::place::{Answer, Place};

/// An upstream that answers everything with 201, and tells which head it got.
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

/// As a name it would be one tenant for all: nobody who writes this means that.
#[test]
fn the_one_liner_has_no_tokens_and_says_so() {
    let flags = ["gateway", "--upstream", "http://127.0.0.1:9", "--listen", "127.0.0.1:0", "--tenant", "token"];
    Place::new().onceward(&flags).says(64, &["`token` needs tokens", "[[api.token]]"]);
}

/// A bare name would make all callers one, and each would get the stored answers of the others.
#[test]
fn a_gateway_is_told_where_the_tenant_stands_and_takes_no_name() {
    let place = Place::new();
    for command in ["gateway", "mcp"] {
        let flags = [command, "--upstream", "http://127.0.0.1:9", "--listen", "127.0.0.1:0", "--tenant", "acme"];
        place.onceward(&flags).says(64, &["--tenant acme: write fixed:acme"]);
    }
    let all = ["mcp", "--upstream", "http://127.0.0.1:9", "--listen", "0.0.0.0:0"];
    let answer = Answer::of(place.command(&all).env("ONCEWARD_TENANT", "acme").output().unwrap());
    answer.says(64, &["say whose calls they are"]);
    place.onceward(&["serve", "--tenant", "acme"]).says(64, &["--tenant is not for `serve`"]);
}

#[test]
fn a_name_in_the_environment_does_not_make_one_of_all_customers() {
    let (url, heads) = upstream();
    let place = Place::new();
    let mut gateway = place.command(&["gateway", "--upstream", &url, "--listen", "127.0.0.1:0"]);
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
fn a_token_names_the_tenant_at_both_doors_and_goes_no_further() {
    let (url, heads) = upstream();
    let config = format!(
        "[gateway]\nlisten = \"127.0.0.1:0\"\n[[gateway.route]]\nupstream = {url:?}\ntenant = \"token\"\n\
         [[api.token]]\ntenant = \"acme\"\nscopes = [\"use\", \"read\"]\nsecret = \"file:acme\"\n\
         [[api.token]]\ntenant = \"eve\"\nscopes = [\"use\", \"read\"]\nsecret = \"file:eve\"\n"
    );
    let files = [("acme", "token-of-acme-0123456789"), ("eve", "token-of-eve-0123456789ab")];
    let server = Server::with_files(&config, &files);
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
    assert!(heads.try_recv().is_err(), "a repeat, or who has no token, got through");

    // The same ledger by the other door, and each sees only its own.
    let acme = server.with_token(files[0].1).seen("/v1/intents");
    assert_eq!(acme["intents"].as_array().unwrap().len(), 1, "{acme}");
    assert_eq!(acme["intents"][0]["operation"], "POST /pay");
    let listed = server.place.onceward(&["list", "--tenant", "acme"]);
    assert!(listed.out().contains("status 201, 4 bytes"), "{}", listed.out());
}
