//! Readiness of the gateway and the API of one process, while the ledger cannot be read or written, and when it can be
//! again.

use super::test_gateway::TestGateway;
use crate::test_folder::{TestFolder, wait_until};

const CONFIGURATION: &str = "[api]\nlisten = \"127.0.0.1:0\"\n[gateway]\nlisten = \"127.0.0.1:0\"\n\
     [[gateway.route]]\nupstream = \"http://127.0.0.1:9\"\n";

/// The readiness of the API and the gateway.
fn told(gateway: &TestGateway) -> [u16; 2] {
    let status = |url: String| {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        agent.get(url).call().unwrap().status().as_u16()
    };
    [status(format!("{}/readyz", gateway.api)), status(format!("{}/.well-known/onceward/ready", gateway.url))]
}

fn ledger(gateway: &TestGateway) -> rusqlite::Connection {
    let ledger = rusqlite::Connection::open(gateway.folder.path("ledger.db")).unwrap();
    ledger.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
    ledger
}

#[test]
fn an_unwritable_ledger_is_reported_and_so_is_its_return() {
    let gateway = TestGateway::configured(TestFolder::new(), CONFIGURATION);
    assert_eq!(told(&gateway), [200, 200]);
    let lock = ledger(&gateway);
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(told(&gateway), [503, 503]);
    lock.execute_batch("ROLLBACK").unwrap();
    wait_until(|| told(&gateway) == [200, 200]);
}

#[test]
fn an_unreadable_ledger_is_reported_and_so_is_its_return() {
    let gateway = TestGateway::configured(TestFolder::new(), CONFIGURATION);
    assert_eq!(told(&gateway), [200, 200]);
    ledger(&gateway).execute_batch("ALTER TABLE intent RENAME TO gone").unwrap();
    assert_eq!(told(&gateway), [503, 503]);
    ledger(&gateway).execute_batch("ALTER TABLE gone RENAME TO intent").unwrap();
    wait_until(|| told(&gateway) == [200, 200]);
}

#[test]
fn a_server_goes_on_without_one_of_its_stores() {
    let folder = TestFolder::new();
    let stores = "[stores.fast]\nurl = \"fast.db\"\n[operation.email]\nstore = \"fast\"\n";
    let gateway = TestGateway::configured(folder, &format!("{CONFIGURATION}{stores}"));
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let keys = std::sync::atomic::AtomicU32::new(0);
    let begin = |operation: &str| {
        let key = keys.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let body = serde_json::json!({ "operation": operation, "key": key.to_string() }).to_string();
        let sent = agent.post(format!("{}/v1/begin", gateway.api)).header("content-type", "application/json");
        sent.send(body).unwrap().status().as_u16()
    };
    let get = |path: &str| -> serde_json::Value {
        let text = agent.get(format!("{}{path}", gateway.api)).call().unwrap().body_mut().read_to_string().unwrap();
        serde_json::from_str(&text).unwrap()
    };
    assert_eq!((begin("charge"), begin("email")), (200, 200));
    assert_eq!(get("/v1/intents")["missing_stores"], serde_json::Value::Null);
    let fast = rusqlite::Connection::open(gateway.folder.path("fast.db")).unwrap();
    fast.execute_batch("ALTER TABLE intent RENAME TO gone").unwrap();
    assert_eq!(told(&gateway), [200, 200]);
    let stores = &get("/readyz")["stores"];
    assert_eq!((&stores[0]["ready"], &stores[1]["ready"]), (&true.into(), &false.into()), "{stores}");
    assert_eq!((begin("charge"), begin("email")), (200, 503));
    let listed = get("/v1/intents");
    assert_eq!((listed["intents"].as_array().unwrap().len(), &listed["missing_stores"][0]), (2, &"fast".into()));
    assert_eq!(get("/v1/stats")["missing_stores"][0], "fast");
    ledger(&gateway).execute_batch("ALTER TABLE intent RENAME TO gone").unwrap();
    assert_eq!(told(&gateway), [503, 503]);
}
