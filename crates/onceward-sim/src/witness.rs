//! A witness between a ledger and its store: it writes down, outside, which records the store has acknowledged and which
//! it was merely given. After a power cut or a fault the store must hold the former, or something that was given later.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use onceward::clock::ManualClock;
use onceward::core::hash::Digest;
use onceward::core::outcome::Outcome;
use onceward::core::record::{Draft, Owner, Record, Seen, State, Status};
use onceward::core::time::Timestamp;
use onceward::store::sqlite::Sqlite;
use onceward::store::{Counts, Cursor, Entry, Error, Event, Filter, Inserted, Page, Purged, Replace, Replaced, Store};

use rusqlite::Connection;

use crate::standing;
use crate::vfs::Drive;

/// The name of the ledger in the folder of a drive.
pub const LEDGER: &str = "ledger.db";

/// What the outside knows about one ledger, over all its restarts.
#[derive(Debug, Default)]
pub struct Book {
    pages: Mutex<BTreeMap<Digest, Entries>>,
    tally: Mutex<Tally>,
}

/// What has been counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Writes that the store has acknowledged while the power was on.
    pub acknowledged: u64,
    /// Acknowledged records that were compared after a restart.
    pub compared: u64,
    /// Writes without an answer that were there after a restart all the same.
    pub unanswered: u64,
    /// Writes that were refused because the handle is poisoned.
    pub poisoned: u64,
    /// Writes that were acknowledged after that: must be zero.
    pub after_poison: u64,
    /// The handle is poisoned.
    pub is_poisoned: bool,
}

/// What is known about one intent.
#[derive(Clone, Debug, Default)]
struct Entries {
    /// The last record that the store has acknowledged or shown.
    acknowledged: Option<Record>,
    /// Records that it was given since, and may have written.
    given: Vec<Draft>,
    /// Notes in the audit trail that it has acknowledged.
    trail: Vec<Event>,
}

impl Entries {
    fn acknowledge(&mut self, record: Record) {
        let age = |record: &Record| (record.created_at, record.version);
        if self.acknowledged.as_ref().is_none_or(|known| age(known) <= age(&record)) {
            self.acknowledged = Some(record);
        }
    }
}

impl Book {
    fn pages(&self) -> MutexGuard<'_, BTreeMap<Digest, Entries>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has been counted.
    pub fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known, for another run from the same point.
    pub fn copy(&self) -> Self {
        Self { pages: Mutex::new(self.pages().clone()), tally: Mutex::new(*self.tally()) }
    }

    /// The last record of an intent that the store has acknowledged or shown.
    pub fn acknowledged(&self, id: Digest) -> Option<Record> {
        self.pages().get(&id)?.acknowledged.clone()
    }

    /// Compares a store that was opened anew with what is known, and takes what it holds as known from now on. If the
    /// power goes meanwhile, nothing was found out.
    pub async fn compare(&self, witness: &Witness) -> Vec<String> {
        let mut faults = Vec::new();
        let mut tally = *self.tally();
        let ids: Vec<Digest> = self.pages().keys().copied().collect();
        let mut pages = BTreeMap::new();
        for id in ids {
            let (found, trail) = match (witness.store.get(id).await, witness.store.trail(id).await) {
                (Ok(found), Ok(trail)) => (found, trail),
                _ if witness.drive.is_dark() => return Vec::new(),
                (Err(error), _) | (_, Err(error)) => {
                    faults.push(format!("{}: cannot be read: {error}", id.short()));
                    continue;
                }
            };
            let now = witness.store.now().expect("the store has the harness's clock");
            let known = self.pages();
            let Some(entries) = known.get(&id) else { continue };
            tally.compared += u64::from(entries.acknowledged.is_some());
            match judge(entries, found.as_ref(), now) {
                Ok(unanswered) => tally.unanswered += u64::from(unanswered),
                Err(fault) => faults.push(format!("{}: {fault}", id.short())),
            }
            if let Some(seen) = found {
                let events: Vec<Event> = trail.into_iter().map(|entry| entry.event).collect();
                let lost = entries.trail.iter().find(|event| !events.contains(event));
                if let Some(lost) = lost.filter(|_| is_the_same_life(entries.acknowledged.as_ref(), &seen.record)) {
                    faults.push(format!("{}: lost from the audit trail: {lost:?}", id.short()));
                }
                pages.insert(id, Entries { acknowledged: Some(seen.record), given: Vec::new(), trail: events });
            }
        }
        *self.pages() = pages;
        *self.tally() = Tally { is_poisoned: false, ..tally };
        faults
    }
}

/// Whether what was found fits what is known; true if it is something that was never acknowledged.
fn judge(entries: &Entries, found: Option<&Seen>, now: Timestamp) -> Result<bool, String> {
    let known = entries.acknowledged.as_ref();
    let Some(found) = found.map(|seen| &seen.record) else {
        return match known {
            Some(record) if !standing::may_be_gone(record, now) => Err(format!("lost: {}", describe(known))),
            _ => Ok(false),
        };
    };
    if known == Some(found) {
        return Ok(false);
    }
    let has_expired = known.is_some_and(|known| standing::status(known, now, false) != Some(Status::Done));
    if is_what_a_purge_leaves(known, found) && has_expired {
        return Ok(false);
    }
    let newer = known.is_none_or(|known| (known.created_at, known.version) < (found.created_at, found.version));
    let was_given = |draft: &Draft| draft.clone().stamp(found.updated_at) == *found;
    if newer && entries.given.iter().any(was_given) {
        return Ok(true);
    }
    Err(format!("acknowledged: {}; found: {}", describe(known), describe(Some(found))))
}

/// Whether this is still the record that was known, and not one that was made after that had expired: its trail goes with
/// it.
fn is_the_same_life(known: Option<&Record>, found: &Record) -> bool {
    let is_tombstone = matches!(found.state, State::Tombstone { .. });
    known.is_some_and(|known| is_tombstone || known.created_at == found.created_at)
}

/// A tombstone with the same request and the digest of the same outcome.
fn is_what_a_purge_leaves(known: Option<&Record>, found: &Record) -> bool {
    match (known.map(|known| (known, &known.state)), &found.state) {
        (Some((known, State::Done { outcome, .. })), State::Tombstone { outcome: digest, .. }) => {
            known.fingerprint == found.fingerprint && outcome.digest() == *digest
        }
        _ => false,
    }
}

fn describe(record: Option<&Record>) -> String {
    let Some(record) = record else { return "nothing".to_owned() };
    let mut text = format!("version {} of {:?}", record.version, record.created_at);
    let state = match &record.state {
        State::Done { outcome: Outcome { verdict, .. }, .. } => format!("done, {verdict:?}"),
        state => format!("{state:?}"),
    };
    let _ = write!(text, ", {state}");
    text
}

/// A store with a witness.
#[derive(Debug)]
pub struct Witness {
    /// The store itself.
    pub store: Sqlite,
    /// What is under it.
    pub drive: Arc<Drive>,
    /// Where it is written down.
    pub book: Arc<Book>,
}

impl Witness {
    /// Opens the ledger on a drive. The clock is the harness's.
    pub fn open(drive: &Arc<Drive>, book: &Arc<Book>, clock: &ManualClock) -> Result<Arc<Self>, Error> {
        let store = Sqlite::open_blocking(&drive.folder().join(LEDGER), Arc::new(clock.clone()))?;
        Ok(Arc::new(Self { store, drive: Arc::clone(drive), book: Arc::clone(book) }))
    }

    fn given(&self, draft: &Draft) {
        self.book.pages().entry(draft.id).or_default().given.push(draft.clone());
    }

    fn is_poisoned(&self) -> bool {
        self.book.tally().is_poisoned
    }

    /// Writes down what was acknowledged, if that was before the power went, and whether it was asked for when the
    /// handle was poisoned already.
    fn acknowledged(&self, id: Digest, poisoned: bool, write: impl FnOnce(&mut Entries)) {
        self.drive.while_on(|| {
            write(self.book.pages().entry(id).or_default());
            let mut tally = self.book.tally();
            tally.acknowledged += 1;
            tally.after_poison += u64::from(poisoned);
        });
    }

    fn shown(&self, seen: &Seen) {
        self.drive.while_on(|| {
            self.book.pages().entry(seen.record.id).or_default().acknowledge(seen.record.clone());
        });
    }

    fn noted<A>(&self, answer: Result<A, Error>) -> Result<A, Error> {
        if matches!(answer, Err(Error::Poisoned { .. } | Error::Corrupt { .. })) {
            let mut tally = self.book.tally();
            tally.poisoned += 1;
            tally.is_poisoned = true;
        }
        answer
    }
}

#[async_trait]
impl Store for Witness {
    async fn insert(&self, draft: Draft, most: Option<u64>) -> Result<Inserted, Error> {
        self.given(&draft);
        let poisoned = self.is_poisoned();
        let answer = self.store.insert(draft.clone(), most).await;
        match &answer {
            Ok(Inserted::Created { now }) => {
                self.acknowledged(draft.id, poisoned, |entries| {
                    // Where there was a record before, it has been forgotten.
                    entries.trail.clear();
                    entries.acknowledge(draft.stamp(*now));
                });
            }
            Ok(Inserted::Exists(seen)) => self.shown(seen),
            Ok(Inserted::Full) | Err(_) => {}
        }
        self.noted(answer)
    }

    async fn replace(&self, replace: Replace) -> Result<Replaced, Error> {
        let (draft, event) = (replace.draft.clone(), replace.event.clone());
        self.given(&draft);
        let poisoned = self.is_poisoned();
        let answer = self.store.replace(replace).await;
        match &answer {
            Ok(Replaced::Written { now }) => self.acknowledged(draft.id, poisoned, |entries| {
                entries.acknowledge(draft.stamp(*now));
                entries.trail.extend(event);
            }),
            Ok(Replaced::Conflict(Some(seen))) => self.shown(seen),
            Ok(Replaced::Conflict(None)) | Err(_) => {}
        }
        self.noted(answer)
    }

    async fn get(&self, id: Digest) -> Result<Option<Seen>, Error> {
        let answer = self.store.get(id).await;
        if let Ok(Some(seen)) = &answer {
            self.shown(seen);
        }
        answer
    }

    async fn purge(&self, limit: usize) -> Result<Purged, Error> {
        let answer = self.store.purge(limit).await;
        self.noted(answer)
    }

    async fn list(&self, filter: &Filter, after: Option<Cursor>, limit: usize) -> Result<Page, Error> {
        self.store.list(filter, after, limit).await
    }

    async fn counts(&self, tenant: Option<&onceward::core::name::Tenant>) -> Result<Counts, Error> {
        self.store.counts(tenant).await
    }

    async fn append(&self, id: Digest, event: Event) -> Result<(), Error> {
        let poisoned = self.is_poisoned();
        let answer = self.store.append(id, event.clone()).await;
        if answer.is_ok() {
            self.acknowledged(id, poisoned, |entries| entries.trail.push(event));
        }
        self.noted(answer)
    }

    async fn trail(&self, id: Digest) -> Result<Vec<Entry>, Error> {
        self.store.trail(id).await
    }

    fn owner(&self) -> Option<Owner> {
        self.store.owner()
    }

    fn lend(&self) {
        self.store.lend();
    }

    fn now(&self) -> Option<Timestamp> {
        self.store.now()
    }

    async fn close(&self) {
        self.store.close().await;
    }
}

/// Checks the whole file. Nothing is found out if the power goes meanwhile.
pub fn check_file(drive: &Drive) -> Option<String> {
    let check = || -> rusqlite::Result<String> {
        let connection = Connection::open(drive.folder().join(LEDGER))?;
        connection.query_row("PRAGMA integrity_check(3)", [], |row| row.get(0))
    };
    match check() {
        Ok(verdict) if verdict == "ok" => None,
        _ if drive.is_dark() => None,
        Ok(verdict) => Some(format!("the file is damaged: {}", verdict.replace('\n', "; "))),
        Err(error) => Some(format!("the file cannot be checked: {error}")),
    }
}
