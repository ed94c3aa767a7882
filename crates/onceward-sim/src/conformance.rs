//! The suite that every store passes, as a command: each case on each store.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use onceward::clock::ManualClock;
use onceward::store::Store;
use onceward::store::memory::Memory;
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

/// Runs every case until enough have failed, prints the result, and returns whether all passed.
pub fn run(enough: u64) -> bool {
    let cases: &[Case] = &onceward::conformance!(@each [cases]);
    // Failures are printed below, in one line.
    std::panic::set_hook(Box::new(|_| {}));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
    let broken = runtime.expect("a runtime starts").block_on(async {
        let mut broken = 0;
        for ((name, case), kind) in cases.iter().flat_map(|case| [(case, "memory"), (case, "sqlite")]) {
            if broken >= enough {
                break;
            }
            let folder = tempfile::tempdir().expect("a temporary folder can be made");
            let clock = ManualClock::default();
            let store: Arc<dyn Store> = match kind {
                "memory" => Arc::new(Memory::new(Arc::new(clock.clone()))),
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
    println!("{} cases on 2 stores, {broken} broken", cases.len());
    broken == 0
}
