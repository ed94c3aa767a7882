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
