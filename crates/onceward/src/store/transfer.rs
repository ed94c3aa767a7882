//! What a store offers so that a whole ledger can be moved into it or out of it: a seal that every write checks, pages of whole
//! records, and totals that prove the copy. `ledger::copy` decides the order of the steps.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use onceward_core::hash::{self, Digest};
use onceward_core::policy::Terms;
use onceward_core::record::{Lease, Record, State};
use onceward_core::time::Timestamp;

use super::{AuditEntry, Error, Replace, names, without_nul};

/// The most bytes of contents on one page of an export: a page of full records could otherwise hold a thousand outcomes of 8 MiB.
pub const MAX_EXPORT_BYTES: usize = 8 * 1024 * 1024;

/// Moves whole ledgers. Every method may be called again after a crash at any point.
#[async_trait]
pub trait Transfer: Send + Sync {
    /// A random id that the ledger got when it was created, whatever URL leads to it.
    async fn ledger_id(&self) -> Result<String, Error>;

    /// The seal.
    async fn seal(&self) -> Result<Seal, Error>;

    /// Writes a seal, if the present one still is `expected`. From [`Seal::Open`] to [`Seal::Receiving`] only if the ledger has
    /// no record, which is checked in the same transaction.
    async fn set_seal(&self, expected: &Seal, next: &Seal) -> Result<SealSet, Error>;

    /// The records after this id, in the order of their ids, each with its audit trail: at most `limit`, fewer when they are
    /// large ([`MAX_EXPORT_BYTES`]). Only an empty page is the end. A record that cannot be read is an error.
    async fn export(&self, after: Option<Digest>, limit: usize) -> Result<Vec<Exported>, Error>;

    /// Writes records and their trails as they are, and notes the last id as [`Arrival::after`], if the seal is
    /// [`Seal::Receiving`] with the token of `arrival`. A record that is there already must be equal, and is left alone; if
    /// another record has the id, nothing is written ([`differs`]).
    async fn import(&self, arrival: &Arrival, batch: Vec<Exported>) -> Result<(), Error>;
}

/// Whether a ledger accepts writes. Every write checks it in its own transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Seal {
    /// Every write is accepted.
    #[default]
    Open,
    /// No new record and no new claim is accepted. Owners may renew, finish and release, and operators may settle.
    Draining(Departure),
    /// Nothing is written: the records are being copied.
    Sealed(Departure),
    /// Nothing is written any more: the copy is complete and verified.
    Moved(Departure),
    /// A copy into this ledger has begun and is not complete: nothing else is written.
    Receiving(Arrival),
    /// Every write is accepted; the ledger was copied from another one.
    Received(Arrival),
}

/// Where a ledger moves to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Departure {
    /// Names this move: a move that was given up and begun again has another one.
    pub token: String,
    /// The target, without secrets.
    pub to: String,
    /// The id of the target ledger.
    pub target: String,
}

/// Where a ledger comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// The token of the move.
    pub token: String,
    /// The source, without secrets.
    pub from: String,
    /// The id of the source ledger.
    pub source: String,
    /// The last id that was imported.
    pub after: Option<Digest>,
}

/// The result of [`Transfer::set_seal`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SealSet {
    /// The seal was written.
    Written,
    /// The seal is another one. Nothing was written.
    Changed(Seal),
    /// The ledger has records, so it cannot receive a copy. Nothing was written.
    NotEmpty,
}

/// What a write does, as far as a seal is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteKind {
    /// Writes a record that does not exist.
    NewRecord,
    /// Gives an existing record to a new owner.
    NewClaim,
    /// Anything else: an owner's write, a person's decision, an audit entry, a purge.
    Other,
}

impl WriteKind {
    /// The kind of a conditional write: it makes a new claim if it leaves the record with a lease under another fence.
    pub fn of(replace: &Replace) -> Self {
        match &replace.draft.state {
            State::Leased(Lease { fence, .. }) if replace.fence != Some(*fence) => Self::NewClaim,
            _ => Self::Other,
        }
    }
}

impl Seal {
    /// The error for a write that this seal refuses. `store` is the name of the store, without secrets.
    pub fn refusal(&self, store: &str, write: WriteKind) -> Option<Error> {
        match self {
            Self::Open | Self::Received(_) => None,
            Self::Draining(_) if write == WriteKind::Other => None,
            Self::Draining(departure) | Self::Sealed(departure) | Self::Moved(departure) => {
                Some(Error::Sealed { store: store.to_owned(), to: departure.to.clone() })
            }
            Self::Receiving(arrival) => Some(unfinished(store, arrival)),
        }
    }

    /// The error for a health check: a ledger that refuses new claims is not ready.
    pub fn not_ready(&self, store: &str) -> Option<Error> {
        self.refusal(store, WriteKind::NewClaim)
    }

    /// The text in which a store keeps it; `None` while the ledger is open.
    pub fn to_text(&self) -> Result<Option<String>, Error> {
        match self {
            Self::Open => Ok(None),
            seal => serde_json::to_string(seal).map(Some).map_err(|error| Error::Other(error.to_string())),
        }
    }

    /// Reads the text in a store. A text that this build does not know refuses everything.
    pub fn from_text(store: &str, text: Option<&str>) -> Result<Self, Error> {
        let Some(text) = text else { return Ok(Self::Open) };
        serde_json::from_str(text).map_err(|_| Error::Refused {
            store: store.to_owned(),
            reason: "it has a seal that this build does not know: upgrade onceward".to_owned(),
        })
    }

    /// The arrival, while a copy with this token comes in.
    pub fn receiving(&self, token: &str) -> Option<&Arrival> {
        match self {
            Self::Receiving(arrival) if arrival.token == token => Some(arrival),
            _ => None,
        }
    }
}

fn unfinished(store: &str, arrival: &Arrival) -> Error {
    let Arrival { from, .. } = arrival;
    let reason = format!(
        "a copy of {from} into it has not finished, and work that is not copied yet would run again: run \
         `onceward copy --from {from} --to {store}` again"
    );
    Error::Refused { store: store.to_owned(), reason }
}

/// The error for an import into a ledger that does not receive this copy.
pub fn not_receiving(store: &str) -> Error {
    let reason = "it does not receive this copy any more: the copy was given up or begun again".to_owned();
    Error::Refused { store: store.to_owned(), reason }
}

/// The error for an import of a record whose id another record has.
pub fn differs(store: &str, id: Digest) -> Error {
    let reason = format!(
        "it holds another record under the id {}; nothing was overwritten. Copy into an empty ledger",
        id.short()
    );
    Error::Refused { store: store.to_owned(), reason }
}

/// A whole record with its audit trail, the oldest entry first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Exported {
    /// The record with what every store keeps.
    pub record: Record,
    /// Its audit trail, without characters that a store cannot keep.
    pub trail: Vec<AuditEntry>,
}

impl Exported {
    /// A record and its trail as every store can keep them.
    pub fn new(record: Record, mut trail: Vec<AuditEntry>) -> Self {
        for AuditEntry { event, .. } in &mut trail {
            [&mut event.by, &mut event.token, &mut event.note].into_iter().flatten().for_each(replace_nul);
        }
        Self { record: portable(record), trail }
    }

    /// The size of its contents in bytes, for the limit of a page.
    pub fn size(&self) -> usize {
        let payload = self.record.payload.as_ref().map_or(0, bytes::Bytes::len);
        let body = match &self.record.state {
            State::Done { outcome, .. } => outcome.size(),
            _ => 0,
        };
        payload + body + self.trail.len() * size_of::<AuditEntry>()
    }
}

fn replace_nul(text: &mut String) {
    if text.contains('\0') {
        *text = without_nul(text);
    }
}

/// The last time that PostgreSQL has, in the year 294276. It keeps a later one as `infinity`.
const LAST_TIME: Timestamp = Timestamp::from_millis(9_224_318_015_999_999);

/// A later time is so far away that it counts as the last one of all.
fn shorten(time: &mut Timestamp) {
    if *time > LAST_TIME {
        *time = Timestamp::from_millis(i64::MAX);
    }
}

/// The record with what every store keeps: text without NUL, whole milliseconds, times that PostgreSQL has, no owner (its process is
/// known only to the store that it has open), and of a tombstone only what the next call needs.
fn portable(mut record: Record) -> Record {
    record.last_error.iter_mut().for_each(replace_nul);
    match &mut record.state {
        State::Leased(lease) => {
            lease.owner = None;
            shorten(&mut lease.until);
        }
        State::Done { outcome, expires_at, forget_at, .. } => {
            replace_nul(&mut outcome.content_type);
            outcome.reference.iter_mut().for_each(replace_nul);
            expires_at.iter_mut().chain(forget_at).for_each(shorten);
        }
        State::Queued { due: time } | State::Open { not_before: time } | State::Tombstone { forget_at: time, .. } => {
            shorten(time);
        }
        State::InDoubt { retry_at, .. } => retry_at.iter_mut().for_each(shorten),
        State::Dead => {}
    }
    let whole = |length: Duration| {
        let millis = length.as_millis().min(i64::MAX as u128);
        Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
    };
    let terms = &mut record.terms;
    terms.retention = terms.retention.map(whole);
    terms.after_delivery = terms.after_delivery.map(whole);
    terms.tombstone = whole(terms.tombstone);
    terms.honours_key_for = whole(terms.honours_key_for);
    if let Some(entry) = &mut record.entry {
        entry.deliver_within = entry.deliver_within.map(whole);
    }
    if matches!(record.state, State::Tombstone { .. }) {
        record.terms = Terms::of_tombstone();
        (record.key_digest, record.entry) = (None, None);
        record.attempts = 0;
        (record.created_at, record.updated_at) = (Timestamp::from_millis(0), Timestamp::from_millis(0));
        (record.first_sent_at, record.doubt_since) = (None, None);
    }
    record
}

/// The position of an imported record in lists, which show the newest first: by the time of recording, with room for many in
/// one millisecond. `used` tells the highest position that is taken in a range. Tombstones have no time and come last.
pub(super) fn list_position<E>(
    created_at: Timestamp,
    mut used: impl FnMut(std::ops::Range<i64>) -> Result<Option<i64>, E>,
) -> Result<i64, E> {
    /// Before this time there was no ledger: all records without a believable time share the range below it.
    const FIRST: i64 = 1 << 34;
    /// Far after any believable time, and small enough that positions stay below 2^62.
    const LAST: i64 = 1 << 45;
    const BITS: u32 = 16;
    let millis = created_at.as_millis();
    let mut range = if millis < FIRST { 1..FIRST << BITS } else { bucket(millis.min(LAST)) };
    fn bucket(millis: i64) -> std::ops::Range<i64> {
        millis << BITS..(millis + 1) << BITS
    }
    loop {
        let next = used(range.clone())?.map_or(range.start, |last| last + 1);
        if next < range.end {
            return Ok(next);
        }
        range = range.end..range.end + (1 << BITS);
    }
}

/// What a ledger holds, for comparing two of them. The digest does not depend on the order of the records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// The number of records in each stored state.
    pub records: BTreeMap<&'static str, u64>,
    /// The number of entries in all audit trails.
    pub entries: u64,
    /// The sum of the digests of all records and trails, in hex.
    #[serde(serialize_with = "as_hex")]
    pub digest: [u64; 4],
}

impl Totals {
    /// Adds a record.
    pub fn add(&mut self, exported: &Exported) {
        *self.records.entry(names::of_state(&exported.record.state)).or_default() += 1;
        self.entries += exported.trail.len() as u64;
        // Derived from the types, so that no field can be forgotten. Both sides are hashed by the same build.
        let mut hasher = Sha::default();
        exported.hash(&mut hasher);
        let digest = hasher.0.digest();
        for (sum, part) in self.digest.iter_mut().zip(digest.as_bytes().chunks_exact(8)) {
            let part = part.first_chunk().map_or(0, |part| u64::from_be_bytes(*part));
            *sum = sum.wrapping_add(part);
        }
    }

    /// The number of all records.
    pub fn count(&self) -> u64 {
        self.records.values().sum()
    }

    /// The digest as text.
    pub fn digest_text(&self) -> String {
        self.digest.iter().map(|part| format!("{part:016x}")).collect()
    }
}

fn as_hex<S: serde::Serializer>(digest: &[u64; 4], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&digest.map(|part| format!("{part:016x}")).concat())
}

/// SHA-256 behind the interface of the standard library.
#[derive(Default)]
struct Sha(hash::Hasher);

impl Hasher for Sha {
    fn write(&mut self, bytes: &[u8]) {
        self.0.add(bytes);
    }

    /// Not used: the digest is longer than a number.
    fn finish(&self) -> u64 {
        0
    }
}
