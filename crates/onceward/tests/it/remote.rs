//! Claims whose owners are not in this process.

use std::sync::atomic::Ordering;
use std::time::Duration;

use onceward::core::claim::ClaimId;
use onceward::core::decide::Decision;
use onceward::core::outcome::Outcome;
use onceward::core::record::Status;
use onceward::{Call, Grant, Granted, Held, Ledger};

use crate::faulty::Faulty;

fn call(ledger: &Ledger, key: &str) -> Call {
    ledger.operation("op").key(key).call().unwrap()
}

async fn granted(ledger: &Ledger, call: &Call) -> Box<Grant> {
    match ledger.grant(call, None, None, Duration::ZERO).await.unwrap() {
        Granted::Acquired(grant) => grant,
        other => panic!("{other:?}"),
    }
}

async fn status(ledger: &Ledger, call: &Call) -> Option<Status> {
    ledger.get(&call.identity).await.unwrap().and_then(|intent| intent.status())
}

/// What is given back in the background is open in a moment.
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
async fn a_grant_that_was_not_handed_over_is_given_back() {
    let ledger = Ledger::open("memory:").await.unwrap();
    let call = call(&ledger, "k");
    drop(granted(&ledger, &call).await);
    becomes_open(&ledger, &call).await;
    let grant = granted(&ledger, &call).await;
    assert_eq!(grant.acquired().attempt, 2);
    grant.hand_over();
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
            let asking = ledger.grant(&call, None, None, Duration::ZERO);
            tokio::pin!(asking);
            // The store has been asked, and most times has not answered yet.
            early += usize::from(futures_util::poll!(&mut asking).is_pending());
        }
        becomes_open(&ledger, &call).await;
    }
    assert!(early > 0, "the store was always faster than its caller");
}

#[tokio::test]
async fn the_death_of_the_server_ends_no_remote_claim() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let ledger = Ledger::open(path.to_str().unwrap()).await.unwrap();
    let remote = call(&ledger, "remote");
    let grant = granted(&ledger, &remote).await;
    let fence = grant.acquired().fence;
    grant.hand_over();
    ledger.close().await;
    let ledger = Ledger::open(path.to_str().unwrap()).await.unwrap();
    assert_eq!(status(&ledger, &remote).await, Some(Status::Running));
    let holder = ledger.holder(remote.identity.clone(), fence);
    assert!(matches!(holder.finish(Outcome::success("1")).await.unwrap(), Held::Written(_)));
    assert_eq!(status(&ledger, &remote).await, Some(Status::Done));
}

#[tokio::test]
async fn a_waiting_caller_in_this_process_is_woken_by_a_remote_owner() {
    let ledger = Ledger::open("memory:").await.unwrap();
    let call = call(&ledger, "k");
    let grant = granted(&ledger, &call).await;
    let holder = ledger.holder(grant.identity().clone(), grant.acquired().fence);
    grant.hand_over();
    let waiting = ledger.clone();
    let waiter = tokio::spawn({
        let call = call.clone();
        async move { waiting.grant(&call, None, None, Duration::from_secs(3600)).await }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    holder.finish(Outcome::success("1")).await.unwrap();
    let answer = tokio::time::timeout(Duration::from_secs(10), waiter).await.unwrap().unwrap().unwrap();
    assert!(matches!(answer, Granted::Answered(Decision::Replay { .. })), "{answer:?}");
}

#[tokio::test]
async fn a_finish_whose_caller_goes_away_is_written_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(folder.path().join("a.db").to_str().unwrap()).await.unwrap();
    let call = call(&ledger, "k");
    let grant = granted(&ledger, &call).await;
    let holder = ledger.holder(call.identity.clone(), grant.acquired().fence);
    grant.hand_over();
    {
        let finishing = holder.finish(Outcome::success("1"));
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
async fn a_report_about_nothing_leaves_nothing() {
    let ledger = Ledger::open("memory:").await.unwrap();
    let call = call(&ledger, "k");
    let holder = ledger.holder(call.identity.clone(), onceward::core::record::Fence::from_bits(7));
    assert!(matches!(holder.finish(Outcome::success("1")).await.unwrap(), Held::Stale));
    assert!(ledger.get(&call.identity).await.unwrap().is_none());
    let grant = granted(&ledger, &call).await;
    grant.hand_over();
    assert!(ledger.get(&call.identity).await.unwrap().unwrap().trail.is_empty());
}

#[tokio::test]
async fn a_trail_does_not_grow_without_end() {
    let ledger = Ledger::open("memory:").await.unwrap();
    let call = call(&ledger, "k");
    granted(&ledger, &call).await.hand_over();
    let holder = ledger.holder(call.identity.clone(), onceward::core::record::Fence::from_bits(7));
    for number in 0..150 {
        holder.finish(Outcome::success(number.to_string())).await.unwrap();
    }
    let trail = ledger.get(&call.identity).await.unwrap().unwrap().trail;
    assert_eq!(trail.len(), 100);
}

#[tokio::test]
async fn a_claim_whose_answer_was_lost_is_given_back() {
    let store = Faulty::new();
    let ledger = Ledger::builder().on(store.clone());
    let call = call(&ledger, "k");
    store.lose_next_answer.store(true, Ordering::SeqCst);
    assert!(ledger.grant(&call, None, None, Duration::ZERO).await.is_err());
    becomes_open(&ledger, &call).await;
}

#[tokio::test]
async fn a_claim_that_took_longer_than_its_lease_is_renewed_before_it_is_granted() {
    let store = Faulty::new();
    let ledger = Ledger::builder().on(store.clone());
    let call = call(&ledger, "k");
    store.insert_millis.store(400, Ordering::SeqCst);
    let lease = Some(Duration::from_millis(300));
    let Granted::Acquired(grant) = ledger.grant(&call, None, lease, Duration::ZERO).await.unwrap() else { panic!() };
    assert_eq!(grant.seen().record.version, 2, "it was written, and renewed");
    grant.hand_over();
    assert_eq!(status(&ledger, &call).await, Some(Status::Running));
}

#[tokio::test]
async fn a_store_that_is_down_is_no_licence_unless_the_policy_says_so_and_never_after_an_answer() {
    let store = Faulty::new();
    let open = onceward::Policy { store_down: onceward::core::policy::StoreDown::Open, ..onceward::Policy::default() };
    let ledger = Ledger::builder().policy("low", open).on(store.clone());
    let (low, high) = (ledger.operation("low").key("k").call().unwrap(), call(&ledger, "k"));
    store.set_down(true);
    assert!(ledger.grant(&high, None, None, Duration::ZERO).await.is_err());
    assert!(matches!(ledger.grant(&low, None, None, Duration::ZERO).await.unwrap(), Granted::Unguarded(_)));
    store.set_down(false);
    granted(&ledger, &low).await.hand_over();
    let waiting = ledger.grant(&low, None, None, Duration::from_secs(60));
    tokio::pin!(waiting);
    assert!(tokio::time::timeout(Duration::from_millis(50), &mut waiting).await.is_err(), "it waits");
    store.set_down(true);
    assert!(waiting.await.is_err(), "somebody else is at it");
}

/// A repeat of one request, on a ledger of its own.
async fn repeated(ledger: &Ledger, call: &Call) -> Box<Grant> {
    match ledger.grant(call, Some(ClaimId::new(b"", "c")), None, Duration::ZERO).await.unwrap() {
        Granted::Acquired(grant) => grant,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_claim_with_an_id_that_no_caller_was_told_is_given_back_and_its_id_is_free() {
    let ledger = Ledger::open("memory:").await.unwrap();
    let call = call(&ledger, "k");
    drop(repeated(&ledger, &call).await);
    becomes_open(&ledger, &call).await;
    assert_eq!(repeated(&ledger, &call).await.acquired().attempt, 2);
}

#[tokio::test]
async fn a_lost_answer_does_not_take_the_claim_from_the_repeat_that_was_answered() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let (here, there) =
        (Ledger::open(path.to_str().unwrap()).await.unwrap(), Ledger::open(path.to_str().unwrap()).await.unwrap());
    let call = call(&here, "k");
    let first = repeated(&here, &call).await;
    let again = repeated(&there, &call).await;
    assert_eq!(again.acquired().fence, first.acquired().fence);
    let holder = there.holder(call.identity.clone(), again.acquired().fence);
    again.hand_over();
    // Both a first answer and another repeat get lost. Giving back is a write of its own, and later ones wait for it.
    drop(first);
    drop(repeated(&here, &call).await);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(matches!(holder.renew(None).await.unwrap(), Held::Written(_)));
    assert_eq!(status(&here, &call).await, Some(Status::Running));
}

#[tokio::test]
async fn a_claim_with_an_id_survives_a_store_that_fails_after_writing_it() {
    let store = Faulty::new();
    let ledger = Ledger::builder().on(store.clone());
    let call = call(&ledger, "k");
    store.lose_next_answer.store(true, Ordering::SeqCst);
    let id = Some(ClaimId::new(b"", "c"));
    assert!(ledger.grant(&call, id, None, Duration::ZERO).await.is_err());
    let again = repeated(&ledger, &call).await;
    assert_eq!(again.acquired().attempt, 1);
    let holder = ledger.holder(call.identity.clone(), again.acquired().fence);
    again.hand_over();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(matches!(holder.renew(None).await.unwrap(), Held::Written(_)));
}
