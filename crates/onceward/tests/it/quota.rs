//! The quota of a tenant: which calls are refused at the quota, and which still work.

use std::sync::Arc;
use std::time::Duration;

use onceward::clock::{ManualClock, SystemClock};
use onceward::core::decide::Resolution;
use onceward::core::policy::StoreDown;
use onceward::store::Store;
use onceward::store::memory::Memory;
use onceward::store::sqlite::Sqlite;
use onceward::{Begun, Error, Failure, Ledger, Outcome, Policy, Resolved, WriteResult, remote};

use crate::{Effects, status};

/// A ledger with this quota on each kind of store.
async fn every_ledger_with(quota: u64) -> Vec<(Ledger, Option<tempfile::TempDir>)> {
    let memory: Arc<dyn Store> = Arc::new(Memory::new(Arc::new(SystemClock)));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let file = Ledger::builder().records_per_tenant(quota).open(path.to_str().unwrap()).await.unwrap();
    vec![(Ledger::builder().records_per_tenant(quota).on(memory), None), (file, Some(folder))]
}

async fn charge(ledger: &Ledger, tenant: &str, key: &str, effects: &Effects) -> Result<onceward::Done<usize>, Error> {
    let operation = ledger.operation("charge").tenant(tenant).key(key);
    operation.run(|_| async { Ok(effects.happen()) }).await
}

fn is_refused<T: std::fmt::Debug>(result: Result<T, Error>, quota: u64) {
    match result {
        Err(Error::Quota { most, ref intent }) => {
            assert_eq!(most, quota);
            assert!(!intent.contains("secret"), "{intent}");
        }
        other => panic!("not refused by the quota: {other:?}"),
    }
}

#[tokio::test]
async fn a_new_key_over_the_quota_is_refused_and_nothing_runs() {
    for (ledger, _folder) in every_ledger_with(2).await {
        let effects = Effects::default();
        charge(&ledger, "acme", "a", &effects).await.unwrap();
        charge(&ledger, "acme", "b", &effects).await.unwrap();
        is_refused(charge(&ledger, "acme", "a secret", &effects).await, 2);
        let call = ledger.operation("charge").tenant("acme").key("a secret").call().unwrap();
        is_refused(ledger.start_remote(&call, remote::StartOptions::default()).await.map(drop), 2);
        assert_eq!(effects.count(), 2);
        assert!(charge(&ledger, "acme", "a", &effects).await.unwrap().replayed, "what is recorded is replayed");
        assert!(!charge(&ledger, "other", "a secret", &effects).await.unwrap().replayed, "others have their own quota");
    }
}

#[tokio::test]
async fn at_the_quota_running_work_is_finished_and_doubts_are_settled() {
    for (ledger, _folder) in every_ledger_with(2).await {
        let running = ledger.operation("charge").tenant("acme").key("running");
        let Begun::Acquired(guard) = running.begin().await.unwrap() else { panic!("not acquired") };
        let doubtful = ledger.operation("charge").tenant("acme").key("doubtful");
        doubtful.run(|_| async { Err::<(), _>(Failure::unknown("no result")) }).await.unwrap_err();
        is_refused(charge(&ledger, "acme", "new", &Effects::default()).await, 2);
        assert_eq!(guard.finish(Outcome::success("1")).await.unwrap(), WriteResult::Written);
        let identity = doubtful.call().unwrap().identity;
        let version = ledger.get(&identity).await.unwrap().unwrap().seen.record.version;
        let resolution = Resolution::DidNotHappen;
        let resolved = ledger.resolve(&identity, version, resolution, None, None).await.unwrap();
        assert!(matches!(resolved, Resolved::Settled), "{resolved:?}");
        let effects = Effects::default();
        assert!(!charge(&ledger, "acme", "doubtful", &effects).await.unwrap().replayed, "it is tried again");
        assert_eq!((effects.count(), status(&running).await), (1, "done".to_owned()));
    }
}

#[tokio::test]
async fn store_down_open_does_not_bypass_the_quota() {
    let policy = Policy { store_down: StoreDown::Open, ..Policy::default() };
    let store = Arc::new(Memory::new(Arc::new(SystemClock)));
    let ledger = Ledger::builder().policy("charge", policy).records_per_tenant(1).on(store);
    let effects = Effects::default();
    charge(&ledger, "acme", "a", &effects).await.unwrap();
    is_refused(charge(&ledger, "acme", "b", &effects).await, 1);
    let call = ledger.operation("charge").tenant("acme").key("b").call().unwrap();
    let started: Result<remote::Started, Error> = ledger.start_remote(&call, remote::StartOptions::default()).await;
    is_refused(started.map(drop), 1);
    assert_eq!(effects.count(), 1);
}

#[tokio::test]
async fn at_the_quota_a_stream_continues_and_a_new_one_is_refused() {
    for (ledger, _folder) in every_ledger_with(1).await {
        for number in 1..=3 {
            let item = ledger.operation("apply").item("account-7", number);
            item.run(|_| async { Ok(number) }).await.unwrap();
        }
        let first = ledger.operation("apply").item("account-7", 1);
        let repeat = first.run(|_| async { Ok(0) }).await.unwrap();
        assert_eq!((repeat.value, repeat.replayed), (1, true), "no outcome is lost");
        is_refused(ledger.operation("apply").item("account-8", 1).run(|_| async { Ok(0) }).await, 1);
    }
}

#[tokio::test]
async fn the_sweeper_frees_quota() {
    let clock = ManualClock::default();
    let folder = tempfile::tempdir().unwrap();
    let store = Sqlite::open(&folder.path().join("ledger.db"), Arc::new(clock.clone())).await.unwrap();
    let ledger = Ledger::builder().records_per_tenant(1).on(Arc::new(store));
    let effects = Effects::default();
    charge(&ledger, "acme", "a", &effects).await.unwrap();
    is_refused(charge(&ledger, "acme", "b", &effects).await, 1);
    clock.advance(Duration::from_secs(400 * 24 * 60 * 60));
    ledger.purge(10).await.unwrap();
    charge(&ledger, "acme", "b", &effects).await.unwrap();
    assert_eq!(effects.count(), 2);
}

#[tokio::test]
async fn the_record_count_is_kept_when_the_ledger_is_reopened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let effects = Effects::default();
    let before = Ledger::open(path.to_str().unwrap()).await.unwrap();
    charge(&before, "acme", "a", &effects).await.unwrap();
    before.close().await;
    let after = Ledger::builder().records_per_tenant(1).open(path.to_str().unwrap()).await.unwrap();
    is_refused(charge(&after, "acme", "b", &effects).await, 1);
}

/// Records of other processes that share the file count too, even if these processes have no quota.
#[tokio::test]
async fn two_handles_on_one_file_share_the_count() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let free = Ledger::open(path.to_str().unwrap()).await.unwrap();
    let bound = Ledger::builder().records_per_tenant(2).open(path.to_str().unwrap()).await.unwrap();
    let effects = Effects::default();
    charge(&bound, "acme", "a", &effects).await.unwrap();
    charge(&free, "acme", "b", &effects).await.unwrap();
    is_refused(charge(&bound, "acme", "c", &effects).await, 2);
    charge(&free, "acme", "c", &effects).await.unwrap();
    assert!(charge(&bound, "acme", "c", &effects).await.unwrap().replayed);
}
