//! The one entry of every surface: begin, wait, replay, and a store that is down.

use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use onceward::core::claim::ClaimId;
use onceward::core::decide::Decision;
use onceward::core::policy::{InDoubt, Policy, StoreDown};
use onceward::{Begun, Call, Error, Guard, Ledger, Outcome, StartOptions, Started, remote};

use crate::faulty::FaultyStore;
use crate::{eventually, every_ledger, status};

const LONG: Duration = Duration::from_secs(20);

async fn owner(ledger: &Ledger, call: &Call) -> Guard {
    match ledger.begin(call).await.unwrap() {
        Begun::Acquired(guard) => guard,
        Begun::Answered(decision) => panic!("{decision:?}"),
    }
}

/// A caller that waits until `claim` has ended as `end` says.
async fn waited<C>(ledger: &Ledger, call: &Call, claim: C, end: impl AsyncFnOnce(C)) -> Result<Started, Error> {
    let (ledger, call) = (ledger.clone(), call.clone());
    let (tell, told) = tokio::sync::oneshot::channel();
    let waiting = tokio::spawn(async move {
        let tell = std::sync::Mutex::new(Some(tell));
        let on_running = || tell.lock().unwrap().take().unwrap().send(()).is_ok();
        ledger.start(&call, StartOptions::default().wait(LONG).on_running(&on_running)).await
    });
    told.await.expect("another caller is at work");
    end(claim).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_caller_takes_its_turn_if_the_first_caller_went_away_before_it_had_the_claim() {
    for (ledger, _folder) in every_ledger().await {
        // So that the operation is known, and the next call begins with its write.
        ledger.operation("op").key("first").run(|_| async { Ok(1) }).await.unwrap();
        let builder = ledger.operation("op").key("local");
        let call = builder.call().unwrap();
        let mut begin = Box::pin(ledger.begin(&call));
        let polled = begin.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        // The store in memory answers at once, so that its caller has the claim.
        if polled.is_pending() {
            eventually("the claim is written", async || status(&builder).await == "running").await;
            let turn = waited(&ledger, &call, begin, async |begin| drop(begin)).await;
            assert!(matches!(turn, Ok(Started::Acquired(_))), "{turn:?}");
        }
        for claim_id in [None, Some(ClaimId::new(b"token", "1"))] {
            let call = ledger.operation("op").key(&format!("remote {}", claim_id.is_some())).call().unwrap();
            let options = remote::StartOptions::default().claim_id(claim_id);
            let offer = ledger.start_remote(&call, options).await.unwrap();
            assert!(matches!(offer, remote::Started::Acquired(_)), "{offer:?}");
            let turn = waited(&ledger, &call, offer, async |offer| drop(offer)).await;
            assert!(matches!(turn, Ok(Started::Acquired(_))), "{turn:?}");
        }
    }
}

#[tokio::test]
async fn a_waiting_caller_takes_its_turn_if_a_takeover_was_withdrawn() {
    for (ledger, _folder) in every_ledger().await {
        let call = ledger.operation("op").key("k").in_doubt(InDoubt::Retry).call().unwrap();
        owner(&ledger, &call).await.doubt(None).await.unwrap();
        let guard = owner(&ledger, &call).await;
        let turn = waited(&ledger, &call, guard, async |guard| {
            guard.withdraw(None).await.unwrap();
        });
        let turn = turn.await;
        assert!(matches!(turn, Ok(Started::Acquired(_))), "{turn:?}");
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
