//! The suite that every store passes, as a command: each case on each store.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use onceward::clock::ManualClock;
use onceward::store::Store;
use onceward::store::memory::Memory;
use onceward::store::postgres::{Postgres, migrate};
use onceward::store::sqlite::Sqlite;

use crate::vectors::panic_message;

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;
type Case = (&'static str, fn(Arc<dyn Store>, ManualClock) -> Running);

macro_rules! cases {
    (: $($name:ident,)*) => {
        [$((
            stringify!($name),
            (|store, clock| Box::pin(async move { onceward::conformance::$name(&store, &clock).await }))
                as fn(Arc<dyn Store>, ManualClock) -> Running,
        ),)*]
    };
}

/// Runs every case until enough have failed, prints the result, and returns whether all passed. With a store, each case has a
/// database of its own there, whose URL is that of the store with the number of the case.
pub fn run(enough: u64, server: Option<&str>) -> bool {
    let cases: &[Case] = &onceward::conformance!(@each [cases]);
    // Failures are printed below, in one line.
    std::panic::set_hook(Box::new(|_| {}));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let kinds: &[&str] = if server.is_some() { &["server"] } else { &["memory", "sqlite"] };
    let broken = runtime.expect("a runtime starts").block_on(async {
        let mut broken = 0;
        let every = cases.iter().enumerate().flat_map(|case| kinds.iter().map(move |kind| (case, *kind)));
        for ((number, (name, case)), kind) in every {
            if broken >= enough {
                break;
            }
            let folder = tempfile::tempdir().expect("a temporary folder can be made");
            let clock = ManualClock::default();
            let store: Arc<dyn Store> = match kind {
                "memory" => Arc::new(Memory::new(Arc::new(clock.clone()))),
                "server" => {
                    let url = format!("{}{number}", server.unwrap_or_default());
                    migrate(&url, false).await.expect("the database can be prepared");
                    Arc::new(
                        Postgres::open_with(&url, Some(Arc::new(clock.clone()))).await.expect("the database opens"),
                    )
                }
                _ => {
                    let path = folder.path().join("ledger.db");
                    Arc::new(Sqlite::open(&path, Arc::new(clock.clone())).await.expect("a ledger can be made"))
                }
            };
            if let Err(error) = tokio::spawn(case(store, clock)).await {
                broken += 1;
                println!("VIOLATION {kind}: {name}: {}", panic_message(&*error.into_panic()));
            }
        }
        broken
    });
    println!("{} cases on {} stores, {broken} broken", cases.len(), kinds.len());
    broken == 0
}
