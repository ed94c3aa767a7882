//! Conditional writes, and that every field is kept.

use std::future::Future;
use std::task::{Context, Poll, Waker};

use onceward_core::outbox::{Destination, Entry, Priority};

use super::*;
use crate::store::Error;

pub async fn an_insert_creates_once_and_then_returns_the_record(store: &AnyStore, _: &ManualClock) {
    let first = created(store, draft("a", 1)).await;
    match store.insert(draft("a", 2), None).await.unwrap() {
        Inserted::Exists(seen) => assert_eq!(seen.record, first),
        created => panic!("a second claim was granted: {created:?}"),
    }
    assert_eq!(seen(store, &first).await.record, first);
}

pub async fn exactly_one_of_many_concurrent_inserts_creates(store: &AnyStore, _: &ManualClock) {
    let tasks = (0..100).map(|number| {
        let store = Arc::clone(store);
        tokio::spawn(async move { store.insert(draft("raced", number), None).await.unwrap() })
    });
    let mut winners = 0;
    for task in tasks.collect::<Vec<_>>() {
        winners += usize::from(matches!(task.await.unwrap(), Inserted::Created { .. }));
    }
    assert_eq!(winners, 1);
}

pub async fn a_replace_succeeds_only_with_the_same_version(store: &AnyStore, _: &ManualClock) {
    let first = created(store, draft("a", 1)).await;
    let second = written(store, &first, first.next()).await;
    match store.replace(Replace::of(&first, first.next())).await.unwrap() {
        Replaced::Conflict(Some(seen)) => assert_eq!(seen.record, second),
        other => panic!("an old version was replaced: {other:?}"),
    }
    assert_eq!(seen(store, &first).await.record, second);
}

pub async fn a_replace_succeeds_only_with_the_same_fence(store: &AnyStore, _: &ManualClock) {
    let record = created(store, draft("a", 1)).await;
    for wrong in [Some(fence(2)), None] {
        let replace = Replace { fence: wrong, ..Replace::of(&record, record.next()) };
        match store.replace(replace).await.unwrap() {
            Replaced::Conflict(Some(seen)) => assert_eq!(seen.record, record),
            other => panic!("another owner's record was replaced: {other:?}"),
        }
    }
    let mut open = record.next();
    open.state = State::Open { not_before: When::NOW };
    let open = written(store, &record, open).await;
    let replace = Replace { fence: Some(fence(1)), ..Replace::of(&open, open.next()) };
    assert!(matches!(store.replace(replace).await.unwrap(), Replaced::Conflict(Some(_))));
}

pub async fn a_replace_of_a_missing_record_conflicts(store: &AnyStore, clock: &ManualClock) {
    let record = draft("nowhere", 1).stamp(clock.now());
    let answer = store.replace(Replace::of(&record, record.next())).await.unwrap();
    assert_eq!(answer, Replaced::Conflict(None));
    assert_eq!(store.get(record.id).await.unwrap(), None);
}

pub async fn exactly_one_of_many_concurrent_replaces_succeeds(store: &AnyStore, _: &ManualClock) {
    let record = created(store, draft("raced", 1)).await;
    let tasks = (0..100).map(|_| {
        let (store, record) = (Arc::clone(store), record.clone());
        tokio::spawn(async move { store.replace(Replace::of(&record, record.next())).await.unwrap() })
    });
    let mut winners = 0;
    for task in tasks.collect::<Vec<_>>() {
        winners += usize::from(matches!(task.await.unwrap(), Replaced::Written { .. }));
    }
    assert_eq!(winners, 1);
}

pub async fn every_field_of_every_state_is_kept(store: &AnyStore, _: &ManualClock) {
    for (number, state) in states().into_iter().enumerate() {
        let full = number % 2 == 0;
        let key = format!("key {number} ünï\u{1f600}");
        let mut draft = draft(&key, 1);
        draft.state = state;
        draft.version = 1 + number as u64;
        draft.fingerprint = fingerprint::of_intent(&Value::parse(b"{\"a\":1}").unwrap());
        draft.terms = Terms {
            effect: if full { Effect::Transactional } else { Effect::External },
            in_doubt: [InDoubt::Hold, InDoubt::Retry, InDoubt::Probe, InDoubt::Tell][number % 4],
            retention: full.then_some(Duration::from_millis(1)),
            tombstone: Duration::from_secs(90 * 86400),
            honours_key_for: Duration::from_millis(86_400_001),
            max_attempts: full.then_some(8),
            after_delivery: full.then_some(Duration::from_millis(60_001)),
        };
        draft.attempts = u32::MAX;
        draft.generation = 3;
        draft.key_digest = full.then(|| digest(b"key"));
        draft.payload = full.then(|| vec![0u8, 1, 255].into());
        draft.entry = full.then(|| {
            let destination = Some(Destination { sink: "größe".to_owned(), key: "once_v1_1".to_owned() });
            let (priority, deliver_within) = (Priority::ALL[number % 3], Some(Duration::from_millis(90_001)));
            Box::new(Entry { priority, deliver_within, keeps_payload: true, destination, rerun: Some(rerun_link()) })
        });
        draft.first_sent_at = full.then_some(When::In(SECOND));
        draft.doubt_since = full.then_some(When::In(2 * SECOND));
        draft.delivered_at = full.then_some(When::In(3 * SECOND));
        draft.last_error = full.then(|| "Fehler: \"größer\"\n".to_owned());
        draft.sequence = full.then_some(number as u64);
        (0..number).for_each(|id| draft.claims.add((id % 3 > 0).then(|| ClaimId::new(b"", &id.to_string()))));
        draft.made_by = full.then(|| Mark::of_owner("release", fence(1)));
        let inserted = created(store, draft).await;
        assert_eq!(seen(store, &inserted).await.record, inserted, "after insert");
        let replaced = written(store, &inserted, inserted.next()).await;
        assert_eq!(seen(store, &inserted).await.record, replaced, "after replace");
    }
}

/// Polls a replace once, so that the store has the write, like a caller that continues with other work. Returns the rest of the
/// future.
fn polled_once(store: &AnyStore, replace: Replace) -> impl Future<Output = Result<Replaced, Error>> {
    let store = Arc::clone(store);
    let mut replacing = Box::pin(async move { store.replace(replace).await });
    let first = replacing.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    async move {
        match first {
            Poll::Ready(replaced) => replaced,
            Poll::Pending => replacing.await,
        }
    }
}

/// The write of a delivery, or of its revocation, as the ledger makes it.
fn delivery(last: &Seen, arrived: bool) -> Replace {
    let command = Command::Delivered { fence: fence(1), arrived };
    Replace { may_wait: arrived, ..Replace::of(&last.record, drafted(decide(Some(last), &command).write)) }
}

pub async fn a_delivery_and_its_revocation_are_kept(store: &AnyStore, clock: &ManualClock) {
    let record = finished(store, "a", Outcome::success("1")).await;
    clock.advance(SECOND);
    let delivered = delivery(&seen(store, &record).await, true);
    assert_eq!(store.replace(delivered).await.unwrap(), Replaced::Written { now: clock.now() });
    let last = seen(store, &record).await;
    assert_eq!(last.record.delivered_at, Some(clock.now()));
    assert_eq!((&last.record.state, last.record.version), (&record.state, record.version + 1));
    let revoked = delivery(&last, false);
    assert!(matches!(store.replace(revoked).await.unwrap(), Replaced::Written { .. }));
    assert_eq!(seen(store, &record).await.record.delivered_at, None);
}

pub async fn a_call_after_a_delivered_tombstone_is_a_new_one(store: &AnyStore, clock: &ManualClock) {
    let mut draft = draft("a", 1);
    (draft.generation, draft.terms.after_delivery) = (3, Some(Duration::ZERO));
    let record = created(store, draft).await;
    for command in [
        Command::Finish { fence: fence(1), outcome: Outcome::success("1") },
        Command::Delivered { fence: fence(1), arrived: true },
    ] {
        let last = seen(store, &record).await;
        written(store, &last.record, drafted(decide(Some(&last), &command).write)).await;
    }
    clock.advance(11 * SECOND);
    assert_eq!(store.purge(10).await.unwrap().tombstones, 1);
    let tombstone = seen(store, &record).await;
    assert!(matches!(tombstone.record.state, State::Tombstone { .. }));
    let Command::Begin(mut next) = begin_as(identity("acme", "charge", "a"), 2, false) else { panic!("a begin") };
    let held = decide(Some(&tombstone), &Command::Begin(next.clone())).answer;
    assert!(
        matches!(held, CommandResult::Decision(Decision::OutcomeNotKept { .. })),
        "for the whole retention: {held:?}"
    );
    next.terms.after_delivery = Some(Duration::ZERO);
    match decide(Some(&tombstone), &Command::Begin(next)).answer {
        CommandResult::Decision(Decision::Acquired(acquired)) => {
            assert_eq!(acquired.generation, 4, "with a new downstream key")
        }
        other => panic!("a call after a delivered outcome was refused: {other:?}"),
    }
}

pub async fn a_write_that_may_wait_comes_before_later_writes(store: &AnyStore, _: &ManualClock) {
    for number in 0..20 {
        let record = finished(store, &format!("k{number}"), Outcome::success("1")).await;
        let last = seen(store, &record).await;
        let waiting = polled_once(store, delivery(&last, true));
        // A later write based on the earlier read: if it succeeded, the delivery would be lost, or would be written after it.
        match store.replace(Replace::of(&last.record, last.record.next())).await.unwrap() {
            Replaced::Conflict(Some(seen)) => assert!(seen.record.delivered_at.is_some()),
            other => panic!("a later write overtook a delivery: {other:?}"),
        }
        assert!(matches!(waiting.await.unwrap(), Replaced::Written { .. }));
    }
}

pub async fn a_write_that_may_wait_is_written_with_a_later_one(store: &AnyStore, _: &ManualClock) {
    let record = finished(store, "a", Outcome::success("1")).await;
    let last = seen(store, &record).await;
    let waiting = polled_once(store, delivery(&last, true));
    let mut found = last;
    // The conflict returns the delivery, and then its revocation is written after it.
    while let Replaced::Conflict(seen) = store.replace(delivery(&found, false)).await.unwrap() {
        found = *seen.expect("the record is there");
    }
    assert!(matches!(waiting.await.unwrap(), Replaced::Written { .. }));
    let after = seen(store, &record).await.record;
    assert_eq!((after.delivered_at, after.version), (None, record.version + 2));
}

pub async fn a_tombstone_keeps_digests_and_no_names(store: &AnyStore, clock: &ManualClock) {
    let outcome = Outcome::success("1");
    let done = finished(store, "a", outcome.clone()).await;
    clock.advance(11 * SECOND);
    assert_eq!(store.purge(10).await.unwrap().tombstones, 1);
    let record = seen(store, &done).await.record;
    assert_eq!(record.identity, None);
    assert_eq!((record.id, record.fingerprint), (done.id, done.fingerprint));
    match record.state {
        State::Tombstone { outcome: kept, forget_at } => {
            assert_eq!(kept, outcome.digest());
            assert!(forget_at > clock.now());
        }
        other => panic!("no tombstone: {other:?}"),
    }
}

pub async fn the_sequence_number_of_an_item_is_kept_in_its_tombstone(store: &AnyStore, clock: &ManualClock) {
    for number in [0, 1, LARGEST_NUMBER] {
        let mut draft = draft(&format!("s/{number}"), 1);
        draft.sequence = Some(number);
        draft.state = State::Done {
            outcome: Outcome::success("1"),
            fence: fence(1),
            finished_at: When::NOW,
            expires_at: Some(When::In(SECOND)),
            forget_at: Some(When::In(3 * SECOND)),
        };
        let done = created(store, draft).await;
        assert_eq!(seen(store, &done).await.record, done);
        let next = written(store, &done, done.next()).await;
        assert_eq!(seen(store, &done).await.record, next);
        assert_eq!(next.sequence, Some(number));
    }
    clock.advance(SECOND);
    assert_eq!(store.purge(10).await.unwrap().tombstones, 3);
    let tombstones = every_page(store, &Filter::default(), 10).await;
    let numbers: BTreeSet<_> = tombstones.iter().map(|tombstone| tombstone.record.sequence).collect();
    assert_eq!(numbers, BTreeSet::from([Some(0), Some(1), Some(LARGEST_NUMBER)]));
}

pub async fn times_come_from_the_clock_of_the_store(store: &AnyStore, clock: &ManualClock) {
    let record = created(store, draft("a", 1)).await;
    assert_eq!(record.created_at, clock.now());
    match &seen(store, &record).await.record.state {
        State::Leased(lease) => assert_eq!(lease.until, clock.now().after(3 * SECOND)),
        other => panic!("not leased: {other:?}"),
    }
    clock.advance(SECOND);
    let read = seen(store, &record).await;
    assert_eq!(read.now, clock.now());
    assert_eq!(read.record.created_at.after(SECOND), clock.now());
    match store.insert(draft("a", 2), None).await.unwrap() {
        Inserted::Exists(seen) => assert_eq!(seen.now, clock.now()),
        other => panic!("{other:?}"),
    }
    let next = written(store, &record, record.next()).await;
    assert_eq!((next.created_at, next.updated_at), (record.created_at, clock.now()));
}

pub async fn the_largest_outcome_is_kept_byte_for_byte(store: &AnyStore, _: &ManualClock) {
    let body: Vec<u8> = (0..onceward_core::policy::LARGEST_KEEP_LIMIT).map(|number| (number % 251) as u8).collect();
    let done = finished(store, "large", Outcome::success(body)).await;
    assert!(seen(store, &done).await.record == done, "an outcome of 8 MiB came back changed");
}

pub async fn intents_of_other_tenants_and_operations_never_collide(store: &AnyStore, _: &ManualClock) {
    let names = [("acme", "charge", "k"), ("other", "charge", "k"), ("acme", "refund", "k"), ("acmecharge", "k", "k")];
    for (number, (tenant, operation, key)) in names.into_iter().enumerate() {
        let begin = begin_as(identity(tenant, operation, key), number as u128, false);
        created(store, drafted(decide(None, &begin).write)).await;
    }
}
