//! Names whose addresses change, redirects, and proxies: other ways to reach an address that was not checked.

use std::process::Command;
use std::sync::Arc;

use http::StatusCode;
use onceward_runtime::egress::{AddressRules, Client, Network, NotSent, Refusal};

use super::servers::{Counter, Scripted};
use super::{Names, answered, client, get, not_sent, post, settings};

fn with_names(names: &Arc<Names>) -> Client {
    let mut settings = settings();
    settings.resolver = Arc::clone(names) as _;
    settings.limits.idle = std::time::Duration::from_nanos(1);
    Client::new(settings).unwrap()
}

#[tokio::test]
async fn the_address_that_was_checked_is_the_one_that_is_dialled() {
    let first = Counter::at("127.0.0.1:0").await;
    let second = Counter::at(&format!("127.0.0.2:{}", first.port)).await;
    // The second lookup would answer with another address.
    let names = Names::new(&[("name.test", &[&["127.0.0.1"], &["127.0.0.2"]])]);
    let client = with_names(&names);
    answered(client.send(get(format!("http://name.test:{}/", first.port))).await);
    assert_eq!(names.lookups(), 1);
    assert_eq!((first.connections("127.0.0.1").await, second.connections("127.0.0.2").await), (1, 0));
}

#[tokio::test]
async fn a_name_that_is_bound_again_is_checked_again() {
    let counter = Counter::start().await;
    let names = Names::new(&[("name.test", &[&["127.0.0.1"], &["169.254.169.254"], &["127.0.0.1"]])]);
    let client = with_names(&names);
    let url = format!("http://name.test:{}/", counter.port);
    answered(client.send(get(&url)).await);
    let NotSent::Refused(Refusal::Address { network, .. }) = not_sent(client.send(get(&url)).await) else {
        panic!("not refused by its address")
    };
    assert_eq!((network, names.lookups()), (Network::CloudMetadata, 2));
    assert_eq!(counter.connections("127.0.0.1").await, 1);
}

#[tokio::test]
async fn a_name_that_is_bound_to_this_machine_after_the_first_lookup_is_not_dialled() {
    let counter = Counter::start().await;
    let names = Names::new(&[("name.test", &[&["10.0.0.1"], &["127.0.0.1"]])]);
    let mut settings = settings();
    settings.rules = AddressRules::default();
    settings.resolver = Arc::clone(&names) as _;
    let client = Client::new(settings).unwrap();
    for _ in 0..3 {
        let why = not_sent(client.send(get(format!("http://name.test:{}/", counter.port))).await);
        assert!(why.is_refused(), "{why}");
    }
    assert_eq!((counter.connections("127.0.0.1").await, names.lookups()), (0, 3));
}

#[tokio::test]
async fn of_several_addresses_only_permitted_ones_are_dialled_and_the_error_names_the_others() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let names = Names::new(&[("name.test", &[&["169.254.169.254", "127.0.0.1", "0.0.0.0"]])]);
    let why = not_sent(with_names(&names).send(get(format!("http://name.test:{closed}/"))).await);
    assert!(matches!(why, NotSent::Unreachable { .. }), "{why}");
    assert!(why.to_string().contains("169.254.169.254 is refused: cloud metadata"), "{why}");
}

#[tokio::test]
async fn more_addresses_than_a_service_has_are_not_all_dialled() {
    let counter = Counter::at("127.0.0.20:0").await;
    let many: Vec<_> = (1..=20).map(|last| format!("127.0.0.{last}")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    let names = Names::new(&[("name.test", &[&many])]);
    not_sent(with_names(&names).send(get(format!("http://name.test:{}/", counter.port))).await);
    assert_eq!(counter.connections("127.0.0.20").await, 0);
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_is_not_followed() {
    let counter = Counter::start().await;
    let targets = [format!("http://127.0.0.1:{}/", counter.port), "http://169.254.169.254/latest/".to_owned()];
    for status in [301, 302, 303, 307, 308] {
        for target in &targets {
            let head = format!("HTTP/1.1 {status} Moved\r\nlocation: {target}\r\ncontent-length: 0\r\n\r\n");
            let server = Scripted::answering(head).await;
            let answer = answered(client().send(post(server.url("/"), "x")).await);
            assert_eq!(answer.status, StatusCode::from_u16(status).unwrap());
            assert_eq!(answer.headers["location"], target.as_str());
        }
    }
    assert_eq!(counter.connections("127.0.0.1").await, 0);
}

/// Names the server to the test below, which runs in a process of its own because a test must not change its environment.
const INNER: &str = "ONCEWARD_TEST_EGRESS_URL";

#[tokio::test]
async fn no_proxy_of_the_environment_is_used() {
    let (server, proxy) = (Counter::start().await, Counter::start().await);
    let mut inner = Command::new(std::env::current_exe().unwrap());
    inner.args(["--exact", "egress::rebinding::a_request_reaches_its_server", "--nocapture"]);
    inner.env(INNER, format!("http://127.0.0.1:{}/", server.port));
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        inner.env(name, format!("http://127.0.0.1:{}", proxy.port));
    }
    let ended = tokio::task::spawn_blocking(move || inner.output().unwrap()).await.unwrap();
    let told = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(ended.status.success() && told.contains("1 passed"), "{told}");
    assert_eq!((server.connections("127.0.0.1").await, proxy.connections("127.0.0.1").await), (1, 0));
}

/// Also started by the test above, with a server of that test and with proxies in its environment.
#[tokio::test]
async fn a_request_reaches_its_server() {
    let own = Counter::start().await;
    let url = std::env::var(INNER).unwrap_or_else(|_| format!("http://127.0.0.1:{}/", own.port));
    answered(client().send(get(url)).await);
}
