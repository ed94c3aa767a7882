//! Processes that share one store on a network, for `tests/stores/faults.py`, which breaks the store under them and judges their
//! journals. Knows the store by its URL only.
//!
//! - `worker`: callers that begin, act and finish.
//! - `journal`: what was called and answered, and when.

mod journal;
mod worker;

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use onceward::Ledger;
use onceward::store::Store;

use crate::private_store;

pub use worker::Options as WorkerOptions;
pub use worker::run as work;

/// A store that is being broken is not always there.
const OPEN_TRIES: u32 = 20;
const OPEN_PAUSE: Duration = Duration::from_millis(100);

/// The operation of every call.
const OPERATION: &str = "charge";

/// Makes the schema of a store.
pub fn migrate(url: &str) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    let migrated = runtime.block_on(private_store::migrate(url));
    if let Err(error) = &migrated {
        eprintln!("{error}");
    }
    migrated.is_ok()
}

/// Prints the status, the fence and the outcome of the keys on standard input, and what the store promises.
pub fn print_state(url: &str) -> bool {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime starts").block_on(async {
        let (store, ledger) = open(url).await;
        let mut out = std::io::stdout().lock();
        for key in std::io::stdin().lines().map_while(Result::ok) {
            let found = ledger.operation(OPERATION).key(&key).get().await.expect("the store can be read");
            let record = found.as_ref().map(|found| &found.seen.record);
            let line = serde_json::json!({
                "key": key,
                "status": found.as_ref().and_then(|found| found.status()).map_or("absent", |status| status.as_str()),
                "fence": record.and_then(|record| record.fence()).map(String::from),
                "outcome": record.and_then(journal::outcome),
            });
            writeln!(out, "{line}").expect("the parent reads this");
        }
        let durability = store.durability().await.expect("the store tells its settings");
        writeln!(out, "{}", serde_json::json!({ "durability": durability })).expect("the parent reads this");
        ledger.close().await;
    });
    true
}

async fn open(url: &str) -> (Arc<dyn Store>, Ledger) {
    for _ in 0..OPEN_TRIES {
        match onceward::store::open(url).await {
            Ok(store) => return (Arc::clone(&store), Ledger::builder().on(store)),
            Err(error) if error.is_out_of_reach() => tokio::time::sleep(OPEN_PAUSE).await,
            Err(error) => panic!("the store does not open: {error}"),
        }
    }
    panic!("the store cannot be reached");
}
