//! The library against real stores.

// A test reports a failed expectation with a panic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

mod blocking;
mod calls;
mod copy;
mod copy_progress;
mod courier;
mod delivery;
mod embedded;
mod ends;
mod every_store;
mod example;
mod faulty;
mod files;
mod grpc;
mod layer;
mod mark;
mod placement;
mod polling;
mod postgres;
#[cfg(unix)]
mod private;
mod pull;
mod quota;
mod races;
mod recorded;
mod redis;
mod redis_copies;
mod redis_due;
mod redis_faults;
mod redis_outages;
mod redis_private;
mod redis_proxy;
mod redis_settings;
mod redis_versions;
mod refused_claims;
mod remote;
mod rerun;
mod settling;
mod start;
mod store_faults;
mod stores;
mod stream_faults;
mod stream_orders;
mod streams;
mod testkit;
mod windows;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onceward::clock::{ManualClock, SystemClock};
use onceward::store::Store;
use onceward::store::memory::Memory;
use onceward::store::sqlite::Sqlite;
use onceward::{CallBuilder, Ledger};

/// A ledger on each kind of store, with the system clock.
async fn every_ledger() -> Vec<(Ledger, Option<tempfile::TempDir>)> {
    let memory = Arc::new(Memory::new(Arc::new(SystemClock)));
    let folder = tempfile::tempdir().unwrap();
    let file = Ledger::open(folder.path().join("ledger.db").to_str().unwrap()).await.unwrap();
    vec![(Ledger::builder().on(memory), None), (file, Some(folder))]
}

/// A ledger on each kind of store, with a clock that the test sets.
async fn every_timed_ledger() -> Vec<(Ledger, ManualClock, Option<tempfile::TempDir>)> {
    let (one, other) = (ManualClock::default(), ManualClock::default());
    let memory: Arc<dyn Store> = Arc::new(Memory::new(Arc::new(one.clone())));
    let folder = tempfile::tempdir().unwrap();
    let file = Sqlite::open(&folder.path().join("ledger.db"), Arc::new(other.clone())).await.unwrap();
    vec![(Ledger::builder().on(memory), one, None), (Ledger::builder().on(Arc::new(file)), other, Some(folder))]
}

/// Counts how often an effect happened.
#[derive(Clone, Default)]
struct Effects(Arc<AtomicUsize>);

impl Effects {
    fn happen(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// The current status of the intent of a call.
async fn status(operation: &CallBuilder) -> String {
    match operation.get().await.unwrap().and_then(|intent| intent.status()) {
        Some(status) => status.as_str().to_owned(),
        None => "absent".to_owned(),
    }
}

/// The version of the record of a call.
async fn version(operation: &CallBuilder) -> u64 {
    operation.get().await.unwrap().map_or(0, |intent| intent.seen.record.version)
}

/// Lets three leases pass on the clock of the store, in steps: only one that is renewed lives on. How long a renewal takes does
/// not matter: two steps are shorter than a lease, so one that was about to be written at the last step is enough for the next.
async fn outlives_its_lease(operation: &CallBuilder, clock: &ManualClock, lease: Duration) {
    eventually("the claim is written", async || status(operation).await == "running").await;
    for _ in 0..8 {
        clock.advance(lease * 2 / 5);
        assert_eq!(status(operation).await, "running");
        let last = version(operation).await;
        eventually("the lease is renewed", async || version(operation).await > last).await;
    }
}

/// Waits until another task has made a condition true. Only a failing test waits to the end.
async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..6000 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not within a minute: {what}");
}
