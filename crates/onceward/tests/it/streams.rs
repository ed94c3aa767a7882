//! Streams: items in order, old numbers, gaps, doubt, late owners, waiting, expiry and refused calls.

use std::sync::Arc;
use std::time::Duration;

use onceward::clock::SystemClock;
use onceward::core::decide::Resolution;
use onceward::core::record::Status;
use onceward::store::memory::Memory;
use onceward::store::{EventKind, Store};
use onceward::{Begun, CallBuilder, Error, Failure, Guard, InDoubt, Ledger, Outcome, Resolved, WriteResult};

use crate::{Effects, every_ledger, every_timed_ledger, status};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn item(ledger: &Ledger, number: u64) -> CallBuilder {
    ledger.operation("apply").item("account-7", number)
}

async fn apply(ledger: &Ledger, number: u64) -> Result<onceward::Done<String>, Error> {
    item(ledger, number).run(|_| async { Ok(format!("applied {number}")) }).await
}

async fn claim(call: &CallBuilder) -> Guard {
    match call.begin().await.unwrap() {
        Begun::Acquired(guard) => guard,
        Begun::Answered(decision) => panic!("not acquired: {decision:?}"),
    }
}

fn out_of_order<T>(result: Result<T, Error>) -> (u64, u64, Option<Status>) {
    match result.err() {
        Some(Error::OutOfOrder { expected, given, status, .. }) => (expected, given, status),
        other => panic!("not out of order: {other:?}"),
    }
}

async fn resolve(ledger: &Ledger, call: &CallBuilder, resolution: Resolution) -> Resolved {
    let identity = call.call().unwrap().identity;
    let version = ledger.get(&identity).await.unwrap().unwrap().seen.record.version;
    ledger.resolve(&identity, version, resolution, Some("ana"), Some("looked")).await.unwrap()
}

#[tokio::test]
async fn items_are_done_in_order_and_an_old_number_gets_its_own_result() {
    for (ledger, _folder) in every_ledger().await {
        assert_eq!(out_of_order(apply(&ledger, 2).await), (1, 2, None));
        for number in 1..=5 {
            assert!(!apply(&ledger, number).await.unwrap().replayed);
            assert_eq!(out_of_order(apply(&ledger, number + 2).await), (number + 1, number + 2, None));
            for old in 1..=number {
                let done = apply(&ledger, old).await.unwrap();
                assert_eq!((done.value, done.replayed), (format!("applied {old}"), true));
            }
        }
    }
}

#[tokio::test]
async fn another_handle_on_the_same_file_sees_the_same_stream() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let one = Ledger::open(path.to_str().unwrap()).await.unwrap();
    let other = Ledger::open(path.to_str().unwrap()).await.unwrap();
    apply(&one, 1).await.unwrap();
    apply(&other, 2).await.unwrap();
    // The first handle has seen item 1 done, and must not answer from that.
    assert!(!apply(&one, 3).await.unwrap().replayed);
    assert_eq!(apply(&other, 3).await.unwrap().value, "applied 3");
    assert!(!apply(&other, 4).await.unwrap().replayed);
    assert_eq!(out_of_order(apply(&one, 6).await), (5, 6, None));
    assert_eq!(apply(&one, 1).await.unwrap().value, "applied 1");
    assert_eq!(apply(&one, 4).await.unwrap().value, "applied 4");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_callers_of_the_next_item_one_runs() {
    for (ledger, _folder) in every_ledger().await {
        let effects = Effects::default();
        for number in 1..=3 {
            let callers = (0..100).map(|_| {
                let (ledger, effects) = (ledger.clone(), effects.clone());
                tokio::spawn(async move {
                    let call = item(&ledger, number).wait(Duration::from_secs(30));
                    let work = |_| async move {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                        Ok(effects.happen() as u64)
                    };
                    call.run(work).await.unwrap().value
                })
            });
            for caller in callers.collect::<Vec<_>>() {
                assert_eq!(caller.await.unwrap(), number);
            }
        }
        assert_eq!(effects.count(), 3);
    }
}

#[tokio::test]
async fn each_item_has_its_own_downstream_key_that_is_the_same_on_every_attempt() {
    let ledger = Ledger::open("memory:").await.unwrap();
    let mut keys = Vec::new();
    for number in 1..=3 {
        let first = claim(&item(&ledger, number)).await;
        let key = first.claim().downstream_key().to_owned();
        assert_eq!(first.claim().key(), format!("account-7/{number}"));
        first.release(Duration::ZERO, None).await.unwrap();
        let second = claim(&item(&ledger, number)).await;
        assert_eq!((second.claim().downstream_key(), second.claim().attempt()), (key.as_str(), 2));
        second.finish(Outcome::success("1")).await.unwrap();
        keys.push(key);
    }
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 3, "the downstream would treat the second item as a repeat of the first");
}

#[tokio::test]
async fn the_next_item_does_not_begin_while_one_runs_or_was_released() {
    for (ledger, _folder) in every_ledger().await {
        let running = claim(&item(&ledger, 1)).await;
        assert_eq!(out_of_order(apply(&ledger, 2).await), (1, 2, Some(Status::Running)));
        assert!(matches!(apply(&ledger, 1).await, Err(Error::InFlight { .. })));
        running.release(Duration::ZERO, None).await.unwrap();
        assert_eq!(out_of_order(apply(&ledger, 2).await), (1, 2, Some(Status::Open)));
        assert!(!apply(&ledger, 1).await.unwrap().replayed);
        assert!(!apply(&ledger, 2).await.unwrap().replayed);
    }
}

#[tokio::test]
async fn a_final_failure_completes_its_item_and_is_replayed() {
    for (ledger, _folder) in every_ledger().await {
        let declined = item(&ledger, 1).run(|_| async { Err::<String, _>(Failure::permanent("declined")) }).await;
        assert!(matches!(declined, Err(Error::Failed { replayed: false, .. })));
        apply(&ledger, 2).await.unwrap();
        assert!(matches!(apply(&ledger, 1).await, Err(Error::Failed { replayed: true, .. })));
    }
}

#[tokio::test]
async fn an_item_in_doubt_holds_its_stream_and_the_error_says_how_to_settle_it() {
    for (ledger, _folder) in every_ledger().await {
        apply(&ledger, 1).await.unwrap();
        let lost = item(&ledger, 2).run(|_| async { Err::<String, _>(Failure::unknown("time-out")) }).await;
        assert!(lost.is_err());
        assert!(matches!(apply(&ledger, 2).await, Err(Error::InDoubt { .. })));
        let held = apply(&ledger, 3).await.unwrap_err();
        let message = held.to_string();
        assert!(message.contains("item 2 is in doubt") && message.contains("onceward resolve"), "{message}");
        assert!(message.contains("/head") && !message.contains("account-7"), "{message}");
        assert_eq!(out_of_order::<()>(Err(held)), (2, 3, Some(Status::InDoubt)));

        let happened = Resolution::Happened(Outcome::success("\"by hand\""));
        assert_eq!(resolve(&ledger, &item(&ledger, 2), happened).await, Resolved::Settled);
        apply(&ledger, 3).await.unwrap();
        assert_eq!(apply(&ledger, 2).await.unwrap().value, "by hand");
        let trail = item(&ledger, 3).get().await.unwrap().unwrap().trail;
        assert_eq!(trail[0].event.note.as_deref(), Some("item 2: looked"));
    }
}

#[tokio::test]
async fn a_reset_frees_the_number_and_never_moves_the_stream_back() {
    for (ledger, _folder) in every_ledger().await {
        apply(&ledger, 1).await.unwrap();
        let slip = item(&ledger, 2).intent(&"a slip");
        claim(&slip).await.doubt(None).await.unwrap();
        assert_eq!(resolve(&ledger, &slip, Resolution::Reset).await, Resolved::Settled);
        assert_eq!(apply(&ledger, 1).await.unwrap().value, "applied 1");
        assert_eq!(out_of_order(apply(&ledger, 3).await), (2, 3, Some(Status::Open)));
        assert!(!item(&ledger, 2).intent(&"meant").run(|_| async { Ok(2) }).await.unwrap().replayed);
        let again = item(&ledger, 2).intent(&"a slip").run(|_| async { Ok(2) }).await;
        assert!(matches!(again, Err(Error::Mismatch { .. })), "{again:?}");
        apply(&ledger, 3).await.unwrap();
        let again = item(&ledger, 2).intent(&"a slip").run(|_| async { Ok(2) }).await;
        assert!(matches!(again, Err(Error::Mismatch { .. })), "{again:?}");
    }
}

#[tokio::test]
async fn a_late_owner_cannot_change_the_next_item_and_is_compared_with_its_own_item() {
    for (ledger, clock, _folder) in every_timed_ledger().await {
        let retried = item(&ledger, 1).in_doubt(InDoubt::Retry);
        let late = [claim(&retried).await, {
            clock.advance(Duration::from_secs(200));
            claim(&retried).await
        }];
        clock.advance(Duration::from_secs(200));
        let owner = claim(&retried).await;
        assert_eq!(owner.finish(Outcome::success("\"one\"")).await.unwrap(), WriteResult::Written);
        let next = claim(&item(&ledger, 2)).await;
        let [same, other] = late;
        // The record of item 2 says nothing about item 1.
        assert_eq!(same.finish(Outcome::success("\"one\"")).await.unwrap(), WriteResult::Stale);
        assert_eq!(ledger.stats().contradictions, 0);
        assert_eq!(other.finish(Outcome::success("\"other\"")).await.unwrap(), WriteResult::Stale);
        assert_eq!(ledger.stats().contradictions, 1);
        let trail = item(&ledger, 1).get().await.unwrap().unwrap().trail;
        let events: Vec<_> = trail.iter().map(|entry| entry.event.what).collect();
        assert_eq!(events, [EventKind::StaleFinish, EventKind::Contradiction]);
        assert!(trail[1].event.note.as_deref().unwrap().starts_with("item 1, attempt 2"), "{trail:?}");

        assert_eq!(status(&item(&ledger, 2)).await, "running");
        assert_eq!(next.finish(Outcome::success("\"two\"")).await.unwrap(), WriteResult::Written);
        assert_eq!(apply(&ledger, 1).await.unwrap().value, "one");
        assert_eq!(apply(&ledger, 2).await.unwrap().value, "two");
    }
}

#[tokio::test]
async fn a_waiting_caller_gets_its_item_although_the_stream_moves_on() {
    let store: Arc<dyn Store> = Arc::new(Memory::new(Arc::new(SystemClock)));
    // The owner has its own ledger, as in another process, so it does not wake the waiting caller.
    let (owner, ledger) = (Ledger::builder().on(Arc::clone(&store)), Ledger::builder().on(store));
    let first = claim(&item(&owner, 1)).await;
    let waiting = {
        let call = item(&ledger, 1).wait(Duration::from_secs(30));
        tokio::spawn(async move { call.run(|_| async { Ok("again".to_owned()) }).await })
    };
    tokio::time::sleep(Duration::from_millis(200)).await;
    first.finish(Outcome::success("\"one\"")).await.unwrap();
    let second = claim(&item(&owner, 2)).await;
    let waited = tokio::time::timeout(Duration::from_secs(5), waiting).await;
    assert_eq!(waited.expect("it does not wait for item 2").unwrap().unwrap().value, "one");
    second.release(Duration::ZERO, Some("refused")).await.unwrap();
}

#[tokio::test]
async fn the_newest_item_is_never_purged_and_the_others_never_run_again() {
    for (ledger, clock, _folder) in every_timed_ledger().await {
        apply(&ledger, 1).await.unwrap();
        apply(&ledger, 2).await.unwrap();
        clock.advance(DAY);
        assert_eq!(ledger.purge(100).await.unwrap().tombstones, 1);
        let gone = apply(&ledger, 1).await.unwrap_err();
        assert!(matches!(gone, Error::OutcomeNotKept { outcome: Some(_), .. }), "{gone}");
        clock.advance(1000 * DAY);
        ledger.purge(100).await.unwrap();
        assert_eq!(item(&ledger, 1).get().await.unwrap().map(|intent| intent.seen.record), None);
        let gone = apply(&ledger, 1).await.unwrap_err();
        assert!(matches!(gone, Error::OutcomeNotKept { outcome: None, .. }), "{gone}");
        assert_eq!(apply(&ledger, 2).await.unwrap().value, "applied 2");
        assert!(!apply(&ledger, 3).await.unwrap().replayed);
        // The outcome is kept for a day after the item is done, and that day is long over.
        assert!(matches!(apply(&ledger, 2).await, Err(Error::OutcomeNotKept { .. })));
    }
}

#[tokio::test]
async fn a_stream_may_start_with_another_number() {
    let ledger = Ledger::open("memory:").await.unwrap();
    let event = async |sequence| {
        ledger.consume_event("billing", "order-1", sequence).starts_at(0).run(|_| async { Ok(sequence) }).await
    };
    assert_eq!(out_of_order(event(1).await), (0, 1, None));
    for sequence in 0..3 {
        assert_eq!(event(sequence).await.unwrap().value, sequence);
    }
    assert!(event(0).await.unwrap().replayed);
    let other = ledger.consume_event("billing", "order-2", 0).run(|_| async { Ok(()) }).await;
    assert_eq!(out_of_order(other), (1, 0, None));
}

#[tokio::test]
async fn streams_tenants_and_operations_do_not_share_items() {
    let ledger = Ledger::open("memory:").await.unwrap();
    let effects = Effects::default();
    let calls = [
        ledger.operation("apply").item("a", 1),
        ledger.operation("apply").item("a/1", 1),
        ledger.operation("apply").item("a/head", 1),
        ledger.operation("apply").item("a", 1).tenant("acme"),
        ledger.operation("other").item("a", 1),
        ledger.consume_event("a", "a", 1),
    ];
    for call in &calls {
        call.run(|_| async { Ok(effects.happen()) }).await.unwrap();
    }
    assert_eq!(effects.count(), calls.len());
}

#[tokio::test]
async fn bad_items_are_refused_before_anything_reaches_the_store() {
    let ledger = Ledger::open("memory:").await.unwrap();
    let refused = [
        (ledger.operation("o").key("k").item("s", 1), "not both"),
        (ledger.operation("o").item("", 1), "the stream is empty"),
        (ledger.operation("o").item(&"s".repeat(236), 1), "at most 235"),
        (ledger.operation("o").item("s\n", 1), "control character"),
        (ledger.operation("o").item("s", u64::MAX), "at most 9223372036854775807"),
        (ledger.operation("o").item("s", 1).starts_at(u64::MAX), "at most 9223372036854775807"),
    ];
    for (call, expected) in refused {
        let error = call.run(|_| async { Ok(()) }).await.unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
        assert!(error.to_string().contains(expected), "{error} should say: {expected}");
    }
    assert_eq!(ledger.counts().await.unwrap().0.len(), 0);
}

#[tokio::test]
async fn a_stream_shares_no_key_with_other_calls() {
    for (ledger, _folder) in every_ledger().await {
        apply(&ledger, 1).await.unwrap();
        apply(&ledger, 2).await.unwrap();
        for key in ["account-7/head", "account-7/1"] {
            let plain = ledger.operation("apply").key(key).run(|_| async { Ok(()) }).await;
            assert!(matches!(&plain, Err(Error::MixedUse { .. })), "{plain:?}");
            assert!(plain.unwrap_err().to_string().contains("stream"));
        }
        ledger.operation("apply").key("account-7/2").run(|_| async { Ok(()) }).await.unwrap();
        let taken = apply(&ledger, 3).await;
        assert!(matches!(taken, Err(Error::MixedUse { .. })), "the key for the outcome of item 2 is taken: {taken:?}");
        assert_eq!(apply(&ledger, 2).await.unwrap().value, "applied 2");
    }
}

#[tokio::test]
async fn the_largest_number_has_no_next_item() {
    let ledger = Ledger::open("memory:").await.unwrap();
    let last = onceward::core::stream::LARGEST_NUMBER;
    let call = ledger.operation("o").item("s", last).starts_at(last);
    assert_eq!(call.run(|_| async { Ok(1) }).await.unwrap().value, 1);
    assert!(call.run(|_| async { Ok(2) }).await.unwrap().replayed);
}
