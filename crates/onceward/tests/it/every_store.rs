//! Several stores under one ledger, of which one fails: the others are listed, counted and purged.

use std::sync::Arc;
use std::time::Duration;

use onceward::clock::SystemClock;
use onceward::core::record::Status;
use onceward::every_store::StoreFailure;
use onceward::store::memory::Memory;
use onceward::store::{self, Cursor, Filter, Store, Unavailable};
use onceward::{Ledger, Policy};

fn memory() -> Arc<dyn Store> {
    Arc::new(Memory::new(Arc::new(SystemClock)))
}

fn unavailable() -> Arc<dyn Store> {
    Arc::new(Unavailable(store::Error::Unreachable("out of order".to_owned())))
}

const HOUR: Duration = Duration::from_secs(3600);

/// Three stores, the one in the middle of which is down. Records are kept for this long.
async fn ledger(window: Duration) -> Ledger {
    let policy = Policy::window(window);
    let (main, b) = (memory(), memory());
    let open = |a: Arc<dyn Store>| {
        Ledger::builder()
            .policy("charge", policy.clone())
            .policy("email", policy.clone())
            .store("a", a, ["down"])
            .store("b", Arc::clone(&b), ["email"])
            .on(Arc::clone(&main))
    };
    // The first claim of an operation asks every store.
    assert!(open(unavailable()).operation("charge").key("0").run(|_| async { Ok(1) }).await.is_err());
    let ledger = open(memory());
    for key in ["1", "2", "3"] {
        for operation in ["charge", "email"] {
            ledger.operation(operation).key(key).run(|_| async { Ok(1) }).await.unwrap();
        }
    }
    open(unavailable())
}

fn names(failed: &[StoreFailure]) -> Vec<&str> {
    failed.iter().map(|failure| failure.name.as_str()).collect()
}

#[tokio::test]
async fn a_list_goes_on_after_a_store_that_fails_and_names_it() {
    let ledger = ledger(HOUR).await;
    for size in 1..8 {
        let (mut count, mut missing, mut after) = (0, Vec::new(), None);
        for _ in 0..20 {
            let (page, failed) = match ledger.list_reachable(&Filter::default(), after, size).await.any() {
                Ok(listed) => listed,
                Err(error) => panic!("{error}, {size} on a page"),
            };
            count += page.listed.len();
            missing.extend(names(&failed).into_iter().map(str::to_owned));
            after = page.next.map(|next| next.to_string().parse::<Cursor>().unwrap());
            if after.is_none() {
                break;
            }
        }
        assert_eq!((count, missing.as_slice(), after), (6, &["a".to_owned()][..], None), "{size} on a page");
    }
    assert!(
        ledger.list(&Filter::default(), None, 10).await.is_err(),
        "a list without some intents is not the whole list"
    );
}

#[tokio::test]
async fn counts_and_purges_go_on_after_a_store_that_fails() {
    let ledger = ledger(HOUR).await;
    let (counts, failed) = ledger.counts_reachable(None).await.any().unwrap();
    assert_eq!((counts.of(Status::Done), names(&failed)), (6, vec!["a"]));
    assert!(ledger.counts().await.is_err());
    let ledger = self::ledger(Duration::from_millis(1)).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let (purged, failed) = ledger.purge_reachable(100).await.any().unwrap();
    // Some were purged by the way, as claims do now and then.
    assert!(purged.total() <= 6 && names(&failed) == ["a"], "{purged:?}, {failed:?}");
    assert_eq!(ledger.counts_reachable(None).await.any().unwrap().0.of(Status::Done), 0);
    assert!(ledger.purge(100).await.is_err());
}

#[tokio::test]
async fn no_answer_at_all_is_an_error() {
    let ledger = Ledger::builder().store("a", unavailable(), ["down"]).on(unavailable());
    let error = ledger.list_reachable(&Filter::default(), None, 10).await.any().unwrap_err();
    assert!(error.to_string().contains("out of order"), "{error}");
    assert!(ledger.counts_reachable(None).await.any().is_err());
    assert!(ledger.purge_reachable(1).await.any().is_err());
}

#[tokio::test]
async fn every_store_is_checked() {
    let checks = ledger(HOUR).await.check_stores(Duration::from_secs(2)).await;
    let ready: Vec<_> = checks.iter().map(|check| (check.name.as_str(), check.durability.is_ok())).collect();
    assert_eq!(ready, [("default", true), ("a", false), ("b", true)]);
}
