//! Batches of entries for remote workers: what is left when a server or a worker ends at any point.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use onceward::core::claim::ClaimId;
use onceward::core::name::{Operation, Tenant};
use onceward::core::outcome::Outcome;
use onceward::core::record::{Phase, State, Status};
use onceward::pull::{LEASES, PullRequest, Pulled};
use onceward::remote::{ClaimOffer, Undelivered, WriteResult};
use onceward::{EnqueueOptions, Ledger};

use crate::faulty::FaultyStore;

fn request(id: &str, limit: usize) -> PullRequest {
    PullRequest {
        tenant: Tenant::default(),
        lease_id: ClaimId::new(b"", id),
        operations: vec![Operation::new("op").unwrap()],
        limit,
        wait: Duration::ZERO,
        lease: None,
        marks_sent: false,
        probes: false,
    }
}

async fn enqueue(ledger: &Ledger, count: usize) {
    for number in 0..count {
        let call = ledger.operation("op").key(&format!("k{number}"));
        call.enqueue(&number, EnqueueOptions::default()).await.unwrap();
    }
}

async fn pulled(ledger: &Ledger, id: &str, limit: usize) -> Vec<ClaimOffer> {
    match ledger.pull(&request(id, limit)).await.unwrap() {
        Pulled::Leased(offers) | Pulled::LeasedBefore(offers) => offers,
        Pulled::Mismatch => panic!("mismatch"),
    }
}

/// Key, fence and attempt of each, as its worker gets it.
fn handed_over(offers: Vec<ClaimOffer>) -> BTreeMap<String, (String, u32)> {
    let leased = offers.iter().map(|offer| {
        let acquired = offer.acquired();
        (offer.identity().key.as_str().to_owned(), (String::from(acquired.fence), acquired.attempt))
    });
    let leased = leased.collect();
    offers.into_iter().for_each(ClaimOffer::hand_over);
    leased
}

async fn statuses(ledger: &Ledger, count: usize) -> Vec<Option<Status>> {
    let mut statuses = Vec::new();
    for number in 0..count {
        let found = ledger.operation("op").key(&format!("k{number}")).get().await.unwrap();
        statuses.push(found.and_then(|found| found.status()));
    }
    statuses
}

/// Waits until all entries are queued and their attempts do not count.
async fn all_given_back(ledger: &Ledger, count: usize) {
    for _ in 0..500 {
        if statuses(ledger, count).await.iter().all(|status| *status == Some(Status::Queued)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{:?}", statuses(ledger, count).await);
}

#[tokio::test]
async fn a_batch_that_was_recorded_and_never_leased_is_leased_by_the_repeat() {
    let store = FaultyStore::new();
    let ledger = Ledger::builder().on(Arc::clone(&store) as _);
    enqueue(&ledger, 5).await;
    // The first replace records the batch.
    store.replaces_until_down.store(1, Ordering::SeqCst);
    assert!(ledger.pull(&request("l1", 3)).await.is_err());
    store.set_down(false);
    assert_eq!(statuses(&ledger, 5).await, [Some(Status::Queued); 5]);
    let other = handed_over(pulled(&ledger, "l2", 2).await);
    let first = handed_over(pulled(&ledger, "l1", 3).await);
    // Another worker may have been faster. The id never gets anything else instead.
    assert_eq!((first.len(), other.len()), (1, 2), "{first:?} {other:?}");
    assert!(first.keys().all(|key| ["k0", "k1", "k2"].contains(&key.as_str()) && !other.contains_key(key)));
    assert_eq!(handed_over(pulled(&ledger, "l1", 3).await), first);
}

#[tokio::test]
async fn a_lease_whose_answer_was_lost_is_the_repeats() {
    let store = FaultyStore::new();
    let ledger = Ledger::builder().on(Arc::clone(&store) as _);
    enqueue(&ledger, 1).await;
    // The second replace leases the entry, and nothing can be read or written after it.
    store.replaces_until_down.store(2, Ordering::SeqCst);
    let first = ledger.pull(&request("l1", 1)).await;
    store.set_down(false);
    let again = handed_over(pulled(&ledger, "l1", 1).await);
    assert_eq!(again["k0"].1, 1, "one attempt, not two");
    if let Ok(Pulled::Leased(offers)) = first {
        // The first answer does not reach the worker, and takes nothing from the repeat.
        drop(offers);
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(statuses(&ledger, 1).await, [Some(Status::Running)]);
    }
    assert_eq!(handed_over(pulled(&ledger, "l1", 1).await), again);
}

#[tokio::test]
async fn entries_that_were_not_handed_over_are_given_back_and_a_repeat_does_not_get_them() {
    let ledger = Ledger::open("memory:").await.unwrap();
    enqueue(&ledger, 3).await;
    drop(pulled(&ledger, "l1", 3).await);
    all_given_back(&ledger, 3).await;
    assert_eq!(pulled(&ledger, "l1", 3).await.len(), 0);
    let next = handed_over(pulled(&ledger, "l2", 3).await);
    assert_eq!(next.values().map(|(_, attempt)| *attempt).collect::<Vec<_>>(), [1, 1, 1], "the attempt did not count");
}

#[tokio::test]
async fn a_worker_that_goes_away_at_any_point_leaves_every_entry_to_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let mut finished = 0;
    for point in 0..24 {
        let path = folder.path().join(format!("{point}.db"));
        let ledger = Ledger::open(path.to_str().unwrap()).await.unwrap();
        enqueue(&ledger, 3).await;
        {
            let request = request("l1", 3);
            let pulling = ledger.pull(&request);
            tokio::pin!(pulling);
            for _ in 0..point {
                if futures_util::poll!(&mut pulling).is_ready() {
                    finished += 1;
                    break;
                }
                // Long enough for the write that is under way, usually.
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        let mut next = BTreeMap::new();
        for round in 0..500 {
            next.extend(handed_over(pulled(&ledger, &format!("next {round}"), 3).await));
            if next.len() == 3 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let attempts: Vec<u32> = next.values().map(|(_, attempt)| *attempt).collect();
        assert_eq!(attempts, [1, 1, 1], "left at point {point}: {:?}", statuses(&ledger, 3).await);
        ledger.close().await;
    }
    assert!(finished < 24, "the worker never went away in the middle");
}

#[tokio::test]
async fn a_repeat_that_was_granted_is_not_taken_back_by_the_first_request() {
    let ledger = Ledger::open("memory:").await.unwrap();
    enqueue(&ledger, 2).await;
    let first = pulled(&ledger, "l1", 2).await;
    let again = handed_over(pulled(&ledger, "l1", 2).await);
    assert_eq!(again.len(), 2);
    drop(first);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(statuses(&ledger, 2).await, [Some(Status::Running); 2]);
    assert_eq!(handed_over(pulled(&ledger, "l1", 2).await), again);
}

#[tokio::test]
async fn an_entry_that_was_released_and_leased_again_is_not_the_first_workers() {
    let ledger = Ledger::open("memory:").await.unwrap();
    enqueue(&ledger, 1).await;
    let offers = pulled(&ledger, "l1", 1).await;
    let owner = ledger.remote_owner(offers[0].identity().clone(), offers[0].acquired().fence);
    handed_over(offers);
    let end = Undelivered { retry_in: Some(Duration::ZERO), ..Undelivered::default() };
    assert!(matches!(owner.undelivered(1, end).await.unwrap(), WriteResult::Written(_)));
    assert_eq!(pulled(&ledger, "l1", 1).await.len(), 0, "a used id gets nothing new");
    let second = handed_over(pulled(&ledger, "l2", 1).await);
    assert_eq!(second["k0"].1, 2);
    assert_eq!(pulled(&ledger, "l1", 1).await.len(), 0);
    assert!(matches!(owner.finish(Outcome::success("1")).await.unwrap(), WriteResult::Stale));
}

#[tokio::test]
async fn finish_is_refused_until_a_marking_worker_has_marked() {
    let ledger = Ledger::open("memory:").await.unwrap();
    enqueue(&ledger, 1).await;
    let Pulled::Leased(offers) = ledger.pull(&PullRequest { marks_sent: true, ..request("l1", 1) }).await.unwrap()
    else {
        panic!("it was leased before");
    };
    let owner = ledger.remote_owner(offers[0].identity().clone(), offers[0].acquired().fence);
    assert!(matches!(&offers[0].seen().record.state, State::Leased(lease) if lease.phase == Phase::Claimed));
    handed_over(offers);
    assert!(matches!(owner.finish(Outcome::success("1")).await.unwrap(), WriteResult::NotSent));
    assert!(matches!(owner.sent(None).await.unwrap(), WriteResult::Written(_)));
    assert!(matches!(owner.finish(Outcome::success("1")).await.unwrap(), WriteResult::Written(_)));
}

#[tokio::test]
async fn a_request_for_something_else_under_the_same_id_is_a_mismatch() {
    let ledger = Ledger::open("memory:").await.unwrap();
    enqueue(&ledger, 2).await;
    handed_over(pulled(&ledger, "l1", 1).await);
    for other in [
        PullRequest { marks_sent: true, ..request("l1", 1) },
        PullRequest { probes: true, ..request("l1", 1) },
        PullRequest { operations: vec![Operation::new("another").unwrap()], ..request("l1", 1) },
    ] {
        assert!(matches!(ledger.pull(&other).await.unwrap(), Pulled::Mismatch), "{other:?}");
    }
    let theirs = PullRequest { tenant: Tenant::new("other").unwrap(), ..request("l1", 9) };
    assert!(matches!(ledger.pull(&theirs).await.unwrap(), Pulled::Leased(offers) if offers.is_empty()));
}

#[tokio::test]
async fn a_batch_is_bounded_by_the_size_of_its_payloads() {
    let ledger = Ledger::open("memory:").await.unwrap();
    let large = "x".repeat(1_000_000);
    for number in 0..12 {
        let call = ledger.operation("op").key(&format!("k{number}"));
        call.enqueue(&large, EnqueueOptions::default()).await.unwrap();
    }
    let first = handed_over(pulled(&ledger, "l1", 100).await);
    assert_eq!(first.len(), 8);
    assert_eq!(handed_over(pulled(&ledger, "l2", 100).await).len(), 4);
}

#[tokio::test]
async fn the_record_of_a_batch_is_forgotten_and_an_empty_one_is_never_made() {
    let ledger = Ledger::open("memory:").await.unwrap();
    assert_eq!(pulled(&ledger, "l1", 1).await.len(), 0);
    let batches = |page: onceward::store::Page| page.listed.len();
    let filter = onceward::store::Filter { operation: Some(Operation::new(LEASES).unwrap()), ..Default::default() };
    assert_eq!(batches(ledger.list(&filter, None, 10).await.unwrap()), 0);
    enqueue(&ledger, 1).await;
    handed_over(pulled(&ledger, "l1", 1).await);
    let page = ledger.list(&filter, None, 10).await.unwrap();
    let State::Done { expires_at, forget_at, .. } = page.listed[0].seen.record.state else { panic!("{page:?}") };
    assert_eq!(expires_at, forget_at);
    assert!(expires_at.is_some_and(|at| at <= page.listed[0].seen.now.after(Duration::from_secs(600))));
}
