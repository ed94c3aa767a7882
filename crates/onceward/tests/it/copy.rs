//! Moving whole ledgers between stores: every state arrives, no claim slips past the seal, and a copy that is cut off at any
//! point can be continued.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use onceward::clock::SystemClock;
use onceward::copy::{CopyError, Options, Released, Side, Unsealed, copy, release, unseal, weaker};
use onceward::core::hash::Digest;
use onceward::core::name::Tenant;
use onceward::core::record::{Draft, Seen, Status};
use onceward::store::memory::Memory;
use onceward::store::sqlite::Sqlite;
use onceward::store::transfer::{Arrival, Exported, Seal, SealSet, Transfer};
use onceward::store::{
    self, AuditEntry, AuditEvent, Counts, Cursor, DueEntries, DueQuery, Error, EventKind, Filter, Inserted, Page,
    Purged, Replace, Replaced, Store,
};
use onceward::{Begun, Failure, Guard, Ledger, Policy, Tier};

pub(crate) fn memory(name: &str) -> Side {
    Side { store: Arc::new(Memory::new(Arc::new(SystemClock))), name: name.to_owned() }
}

pub(crate) async fn file(path: &Path) -> Side {
    let store = Sqlite::open(path, Arc::new(SystemClock)).await.unwrap();
    Side { store: Arc::new(store), name: path.display().to_string() }
}

pub(crate) fn ledger(side: &Side) -> Ledger {
    Ledger::builder().on(Arc::clone(&side.store))
}

async fn claim(ledger: &Ledger, key: &str) -> Guard {
    match ledger.operation("charge").key(key).begin().await.unwrap() {
        Begun::Acquired(guard) => guard,
        Begun::Answered(decision) => panic!("{key} was not acquired: {decision:?}"),
    }
}

/// Finished work, one of it kept until after the last time of PostgreSQL, failures, doubts, released work, a stream, a tombstone
/// and an audit trail.
pub(crate) async fn fill(side: &Side, count: usize) {
    let ledger = ledger(side);
    for number in 0..count {
        let call = ledger.operation("charge").key(&format!("done-{number}"));
        call.run(|_| async move { Ok(number) }).await.unwrap();
    }
    let outcomes = [Failure::permanent("no"), Failure::unknown("time\0out"), Failure::not_sent("refused")];
    for (number, failure) in outcomes.into_iter().enumerate() {
        let call = ledger.operation("charge").tenant("acme").key(&format!("failed-{number}")).tier(Tier::Payment);
        assert!(call.run(|_| async { Err::<u32, _>(failure) }).await.is_err());
    }
    for number in 1..4 {
        ledger.operation("events").item("account", number).run(|_| async move { Ok(number) }).await.unwrap();
    }
    let doubted = ledger.operation("charge").tenant("acme").key("failed-1");
    let identity = doubted.call().unwrap().identity;
    let event =
        AuditEvent { what: EventKind::StaleFinish, by: Some("ana".into()), token: None, note: Some("ü\0".into()) };
    side.store.append(identity.digest(), event.clone()).await.unwrap();
    side.store.append(identity.digest(), event).await.unwrap();
    let retention = Some(onceward::policy::Retention::For(Duration::from_millis(1)));
    let short = Policy { retention, tombstone: Some(Duration::from_secs(3600)), ..Policy::default() };
    let long = Policy { tombstone: Some(Duration::from_secs(200_000_000 * 86_400)), ..Policy::default() };
    ledger.operation("charge").key("long").policy(long).run(|_| async { Ok(1) }).await.unwrap();
    ledger.operation("charge").key("tombstone").policy(short).run(|_| async { Ok(1) }).await.unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    ledger.purge(10).await.unwrap();
    assert_eq!(ledger.counts().await.unwrap().of(Status::Tombstone), 1);
}

/// Everything that a list and the trails show.
pub(crate) async fn contents(side: &Side) -> Vec<(Digest, onceward::record::Record, Vec<AuditEntry>)> {
    let (transfer, mut all, mut after) = (side.store.transfer().unwrap(), Vec::new(), None);
    loop {
        let page = transfer.export(after, 7).await.unwrap();
        let Some(last) = page.last() else { return all };
        after = Some(last.record.id);
        all.extend(page.into_iter().map(|Exported { record, trail }| (record.id, record, trail)));
    }
}

async fn seal(side: &Side) -> Seal {
    side.store.transfer().unwrap().seal().await.unwrap()
}

async fn listed(side: &Side) -> Vec<Digest> {
    let page = side.store.list(&Filter::default(), None, 1000).await.unwrap();
    // Tombstones have no time, and their order is not kept.
    let timed = page.listed.into_iter().filter(|listed| listed.seen.record.identity.is_some());
    timed.map(|listed| listed.seen.record.id).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_state_and_every_audit_entry_arrives_in_every_store() {
    let folder = tempfile::tempdir().unwrap();
    let sides = [
        (file(&folder.path().join("a.db")).await, file(&folder.path().join("b.db")).await),
        (file(&folder.path().join("c.db")).await, memory("memory: 1")),
        (memory("memory: 2"), file(&folder.path().join("d.db")).await),
    ];
    for (from, to) in &sides {
        fill(from, 30).await;
        let before = contents(from).await;
        let copied = copy(from, to, Options::default(), &|_| {}).await.unwrap();
        let totals = copied.totals.unwrap();
        assert_eq!((totals.count(), totals.entries), (before.len() as u64, 2));
        assert_eq!(contents(to).await, before);
        assert_eq!(from.store.counts(None).await.unwrap(), to.store.counts(None).await.unwrap());
        let acme = Tenant::new("acme").unwrap();
        assert_eq!(from.store.counts(Some(&acme)).await.unwrap(), to.store.counts(Some(&acme)).await.unwrap());
        let replayed = ledger(to).operation("charge").key("done-7").run(|_| async { Ok(0) }).await.unwrap();
        assert_eq!((replayed.value, replayed.replayed), (7, true));
        let next = ledger(to).operation("events").item("account", 4).run(|_| async { Ok(4) }).await.unwrap();
        assert!(!next.replayed, "a stream goes on");
        // New records are listed first in the target too.
        ledger(to).operation("charge").key("new").run(|_| async { Ok(1) }).await.unwrap();
        let newest = to.store.list(&Filter::default(), None, 1).await.unwrap().listed.remove(0).seen.record;
        assert_eq!(newest.identity.unwrap().key.as_str(), "new");
    }
}

#[tokio::test]
async fn a_list_of_the_target_is_in_the_order_of_the_source() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (file(&folder.path().join("a.db")).await, file(&folder.path().join("b.db")).await);
    for number in 0..20 {
        ledger(&from).operation("charge").key(&format!("{number}")).run(|_| async { Ok(1) }).await.unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    copy(&from, &to, Options::default(), &|_| {}).await.unwrap();
    assert_eq!(listed(&to).await, listed(&from).await);
}

#[tokio::test]
async fn the_source_is_sealed_and_says_where_it_went() {
    let (from, to) = (memory("from"), memory("to"));
    fill(&from, 3).await;
    copy(&from, &to, Options::default(), &|_| {}).await.unwrap();
    let source = ledger(&from);
    let refused = source.operation("charge").key("another").run(|_| async { Ok(1) }).await.unwrap_err();
    assert!(matches!(&refused, onceward::Error::Store(Error::Sealed { to, .. }) if to == "to"), "{refused}");
    // The repeat of finished work is refused too: its client should find out that the ledger has moved.
    assert!(Ledger::builder().on(from.store.clone()).operation("charge").key("done-1").begin().await.is_err());
    assert!(source.ping().await.is_err(), "a moved ledger is not ready");
    let again = copy(&from, &to, Options::default(), &|_| {}).await.unwrap();
    assert_eq!(again.totals, None, "a finished copy is not done twice");
    let elsewhere = copy(&from, &memory("third"), Options::default(), &|_| {}).await.unwrap_err();
    assert!(elsewhere.to_string().contains("moves to to already"), "{elsewhere}");
}

#[tokio::test]
async fn a_ledger_with_records_is_not_overwritten() {
    let (from, to) = (memory("from"), memory("to"));
    fill(&from, 3).await;
    ledger(&to).operation("charge").key("own").run(|_| async { Ok(1) }).await.unwrap();
    let refused = copy(&from, &to, Options::default(), &|_| {}).await.unwrap_err();
    assert!(refused.to_string().contains("copy into an empty ledger"), "{refused}");
    assert_eq!(seal(&from).await, Seal::Open, "the source goes on");
    let same = copy(&from, &from, Options::default(), &|_| {}).await.unwrap_err();
    assert!(same.to_string().contains("same ledger"), "{same}");
}

#[tokio::test]
async fn owners_may_finish_while_the_source_is_drained_and_their_outcomes_arrive() {
    for sqlite in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let from = if sqlite { file(&folder.path().join("a.db")).await } else { memory("from") };
        let to = memory("to");
        let guard = claim(&ledger(&from), "running").await;
        let source = ledger(&from);
        let finish = async {
            tokio::time::sleep(Duration::from_millis(600)).await;
            // Meanwhile no other claim is granted, and finished work is still replayed.
            let refused = source.operation("charge").key("another").begin().await.unwrap_err();
            assert!(matches!(refused, onceward::Error::Store(Error::Sealed { .. })), "{refused}");
            guard.finish(onceward::Outcome::success("7")).await.unwrap();
        };
        let options = Options { wait: Some(Duration::from_secs(20)), ..Options::default() };
        let (copied, ()) = tokio::join!(copy(&from, &to, options, &|_| {}), finish);
        assert_eq!(copied.unwrap().forced, 0);
        let replayed = ledger(&to).operation("charge").key("running").run(|_| async { Ok(0) }).await.unwrap();
        assert_eq!((replayed.value, replayed.replayed), (7, true));
    }
}

#[tokio::test]
async fn a_copy_gives_up_when_owners_take_too_long_unless_it_may_put_them_in_doubt() {
    let (from, to) = (memory("from"), memory("to"));
    let guard = claim(&ledger(&from), "running").await;
    let options = Options { wait: Some(Duration::from_millis(300)), ..Options::default() };
    let refused = copy(&from, &to, options, &|_| {}).await.unwrap_err();
    assert!(matches!(refused, CopyError::Running { running: 1, .. }), "{refused}");
    assert!(matches!(seal(&from).await, Seal::Draining(_)));
    let forced = copy(&from, &to, Options { force_doubt: true, ..Options::default() }, &|_| {}).await.unwrap();
    assert_eq!(forced.forced, 1);
    let intent = ledger(&to).operation("charge").key("running").get().await.unwrap().unwrap();
    assert_eq!(intent.status(), Some(Status::InDoubt));
    assert_eq!(intent.trail[0].event.what, EventKind::ForcedInDoubt);
    assert_eq!(intent.trail[0].event.by.as_deref(), Some("onceward copy"));
    drop(guard);
}

#[tokio::test]
async fn a_copy_that_is_not_finished_can_be_given_up_and_a_finished_one_only_by_force() {
    let (from, to) = (memory("from"), memory("to"));
    let guard = claim(&ledger(&from), "running").await;
    let options = Options { wait: Some(Duration::ZERO), ..Options::default() };
    assert!(copy(&from, &to, options, &|_| {}).await.is_err());
    assert!(ledger(&to).operation("charge").key("early").begin().await.is_err(), "the target is not open yet");
    assert!(matches!(unseal(&from, false).await.unwrap(), Unsealed::Source(departure) if departure.to == "to"));
    assert_eq!(unseal(&from, false).await.unwrap(), Unsealed::Nothing);
    guard.finish(onceward::Outcome::success("1")).await.unwrap();
    ledger(&from).operation("charge").key("another").run(|_| async { Ok(1) }).await.unwrap();
    // Nothing had arrived, so the same target can be used again.
    copy(&from, &to, Options::default(), &|_| {}).await.unwrap();
    let refused = unseal(&from, false).await.unwrap_err();
    assert!(refused.to_string().contains("--force"), "{refused}");
    assert!(matches!(unseal(&from, true).await.unwrap(), Unsealed::Source(_)));
    ledger(&from).operation("charge").key("third").run(|_| async { Ok(1) }).await.unwrap();
}

#[tokio::test]
async fn a_command_that_was_given_up_and_still_runs_changes_nothing_more() {
    let (from, to) = (memory("from"), memory("to"));
    fill(&from, 3).await;
    // Cut off when the first page has arrived.
    let cut = Cut::around(&to, 4, true);
    assert!(copy(&from, &cut, Options::default(), &|_| {}).await.is_err());
    let Seal::Receiving(stale) = seal(&to).await else { panic!("not receiving") };
    assert!(stale.after.is_some(), "a page has arrived");
    unseal(&from, false).await.unwrap();
    let refused = copy(&from, &to, Options::default(), &|_| {}).await.unwrap_err();
    assert!(refused.to_string().contains("given up"), "{refused}");
    let other = memory("other");
    copy(&from, &other, Options::default(), &|_| {}).await.unwrap();
    let late = other.store.transfer().unwrap().import(&stale, Vec::new()).await.unwrap_err();
    assert!(late.to_string().contains("does not receive this copy"), "{late}");
}

#[tokio::test]
async fn a_target_that_was_only_reserved_is_released() {
    let (from, to, other) = (memory("from"), memory("to"), memory("other"));
    let guard = claim(&ledger(&from), "running").await;
    let options = Options { wait: Some(Duration::ZERO), ..Options::default() };
    let reserve = async || copy(&from, &to, options, &|_| {}).await.unwrap_err();
    reserve().await;
    let refused = copy(&other, &to, options, &|_| {}).await.unwrap_err().to_string();
    assert!(refused.contains("reserved for a copy of from") && refused.contains("--from to --unseal"), "{refused}");
    // With its source.
    let Unsealed::Source(departure) = unseal(&from, false).await.unwrap() else { panic!("not sealed") };
    assert_eq!(release(&to, &departure).await.unwrap(), Released::Opened);
    assert_eq!(release(&to, &departure).await.unwrap(), Released::NotReserved);
    // By itself: the source is lost.
    reserve().await;
    assert!(matches!(unseal(&to, false).await.unwrap(), Unsealed::Target(arrival) if arrival.from == "from"));
    ledger(&to).operation("charge").key("own").run(|_| async { Ok(1) }).await.unwrap();
    // The source does not copy into a target that was given to others.
    let refused = copy(&from, &to, options, &|_| {}).await.unwrap_err();
    assert!(refused.to_string().contains("does not hold the copy"), "{refused}");
    drop(guard);
}

#[tokio::test]
async fn a_target_that_holds_a_part_of_the_copy_stays_closed() {
    let (from, to) = (memory("from"), memory("to"));
    fill(&from, 3).await;
    assert!(copy(&from, &Cut::around(&to, 1, true), Options::default(), &|_| {}).await.is_err());
    let refused = unseal(&to, false).await.unwrap_err();
    assert!(refused.to_string().contains("holds a part"), "{refused}");
    let Unsealed::Source(departure) = unseal(&from, false).await.unwrap() else { panic!("not sealed") };
    assert_eq!(release(&to, &departure).await.unwrap(), Released::HoldsPart);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_copies_at_once_end_with_one_copy() {
    for round in 0..20 {
        let (from, to) = (memory("from"), memory("to"));
        fill(&from, 20).await;
        let before = contents(&from).await;
        let all = (0..3).map(|_| {
            let (from, to) = (from.clone(), to.clone());
            tokio::spawn(async move { copy(&from, &to, Options::default(), &|_| {}).await })
        });
        for copied in all.collect::<Vec<_>>() {
            if let Err(error) = copied.await.unwrap() {
                let text = error.to_string();
                assert!(text.contains("another command") || text.contains("does not receive this copy"), "{text}");
            }
        }
        copy(&from, &to, Options::default(), &|_| {}).await.unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert_eq!(contents(&to).await, before);
    }
}

#[tokio::test]
async fn a_target_that_survives_less_than_the_source_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let (durable, volatile) = (file(&folder.path().join("a.db")).await, memory("to"));
    assert_eq!(weaker(&durable, &volatile).await.unwrap(), Some(store::Durability::Volatile));
    assert_eq!(weaker(&volatile, &durable).await.unwrap(), None);
    copy(&durable, &volatile, Options::default(), &|_| {}).await.unwrap();
    assert_eq!(weaker(&durable, &volatile).await.unwrap(), None, "it was accepted when the copy began");
}

/// Cut off before and after every single step on either store, a copy is continued by the next command, and its result is the
/// same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_is_cut_off_at_any_step_is_continued() {
    let mut cuts = BTreeMap::new();
    for (cuts_source, after) in [(false, false), (false, true), (true, false), (true, true)] {
        for step in 0.. {
            let (from, to) = (memory("from"), memory("to"));
            fill(&from, 5).await;
            let before = contents(&from).await;
            let cut = match cuts_source {
                true => copy(&Cut::around(&from, step, after), &to, Options::default(), &|_| {}).await,
                false => copy(&from, &Cut::around(&to, step, after), Options::default(), &|_| {}).await,
            };
            if cut.is_ok() {
                cuts.insert((cuts_source, after), step);
                break;
            }
            // A target that grants claims while the source may be unsealed would let work run twice.
            let (source, target) = (seal(&from).await, seal(&to).await);
            let is_moved = matches!(source, Seal::Moved(_));
            assert!(is_moved || !matches!(target, Seal::Received(_)), "step {step}: {source:?}, {target:?}");
            copy(&from, &to, Options::default(), &|_| {}).await.unwrap_or_else(|error| panic!("step {step}: {error}"));
            assert_eq!(contents(&to).await, before, "step {step}");
            assert!(matches!(seal(&to).await, Seal::Received(_)));
            assert!(matches!(seal(&from).await, Seal::Moved(_)));
        }
    }
    assert!(cuts.values().all(|steps| *steps >= 6), "every step was cut off: {cuts:?}");
}

/// Callers claim all the time while the ledger is copied. Every claim that was granted is in the target.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_claim_during_a_copy_is_refused_or_arrives() {
    for round in 0..6 {
        let folder = tempfile::tempdir().unwrap();
        let from = if round % 2 == 0 { file(&folder.path().join("a.db")).await } else { memory("from") };
        let to = if round < 3 { file(&folder.path().join("b.db")).await } else { memory("to") };
        let source = ledger(&from);
        let callers = (0..8).map(|caller| {
            let source = source.clone();
            tokio::spawn(async move {
                let mut granted = Vec::new();
                for number in 0..2_000 {
                    let key = format!("{caller}-{number}");
                    let done = source.operation("charge").key(&key).run(|_| async { Ok(number) }).await;
                    match done {
                        Ok(_) => granted.push((key, number)),
                        // A run whose outcome could not be written is in the target as well, in doubt.
                        Err(onceward::Error::NotRecorded { .. }) => {}
                        Err(onceward::Error::Store(Error::Sealed { .. })) => return granted,
                        Err(error) => panic!("{error}"),
                    }
                }
                granted
            })
        });
        let callers: Vec<_> = callers.collect();
        tokio::time::sleep(Duration::from_millis(50 + round * 20)).await;
        copy(&from, &to, Options::default(), &|_| {}).await.unwrap();
        let target = ledger(&to);
        let mut checked = 0;
        for caller in callers {
            for (key, number) in caller.await.unwrap() {
                let intent = target.operation("charge").key(&key).get().await.unwrap();
                let intent =
                    intent.unwrap_or_else(|| panic!("{key} ran in the source and would run again in the target"));
                assert_eq!(intent.status(), Some(Status::Done), "{key}: {number}");
                checked += 1;
            }
        }
        assert!(checked > 0, "some claims were granted before the seal");
    }
}

/// A side whose transfer ends before or after one of its steps, as if the process had been killed there.
#[derive(Debug)]
pub(crate) struct Cut {
    real: Arc<dyn Store>,
    /// How many steps are left.
    left: AtomicUsize,
    /// Whether the last step is still done.
    after: bool,
}

impl Cut {
    pub(crate) fn around(side: &Side, steps: usize, after: bool) -> Side {
        let cut = Self { real: Arc::clone(&side.store), left: AtomicUsize::new(steps), after };
        Side { store: Arc::new(cut), name: side.name.clone() }
    }

    async fn step<A>(&self, step: impl Future<Output = Result<A, Error>>) -> Result<A, Error> {
        let killed = || Error::Unreachable("killed".into());
        let left = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| Some(left.saturating_sub(1)));
        match left {
            Ok(0) if !self.after => Err(killed()),
            Ok(0) => step.await.and(Err(killed())),
            _ => step.await,
        }
    }

    fn inner(&self) -> &dyn Transfer {
        self.real.transfer().unwrap()
    }
}

#[async_trait]
impl Transfer for Cut {
    async fn ledger_id(&self) -> Result<String, Error> {
        self.inner().ledger_id().await
    }

    async fn seal(&self) -> Result<Seal, Error> {
        self.inner().seal().await
    }

    async fn set_seal(&self, expected: &Seal, next: &Seal) -> Result<SealSet, Error> {
        self.step(self.inner().set_seal(expected, next)).await
    }

    async fn export(&self, after: Option<Digest>, limit: usize) -> Result<Vec<Exported>, Error> {
        self.step(self.inner().export(after, limit.min(4))).await
    }

    async fn import(&self, arrival: &Arrival, batch: Vec<Exported>) -> Result<(), Error> {
        self.step(self.inner().import(arrival, batch)).await
    }
}

#[async_trait]
impl Store for Cut {
    async fn insert(&self, draft: Draft, max_records: Option<u64>) -> Result<Inserted, Error> {
        self.real.insert(draft, max_records).await
    }

    async fn replace(&self, replace: Replace) -> Result<Replaced, Error> {
        self.real.replace(replace).await
    }

    async fn get(&self, id: Digest) -> Result<Option<Seen>, Error> {
        self.real.get(id).await
    }

    async fn due(&self, queue: &DueQuery) -> Result<DueEntries, Error> {
        self.real.due(queue).await
    }

    async fn purge(&self, limit: usize) -> Result<Purged, Error> {
        self.real.purge(limit).await
    }

    async fn list(&self, filter: &Filter, after: Option<Cursor>, limit: usize) -> Result<Page, Error> {
        self.real.list(filter, after, limit).await
    }

    async fn counts(&self, tenant: Option<&Tenant>) -> Result<Counts, Error> {
        self.real.counts(tenant).await
    }

    async fn append(&self, id: Digest, event: AuditEvent) -> Result<(), Error> {
        self.real.append(id, event).await
    }

    async fn trail(&self, id: Digest) -> Result<Vec<AuditEntry>, Error> {
        self.real.trail(id).await
    }

    fn transfer(&self) -> Option<&dyn Transfer> {
        Some(self)
    }
}
