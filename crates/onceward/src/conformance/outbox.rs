//! Entries of the outbox: which are due, and in which order.

use onceward_core::decide::{Enqueue, LeaseEntry, Undelivered};
use onceward_core::outbox::{AfterAttempt, Destination, Entry, Priority};

use super::*;
use crate::store::memory::Memory;
use crate::store::{DueEntries, DueQuery};

const MAIL: &str = "send mail";

fn entry_draft(tenant: &str, key: &str, priority: Priority, delay: Duration, terms: Terms) -> Draft {
    let enqueue = Enqueue {
        identity: identity(tenant, MAIL, key),
        key_digest: None,
        fingerprint: Fingerprint::none(),
        terms,
        payload: "a letter".into(),
        entry: Entry { priority, ..Entry::default() },
        delay,
    };
    drafted(decide(None, &Command::Enqueue(enqueue)).write)
}

async fn queued(store: &AnyStore, tenant: &str, key: &str) -> Record {
    created(store, entry_draft(tenant, key, Priority::Normal, Duration::ZERO, terms())).await
}

async fn due_of(store: &AnyStore, operation: &str, after: Option<&str>, limit: usize) -> DueEntries {
    let after = after.map(|name| Tenant::new(name).unwrap());
    let operation = Operation::new(operation).unwrap();
    store.due(&DueQuery { operation, tenant: None, after, limit, with_abandoned: false }).await.unwrap()
}

async fn due(store: &AnyStore, limit: usize) -> Vec<String> {
    keys(&due_of(store, MAIL, None, limit).await)
}

fn keys(found: &DueEntries) -> Vec<String> {
    found.entries.iter().map(|seen| seen.record.identity.as_ref().unwrap().key.as_str().to_owned()).collect()
}

fn lease(number: u128) -> Command {
    let take =
        Take { fence: fence(number), lease: 3 * SECOND, marks_sent: false, probes: false, owner: None, claim: None };
    Command::Lease(LeaseEntry { take, destination: Destination { sink: "smtp".into(), key: "once_v1_1".into() } })
}

fn undelivered(number: u128, may_have_happened: bool, retry_in: Duration) -> Command {
    let after = AfterAttempt::Retry;
    Command::Undelivered(Undelivered { fence: fence(number), may_have_happened, retry_in, after, error: None })
}

/// Decides on the record that is there, and writes.
async fn applied(store: &AnyStore, record: &Record, command: &Command) -> Record {
    let last = seen(store, record).await;
    written(store, &last.record, drafted(decide(Some(&last), command).write)).await
}

pub async fn an_entry_is_due_when_its_time_has_come(store: &AnyStore, clock: &ManualClock) {
    let later = created(store, entry_draft("acme", "later", Priority::Normal, 2 * SECOND, terms())).await;
    queued(store, "acme", "now").await;
    created(store, draft("a direct call", 1)).await;
    assert_eq!(due(store, 10).await, ["now"]);
    clock.advance(Duration::from_millis(1999));
    assert_eq!(due(store, 10).await, ["now"]);
    clock.advance(Duration::from_millis(1));
    assert_eq!(due(store, 10).await, ["now", "later"]);
    let found = due_of(store, MAIL, None, 10).await.entries.pop().unwrap();
    assert_eq!((found.record, found.now), (later, clock.now()), "the whole entry, with its payload");
}

pub async fn only_entries_of_the_operation_are_due(store: &AnyStore, _: &ManualClock) {
    queued(store, "acme", "a").await;
    assert_eq!(due_of(store, "another", None, 10).await.entries.len(), 0);
    assert_eq!(due_of(store, "send mai", None, 10).await.entries.len(), 0);
    assert_eq!(due(store, 0).await, [""; 0]);
}

pub async fn a_look_for_one_tenant_finds_no_other(store: &AnyStore, _: &ManualClock) {
    for number in 0..3 {
        queued(store, "acme", &format!("acme {number}")).await;
    }
    queued(store, "zenith", "zenith").await;
    let of = |tenant: &str, limit| DueQuery {
        operation: Operation::new(MAIL).unwrap(),
        tenant: Some(Tenant::new(tenant).unwrap()),
        after: None,
        limit,
        with_abandoned: true,
    };
    assert_eq!(keys(&store.due(&of("zenith", 10)).await.unwrap()), ["zenith"]);
    assert_eq!(keys(&store.due(&of("acme", 10)).await.unwrap()).len(), 3);
    assert_eq!(keys(&store.due(&of("acme", 2)).await.unwrap()).len(), 2);
    assert_eq!(keys(&store.due(&of("absent", 10)).await.unwrap()), [""; 0]);
}

pub async fn a_higher_priority_goes_first(store: &AnyStore, clock: &ManualClock) {
    for (key, priority) in [("low", Priority::Low), ("normal", Priority::Normal), ("high", Priority::High)] {
        created(store, entry_draft("acme", key, priority, Duration::ZERO, terms())).await;
        clock.advance(SECOND);
    }
    assert_eq!(due(store, 10).await, ["high", "normal", "low"]);
    assert_eq!(due(store, 2).await, ["high", "normal"]);
}

pub async fn no_tenant_waits_behind_the_backlog_of_another(store: &AnyStore, clock: &ManualClock) {
    for number in 0..20 {
        queued(store, "acme", &format!("acme {number:02}")).await;
        clock.advance(Duration::from_millis(1));
    }
    queued(store, "zenith", "zenith").await;
    let found = due(store, 6).await;
    assert!(found.contains(&"zenith".to_owned()), "{found:?}");
    assert_eq!(found.len(), 6, "what one tenant does not use goes to the other");
    assert_eq!(found.iter().filter(|key| key.starts_with("acme")).count(), 5);
    assert!((0..5).all(|number| found.contains(&format!("acme {number:02}"))), "the oldest first: {found:?}");
}

pub async fn a_look_goes_on_where_the_last_one_has_stopped(store: &AnyStore, _: &ManualClock) {
    for tenant in ["a", "b", "c", "d", "e"] {
        queued(store, tenant, tenant).await;
    }
    let (mut met, mut after) = (Vec::new(), None);
    for _ in 0..5 {
        let found = due_of(store, MAIL, after.as_ref().map(Tenant::as_str), 2).await;
        met.extend(keys(&found));
        after = found.reached;
    }
    let times = |tenant: &str| met.iter().filter(|key| *key == tenant).count();
    assert!(["a", "b", "c", "d", "e"].into_iter().all(|tenant| times(tenant) == 2), "each in turn: {met:?}");
}

pub async fn an_entry_whose_courier_has_gone_is_due_when_its_lease_ends(store: &AnyStore, clock: &ManualClock) {
    let entry = queued(store, "acme", "a").await;
    applied(store, &entry, &lease(1)).await;
    assert_eq!(due(store, 10).await, [""; 0]);
    clock.advance(3 * SECOND);
    assert_eq!(due(store, 10).await, ["a"]);
    // Under hold it is set aside, and no courier meets it again.
    let aside = applied(store, &entry, &lease(2)).await;
    assert_eq!(aside.state, State::InDoubt { fence: fence(1), retry_at: None });
    assert_eq!(due(store, 10).await, [""; 0]);
}

pub async fn a_doubt_is_due_at_its_own_time(store: &AnyStore, clock: &ManualClock) {
    let retried = Terms { in_doubt: InDoubt::Retry, ..terms() };
    let entry = created(store, entry_draft("acme", "a", Priority::Normal, Duration::ZERO, retried)).await;
    applied(store, &entry, &lease(1)).await;
    let doubted = applied(store, &entry, &undelivered(1, true, 2 * SECOND)).await;
    assert_eq!(doubted.state, State::InDoubt { fence: fence(1), retry_at: Some(clock.now().after(2 * SECOND)) });
    assert_eq!(due(store, 10).await, [""; 0]);
    clock.advance(2 * SECOND);
    assert_eq!(due(store, 10).await, ["a"]);
    assert_eq!(due_of(store, MAIL, None, 10).await.entries[0].record, doubted);
}

pub async fn what_is_over_is_not_due(store: &AnyStore, clock: &ManualClock) {
    let once = Terms { max_attempts: Some(1), ..terms() };
    let dead = created(store, entry_draft("acme", "dead", Priority::Normal, Duration::ZERO, once)).await;
    applied(store, &dead, &lease(1)).await;
    applied(store, &dead, &undelivered(1, false, SECOND)).await;
    let mut kept = entry_draft("acme", "done", Priority::Normal, Duration::ZERO, terms());
    kept.entry.as_mut().unwrap().keeps_payload = true;
    let kept = created(store, kept).await;
    applied(store, &kept, &lease(2)).await;
    let done = applied(store, &kept, &Command::Finish { fence: fence(2), outcome: Outcome::success("1") }).await;
    assert!(done.payload.is_some());
    let cancelled = queued(store, "acme", "cancelled").await;
    applied(store, &cancelled, &Command::Cancel { version: 1 }).await;
    clock.advance(5 * SECOND);
    assert_eq!(due(store, 10).await, [""; 0]);
    let version = seen(store, &dead).await.record.version;
    applied(store, &dead, &Command::Requeue { version, fresh_key: false }).await;
    assert_eq!(due(store, 10).await, ["dead"], "until a person has it tried again");
}

pub async fn an_entry_that_is_taken_makes_room_for_the_next(store: &AnyStore, clock: &ManualClock) {
    for key in ["a", "b", "c", "d"] {
        queued(store, "acme", key).await;
        clock.advance(Duration::from_millis(1));
    }
    let mut met = Vec::new();
    for (number, ends) in [(1, "waits"), (2, "is done"), (3, "is dead"), (4, "runs")] {
        let found = due_of(store, MAIL, None, 1).await;
        met.extend(keys(&found));
        let entry = found.entries.into_iter().next().unwrap().record;
        applied(store, &entry, &lease(number)).await;
        let fence = fence(number);
        match ends {
            "waits" => drop(applied(store, &entry, &undelivered(number, false, SECOND)).await),
            "is done" => {
                drop(applied(store, &entry, &Command::Finish { fence, outcome: Outcome::success("1") }).await);
            }
            "is dead" => {
                let after = AfterAttempt::GiveUp;
                let end = Undelivered { fence, may_have_happened: false, retry_in: Duration::ZERO, after, error: None };
                applied(store, &entry, &Command::Undelivered(end)).await;
            }
            _ => {}
        }
    }
    assert_eq!(met, ["a", "b", "c", "d"]);
    clock.advance(5 * SECOND);
    assert_eq!(due(store, 10).await, ["a", "d"]);
}

pub async fn every_look_brings_what_it_brings_in_memory(store: &AnyStore, clock: &ManualClock) {
    const TENANTS: [&str; 7] = ["a", "ab", "b", "größe", "Z", "z y", "~"];
    let memory: AnyStore = Arc::new(Memory::new(Arc::new(clock.clone())));
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for number in 0..80 {
        // Most entries belong to the first tenants, and no two are due at the same time.
        let tenant = TENANTS[random(7).min(random(7))];
        let delay = Duration::from_millis(number + 80 * random(20) as u64);
        let draft = entry_draft(tenant, &number.to_string(), Priority::ALL[random(3)], delay, terms());
        created(store, draft.clone()).await;
        created(&memory, draft).await;
    }
    for _ in 0..8 {
        clock.advance(Duration::from_millis(200));
        for limit in [1, 2, 3, 5, 7, 8, 16, 40, 100] {
            let after = [None, Some(TENANTS[random(7)]), Some("o")][random(3)];
            let (found, wanted) = (due_of(store, MAIL, after, limit).await, due_of(&memory, MAIL, after, limit).await);
            let place = format!("{limit} after {after:?} at {}", clock.now().as_millis());
            assert_eq!(keys(&found), keys(&wanted), "{place}");
            assert_eq!(found.reached, wanted.reached, "{place}");
        }
    }
}

pub async fn exactly_one_of_many_couriers_gets_an_entry(store: &AnyStore, _: &ManualClock) {
    for number in 0..4 {
        queued(store, "acme", &number.to_string()).await;
    }
    let couriers = (1..=8_u128).map(|number| {
        let store = Arc::clone(store);
        tokio::spawn(async move {
            let mut taken = Vec::new();
            for last in due_of(&store, MAIL, None, 10).await.entries {
                let draft = drafted(decide(Some(&last), &lease(number)).write);
                if let Replaced::Written { .. } = store.replace(Replace::of(&last.record, draft)).await.unwrap() {
                    taken.push(last.record.id);
                }
            }
            taken
        })
    });
    let mut taken = Vec::new();
    for courier in couriers.collect::<Vec<_>>() {
        taken.extend(courier.await.unwrap());
    }
    let different: BTreeSet<_> = taken.iter().map(|id| *id.as_bytes()).collect();
    assert_eq!((taken.len(), different.len()), (4, 4));
}

pub async fn an_effect_is_found_by_the_id_that_the_downstream_gave_it(store: &AnyStore, _: &ManualClock) {
    let outcome = |id: &str| Outcome::success("1").with_reference(Some(id.to_owned()));
    let record = finished(store, "a", outcome("ch_1")).await;
    finished(store, "b", outcome("ch_2")).await;
    finished(store, "c", Outcome::success("1")).await;
    let of = |reference: &str| Filter { reference: Some(reference.to_owned()), ..Filter::default() };
    let found = every_page(store, &of("ch_1"), 10).await;
    assert_eq!(found.iter().map(|seen| seen.record.id).collect::<Vec<_>>(), [record.id]);
    assert_eq!(every_page(store, &of("ch_"), 10).await.len(), 0);
    assert_eq!(seen(store, &record).await.record, record);
}
