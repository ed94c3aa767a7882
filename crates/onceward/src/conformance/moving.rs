//! Cases for stores that can be moved: the seal, exports and imports. A store that cannot be moved passes them.

use onceward_core::outbox::{Destination, Entry, Priority};

use super::*;
use crate::store::memory::Memory;
use crate::store::transfer::{Arrival, Departure, Exported, Seal, SealSet, Transfer};
use crate::store::{DueQuery, Error};

fn departure() -> Departure {
    Departure { token: "t".to_owned(), to: "elsewhere".to_owned(), target: "id".to_owned() }
}

fn arrival() -> Arrival {
    Arrival { token: "t".to_owned(), from: "elsewhere".to_owned(), source: "id".to_owned(), after: None }
}

async fn sealed(transfer: &dyn Transfer, next: Seal) {
    let expected = transfer.seal().await.unwrap();
    assert_eq!(transfer.set_seal(&expected, &next).await.unwrap(), SealSet::Written);
    assert_eq!(transfer.seal().await.unwrap(), next);
}

fn is_sealed<A>(result: Result<A, Error>) -> bool {
    matches!(result, Err(Error::Sealed { to, .. }) if to == "elsewhere")
}

async fn exported(transfer: &dyn Transfer, size: usize) -> Vec<Exported> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = transfer.export(after, size).await.unwrap();
        assert!(page.len() <= size, "a page is not larger than its limit");
        let Some(last) = page.last() else { return all };
        after = Some(last.record.id);
        all.extend(page);
    }
}

/// A store in memory with records in every state, and a trail.
async fn source(clock: &ManualClock) -> Memory {
    let memory: AnyStore = Arc::new(Memory::new(Arc::new(clock.clone())));
    for (number, state) in states().into_iter().enumerate() {
        let mut record = draft(&format!("state-{number}"), 1);
        record.state = state;
        // PostgreSQL cannot keep NUL.
        record.last_error = Some("a\0b".to_owned());
        created(&memory, record).await;
    }
    for (number, draft) in entries().into_iter().enumerate() {
        created(&memory, Draft { version: 1 + number as u64, ..draft }).await;
    }
    let last = finished(&memory, "with a trail", Outcome::success("1")).await;
    for note in ["one", "two\0"] {
        let event = AuditEvent { what: EventKind::StaleFinish, by: None, token: None, note: Some(note.to_owned()) };
        memory.append(last.id, event).await.unwrap();
    }
    let copy = Memory::new(Arc::new(clock.clone()));
    assert_eq!(copy.set_seal(&Seal::Open, &Seal::Receiving(arrival())).await.unwrap(), SealSet::Written);
    let transfer = memory.transfer().expect("a store in memory can be moved");
    copy.import(&arrival(), exported(transfer, 100).await).await.unwrap();
    copy
}

/// Entries of the outbox in every state that a courier looks at.
fn entries() -> Vec<Draft> {
    let lease = Lease { phase: Phase::Sent, fence: fence(3), until: When::In(2 * SECOND), owner: None };
    let states = [
        State::Queued { due: When::In(SECOND) },
        State::Leased(lease),
        State::InDoubt { fence: fence(3), retry_at: Some(When::In(3 * SECOND)) },
    ];
    let all = Priority::ALL.into_iter().zip(states).enumerate();
    all.map(|(number, (priority, state))| {
        let mut draft = draft(&format!("entry {number}"), 1);
        let destination = Some(Destination { sink: "größe".to_owned(), key: "once_v1_1".to_owned() });
        let deliver_within = Some(60 * SECOND);
        let rerun = Some(rerun_link());
        draft.entry = Some(Box::new(Entry { priority, deliver_within, keeps_payload: true, destination, rerun }));
        (draft.payload, draft.state) = (Some("a letter\0".into()), state);
        draft
    })
    .collect()
}

/// A drained store refuses new records and new claims, and lets owners finish.
pub async fn a_drained_store_grants_no_claim_and_lets_owners_finish(store: &AnyStore, _: &ManualClock) {
    let Some(transfer) = store.transfer() else { return };
    let record = created(store, draft("owned", 1)).await;
    let done = finished(store, "done", Outcome::success("1")).await;
    let mut released = draft("open", 1);
    released.state = State::Open { not_before: When::NOW };
    let open = created(store, released).await;
    sealed(transfer, Seal::Draining(departure())).await;
    assert!(is_sealed(store.insert(draft("new", 2), None).await), "no new record");
    assert!(
        matches!(store.insert(draft("done", 2), None).await, Ok(Inserted::Exists(seen)) if seen.record.id == done.id)
    );
    let mut claim = open.next();
    claim.state = draft("open", 3).state;
    assert!(is_sealed(store.replace(Replace::of(&open, claim)).await), "no new claim");
    assert!(is_sealed(store.check().await), "it is not ready");
    let last = seen(store, &record).await;
    let finish = Command::Finish { fence: fence(1), outcome: Outcome::success("2") };
    written(store, &record, drafted(decide(Some(&last), &finish).write)).await;
}

/// A sealed store refuses every write, and can still be read.
pub async fn a_sealed_store_refuses_every_write(store: &AnyStore, _: &ManualClock) {
    let Some(transfer) = store.transfer() else { return };
    let record = created(store, draft("owned", 1)).await;
    for seal in [Seal::Draining(departure()), Seal::Sealed(departure()), Seal::Moved(departure())] {
        let is_draining = matches!(seal, Seal::Draining(_));
        sealed(transfer, seal).await;
        if is_draining {
            continue;
        }
        assert!(is_sealed(store.insert(draft("new", 2), None).await));
        let last = seen(store, &record).await;
        let finish = Command::Finish { fence: fence(1), outcome: Outcome::success("2") };
        let draft = drafted(decide(Some(&last), &finish).write);
        assert!(is_sealed(store.replace(Replace::of(&record, draft)).await));
        let event = AuditEvent { what: EventKind::StaleFinish, by: None, token: None, note: None };
        assert!(is_sealed(store.append(record.id, event).await));
        assert!(is_sealed(store.check().await));
    }
    let wrong = Seal::Sealed(departure());
    let changed = transfer.set_seal(&wrong, &Seal::Open).await.unwrap();
    assert_eq!(changed, SealSet::Changed(Seal::Moved(departure())), "a seal is compared before it is replaced");
    sealed(transfer, Seal::Open).await;
    store.check().await.unwrap();
}

/// An import writes every record and its trail as they are. It may be repeated, and an export shows the same again.
pub async fn an_import_keeps_every_record_and_may_be_repeated(store: &AnyStore, clock: &ManualClock) {
    let Some(transfer) = store.transfer() else { return };
    let source = source(clock).await;
    let all = exported(&source, 100).await;
    sealed(transfer, Seal::Receiving(arrival())).await;
    assert!(store.insert(draft("new", 2), None).await.is_err(), "a target grants no claim before it is complete");
    for _ in 0..2 {
        for page in all.chunks(3) {
            transfer.import(&arrival(), page.to_vec()).await.unwrap();
        }
    }
    for size in [1, 4, 100] {
        assert_eq!(exported(transfer, size).await, all, "in the order of the ids");
    }
    let mut other = all[0].clone();
    other.record.version += 1;
    assert!(transfer.import(&arrival(), vec![other]).await.is_err(), "no record is overwritten");
    let stale = Arrival { token: "another".to_owned(), ..arrival() };
    assert!(transfer.import(&stale, all.clone()).await.is_err(), "a move that was given up writes nothing more");
    assert_eq!(exported(transfer, 100).await, all);
    let Seal::Receiving(now) = transfer.seal().await.unwrap() else { panic!("the target is still receiving") };
    assert_eq!(now.after, all.last().map(|last| last.record.id), "a copy goes on after the last page");
    sealed(transfer, Seal::Received(now)).await;
    created(store, draft("new", 2)).await;
    due_after_a_move(store, clock).await;
}

/// The entries are due at the target when they were due at the source.
async fn due_after_a_move(store: &AnyStore, clock: &ManualClock) {
    let operation = Operation::new("charge").unwrap();
    for number in 1..=3 {
        clock.advance(SECOND);
        let queue =
            DueQuery { operation: operation.clone(), tenant: None, after: None, limit: 10, with_abandoned: false };
        let due = store.due(&queue).await.unwrap().entries;
        let keys: Vec<_> = due.iter().map(|seen| seen.record.identity.as_ref().unwrap().key.as_str()).collect();
        assert_eq!(keys, ["entry 0", "entry 1", "entry 2"][..number]);
    }
}

/// A store that has records cannot be the target of a copy.
pub async fn a_store_with_records_receives_no_copy(store: &AnyStore, _: &ManualClock) {
    let Some(transfer) = store.transfer() else { return };
    created(store, draft("owned", 1)).await;
    let refused = transfer.set_seal(&Seal::Open, &Seal::Receiving(arrival())).await.unwrap();
    assert_eq!(refused, SealSet::NotEmpty);
    assert_eq!(transfer.seal().await.unwrap(), Seal::Open);
}

/// A store remembers which operations live in it, each once.
pub async fn the_operations_of_a_store_are_remembered(store: &AnyStore, _: &ManualClock) {
    let names = |names: &[&str]| names.iter().map(|name| Operation::new(name).unwrap()).collect::<Vec<_>>();
    store.claim_operations(&[]).await.unwrap();
    store.claim_operations(&names(&["charge", "GET /größe"])).await.unwrap();
    store.claim_operations(&names(&["email", "charge"])).await.unwrap();
    let mut found = store.operations().await.unwrap();
    found.sort();
    assert_eq!(found, ["GET /größe", "charge", "email"]);
    store.release_operations(&[]).await.unwrap();
    store.release_operations(&names(&["charge", "never"])).await.unwrap();
    let [charge, email] = [&names(&["charge"])[0], &names(&["email"])[0]].map(Clone::clone);
    assert!(!store.has_operation(&charge).await.unwrap() && store.has_operation(&email).await.unwrap());
    assert_eq!(store.operations().await.unwrap().len(), 2);
}
