//! Store failures: no work runs unguarded unless its policy allows it, no known outcome is forgotten, and no caller waits
//! needlessly.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use onceward::core::policy::{Policy, StoreDown};
use onceward::{Begun, Error, InDoubt, Ledger, Outcome, WriteResult};

use crate::faulty::FaultyStore;
use crate::{Effects, eventually, status};

fn faulty_ledger() -> (Ledger, Arc<FaultyStore>) {
    let store = FaultyStore::new();
    (Ledger::builder().on(store.clone()), store)
}

#[tokio::test]
async fn a_store_that_is_down_fails_closed() {
    let (ledger, store) = faulty_ledger();
    store.set_down(true);
    let effects = Effects::default();
    let run = ledger.operation("charge").key("k").run(|_| async { Ok(effects.happen()) }).await;
    let error = run.unwrap_err();
    assert!(matches!(error, Error::Store(_)));
    assert!(error.to_string().contains("nothing ran"), "{error}");
    assert_eq!(effects.count(), 0);
}

#[tokio::test]
async fn a_policy_may_allow_unguarded_runs_and_they_are_counted() {
    let (ledger, store) = faulty_ledger();
    store.set_down(true);
    let policy = Policy { store_down: StoreDown::Open, ..Policy::default() };
    let call = ledger.operation("greet").key("k").policy(policy);
    let work = |claim: onceward::Claim| async move {
        claim.sent().await?;
        Ok(claim.downstream_key().to_owned())
    };
    assert!(call.run(work).await.unwrap().value.starts_with("once_v1_"));
    assert_eq!(ledger.stats().unguarded, 1);
}

#[tokio::test]
async fn store_down_open_does_not_apply_to_a_store_that_fails_while_an_owner_works() {
    let (ledger, store) = faulty_ledger();
    let policy = Policy { store_down: StoreDown::Open, wait: Duration::from_secs(5), ..Policy::default() };
    let call = ledger.operation("greet").key("k").policy(policy);
    let held = call.begin().await.unwrap();
    let waiting = {
        let call = call.clone();
        tokio::spawn(async move { call.run(|_| async { Ok(1) }).await.map(|done| done.value) })
    };
    tokio::time::sleep(Duration::from_millis(50)).await;
    store.set_down(true);
    assert!(matches!(waiting.await.unwrap(), Err(Error::Store(_))));
    assert_eq!(ledger.stats().unguarded, 0);
    store.set_down(false);
    drop(held);
}

#[tokio::test]
async fn a_claim_whose_answer_was_lost_is_not_released_if_the_work_ran_unguarded() {
    let (ledger, store) = faulty_ledger();
    let policy = Policy { store_down: StoreDown::Open, ..Policy::default() };
    let call = ledger.operation("greet").key("k").policy(policy);
    store.lose_next_answer.store(true, Ordering::SeqCst);
    assert_eq!(call.run(|_| async { Ok(1) }).await.unwrap().value, 1);
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(status(&call).await, "running", "the claim lapses into doubt, because the work ran");
}

/// The store stalls, says nothing, and writes the claim when its caller has long been told that nothing was granted.
#[tokio::test]
async fn a_claim_that_is_written_late_has_no_effect() {
    let (ledger, store) = faulty_ledger();
    let call = ledger.operation("charge").key("k");
    store.late_insert_millis.store(700, Ordering::SeqCst);
    assert!(matches!(call.run(|_| async { Ok(1) }).await, Err(Error::Store(_))));
    tokio::time::sleep(Duration::from_millis(900)).await;
    assert_eq!(status(&call).await, "open", "it has no owner");
    assert_eq!(call.run(|_| async { Ok(2) }).await.unwrap().value, 2);
}

#[tokio::test]
async fn a_repeat_of_finished_work_needs_no_store() {
    let (ledger, store) = faulty_ledger();
    let call = ledger.operation("charge").key("k");
    call.run(|_| async { Ok(1) }).await.unwrap();
    store.set_down(true);
    assert_eq!(call.run(|_| async { Ok(2) }).await.unwrap().value, 1);
}

#[tokio::test]
async fn a_claim_whose_answer_was_lost_is_released() {
    let (ledger, store) = faulty_ledger();
    let call = ledger.operation("charge").key("k");
    store.lose_next_answer.store(true, Ordering::SeqCst);
    assert!(matches!(call.run(|_| async { Ok(1) }).await, Err(Error::Store(_))));
    assert_eq!(status(&call).await, "running", "the claim was written, and it has no owner");
    eventually("the claim is released", async || status(&call).await == "open").await;
    assert_eq!(call.run(|_| async { Ok(2) }).await.unwrap().value, 2);
}

#[tokio::test]
async fn an_outcome_is_recorded_when_the_store_comes_back() {
    let (ledger, store) = faulty_ledger();
    let call = ledger.operation("charge").key("k");
    let running = {
        let (call, store) = (call.clone(), store.clone());
        tokio::spawn(async move {
            call.run(|_| async move {
                store.set_down(true);
                Ok(1)
            })
            .await
        })
    };
    tokio::time::sleep(Duration::from_millis(200)).await;
    store.set_down(false);
    assert_eq!(running.await.unwrap().unwrap().value, 1);
    assert_eq!(call.run(|_| async { Ok(2) }).await.unwrap().value, 1);
}

#[tokio::test]
async fn an_outcome_whose_answer_was_lost_is_recorded_once() {
    let (ledger, store) = faulty_ledger();
    let call = ledger.operation("charge").key("k");
    let losing = store.clone();
    let run = call.run(|_| async move {
        losing.lose_next_answer.store(true, Ordering::SeqCst);
        Ok(1)
    });
    assert_eq!(run.await.unwrap().value, 1);
    assert_eq!(call.run(|_| async { Ok(2) }).await.unwrap().value, 1);
    assert!(call.get().await.unwrap().unwrap().trail.is_empty(), "the owner's own retry is not a late owner");
}

#[tokio::test]
async fn a_caller_that_goes_away_while_its_claim_is_written_leaves_a_released_claim() {
    let (ledger, store) = faulty_ledger();
    // Longer than a busy machine needs to see the claim.
    store.insert_millis.store(2000, Ordering::SeqCst);
    let call = ledger.operation("charge").key("k");
    let going = {
        let call = call.clone();
        tokio::spawn(async move { call.run(|_| async { Ok(1) }).await.map(|done| done.value) })
    };
    eventually("the claim is written", async || status(&call).await == "running").await;
    going.abort();
    eventually("the claim is released", async || status(&call).await == "open").await;
}

#[tokio::test]
async fn a_caller_that_goes_away_while_its_outcome_is_written_loses_nothing() {
    let (ledger, store) = faulty_ledger();
    let call = ledger.operation("charge").key("k");
    let effects = Effects::default();
    let going = {
        let (call, store, effects) = (call.clone(), store.clone(), effects.clone());
        tokio::spawn(async move {
            call.run(|_| async move {
                store.set_down(true);
                Ok(effects.happen())
            })
            .await
            .map(|done| done.value)
        })
    };
    eventually("the work is over", async || effects.count() == 1).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    going.abort();
    store.set_down(false);
    eventually("the outcome is recorded", async || status(&call).await == "done").await;
}

/// Runs work of 800 ms on a lease of 90 ms, with the store down while the work runs.
async fn work_through_an_outage(in_doubt: InDoubt) -> (Result<usize, Error>, usize) {
    let (ledger, store) = faulty_ledger();
    let effects = Effects::default();
    let call = ledger.operation("charge").key("k").max_runtime(Duration::from_millis(30)).in_doubt(in_doubt);
    let during = (store.clone(), effects.clone());
    let run = call.run(|_| async move {
        during.0.set_down(true);
        tokio::time::sleep(Duration::from_millis(800)).await;
        during.0.set_down(false);
        Ok(during.1.happen())
    });
    let result = run.await.map(|done| done.value);
    (result, effects.count())
}

#[tokio::test]
async fn an_owner_that_cannot_renew_stops_if_another_caller_may_take_over() {
    let (result, effects) = work_through_an_outage(InDoubt::Retry).await;
    assert!(matches!(result, Err(Error::ClaimLost { .. })), "{result:?}");
    assert_eq!(effects, 0);
}

#[tokio::test]
async fn an_owner_that_cannot_renew_continues_if_no_other_caller_may_take_over() {
    let (result, effects) = work_through_an_outage(InDoubt::Hold).await;
    assert_eq!((result.unwrap(), effects), (1, 1));
}

#[tokio::test]
async fn a_guard_can_be_finished_explicitly() {
    let (ledger, _store) = faulty_ledger();
    let call = ledger.operation("charge").key("k");
    match call.begin().await.unwrap() {
        onceward::Begun::Acquired(guard) => guard.finish(Outcome::success("5")).await.unwrap(),
        onceward::Begun::Answered(decision) => panic!("{decision:?}"),
    };
    assert_eq!(call.run(|_| async { Ok(6) }).await.unwrap().value, 5);
}

#[tokio::test]
async fn an_outcome_is_recorded_although_the_store_refused_it_at_first() {
    let (ledger, store) = faulty_ledger();
    let call = ledger.operation("charge").key("k");
    let Begun::Acquired(guard) = call.begin().await.unwrap() else { panic!("not acquired") };
    store.refuse_next_replace.store(true, Ordering::SeqCst);
    assert_eq!(guard.finish(Outcome::success("1")).await.unwrap(), WriteResult::Written);
}
