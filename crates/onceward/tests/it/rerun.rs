//! A deliberate new run of an entry that is done: each finished run has one that follows it, and no other state has any.

use std::sync::Arc;
use std::time::Duration;

use onceward::clock::SystemClock;
use onceward::core::decide::Decision;
use onceward::core::fingerprint::Builder;
use onceward::core::outbox::{AfterAttempt, Destination, Priority};
use onceward::core::record::downstream_key;
use onceward::name::Identity;
use onceward::record::{Record, Status};
use onceward::store::memory::Memory;
use onceward::store::{EventKind, Filter, Store};
use onceward::{
    AttemptFailure, CallBuilder, EnqueueOptions, Enqueued, Error, Guard, Ledger, Outcome, Policy, Recipe, Rerun,
    RerunRefusal, RerunRequest, Resolution, Resolver, Taking,
};

use crate::{every_ledger, every_timed_ledger};

const MAIL: &str = "mail";
const PAYLOAD: &str = r#"{"to":"ann","memo":"first"}"#;

fn letter(ledger: &Ledger, key: &str) -> CallBuilder {
    ledger.operation(MAIL).key(key)
}

fn identity(ledger: &Ledger, key: &str) -> Identity {
    letter(ledger, key).call().unwrap().identity
}

async fn record(ledger: &Ledger, identity: &Identity) -> Record {
    ledger.get(identity).await.unwrap().unwrap().seen.record
}

async fn queue(ledger: &Ledger, key: &str, options: EnqueueOptions) -> Identity {
    let queued = letter(ledger, key).enqueue_json(PAYLOAD.into(), options).await.unwrap();
    assert_eq!(queued, Enqueued::Created);
    identity(ledger, key)
}

/// Takes the entry as a courier does, and returns the key that the downstream gets.
async fn take(ledger: &Ledger, identity: &Identity) -> (Guard, String) {
    let seen = ledger.get(identity).await.unwrap().unwrap().seen;
    let key = downstream_key(identity, "post", seen.record.generation);
    let destination = Destination { sink: "post".to_owned(), key };
    let policy = Arc::new(Policy::default());
    let Taking::Taken(entry) = ledger.take_entry(seen, destination, &policy).await.unwrap() else {
        panic!("it is not due");
    };
    let key = entry.seen.record.entry.unwrap().destination.unwrap().key;
    (entry.guard, key)
}

async fn deliver(ledger: &Ledger, identity: &Identity) -> String {
    let (guard, key) = take(ledger, identity).await;
    guard.finish(Outcome::success("\"sent\"")).await.unwrap();
    key
}

async fn delivered(ledger: &Ledger, key: &str, options: EnqueueOptions) -> (Identity, String) {
    let identity = queue(ledger, key, options).await;
    let downstream = deliver(ledger, &identity).await;
    (identity, downstream)
}

async fn rerun(ledger: &Ledger, identity: &Identity, payload: Option<&str>) -> Rerun {
    let payload = payload.map(|payload| payload.as_bytes().to_vec());
    let who = Resolver { by: Some("ana"), token: None };
    ledger.rerun(identity, RerunRequest { payload, session: None, who, why: "it was lost" }).await.unwrap()
}

#[track_caller]
fn queued(rerun: Rerun) -> (Identity, u32) {
    let Rerun::Queued { identity, run } = rerun else { panic!("{rerun:?}") };
    (identity, run)
}

async fn count(ledger: &Ledger) -> usize {
    ledger.list(&Filter::default(), None, 100).await.unwrap().listed.len()
}

#[tokio::test]
async fn a_new_run_has_a_key_and_a_downstream_key_of_its_own_and_names_the_run_that_it_follows() {
    for (ledger, _folder) in every_ledger().await {
        let options = EnqueueOptions { priority: Priority::High, ..EnqueueOptions::default() };
        let (first, first_key) = delivered(&ledger, "ann", options).await;
        let (second, run) = queued(rerun(&ledger, &first, Some(PAYLOAD)).await);
        assert_eq!(run, 2);
        assert!(second.key.as_str().starts_with("rerun_v1_") && second.key.as_str().len() == 41, "{second:?}");
        let new = record(&ledger, &second).await;
        assert_eq!(new.payload.as_deref(), Some(PAYLOAD.as_bytes()));
        let entry = new.entry.unwrap();
        let link = entry.rerun.unwrap();
        assert_eq!((entry.priority, link.of.as_str(), link.run), (Priority::High, "ann", 2));
        let second_key = deliver(&ledger, &second).await;
        assert_ne!(first_key, second_key, "the downstream acts again");
        for (identity, names) in [(&first, second.key.as_str().to_owned()), (&second, format!("run 2 of {first}"))] {
            let intent = ledger.get(identity).await.unwrap().unwrap();
            assert_eq!(intent.status(), Some(Status::Done));
            let [entry] = &intent.trail[..] else { panic!("{:?}", intent.trail) };
            assert_eq!((entry.event.what, entry.event.by.as_deref()), (EventKind::Rerun, Some("ana")));
            let note = entry.event.note.as_deref().unwrap();
            assert!(note.contains(&names) && note.ends_with(": it was lost"), "{note}");
        }
    }
}

#[tokio::test]
async fn asking_again_gives_the_same_run_in_each_of_its_states_and_the_third_run_follows_the_second() {
    for (ledger, _folder) in every_ledger().await {
        let (first, _) = delivered(&ledger, "ann", EnqueueOptions::default()).await;
        let (second, _) = queued(rerun(&ledger, &first, Some(PAYLOAD)).await);
        let again = async |expected: &dyn Fn(&Decision) -> bool| {
            // Spelled differently, it is the same payload.
            let found = rerun(&ledger, &first, Some(r#"{"memo":"first", "to":"\u0061nn"}"#)).await;
            let Rerun::Existing { identity, run: 2, decision } = &found else { panic!("{found:?}") };
            assert!(*identity == second && expected(decision), "{found:?}");
        };
        again(&|decision| *decision == Decision::Queued { created: false }).await;
        let (guard, _) = take(&ledger, &second).await;
        again(&|decision| matches!(decision, Decision::InFlight { running: true, .. })).await;
        guard.finish(Outcome::success("2")).await.unwrap();
        again(&|decision| matches!(decision, Decision::Replay { .. })).await;
        assert_eq!(count(&ledger).await, 2);
        let (third, run) = queued(rerun(&ledger, &second, Some(PAYLOAD)).await);
        assert_eq!((run, count(&ledger).await), (3, 3));
        let link = record(&ledger, &third).await.entry.unwrap().rerun.unwrap();
        assert_eq!(link.of, second.key);
        let trail = ledger.get(&first).await.unwrap().unwrap().trail;
        assert_eq!(trail.len(), 1, "{trail:?}");
    }
}

#[tokio::test]
async fn many_requests_at_once_make_one_run() {
    for (ledger, _folder) in every_ledger().await {
        let (first, _) = delivered(&ledger, "ann", EnqueueOptions::default()).await;
        let requests = (0..20).map(|_| rerun(&ledger, &first, Some(PAYLOAD)));
        let runs = futures_util::future::join_all(requests).await;
        assert_eq!(runs.iter().filter(|run| matches!(run, Rerun::Queued { run: 2, .. })).count(), 1, "{runs:?}");
        assert_eq!(runs.iter().filter(|run| matches!(run, Rerun::Existing { run: 2, .. })).count(), 19, "{runs:?}");
        assert_eq!(count(&ledger).await, 2);
        let trail = ledger.get(&first).await.unwrap().unwrap().trail;
        assert_eq!(trail.len(), 1, "{trail:?}");
    }
}

#[tokio::test]
async fn an_erased_payload_is_given_again_and_must_be_the_same() {
    for (ledger, _folder) in every_ledger().await {
        let (first, _) = delivered(&ledger, "ann", EnqueueOptions::default()).await;
        let refused = rerun(&ledger, &first, None).await;
        assert_eq!(refused, Rerun::Refused(RerunRefusal::PayloadErased));
        for other in [r#"{"to":"bob","memo":"first"}"#, "not json", "{}"] {
            let refused = rerun(&ledger, &first, Some(other)).await;
            assert_eq!(refused, Rerun::Refused(RerunRefusal::OtherPayload), "{other}");
        }
        assert_eq!(count(&ledger).await, 1);
        let large = RerunRequest { payload: Some(vec![b'1'; 1024 * 1024 + 1]), ..RerunRequest::default() };
        assert!(matches!(ledger.rerun(&first, large).await, Err(Error::Invalid(_))));
    }
}

#[tokio::test]
async fn a_kept_payload_need_not_be_given_and_stays_kept() {
    for (ledger, _folder) in every_ledger().await {
        let options = EnqueueOptions { keep_payload: true, ..EnqueueOptions::default() };
        let (mut last, _) = delivered(&ledger, "ann", options).await;
        for number in 2..5 {
            let refused = rerun(&ledger, &last, Some("1")).await;
            assert_eq!(refused, Rerun::Refused(RerunRefusal::OtherPayload));
            let (next, run) = queued(rerun(&ledger, &last, None).await);
            assert_eq!(run, number);
            deliver(&ledger, &next).await;
            assert_eq!(record(&ledger, &next).await.payload.as_deref(), Some(PAYLOAD.as_bytes()));
            last = next;
        }
    }
}

/// The SQL functions take any bytes, and without a fingerprint of the user's own they hash these bytes.
#[tokio::test]
async fn an_entry_from_a_transaction_in_sql_is_compared_by_its_bytes() {
    for (ledger, _folder) in every_ledger().await {
        for (key, payload) in [("json", PAYLOAD), ("text", "Dear Ann,")] {
            let mut call = letter(&ledger, key).call().unwrap();
            call.fingerprint = Builder::new("payload").part("payload", payload).build();
            ledger.enqueue(&call, payload.into(), EnqueueOptions::default()).await.unwrap();
            let first = identity(&ledger, key);
            deliver(&ledger, &first).await;
            let other = format!("{payload} ");
            let refused = rerun(&ledger, &first, Some(&other)).await;
            assert_eq!(refused, Rerun::Refused(RerunRefusal::OtherPayload));
            let (second, _) = queued(rerun(&ledger, &first, Some(payload)).await);
            deliver(&ledger, &second).await;
            queued(rerun(&ledger, &second, Some(payload)).await);
        }
    }
}

/// A ledger whose letters are named by their receiver and compared by nothing else.
async fn ledger_with_recipe(recipe: &str) -> Ledger {
    let recipe: Recipe = serde_json::from_str(recipe).unwrap();
    Ledger::builder().recipe(MAIL, recipe).on(Arc::new(Memory::new(Arc::new(SystemClock))))
}

#[tokio::test]
async fn with_a_recipe_the_payload_must_agree_where_the_recipe_looks() {
    let ledger = ledger_with_recipe(r#"{"key":["/to"],"match":["/amount"]}"#).await;
    for (key, session) in [(None, None), (None, Some("s")), (Some("own"), None)] {
        let mut call = ledger.operation(MAIL);
        if let Some(key) = key {
            call = call.key(key);
        }
        if let Some(session) = session {
            call = call.session(session);
        }
        let payload = r#"{"to":"ann","amount":7,"memo":"a"}"#;
        call.enqueue_json(payload.into(), EnqueueOptions::default()).await.unwrap();
        let first = call.clone().intent_json(payload.as_bytes()).call().unwrap().identity;
        deliver(&ledger, &first).await;
        let ask = async |payload: &str, session| {
            let payload = Some(payload.as_bytes().to_vec());
            let request = RerunRequest { payload, session, why: "lost", ..RerunRequest::default() };
            ledger.rerun(&first, request).await.unwrap()
        };
        for other in [r#"{"to":"bob","amount":7}"#, r#"{"to":"ann","amount":8}"#, r#"{"amount":7}"#] {
            assert_eq!(ask(other, session).await, Rerun::Refused(RerunRefusal::OtherPayload), "{key:?} {other}");
        }
        let reworded = r#"{"to":"ann","amount":7,"memo":"b"}"#;
        if session.is_some() {
            assert_eq!(ask(reworded, None).await, Rerun::Refused(RerunRefusal::OtherPayload), "another session");
        }
        let (second, _) = queued(ask(reworded, session).await);
        let kept = record(&ledger, &second).await.payload.unwrap();
        assert_eq!(&kept[..], reworded.as_bytes(), "what the person gave is delivered");
        let other_words = r#"{"to":"ann","amount":7,"memo":"c"}"#;
        assert_eq!(ask(other_words, session).await, Rerun::Refused(RerunRefusal::OtherPayload), "it is queued already");
    }
}

#[tokio::test]
async fn a_window_is_cut_from_the_time_when_the_finished_run_was_recorded() {
    // The window of a minute ago is over by now.
    let recipe = r#"{"key":["/to"],"window":{"of":"now","every":"1s","allow_now":true}}"#;
    let ledger = ledger_with_recipe(recipe).await;
    let payload = r#"{"to":"ann"}"#;
    let call = ledger.operation(MAIL);
    // At the end of a window, the ledger may record it in the next one.
    let millis = || i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap() % 1000;
    while !(100..500).contains(&millis()) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    call.enqueue_json(payload.into(), EnqueueOptions::default()).await.unwrap();
    let listed = ledger.list(&Filter::default(), None, 1).await.unwrap().listed;
    let first = listed[0].seen.record.identity.clone().unwrap();
    deliver(&ledger, &first).await;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    queued(rerun(&ledger, &first, Some(payload)).await);
}

#[tokio::test]
async fn only_what_is_done_is_run_again() {
    for (ledger, _folder) in every_ledger().await {
        let refused = async |identity: &Identity| match rerun(&ledger, identity, Some(PAYLOAD)).await {
            Rerun::Refused(refusal) => refusal,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(&identity(&ledger, "none")).await, RerunRefusal::Absent);
        let entry = queue(&ledger, "ann", EnqueueOptions::default()).await;
        assert_eq!(refused(&entry).await, RerunRefusal::NotDone(Status::Queued));
        let (guard, _) = take(&ledger, &entry).await;
        assert_eq!(refused(&entry).await, RerunRefusal::NotDone(Status::Running));
        let failure = |may_have_happened| AttemptFailure {
            may_have_happened,
            retry_in: Duration::ZERO,
            after: AfterAttempt::GiveUp,
            error: "no answer".to_owned(),
        };
        guard.undelivered(failure(true)).await.unwrap();
        assert_eq!(refused(&entry).await, RerunRefusal::NotDone(Status::InDoubt));
        let version = record(&ledger, &entry).await.version;
        ledger.resolve(&entry, version, Resolution::DidNotHappen, None, None).await.unwrap();
        let (guard, _) = take(&ledger, &entry).await;
        guard.undelivered(failure(false)).await.unwrap();
        assert_eq!(refused(&entry).await, RerunRefusal::NotDone(Status::Dead));
        let direct = letter(&ledger, "direct");
        direct.run(|_| async { Ok(1) }).await.unwrap();
        assert_eq!(refused(&identity(&ledger, "direct")).await, RerunRefusal::NotAnEntry);
        assert_eq!(count(&ledger).await, 2);
    }
}

#[tokio::test]
async fn a_final_failure_is_done_and_can_be_run_again() {
    for (ledger, _folder) in every_ledger().await {
        let entry = queue(&ledger, "ann", EnqueueOptions::default()).await;
        let (guard, _) = take(&ledger, &entry).await;
        guard.finish(Outcome::failure("\"no such address\"")).await.unwrap();
        queued(rerun(&ledger, &entry, Some(PAYLOAD)).await);
    }
}

#[tokio::test]
async fn the_new_run_is_remembered_at_least_as_long_as_the_finished_one() {
    const HOUR: Duration = Duration::from_secs(3600);
    for (ledger, clock, _folder) in every_timed_ledger().await {
        let long = letter(&ledger, "ann").retention(100 * HOUR);
        long.enqueue_json(PAYLOAD.into(), EnqueueOptions::default()).await.unwrap();
        let first = identity(&ledger, "ann");
        deliver(&ledger, &first).await;
        // The policy of the operation keeps outcomes for a day only.
        let (second, _) = queued(rerun(&ledger, &first, Some(PAYLOAD)).await);
        deliver(&ledger, &second).await;
        clock.advance(99 * HOUR);
        ledger.purge(100).await.unwrap();
        let again = rerun(&ledger, &first, Some(PAYLOAD)).await;
        assert!(matches!(again, Rerun::Existing { run: 2, .. }), "{again:?}");
        clock.advance(2 * HOUR);
        for _ in 0..2 {
            assert_eq!(rerun(&ledger, &first, Some(PAYLOAD)).await, Rerun::Refused(RerunRefusal::Expired));
            ledger.purge(100).await.unwrap();
        }
        clock.advance(1000 * HOUR);
        ledger.purge(100).await.unwrap();
        assert_eq!(rerun(&ledger, &first, Some(PAYLOAD)).await, Rerun::Refused(RerunRefusal::Absent));
        // The key is free, and what is recorded under it now is another intent with reruns of its own.
        let (later, _) = delivered(&ledger, "ann", EnqueueOptions::default()).await;
        assert_eq!(later, first);
        assert_ne!(queued(rerun(&ledger, &later, Some(PAYLOAD)).await).0, second);
    }
}

#[tokio::test]
async fn a_run_that_was_given_up_is_queued_again_under_its_own_key() {
    for (ledger, _folder) in every_ledger().await {
        let (first, _) = delivered(&ledger, "ann", EnqueueOptions::default()).await;
        let (second, _) = queued(rerun(&ledger, &first, Some(PAYLOAD)).await);
        ledger.cancel(&second, 1, Resolver::default(), None).await.unwrap();
        let again = rerun(&ledger, &first, Some(PAYLOAD)).await;
        assert!(matches!(&again, Rerun::Existing { decision: Decision::Dead, .. }), "{again:?}");
        let version = record(&ledger, &second).await.version;
        ledger.requeue(&second, version, false, Resolver::default(), None).await.unwrap();
        let (guard, _) = take(&ledger, &second).await;
        drop(guard);
        assert_eq!(record(&ledger, &second).await.entry.unwrap().rerun.unwrap().run, 2, "the link stays");
    }
}

#[tokio::test]
async fn a_new_run_counts_towards_the_quota_and_stays_in_its_tenant() {
    let store: Arc<dyn Store> = Arc::new(Memory::new(Arc::new(SystemClock)));
    let ledger = Ledger::builder().records_per_tenant(1).on(store);
    let (first, _) = delivered(&ledger, "ann", EnqueueOptions::default()).await;
    let request = || RerunRequest { payload: Some(PAYLOAD.into()), ..RerunRequest::default() };
    assert!(matches!(ledger.rerun(&first, request()).await, Err(Error::Quota { most: 1, .. })));
    let stranger = ledger.operation(MAIL).tenant("other").key("ann").call().unwrap().identity;
    assert_eq!(ledger.rerun(&stranger, request()).await.unwrap(), Rerun::Refused(RerunRefusal::Absent));
}

#[tokio::test]
async fn a_new_run_is_kept_in_the_store_of_its_operation() {
    let (default, fast): (Arc<dyn Store>, Arc<dyn Store>) =
        (Arc::new(Memory::new(Arc::new(SystemClock))), Arc::new(Memory::new(Arc::new(SystemClock))));
    let ledger = Ledger::builder().store("fast", Arc::clone(&fast), [MAIL]).on(Arc::clone(&default));
    let (first, _) = delivered(&ledger, "ann", EnqueueOptions::default()).await;
    // Without the configuration, it is found all the same.
    let unaware = Ledger::builder().store("fast", Arc::clone(&fast), Vec::<String>::new()).on(Arc::clone(&default));
    let (second, _) = queued(rerun(&unaware, &first, Some(PAYLOAD)).await);
    assert!(fast.get(second.digest()).await.unwrap().is_some());
    assert!(default.get(second.digest()).await.unwrap().is_none());
    assert!(matches!(rerun(&ledger, &first, Some(PAYLOAD)).await, Rerun::Existing { .. }));
}

#[tokio::test]
async fn a_missing_note_in_the_trail_of_the_finished_run_is_added_by_the_next_request() {
    // The process that queued the new run was killed before it had written the note.
    let (ledger, other) = (Memory::new(Arc::new(SystemClock)), Memory::new(Arc::new(SystemClock)));
    let (ledger, other): (Arc<dyn Store>, Arc<dyn Store>) = (Arc::new(ledger), Arc::new(other));
    let here = Ledger::builder().on(Arc::clone(&ledger));
    let (first, _) = delivered(&here, "ann", EnqueueOptions::default()).await;
    let elsewhere = Ledger::builder().on(Arc::clone(&other));
    let done = ledger.get(first.digest()).await.unwrap().unwrap();
    let draft = done.record.clone().map(onceward::time::When::At);
    other.insert(draft, None).await.unwrap();
    let (second, _) = queued(rerun(&elsewhere, &first, Some(PAYLOAD)).await);
    let new = other.get(second.digest()).await.unwrap().unwrap();
    ledger.insert(new.record.map(onceward::time::When::At), None).await.unwrap();
    assert!(here.get(&first).await.unwrap().unwrap().trail.is_empty());
    let other_person = RerunRequest { payload: Some(PAYLOAD.into()), why: "I was told to", ..RerunRequest::default() };
    assert!(matches!(here.rerun(&first, other_person).await.unwrap(), Rerun::Existing { .. }));
    let trail = here.get(&first).await.unwrap().unwrap().trail;
    let note = trail[0].event.note.as_deref().unwrap();
    assert!(note.ends_with(": it was lost"), "who queued it, and why, is part of the record: {note}");
}
