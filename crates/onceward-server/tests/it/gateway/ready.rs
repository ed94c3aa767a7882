//! Readiness, told truly: by the gateway and the API of one process, when the ledger can be neither read nor written, and when
//! it can again.

use super::started::Gateway;
use crate::place::{Place, wait_until};

const CONFIGURATION: &str = "[api]\nlisten = \"127.0.0.1:0\"\n[gateway]\nlisten = \"127.0.0.1:0\"\n\
     [[gateway.route]]\nupstream = \"http://127.0.0.1:9\"\n";

/// What the API and the gateway say.
fn told(gateway: &Gateway) -> [u16; 2] {
    let status = |url: String| {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        agent.get(url).call().unwrap().status().as_u16()
    };
    [status(format!("{}/readyz", gateway.api)), status(format!("{}/.well-known/onceward/ready", gateway.url))]
}

fn ledger(gateway: &Gateway) -> rusqlite::Connection {
    let ledger = rusqlite::Connection::open(gateway.place.path("ledger.db")).unwrap();
    ledger.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
    ledger
}

#[test]
fn a_ledger_that_cannot_be_written_is_told_and_so_is_its_return() {
    let gateway = Gateway::configured(Place::new(), CONFIGURATION);
    assert_eq!(told(&gateway), [200, 200]);
    let lock = ledger(&gateway);
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(told(&gateway), [503, 503]);
    lock.execute_batch("ROLLBACK").unwrap();
    wait_until(|| told(&gateway) == [200, 200]);
}

#[test]
fn a_ledger_that_cannot_be_read_is_told_and_so_is_its_return() {
    let gateway = Gateway::configured(Place::new(), CONFIGURATION);
    assert_eq!(told(&gateway), [200, 200]);
    ledger(&gateway).execute_batch("ALTER TABLE intent RENAME TO gone").unwrap();
    assert_eq!(told(&gateway), [503, 503]);
    ledger(&gateway).execute_batch("ALTER TABLE gone RENAME TO intent").unwrap();
    wait_until(|| told(&gateway) == [200, 200]);
}
