//! Ledgers in Redis of other versions: a server also runs on the next one, and refuses all later ones.

use onceward::Ledger;
use onceward::store::redis::Redis;

use ::redis::cmd;

use crate::redis::server;
use crate::redis_faults::{SINGLE, made};
use crate::redis_private::raw;

async fn pay(ledger: &Ledger, number: u32) {
    let done = ledger.operation("charge").intent(&number).run(|_| async { Ok(42) }).await.unwrap();
    assert_eq!(done.value, 42);
}

/// Writes another version into the key of the ledger.
async fn upgrade(url: &str, version: u32) {
    let (_, prefix) = url.split_once("prefix=").unwrap();
    let (key, mut connection) = (format!("{{{prefix}:00}}:ledger"), raw(url).await);
    let text: String = cmd("GET").arg(&key).query_async(&mut connection).await.unwrap();
    let mut ledger: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(ledger["version"].is_u64(), "{text}");
    ledger["version"] = version.into();
    // A later version may note more.
    ledger["later"] = true.into();
    cmd("SET").arg(&key).arg(ledger.to_string()).query_async::<()>(&mut connection).await.unwrap();
}

#[tokio::test]
async fn a_server_runs_on_the_next_version_of_a_ledger_and_on_no_later_one() {
    let Some(url) = server(SINGLE) else { return };
    made(&url).await;
    let running = Ledger::open(url.as_str()).await.unwrap();
    pay(&running, 1).await;
    upgrade(&url, 2).await;
    pay(&running, 2).await;
    let started_later = Ledger::open(url.as_str()).await.unwrap();
    pay(&started_later, 3).await;
    let error = Redis::migrate(&url, false).await.unwrap_err().to_string();
    assert!(error.contains("version 2") && error.contains("upgrade onceward"), "{error}");
    upgrade(&url, 3).await;
    let error = Redis::open(&url).await.unwrap_err().to_string();
    assert!(error.contains("version 3") && error.contains("upgrade onceward"), "{error}");
}
