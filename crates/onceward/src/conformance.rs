//! The suite that every store passes, with time injected. A store's tests are one line:
//!
//! ```ignore
//! onceward::conformance!(open); // async fn open(clock: ManualClock) -> Fixture
//! ```
//!
//! A change to [`Store`](crate::store::Store) extends this suite.

// This is test code that stores elsewhere can call; a failed expectation is its way to say so.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// The names of the cases are sentences, and say all there is to say.
#![allow(missing_docs)]

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use onceward_core::decide::{Acquired, Answer, Begin, Command, Decision, Take, Write, decide};
use onceward_core::fingerprint::{self, Fingerprint};
use onceward_core::hash::digest;
use onceward_core::json::Value;
use onceward_core::name::{Identity, Key, Operation, Tenant};
use onceward_core::outcome::{Body, Outcome, Verdict};
use onceward_core::policy::{Effect, InDoubt, Policy, Terms};
use onceward_core::record::{Draft, Fence, Lease, Owner, Phase, Record, Seen, State, Status};
use onceward_core::time::When;

use crate::clock::{Clock, ManualClock};
use crate::store::{Event, Filter, Inserted, Page, Replace, Replaced, Store, What};

/// An empty store to try, and whatever must stay alive with it.
pub struct Fixture {
    /// The store.
    pub store: Arc<dyn Store>,
    /// A temporary folder, a server.
    pub keep: Box<dyn Any + Send>,
}

/// Turns an `async fn(ManualClock) -> Fixture` into one test for each case of the suite.
#[macro_export]
macro_rules! conformance {
    ($open:path) => {
        $crate::conformance! { @cases $open:
            an_insert_creates_once_and_then_hands_back_the_record,
            of_many_inserts_at_once_exactly_one_creates,
            a_replace_holds_only_with_the_same_version,
            a_replace_holds_only_with_the_same_fence,
            a_replace_of_nothing_conflicts_with_nothing,
            of_many_replaces_at_once_exactly_one_holds,
            every_field_of_every_state_survives,
            a_tombstone_keeps_digests_and_no_names,
            times_are_counted_from_the_stores_own_clock,
            the_largest_outcome_survives_byte_for_byte,
            intents_of_other_tenants_and_operations_never_meet,
            purge_drops_outcomes_then_tombstones_and_nothing_else,
            purge_frees_no_more_than_it_is_told_to,
            what_is_kept_for_ever_is_never_purged,
            a_key_is_free_again_after_its_record_is_removed,
            a_list_pages_through_everything_once_the_newest_first,
            a_list_can_be_narrowed,
            a_lapsed_claim_is_listed_as_what_it_is,
            counts_agree_with_the_list,
            the_audit_trail_is_written_with_the_record_or_not_at_all,
        }
    };
    (@cases $open:path: $($name:ident,)*) => {
        $(
            #[::tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let clock = $crate::clock::ManualClock::default();
                let fixture = $open(clock.clone()).await;
                $crate::conformance::$name(&fixture.store, &clock).await;
            }
        )*
    };
}

type AnyStore = Arc<dyn Store>;

const SECOND: Duration = Duration::from_secs(1);

fn identity(tenant: &str, operation: &str, key: &str) -> Identity {
    Identity {
        tenant: Tenant::new(tenant).unwrap(),
        operation: Operation::new(operation).unwrap(),
        key: Key::new(key).unwrap(),
    }
}

fn fence(number: u128) -> Fence {
    Fence::from_bits(number)
}

fn terms() -> Terms {
    Policy { retention: Some(10 * SECOND), tombstone: Some(20 * SECOND), ..Policy::default() }.terms()
}

fn begin_as(identity: Identity, number: u128, marks_sent: bool) -> Command {
    Command::Begin(Begin {
        identity,
        key_digest: None,
        fingerprint: Fingerprint::none(),
        terms: terms(),
        take: Take { fence: fence(number), lease: 3 * SECOND, marks_sent, owner: None },
    })
}

fn draft(key: &str, number: u128) -> Draft {
    drafted(decide(None, &begin_as(identity("acme", "charge", key), number, false)).write)
}

fn drafted(write: Write) -> Draft {
    match write {
        Write::Insert(draft) | Write::Replace(draft) => draft,
        other => panic!("no record to write: {other:?}"),
    }
}

async fn created(store: &AnyStore, draft: Draft) -> Record {
    match store.insert(draft.clone()).await.unwrap() {
        Inserted::Created { now } => draft.stamp(now),
        Inserted::Exists(seen) => panic!("there is one already: {seen:?}"),
    }
}

async fn written(store: &AnyStore, last: &Record, draft: Draft) -> Record {
    match store.replace(Replace::of(last, draft.clone())).await.unwrap() {
        Replaced::Written { now } => draft.stamp(now),
        Replaced::Conflict(seen) => panic!("another record is there: {seen:?}"),
    }
}

async fn seen(store: &AnyStore, record: &Record) -> Seen {
    store.get(record.id).await.unwrap().expect("the record is there")
}

/// A record that was begun and finished.
async fn finished(store: &AnyStore, key: &str, outcome: Outcome) -> Record {
    let record = created(store, draft(key, 1)).await;
    let last = seen(store, &record).await;
    let finish = Command::Finish { fence: fence(1), outcome };
    written(store, &record, drafted(decide(Some(&last), &finish).write)).await
}

async fn every_page(store: &AnyStore, filter: &Filter, size: usize) -> Vec<Seen> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let Page { seen, next } = store.list(filter, after, size).await.unwrap();
        assert!(seen.len() <= size, "a page holds no more than was asked for");
        all.extend(seen);
        after = next;
        if after.is_none() {
            return all;
        }
        assert!(all.len() < 10_000, "the pages never end");
    }
}

pub async fn an_insert_creates_once_and_then_hands_back_the_record(store: &AnyStore, _: &ManualClock) {
    let first = created(store, draft("a", 1)).await;
    match store.insert(draft("a", 2)).await.unwrap() {
        Inserted::Exists(seen) => assert_eq!(seen.record, first),
        created => panic!("a second claim was handed out: {created:?}"),
    }
    assert_eq!(seen(store, &first).await.record, first);
}

pub async fn of_many_inserts_at_once_exactly_one_creates(store: &AnyStore, _: &ManualClock) {
    let tasks = (0..100).map(|number| {
        let store = Arc::clone(store);
        tokio::spawn(async move { store.insert(draft("raced", number)).await.unwrap() })
    });
    let mut winners = 0;
    for task in tasks.collect::<Vec<_>>() {
        winners += usize::from(matches!(task.await.unwrap(), Inserted::Created { .. }));
    }
    assert_eq!(winners, 1);
}

pub async fn a_replace_holds_only_with_the_same_version(store: &AnyStore, _: &ManualClock) {
    let first = created(store, draft("a", 1)).await;
    let second = written(store, &first, first.next()).await;
    match store.replace(Replace::of(&first, first.next())).await.unwrap() {
        Replaced::Conflict(Some(seen)) => assert_eq!(seen.record, second),
        other => panic!("an old version was replaced: {other:?}"),
    }
    assert_eq!(seen(store, &first).await.record, second);
}

pub async fn a_replace_holds_only_with_the_same_fence(store: &AnyStore, _: &ManualClock) {
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

pub async fn a_replace_of_nothing_conflicts_with_nothing(store: &AnyStore, clock: &ManualClock) {
    let record = draft("nowhere", 1).stamp(clock.now());
    let answer = store.replace(Replace::of(&record, record.next())).await.unwrap();
    assert_eq!(answer, Replaced::Conflict(None));
    assert_eq!(store.get(record.id).await.unwrap(), None);
}

pub async fn of_many_replaces_at_once_exactly_one_holds(store: &AnyStore, _: &ManualClock) {
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

fn outcomes() -> Vec<Outcome> {
    let mut with_headers = Outcome::of(Verdict::Failure, "text/plain; charset=utf-8", "nö").with_status(-7);
    with_headers.headers = vec![("x-a".into(), "1".into()), ("x-a".into(), "ü\u{1f600}".into())];
    let too_large = Outcome { body: Body::TooLarge { size: 1 << 40, digest: digest(b"x") }, ..Outcome::success("") };
    vec![
        Outcome::success("{\"id\":\"ch_1\"}"),
        Outcome::of(Verdict::Success, "application/octet-stream", vec![0, 255, 10, 13, 0]).with_status(200),
        Outcome::success(""),
        with_headers,
        too_large,
    ]
}

fn states() -> Vec<State<When>> {
    let lease = |phase, owner| Lease { phase, fence: fence(u128::MAX), until: When::In(SECOND), owner };
    let done = |outcome, forever: bool| State::Done {
        outcome,
        fence: fence(7),
        finished_at: When::NOW,
        expires_at: (!forever).then_some(When::In(SECOND)),
        forget_at: (!forever).then_some(When::In(2 * SECOND)),
    };
    let mut states = vec![
        State::Queued { due: When::In(SECOND) },
        State::Leased(lease(Phase::Claimed, None)),
        State::Leased(lease(Phase::Sent, Some(Owner(u64::MAX >> 2)))),
        State::Open { not_before: When::In(SECOND) },
        State::InDoubt { fence: fence(0) },
        State::Dead,
        done(Outcome::success("1"), true),
    ];
    states.extend(outcomes().into_iter().map(|outcome| done(outcome, false)));
    states
}

pub async fn every_field_of_every_state_survives(store: &AnyStore, _: &ManualClock) {
    for (number, state) in states().into_iter().enumerate() {
        let full = number % 2 == 0;
        let key = format!("key {number} ünï\u{1f600}");
        let mut draft = draft(&key, 1);
        draft.state = state;
        draft.version = 1 + number as u64;
        draft.fingerprint = fingerprint::of_intent(&Value::parse(b"{\"a\":1}").unwrap());
        draft.terms = Terms {
            effect: if full { Effect::Transactional } else { Effect::External },
            in_doubt: [InDoubt::Hold, InDoubt::Retry, InDoubt::Probe][number % 3],
            retention: full.then_some(Duration::from_millis(1)),
            tombstone: Duration::from_secs(90 * 86400),
            honours_key_for: Duration::from_millis(86_400_001),
            max_attempts: full.then_some(8),
        };
        draft.attempts = u32::MAX;
        draft.generation = 3;
        draft.key_digest = full.then(|| digest(b"key"));
        draft.payload = full.then(|| vec![0u8, 1, 255].into());
        draft.first_sent_at = full.then_some(When::In(SECOND));
        draft.doubt_since = full.then_some(When::In(2 * SECOND));
        draft.last_error = full.then(|| "Fehler: \"größer\"\n".to_owned());
        let inserted = created(store, draft).await;
        assert_eq!(seen(store, &inserted).await.record, inserted, "after insert");
        let replaced = written(store, &inserted, inserted.next()).await;
        assert_eq!(seen(store, &inserted).await.record, replaced, "after replace");
    }
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

pub async fn times_are_counted_from_the_stores_own_clock(store: &AnyStore, clock: &ManualClock) {
    let record = created(store, draft("a", 1)).await;
    assert_eq!(record.created_at, clock.now());
    match &seen(store, &record).await.record.state {
        State::Leased(lease) => assert_eq!(lease.until, clock.now().after(3 * SECOND)),
        other => panic!("not leased: {other:?}"),
    }
    clock.advance(SECOND);
    let look = seen(store, &record).await;
    assert_eq!(look.now, clock.now());
    assert_eq!(look.record.created_at.after(SECOND), clock.now());
    match store.insert(draft("a", 2)).await.unwrap() {
        Inserted::Exists(seen) => assert_eq!(seen.now, clock.now()),
        other => panic!("{other:?}"),
    }
    let next = written(store, &record, record.next()).await;
    assert_eq!((next.created_at, next.updated_at), (record.created_at, clock.now()));
}

pub async fn the_largest_outcome_survives_byte_for_byte(store: &AnyStore, _: &ManualClock) {
    let body: Vec<u8> = (0..onceward_core::policy::LARGEST_KEEP_LIMIT).map(|number| (number % 251) as u8).collect();
    let done = finished(store, "large", Outcome::success(body)).await;
    assert!(seen(store, &done).await.record == done, "an outcome of 8 MiB came back changed");
}

pub async fn intents_of_other_tenants_and_operations_never_meet(store: &AnyStore, _: &ManualClock) {
    let names = [("acme", "charge", "k"), ("other", "charge", "k"), ("acme", "refund", "k"), ("acmecharge", "k", "k")];
    for (number, (tenant, operation, key)) in names.into_iter().enumerate() {
        let begin = begin_as(identity(tenant, operation, key), number as u128, false);
        created(store, drafted(decide(None, &begin).write)).await;
    }
}

pub async fn purge_drops_outcomes_then_tombstones_and_nothing_else(store: &AnyStore, clock: &ManualClock) {
    let mut unfinished = Vec::new();
    for (number, state) in states().into_iter().enumerate() {
        if !matches!(state, State::Done { .. }) {
            let mut draft = draft(&format!("unfinished {number}"), 1);
            draft.state = state;
            unfinished.push(created(store, draft).await);
        }
    }
    let done = finished(store, "done", Outcome::success("1")).await;
    clock.advance(10 * SECOND - Duration::from_millis(1));
    assert_eq!(store.purge(100).await.unwrap().total(), 0, "nothing has expired yet");
    clock.advance(Duration::from_millis(1));
    let purged = store.purge(100).await.unwrap();
    assert_eq!((purged.tombstones, purged.removed), (1, 0));
    assert_eq!(store.purge(100).await.unwrap().total(), 0, "the tombstone holds the key");
    clock.advance(20 * SECOND);
    let purged = store.purge(100).await.unwrap();
    assert_eq!((purged.tombstones, purged.removed), (0, 1));
    assert_eq!(store.get(done.id).await.unwrap(), None);
    clock.advance(Duration::from_secs(10 * 365 * 86400));
    assert_eq!(store.purge(100).await.unwrap().total(), 0, "what is not finished never expires by age");
    for record in unfinished {
        assert_eq!(seen(store, &record).await.record, record);
    }
}

pub async fn purge_frees_no_more_than_it_is_told_to(store: &AnyStore, clock: &ManualClock) {
    for number in 0..25 {
        finished(store, &format!("{number}"), Outcome::success("1")).await;
    }
    clock.advance(100 * SECOND);
    let mut freed = Vec::new();
    for _ in 0..4 {
        freed.push(store.purge(10).await.unwrap().total());
    }
    assert_eq!(freed, [10, 10, 5, 0]);
}

pub async fn what_is_kept_for_ever_is_never_purged(store: &AnyStore, clock: &ManualClock) {
    let mut draft = draft("for ever", 1);
    draft.terms.retention = None;
    let record = created(store, draft).await;
    let last = seen(store, &record).await;
    let finish = Command::Finish { fence: fence(1), outcome: Outcome::success("1") };
    let done = written(store, &record, drafted(decide(Some(&last), &finish).write)).await;
    clock.advance(Duration::from_secs(100 * 365 * 86400));
    assert_eq!(store.purge(100).await.unwrap().total(), 0);
    assert_eq!(seen(store, &done).await.record, done);
}

pub async fn a_key_is_free_again_after_its_record_is_removed(store: &AnyStore, clock: &ManualClock) {
    let old = finished(store, "again", Outcome::success("1")).await;
    clock.advance(100 * SECOND);
    // Before the sweeper has come, the expired record is taken by its version.
    let expired = seen(store, &old).await;
    let again = decide(Some(&expired), &begin_as(identity("acme", "charge", "again"), 2, false));
    assert!(matches!(again.answer, Answer::Decision(Decision::Acquired(Acquired { attempt: 1, .. }))));
    let taken = written(store, &old, drafted(again.write)).await;
    assert_eq!(taken.created_at, clock.now());
    // After the sweeper has come, by a new insert; a late owner of the old record cannot touch it.
    let other = finished(store, "swept", Outcome::success("1")).await;
    clock.advance(100 * SECOND);
    assert_eq!(store.purge(100).await.unwrap().total(), 1);
    let fresh = created(store, draft("swept", 3)).await;
    assert!(matches!(store.replace(Replace::of(&other, other.next())).await.unwrap(), Replaced::Conflict(Some(_))));
    assert_eq!(seen(store, &fresh).await.record, fresh);
}

pub async fn a_list_pages_through_everything_once_the_newest_first(store: &AnyStore, clock: &ManualClock) {
    let mut ids = Vec::new();
    for number in 0..25 {
        ids.push(created(store, draft(&format!("{number}"), 1)).await.id);
        clock.advance(Duration::from_millis(1));
    }
    ids.reverse();
    for size in [1, 7, 25, 100] {
        let listed: Vec<_> =
            every_page(store, &Filter::default(), size).await.iter().map(|seen| seen.record.id).collect();
        assert_eq!(listed, ids, "in pages of {size}");
    }
}

pub async fn a_list_can_be_narrowed(store: &AnyStore, clock: &ManualClock) {
    let start = clock.now();
    for (tenant, operation) in [("acme", "charge"), ("acme", "refund"), ("other", "charge")] {
        for key in ["1", "2"] {
            let begin = begin_as(identity(tenant, operation, key), 1, false);
            created(store, drafted(decide(None, &begin).write)).await;
            clock.advance(SECOND);
        }
    }
    finished(store, "done", Outcome::success("1")).await;
    let count = async |filter: Filter| every_page(store, &filter, 100).await.len();
    let tenant = |name| Some(Tenant::new(name).unwrap());
    let operation = |name| Some(Operation::new(name).unwrap());
    assert_eq!(count(Filter::default()).await, 7);
    assert_eq!(count(Filter { tenant: tenant("acme"), ..Filter::default() }).await, 5);
    assert_eq!(count(Filter { tenant: tenant("nobody"), ..Filter::default() }).await, 0);
    assert_eq!(count(Filter { operation: operation("refund"), ..Filter::default() }).await, 2);
    let both = Filter { tenant: tenant("other"), operation: operation("charge"), ..Filter::default() };
    assert_eq!(count(both).await, 2);
    assert_eq!(count(Filter { status: vec![Status::Done], ..Filter::default() }).await, 1);
    assert_eq!(count(Filter { created_before: Some(start.after(2 * SECOND)), ..Filter::default() }).await, 2);
    assert_eq!(count(Filter { created_since: Some(start.after(2 * SECOND)), ..Filter::default() }).await, 5);
}

async fn listed(store: &AnyStore, status: Status) -> BTreeSet<String> {
    let filter = Filter { status: vec![status], ..Filter::default() };
    let seen = every_page(store, &filter, 3).await;
    seen.iter().map(|seen| seen.record.identity.as_ref().map_or("-", |name| name.key.as_str()).to_owned()).collect()
}

/// One intent in each standing, some of them only by the passing of time.
async fn one_of_each(store: &AnyStore, clock: &ManualClock) {
    for marks_sent in [true, false] {
        let key = if marks_sent { "lapsed before sent" } else { "lapsed after sent" };
        let begin = begin_as(identity("acme", "charge", key), 1, marks_sent);
        created(store, drafted(decide(None, &begin).write)).await;
    }
    let mut claimed_in_doubt = draft("lapsed before sent, in older doubt", 1);
    claimed_in_doubt.doubt_since = Some(When::NOW);
    created(store, claimed_in_doubt).await;
    finished(store, "expired", Outcome::success("1")).await;
    clock.advance(11 * SECOND);
    finished(store, "swept", Outcome::success("1")).await;
    clock.advance(11 * SECOND);
    store.purge(1).await.unwrap();
    created(store, draft("running", 1)).await;
    finished(store, "done", Outcome::success("1")).await;
    for (key, state) in [
        ("queued", State::Queued { due: When::NOW }),
        ("open", State::Open { not_before: When::NOW }),
        ("in doubt", State::InDoubt { fence: fence(1) }),
        ("dead", State::Dead),
    ] {
        let mut draft = draft(key, 1);
        draft.state = state;
        created(store, draft).await;
    }
}

pub async fn a_lapsed_claim_is_listed_as_what_it_is(store: &AnyStore, clock: &ManualClock) {
    one_of_each(store, clock).await;
    let set = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(listed(store, Status::Running).await, set(&["running"]));
    assert_eq!(listed(store, Status::Open).await, set(&["open", "lapsed before sent"]));
    let in_doubt = set(&["in doubt", "lapsed after sent", "lapsed before sent, in older doubt"]);
    assert_eq!(listed(store, Status::InDoubt).await, in_doubt);
    assert_eq!(listed(store, Status::Done).await, set(&["done"]));
    assert_eq!(listed(store, Status::Queued).await, set(&["queued"]));
    assert_eq!(listed(store, Status::Dead).await, set(&["dead"]));
    assert_eq!(listed(store, Status::Tombstone).await, set(&["-", "swept"]), "one swept, one not yet");
}

pub async fn counts_agree_with_the_list(store: &AnyStore, clock: &ManualClock) {
    one_of_each(store, clock).await;
    let counts = store.counts().await.unwrap();
    for status in Status::ALL {
        let filter = Filter { status: vec![status], ..Filter::default() };
        let listed = every_page(store, &filter, 100).await.len() as u64;
        assert_eq!(counts.of(status), listed, "{}", status.as_str());
    }
}

pub async fn the_audit_trail_is_written_with_the_record_or_not_at_all(store: &AnyStore, clock: &ManualClock) {
    let event = |what, note: &str| Event { what, by: Some("ana".into()), note: Some(note.into()) };
    let record = created(store, draft("a", 1)).await;
    let replace = |event| Replace { event: Some(event), ..Replace::of(&record, record.next()) };
    store.replace(replace(event(What::ResolvedHappened, "first"))).await.unwrap();
    let answer = store.replace(replace(event(What::ResolvedDidNotHappen, "conflict"))).await.unwrap();
    assert!(matches!(answer, Replaced::Conflict(_)));
    clock.advance(SECOND);
    let bare = Event { what: What::Contradiction, by: None, note: None };
    store.append(record.id, bare.clone()).await.unwrap();
    store.append(digest(b"another"), event(What::StaleFinish, "another")).await.unwrap();
    let trail = store.trail(record.id).await.unwrap();
    let events: Vec<_> = trail.iter().map(|entry| entry.event.clone()).collect();
    assert_eq!(events, [event(What::ResolvedHappened, "first"), bare]);
    assert_eq!(trail[1].at, clock.now());
    assert_eq!(trail[0].at.after(SECOND), clock.now());
}
