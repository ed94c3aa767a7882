//! The one entry of every surface: begin, wait, replay, and a store that is down.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onceward::core::decide::Decision;
use onceward::core::policy::{Policy, StoreDown};
use onceward::{Begun, Call, Error, Guard, Ledger, Outcome, StartOptions, Started};

use crate::faulty::FaultyStore;
use crate::{every_ledger, status};

const LONG: Duration = Duration::from_secs(20);

async fn owner(ledger: &Ledger, call: &Call) -> Guard {
    match ledger.begin(call).await.unwrap() {
        Begun::Acquired(guard) => guard,
        Begun::Answered(decision) => panic!("{decision:?}"),
    }
}

/// A caller that waits until `guard` has ended as `end` says.
async fn waited(ledger: &Ledger, call: &Call, guard: Guard, end: impl AsyncFnOnce(Guard)) -> Result<Started, Error> {
    let (ledger, call) = (ledger.clone(), call.clone());
    let (tell, told) = tokio::sync::oneshot::channel();
    let waiting = tokio::spawn(async move {
        let tell = std::sync::Mutex::new(Some(tell));
        let on_running = || tell.lock().unwrap().take().unwrap().send(()).is_ok();
        ledger.start(&call, StartOptions::default().wait(LONG).on_running(&on_running)).await
    });
    told.await.expect("another caller is at work");
    end(guard).await;
    tokio::time::timeout(LONG, waiting).await.expect("the end of the work wakes the caller").unwrap()
}

#[tokio::test]
async fn a_waiting_caller_gets_the_answer_of_the_owner() {
    for (ledger, _folder) in every_ledger().await {
        let call = ledger.operation("op").key("k").call().unwrap();
        let guard = owner(&ledger, &call).await;
        let started = waited(&ledger, &call, guard, async |guard| {
            guard.finish(Outcome::success("1")).await.unwrap();
        });
        let started = started.await;
        assert!(matches!(started, Ok(Started::Answered(Decision::Replay { .. }))), "{started:?}");
    }
}

#[tokio::test]
async fn a_waiting_caller_is_told_that_the_owner_failed_and_takes_its_turn_if_the_owner_withdrew() {
    for (ledger, _folder) in every_ledger().await {
        let builder = ledger.operation("op").key("k");
        let call = builder.call().unwrap();
        let guard = owner(&ledger, &call).await;
        let failed = waited(&ledger, &call, guard, async |guard| {
            guard.release(Duration::ZERO, Some("refused")).await.unwrap();
        });
        assert!(matches!(failed.await, Err(Error::OwnerFailed { reason, .. }) if reason == "refused"));

        let guard = owner(&ledger, &call).await;
        let turn = waited(&ledger, &call, guard, async |guard| {
            guard.withdraw(Some("cancelled")).await.unwrap();
        });
        let Ok(Started::Acquired(guard)) = turn.await else { panic!("nothing was sent") };
        assert_eq!(guard.claim().attempt(), 3);
        guard.finish(Outcome::success("1")).await.unwrap();
        assert_eq!(status(&builder).await, "done");
    }
}

#[tokio::test]
async fn a_caller_is_asked_before_it_waits_and_may_decline() {
    for (ledger, _folder) in every_ledger().await {
        let call = ledger.operation("op").key("k").wait(LONG).call().unwrap();
        let _guard = owner(&ledger, &call).await;
        let asked = AtomicU32::new(0);
        let on_running = || asked.fetch_add(1, Ordering::SeqCst) > 0;
        let started = ledger.start(&call, StartOptions::default().on_running(&on_running)).await.unwrap();
        assert!(matches!(started, Started::Answered(Decision::InFlight { running: true, .. })), "{started:?}");
        assert_eq!(asked.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn only_the_first_begin_may_find_the_store_down() {
    let store = FaultyStore::new();
    let ledger = Ledger::builder().on(store.clone());
    let policy = Policy { store_down: StoreDown::Open, wait: LONG, ..Policy::default() };
    let call = ledger.operation("op").key("k").policy(policy).call().unwrap();
    store.set_down(true);
    let started = ledger.start(&call, StartOptions::default()).await.unwrap();
    assert!(matches!(started, Started::Unguarded { .. }), "{started:?}");
    assert_eq!(ledger.stats().unguarded, 1);
    store.set_down(false);
    let guard = owner(&ledger, &call).await;
    let failing = store.clone();
    let waited = waited(&ledger, &call, guard, async move |guard| {
        failing.set_down(true);
        // Another caller may be at work, so the store's failure is not a licence to run.
        tokio::time::sleep(Duration::from_millis(100)).await;
        failing.set_down(false);
        guard.finish(Outcome::success("1")).await.unwrap();
    });
    assert!(matches!(waited.await, Err(Error::Store(_))));
    assert_eq!(ledger.stats().unguarded, 1);
}
