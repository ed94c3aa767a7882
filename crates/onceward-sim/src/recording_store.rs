//! A store that records, outside of the ledger, which records the real store has acknowledged and which it was only
//! given. After a power cut or a fault the real store must hold the former, or something that was given later.

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
use onceward::store::{
    AuditEntry, AuditEvent, Counts, Cursor, DueEntries, DueQuery, Error, Filter, Inserted, Page, Purged, Replace,
    Replaced, Store,
};

use rusqlite::Connection;

use crate::standing;
use crate::vfs::Drive;

/// The name of the ledger in the folder of a drive.
pub const LEDGER: &str = "ledger.db";

/// What is known about one ledger, over all its restarts.
#[derive(Debug, Default)]
pub struct Acknowledged {
    intents: Mutex<BTreeMap<Digest, AcknowledgedIntent>>,
    tally: Mutex<Tally>,
}

/// What has been counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Writes that the store has acknowledged while the power was on.
    pub acknowledged: u64,
    /// Acknowledged records that were compared after a restart.
    pub compared: u64,
    /// Unanswered writes that were there after a restart.
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
struct AcknowledgedIntent {
    /// The last record that the store has acknowledged or returned.
    acknowledged: Option<Record>,
    /// Records that it was given since, and may have written.
    given: Vec<Draft>,
    /// Entries of the audit trail that it has acknowledged.
    trail: Vec<AuditEvent>,
}

impl AcknowledgedIntent {
    fn acknowledge(&mut self, record: Record) {
        let age = |record: &Record| (record.created_at, record.version);
        if self.acknowledged.as_ref().is_none_or(|known| age(known) <= age(&record)) {
            self.acknowledged = Some(record);
        }
    }
}

impl Acknowledged {
    fn intents(&self) -> MutexGuard<'_, BTreeMap<Digest, AcknowledgedIntent>> {
        self.intents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has been counted.
    pub fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known, for another run from the same point.
    pub fn copy(&self) -> Self {
        Self { intents: Mutex::new(self.intents().clone()), tally: Mutex::new(*self.tally()) }
    }

    /// The last record of an intent that the store has acknowledged or returned.
    pub fn acknowledged(&self, id: Digest) -> Option<Record> {
        self.intents().get(&id)?.acknowledged.clone()
    }

    /// Compares a store that was opened again with what is known, and takes what it holds as known from now on. Returns
    /// nothing if the power goes meanwhile.
    pub async fn compare(&self, recording_store: &RecordingStore) -> Vec<String> {
        let mut faults = Vec::new();
        let mut tally = *self.tally();
        let ids: Vec<Digest> = self.intents().keys().copied().collect();
        let mut intents = BTreeMap::new();
        for id in ids {
            let (found, trail) = match (recording_store.store.get(id).await, recording_store.store.trail(id).await) {
                (Ok(found), Ok(trail)) => (found, trail),
                _ if recording_store.drive.is_dark() => return Vec::new(),
                (Err(error), _) | (_, Err(error)) => {
                    faults.push(format!("{}: cannot be read: {error}", id.short()));
                    continue;
                }
            };
            let now = recording_store.store.now().expect("the store has the harness's clock");
            let known = self.intents();
            let Some(entries) = known.get(&id) else { continue };
            tally.compared += u64::from(entries.acknowledged.is_some());
            match judge(entries, found.as_ref(), now) {
                Ok(unanswered) => tally.unanswered += u64::from(unanswered),
                Err(fault) => faults.push(format!("{}: {fault}", id.short())),
            }
            if let Some(seen) = found {
                let events: Vec<AuditEvent> = trail.into_iter().map(|entry| entry.event).collect();
                let lost = entries.trail.iter().find(|event| !events.contains(event));
                if let Some(lost) = lost.filter(|_| is_the_same_life(entries.acknowledged.as_ref(), &seen.record)) {
                    faults.push(format!("{}: lost from the audit trail: {lost:?}", id.short()));
                }
                intents.insert(
                    id,
                    AcknowledgedIntent { acknowledged: Some(seen.record), given: Vec::new(), trail: events },
                );
            }
        }
        *self.intents() = intents;
        *self.tally() = Tally { is_poisoned: false, ..tally };
        faults
    }
}

/// Whether the record that was found fits what is known; true if it was never acknowledged.
fn judge(entries: &AcknowledgedIntent, found: Option<&Seen>, now: Timestamp) -> Result<bool, String> {
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

/// Whether this is still the known record, and not one that was created after it had expired: the trail goes with its
/// record.
fn is_the_same_life(known: Option<&Record>, found: &Record) -> bool {
    let is_tombstone = matches!(found.state, State::Tombstone { .. });
    known.is_some_and(|known| is_tombstone || known.created_at == found.created_at)
}

/// Whether it is a tombstone with the same request and the digest of the same outcome.
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

/// A store whose writes are recorded.
#[derive(Debug)]
pub struct RecordingStore {
    /// The real store.
    pub store: Sqlite,
    /// The disk under it.
    pub drive: Arc<Drive>,
    /// Where it is recorded.
    pub acknowledged: Arc<Acknowledged>,
}

impl RecordingStore {
    /// Opens the ledger on a drive, with the harness's clock.
    pub fn open(drive: &Arc<Drive>, acknowledged: &Arc<Acknowledged>, clock: &ManualClock) -> Result<Arc<Self>, Error> {
        let store = Sqlite::open_blocking(&drive.folder().join(LEDGER), Arc::new(clock.clone()))?;
        Ok(Arc::new(Self { store, drive: Arc::clone(drive), acknowledged: Arc::clone(acknowledged) }))
    }

    fn given(&self, draft: &Draft) {
        self.acknowledged.intents().entry(draft.id).or_default().given.push(draft.clone());
    }

    fn is_poisoned(&self) -> bool {
        self.acknowledged.tally().is_poisoned
    }

    /// Records what was acknowledged, if that was before the power went, and whether the handle was poisoned when it
    /// was asked for.
    fn acknowledged(&self, id: Digest, poisoned: bool, write: impl FnOnce(&mut AcknowledgedIntent)) {
        self.drive.while_on(|| {
            write(self.acknowledged.intents().entry(id).or_default());
            let mut tally = self.acknowledged.tally();
            tally.acknowledged += 1;
            tally.after_poison += u64::from(poisoned);
        });
    }

    fn shown(&self, seen: &Seen) {
        self.drive.while_on(|| {
            self.acknowledged.intents().entry(seen.record.id).or_default().acknowledge(seen.record.clone());
        });
    }

    fn noted<A>(&self, answer: Result<A, Error>) -> Result<A, Error> {
        if matches!(answer, Err(Error::Poisoned { .. } | Error::Corrupt { .. })) {
            let mut tally = self.acknowledged.tally();
            tally.poisoned += 1;
            tally.is_poisoned = true;
        }
        answer
    }
}

#[async_trait]
impl Store for RecordingStore {
    async fn insert(&self, draft: Draft, most: Option<u64>) -> Result<Inserted, Error> {
        self.given(&draft);
        let poisoned = self.is_poisoned();
        let answer = self.store.insert(draft.clone(), most).await;
        match &answer {
            Ok(Inserted::Created { now }) => {
                self.acknowledged(draft.id, poisoned, |entries| {
                    // A record that was there before has been forgotten.
                    entries.trail.clear();
                    entries.acknowledge(draft.stamp(*now));
                });
            }
            Ok(Inserted::Exists(seen)) => self.shown(seen),
            Ok(Inserted::Full | Inserted::Undecided) | Err(_) => {}
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
            Ok(Replaced::Conflict(None) | Replaced::Undecided) | Err(_) => {}
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

    async fn due(&self, queue: &DueQuery) -> Result<DueEntries, Error> {
        let answer = self.store.due(queue).await;
        self.noted(answer)
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

    async fn append(&self, id: Digest, event: AuditEvent) -> Result<(), Error> {
        let poisoned = self.is_poisoned();
        let answer = self.store.append(id, event.clone()).await;
        if answer.is_ok() {
            self.acknowledged(id, poisoned, |entries| entries.trail.push(event));
        }
        self.noted(answer)
    }

    async fn trail(&self, id: Digest) -> Result<Vec<AuditEntry>, Error> {
        self.store.trail(id).await
    }

    fn owner(&self) -> Option<Owner> {
        self.store.owner()
    }

    fn share_with_children(&self) {
        self.store.share_with_children();
    }

    fn now(&self) -> Option<Timestamp> {
        self.store.now()
    }

    async fn close(&self) {
        self.store.close().await;
    }
}

/// Checks the whole file. Returns nothing if the power goes meanwhile.
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
