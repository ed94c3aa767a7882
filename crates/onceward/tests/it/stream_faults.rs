//! Streams on a failing store: failures between the write of the archive and the write of the head, and after each of them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use onceward::core::policy::{Policy, StoreDown};
use onceward::{Begun, Error, Guard, Ledger, Outcome, WriteResult};

use crate::faulty::FaultyStore;
use crate::{Effects, eventually, status};

fn faulty_ledger() -> (Ledger, Arc<FaultyStore>) {
    let store = FaultyStore::new();
    (Ledger::builder().on(store.clone()), store)
}

async fn apply(ledger: &Ledger, number: u64) -> Result<onceward::Done<u64>, Error> {
    ledger.operation("apply").item("s", number).run(|_| async { Ok(number * 10) }).await
}

async fn claim(ledger: &Ledger, number: u64) -> Option<Guard> {
    match ledger.operation("apply").item("s", number).begin().await {
        Ok(Begun::Acquired(guard)) => Some(guard),
        _ => None,
    }
}

#[tokio::test]
async fn a_failure_between_the_archive_and_the_head_leaves_both_intact() {
    let (ledger, store) = faulty_ledger();
    apply(&ledger, 1).await.unwrap();
    for _ in 0..3 {
        store.fail_next_replace.store(true, Ordering::SeqCst);
        assert!(matches!(apply(&ledger, 2).await, Err(Error::Store(_))));
        let archived = store.record("apply", "s/1").await.expect("item 1 was archived before the head was touched");
        assert_eq!(archived.sequence, Some(1));
        assert_eq!(store.record("apply", "s/head").await.unwrap().sequence, Some(1), "the head has not moved");
        assert_eq!(apply(&ledger, 1).await.unwrap().value, 10);
    }
    assert!(!apply(&ledger, 2).await.unwrap().replayed);
    assert_eq!(apply(&ledger, 1).await.unwrap().value, 10);
    assert_eq!(store.record("apply", "s/1").await.unwrap().version, 1, "it was written once");
}

#[tokio::test]
async fn an_archive_whose_answer_was_lost_is_found_again() {
    let (ledger, store) = faulty_ledger();
    apply(&ledger, 1).await.unwrap();
    store.lose_next_answer.store(true, Ordering::SeqCst);
    assert!(matches!(apply(&ledger, 2).await, Err(Error::Store(_))));
    assert!(!apply(&ledger, 2).await.unwrap().replayed);
    assert_eq!(apply(&ledger, 1).await.unwrap().value, 10);
}

#[tokio::test]
async fn a_claim_on_the_next_item_whose_answer_was_lost_is_released_and_the_stream_does_not_move_back() {
    let (ledger, store) = faulty_ledger();
    apply(&ledger, 1).await.unwrap();
    store.lose_next_replace_answer.store(true, Ordering::SeqCst);
    assert!(matches!(apply(&ledger, 2).await, Err(Error::Store(_))));
    let second = ledger.operation("apply").item("s", 2);
    eventually("the claim is released", async || status(&second).await == "open").await;
    assert_eq!(apply(&ledger, 1).await.unwrap().value, 10);
    assert!(!apply(&ledger, 2).await.unwrap().replayed);
    assert!(!apply(&ledger, 3).await.unwrap().replayed);
}

#[tokio::test]
async fn an_owner_whose_last_answer_was_lost_learns_that_its_outcome_is_written_although_the_stream_moved_on() {
    let (ledger, store) = faulty_ledger();
    let other = Ledger::builder().on(store.clone());
    let first = claim(&ledger, 1).await.unwrap();
    store.lose_next_answer.store(true, Ordering::SeqCst);
    let finishing = tokio::spawn(first.finish(Outcome::success("10")));
    let mut next = None;
    while next.is_none() {
        next = claim(&other, 2).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(finishing.await.unwrap().unwrap(), WriteResult::Written);
    assert_eq!(ledger.stats().contradictions, 0);
    assert_eq!(next.unwrap().finish(Outcome::success("20")).await.unwrap(), WriteResult::Written);
    assert_eq!(apply(&ledger, 1).await.unwrap().value, 10);
}

#[tokio::test]
async fn an_item_never_runs_unguarded() {
    let (ledger, store) = faulty_ledger();
    let effects = Effects::default();
    store.set_down(true);
    let policy = Policy { store_down: StoreDown::Open, ..Policy::default() };
    let call = ledger.operation("apply").policy(policy).item("s", 1);
    assert!(matches!(call.run(|_| async { Ok(effects.happen()) }).await, Err(Error::Store(_))));
    assert_eq!(effects.count(), 0, "without the store, the next item of the stream is unknown");
}
