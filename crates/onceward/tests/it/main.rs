//! The library against real stores.

// A test reports a failed expectation with a panic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

mod blocking;
mod calls;
mod copy;
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
mod redis_faults;
mod redis_outages;
mod redis_private;
mod redis_proxy;
mod redis_settings;
mod remote;
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

/// Waits until another task has made a condition true.
async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    for _ in 0..400 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not within four seconds: {what}");
}
