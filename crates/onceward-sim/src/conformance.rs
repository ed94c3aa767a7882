//! The suite that every store passes, as a command: each case on each store.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use onceward::clock::ManualClock;
use onceward::store::Store;
use onceward::store::memory::Memory;
use onceward::store::sqlite::Sqlite;

use crate::private_store::PrivateStore;
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

/// Runs every case until enough have failed, prints the result, and returns whether all passed. With the URL of a
/// server, each case has a ledger of its own there.
pub fn run(enough: u64, server: Option<&str>) -> bool {
    let cases: &[Case] = &onceward::conformance!(@each [cases]);
    // Failures of cases are printed below, in one line. They run on other threads than this one.
    let (shown, this) = (std::panic::take_hook(), std::thread::current().id());
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().id() == this {
            shown(panic);
        }
    }));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let kinds: &[&str] = if server.is_some() { &["server"] } else { &["memory", "sqlite"] };
    let broken = runtime.expect("a runtime starts").block_on(async {
        let mut broken = 0;
        let every = cases.iter().flat_map(|case| kinds.iter().map(move |kind| (case, *kind)));
        for ((name, case), kind) in every {
            if broken >= enough {
                break;
            }
            let folder = tempfile::tempdir().expect("a temporary folder can be made");
            let clock = ManualClock::default();
            let private = match server {
                Some(server) => Some(PrivateStore::create(server).await),
                None => None,
            };
            let store: Arc<dyn Store> = match (&private, kind) {
                (Some(private), _) => private.open(Arc::new(clock.clone())).await,
                (None, "memory") => Arc::new(Memory::new(Arc::new(clock.clone()))),
                (None, _) => {
                    let path = folder.path().join("ledger.db");
                    Arc::new(Sqlite::open(&path, Arc::new(clock.clone())).await.expect("a ledger can be made"))
                }
            };
            let mut wrong = Vec::new();
            if let Err(error) = tokio::spawn(case(Arc::clone(&store), clock)).await {
                wrong.push(panic_message(&*error.into_panic()));
            }
            if let Some(private) = &private {
                wrong.extend(private.records_with_expiry(&store).await);
            }
            broken += u64::from(!wrong.is_empty());
            wrong.iter().for_each(|wrong| println!("VIOLATION {kind}: {name}: {wrong}"));
        }
        broken
    });
    println!("{} cases on {} stores, {broken} broken", cases.len(), kinds.len());
    broken == 0
}
