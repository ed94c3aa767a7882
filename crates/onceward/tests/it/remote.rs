//! Remote claims: the owner runs in another process.

use std::sync::atomic::Ordering;
use std::time::Duration;

use onceward::core::claim::ClaimId;
use onceward::core::decide::Decision;
use onceward::core::outcome::Outcome;
use onceward::core::record::{Fence, Status};
use onceward::remote::{ClaimOffer, StartOptions, Started, WriteResult};
use onceward::{Call, Ledger};

use crate::faulty::FaultyStore;

fn call(ledger: &Ledger, key: &str) -> Call {
    ledger.operation("op").key(key).call().unwrap()
}

async fn offered(ledger: &Ledger, call: &Call) -> Box<ClaimOffer> {
    match ledger.start_remote(call, StartOptions::default()).await.unwrap() {
        Started::Acquired(offer) => offer,
        other => panic!("{other:?}"),
    }
}

async fn status(ledger: &Ledger, call: &Call) -> Option<Status> {
    ledger.get(&call.identity).await.unwrap().and_then(|intent| intent.status())
}

/// Waits until a claim that is released in the background is open.
async fn becomes_open(ledger: &Ledger, call: &Call) {
    for _ in 0..500 {
        if status(ledger, call).await == Some(Status::Open) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{:?}", status(ledger, call).await);
}

#[tokio::test]
async fn a_claim_that_was_not_handed_over_is_released() {
    let ledger = Ledger::open("memory:").await.unwrap();
    let call = call(&ledger, "k");
    drop(offered(&ledger, &call).await);
    becomes_open(&ledger, &call).await;
    let offer = offered(&ledger, &call).await;
    assert_eq!(offer.acquired().attempt, 2);
    offer.hand_over();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(status(&ledger, &call).await, Some(Status::Running));
}

#[tokio::test]
async fn a_caller_that_goes_away_while_its_claim_is_written_leaves_a_released_claim() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(folder.path().join("a.db").to_str().unwrap()).await.unwrap();
    let mut early = 0;
    for number in 0..50 {
        let call = call(&ledger, &format!("k{number}"));
        {
            let starting = ledger.start_remote(&call, StartOptions::default());
            tokio::pin!(starting);
            // The store has the request, and usually has not answered yet.
            early += usize::from(futures_util::poll!(&mut starting).is_pending());
        }
        becomes_open(&ledger, &call).await;
    }
    assert!(early > 0, "the store was always faster than its caller");
}

#[tokio::test]
async fn a_remote_claim_survives_the_end_of_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let ledger = Ledger::open(path.to_str().unwrap()).await.unwrap();
    let remote = call(&ledger, "remote");
    let offer = offered(&ledger, &remote).await;
    let fence = offer.acquired().fence;
    offer.hand_over();
    ledger.close().await;
    let ledger = Ledger::open(path.to_str().unwrap()).await.unwrap();
    assert_eq!(status(&ledger, &remote).await, Some(Status::Running));
    let owner = ledger.remote_owner(remote.identity.clone(), fence);
    assert!(matches!(owner.finish(Outcome::success("1")).await.unwrap(), WriteResult::Written(_)));
    assert_eq!(status(&ledger, &remote).await, Some(Status::Done));
}

#[tokio::test]
async fn a_waiting_caller_in_this_process_is_woken_by_a_remote_owner() {
    let ledger = Ledger::open("memory:").await.unwrap();
    let call = call(&ledger, "k");
    let offer = offered(&ledger, &call).await;
    let owner = ledger.remote_owner(offer.identity().clone(), offer.acquired().fence);
    offer.hand_over();
    let waiting = ledger.clone();
    let waiter = tokio::spawn({
        let call = call.clone();
        async move { waiting.start_remote(&call, StartOptions::default().wait(Duration::from_secs(3600))).await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    owner.finish(Outcome::success("1")).await.unwrap();
    let answer = tokio::time::timeout(Duration::from_secs(10), waiter).await.unwrap().unwrap().unwrap();
    assert!(matches!(answer, Started::Answered(Decision::Replay { .. })), "{answer:?}");
}

#[tokio::test]
async fn a_finish_is_written_even_if_its_caller_goes_away() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(folder.path().join("a.db").to_str().unwrap()).await.unwrap();
    let call = call(&ledger, "k");
    let offer = offered(&ledger, &call).await;
    let owner = ledger.remote_owner(call.identity.clone(), offer.acquired().fence);
    offer.hand_over();
    {
        let finishing = owner.finish(Outcome::success("1"));
        tokio::pin!(finishing);
        assert!(futures_util::poll!(&mut finishing).is_pending());
    }
    for _ in 0..500 {
        if status(&ledger, &call).await == Some(Status::Done) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{:?}", status(&ledger, &call).await);
}

#[tokio::test]
async fn a_finish_without_an_intent_records_nothing() {
    let ledger = Ledger::open("memory:").await.unwrap();
    let call = call(&ledger, "k");
    let owner = ledger.remote_owner(call.identity.clone(), onceward::core::record::Fence::from_bits(7));
    assert!(matches!(owner.finish(Outcome::success("1")).await.unwrap(), WriteResult::Stale));
    assert!(ledger.get(&call.identity).await.unwrap().is_none());
    let offer = offered(&ledger, &call).await;
    offer.hand_over();
    assert!(ledger.get(&call.identity).await.unwrap().unwrap().trail.is_empty());
}

#[tokio::test]
async fn the_length_of_a_trail_is_limited() {
    let ledger = Ledger::open("memory:").await.unwrap();
    let call = call(&ledger, "k");
    offered(&ledger, &call).await.hand_over();
    let owner = ledger.remote_owner(call.identity.clone(), onceward::core::record::Fence::from_bits(7));
    for number in 0..150 {
        owner.finish(Outcome::success(number.to_string())).await.unwrap();
    }
    let trail = ledger.get(&call.identity).await.unwrap().unwrap().trail;
    assert_eq!(trail.len(), 100);
}

#[tokio::test]
async fn a_claim_whose_answer_was_lost_is_released() {
    let store = FaultyStore::new();
    let ledger = Ledger::builder().on(store.clone());
    let call = call(&ledger, "k");
    store.lose_next_answer.store(true, Ordering::SeqCst);
    assert!(ledger.start_remote(&call, StartOptions::default()).await.is_err());
    becomes_open(&ledger, &call).await;
}

#[tokio::test]
async fn a_claim_that_took_longer_than_its_lease_is_renewed_before_it_is_granted() {
    let store = FaultyStore::new();
    let ledger = Ledger::builder().on(store.clone());
    let call = call(&ledger, "k");
    store.insert_millis.store(2500, Ordering::SeqCst);
    let lease = Some(Duration::from_secs(2));
    let Started::Acquired(offer) = ledger.start_remote(&call, StartOptions::default().lease(lease)).await.unwrap()
    else {
        panic!()
    };
    assert_eq!(offer.seen().record.version, 2, "it was written, and renewed");
    offer.hand_over();
    assert_eq!(status(&ledger, &call).await, Some(Status::Running));
}

#[tokio::test]
async fn work_runs_unguarded_only_if_the_policy_allows_it_and_never_after_the_store_has_answered() {
    let store = FaultyStore::new();
    let open = onceward::Policy { store_down: onceward::core::policy::StoreDown::Open, ..onceward::Policy::default() };
    let ledger = Ledger::builder().policy("low", open).on(store.clone());
    let (low, high) = (ledger.operation("low").key("k").call().unwrap(), call(&ledger, "k"));
    store.set_down(true);
    assert!(ledger.start_remote(&high, StartOptions::default()).await.is_err());
    assert!(matches!(ledger.start_remote(&low, StartOptions::default()).await.unwrap(), Started::Unguarded { .. }));
    store.set_down(false);
    offered(&ledger, &low).await.hand_over();
    let waiting = ledger.start_remote(&low, StartOptions::default().wait(Duration::from_secs(60)));
    tokio::pin!(waiting);
    assert!(tokio::time::timeout(Duration::from_millis(50), &mut waiting).await.is_err(), "it waits");
    store.set_down(true);
    assert!(waiting.await.is_err(), "another owner holds the claim");
}

/// Starts the call with a fixed claim id, as each repeat of one request does.
async fn repeated(ledger: &Ledger, call: &Call) -> Box<ClaimOffer> {
    match ledger.start_remote(call, StartOptions::default().claim_id(ClaimId::new(b"", "c"))).await.unwrap() {
        Started::Acquired(offer) => offer,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_claim_with_an_id_that_was_not_handed_over_is_released_and_its_id_can_be_reused() {
    let ledger = Ledger::open("memory:").await.unwrap();
    let call = call(&ledger, "k");
    drop(repeated(&ledger, &call).await);
    becomes_open(&ledger, &call).await;
    assert_eq!(repeated(&ledger, &call).await.acquired().attempt, 2);
}

#[tokio::test]
async fn a_lost_answer_does_not_release_the_claim_of_a_repeat_that_was_answered() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let (here, there) =
        (Ledger::open(path.to_str().unwrap()).await.unwrap(), Ledger::open(path.to_str().unwrap()).await.unwrap());
    let call = call(&here, "k");
    let first = repeated(&here, &call).await;
    let again = repeated(&there, &call).await;
    assert_eq!(again.acquired().fence, first.acquired().fence);
    let owner = there.remote_owner(call.identity.clone(), again.acquired().fence);
    again.hand_over();
    // The first answer and that of another repeat are lost. The release is a separate write, and later writes wait for it.
    drop(first);
    drop(repeated(&here, &call).await);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(matches!(owner.renew(None).await.unwrap(), WriteResult::Written(_)));
    assert_eq!(status(&here, &call).await, Some(Status::Running));
}

#[tokio::test]
async fn a_claim_with_an_id_survives_a_store_that_fails_after_writing_it() {
    let store = FaultyStore::new();
    let ledger = Ledger::builder().on(store.clone());
    let call = call(&ledger, "k");
    store.lose_next_answer.store(true, Ordering::SeqCst);
    let id = Some(ClaimId::new(b"", "c"));
    assert!(ledger.start_remote(&call, StartOptions::default().claim_id(id)).await.is_err());
    let again = repeated(&ledger, &call).await;
    assert_eq!(again.acquired().attempt, 1);
    let owner = ledger.remote_owner(call.identity.clone(), again.acquired().fence);
    again.hand_over();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(matches!(owner.renew(None).await.unwrap(), WriteResult::Written(_)));
}

#[tokio::test]
async fn a_contradiction_is_counted_although_the_audit_trail_is_full() {
    let ledger = Ledger::open("memory:").await.unwrap();
    let call = call(&ledger, "k");
    let offer = offered(&ledger, &call).await;
    let owner = ledger.remote_owner(call.identity.clone(), offer.acquired().fence);
    offer.hand_over();
    owner.release(Duration::ZERO, None).await.unwrap();
    for number in 1..=100 {
        let invented = ledger.remote_owner(call.identity.clone(), Fence::from_bits(number));
        let report = Outcome::success(format!("invented {number}"));
        assert!(matches!(invented.finish(report).await.unwrap(), WriteResult::Stale));
    }
    assert_eq!(ledger.stats().contradictions, 100);
    assert!(matches!(owner.finish(Outcome::success("ch_17")).await.unwrap(), WriteResult::Stale));
    assert_eq!(ledger.stats().contradictions, 101);
    assert_eq!(ledger.get(&call.identity).await.unwrap().unwrap().trail.len(), 100);
}
