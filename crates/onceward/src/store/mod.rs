//! Stores, the back-ends of the ledger: one atomic conditional write and a few queries. A store knows no policy;
//! [`onceward_core::decide`] decides what may be written.
//!
//! - [`memory`]: for tests and for processes that need no durability.
//! - [`sqlite`]: one file, several processes, group commit.
//! - `postgres`: a schema in a PostgreSQL database, for several machines. `redis`: for e-mail and other low stakes.
//!
//! `batching` is the queue in front of the writers, `due` says which entries of the outbox a courier gets, `names` are the words that stores keep, `page` is one page of a list,
//! `durability` says what an acknowledged write survives, `tls_failure` tells a server that cannot be trusted from one that is not
//! there, `transfer` moves whole ledgers, `unavailable` stands for a store that could not be opened.

/// The queue in front of the writers, for benchmarks too.
#[doc(hidden)]
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub mod batching;
mod due;
mod durability;
mod error;
pub mod memory;
#[cfg_attr(not(any(feature = "sqlite", feature = "postgres")), allow(dead_code, reason = "only totals use it"))]
mod names;
mod page;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod secret;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod server_time;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod tls_failure;
pub mod transfer;
mod unavailable;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use onceward_core::hash::Digest;
use onceward_core::name::{Operation, Tenant};
use onceward_core::record::{Draft, Fence, Owner, Record, Seen, State, Status};
use onceward_core::time::Timestamp;

use crate::clock::{Clock, SystemClock};
use crate::store_url::{names_server, shown};

pub use due::{DueEntries, DueQuery};
pub use durability::Durability;
pub use error::Error;
pub use page::{Cursor, ListedRecord, NotACursor, Page};
pub use unavailable::Unavailable;

/// The most records on one page of a list.
pub const MAX_PAGE_SIZE: usize = 1000;

/// The most records that one purge changes, so that it never delays a claim for long.
pub const MAX_PURGE_SIZE: usize = 1000;

/// A store of records. Every result carries the store's own time.
#[async_trait]
pub trait Store: Send + Sync + fmt::Debug {
    /// Writes a new record, or returns the record that already exists. This is the lock. With `max_records`, it writes only
    /// while the tenant has fewer records than that; tombstones have no tenant and do not count.
    async fn insert(&self, draft: Draft, max_records: Option<u64>) -> Result<Inserted, Error>;

    /// Writes the next version of a record, if its fence and version are still those that the caller saw.
    async fn replace(&self, replace: Replace) -> Result<Replaced, Error>;

    /// Reads a record.
    async fn get(&self, id: Digest) -> Result<Option<Seen>, Error>;

    /// The entries of the outbox that are due, in the order of delivery. They are candidates: an entry is a courier's only when
    /// its claim is written. Found without scanning.
    async fn due(&self, queue: &DueQuery) -> Result<DueEntries, Error>;

    /// Applies [`Command::Expire`](onceward_core::decide::Command::Expire) to at most `limit` expired records, found
    /// without scanning.
    async fn purge(&self, limit: usize) -> Result<Purged, Error>;

    /// Lists records, the newest first, at most `limit` of them after the cursor. Outcomes and payloads are not read.
    async fn list(&self, filter: &Filter, after: Option<Cursor>, limit: usize) -> Result<Page, Error>;

    /// The number of intents in each status: of all tenants, or of one. Tombstones have no tenant, so they only count for all.
    async fn counts(&self, tenant: Option<&Tenant>) -> Result<Counts, Error>;

    /// Appends to the audit trail.
    async fn append(&self, id: Digest, event: AuditEvent) -> Result<(), Error>;

    /// The audit trail of one intent, the oldest first, at most [`MAX_PAGE_SIZE`] entries.
    async fn trail(&self, id: Digest) -> Result<Vec<AuditEntry>, Error>;

    /// Checks that the store can be written, by a write that changes no record. A store that cannot do that purges one
    /// expired record, if there is one.
    async fn check(&self) -> Result<(), Error> {
        self.purge(1).await.map(drop)
    }

    /// What an acknowledged write survives, as the store is set up now.
    async fn durability(&self) -> Result<Durability, Error> {
        Ok(Durability::Durable)
    }

    /// Records that these operations live in this store, whatever the seal. A ledger with several stores refuses operations that
    /// another of them has recorded.
    async fn claim_operations(&self, _names: &[Operation]) -> Result<(), Error> {
        Ok(())
    }

    /// Takes back what [`Store::claim_operations`] has recorded.
    async fn release_operations(&self, _names: &[Operation]) -> Result<(), Error> {
        Ok(())
    }

    /// The operations that were recorded so.
    async fn operations(&self) -> Result<Vec<String>, Error> {
        Ok(Vec::new())
    }

    /// Whether this operation was recorded so.
    async fn has_operation(&self, name: &Operation) -> Result<bool, Error> {
        Ok(self.operations().await?.iter().any(|recorded| recorded == name.as_str()))
    }

    /// What moves a whole ledger into this store or out of it, if the store can do that.
    fn transfer(&self) -> Option<&dyn transfer::Transfer> {
        None
    }

    /// Hints that records have changed in other processes, so that waiting callers need not poll. Hints may be lost.
    fn hints(&self) -> Option<tokio::sync::broadcast::Receiver<Digest>> {
        None
    }

    /// The id of this process as an owner, if the store can detect when it ends.
    fn owner(&self) -> Option<Owner> {
        None
    }

    /// Lets the child processes that are started from now on keep the claims of this process alive: it counts as ended only
    /// when they have ended too. For callers whose work runs in a child process.
    fn share_with_children(&self) {}

    /// The store's time, if it is known without a query. Only then may finished outcomes be cached.
    fn now(&self) -> Option<Timestamp> {
        None
    }

    /// Stops the store's threads and waits for them.
    async fn close(&self) {}
}

/// The result of [`Store::insert`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// The record was written.
    Created {
        /// The store's time.
        now: Timestamp,
    },
    /// The record already exists. This takes precedence: a tenant over its quota still gets its existing records.
    Exists(Box<Seen>),
    /// The tenant has reached its quota of records. Nothing was written.
    Full,
    /// A transaction of another program holds the key and has not ended. Nothing was written, and whether the record will
    /// exist is not known yet.
    Undecided,
}

/// A conditional write.
#[derive(Clone, Debug)]
pub struct Replace {
    /// The fence that must still be there.
    pub fence: Option<Fence>,
    /// The version that must still be there.
    pub version: u64,
    /// The time in a state without a fence that must still be there; `None` skips this check.
    pub time: Option<Timestamp>,
    /// The next version.
    pub draft: Draft,
    /// Appended to the audit trail in the same transaction.
    pub event: Option<AuditEvent>,
    /// Losing this write would be harmless, so it may wait up to about a second for another write and share its sync.
    pub may_wait: bool,
}

impl Replace {
    /// A write that succeeds only if the record is still the one that was read.
    pub fn of(seen: &Record, draft: Draft) -> Self {
        let (fence, version, time) = (seen.fence(), seen.version, seen.time().copied());
        Self { fence, version, time, draft, event: None, may_wait: false }
    }
}

/// The result of [`Store::replace`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// The next version was written.
    Written {
        /// The store's time.
        now: Timestamp,
    },
    /// The record has changed. This is what it is now; `None` if it is gone.
    Conflict(Option<Box<Seen>>),
    /// A transaction of another program holds the record and has not ended. Nothing was written.
    Undecided,
}

/// The result of [`Store::purge`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Purged {
    /// Outcomes that were dropped; a tombstone remains of each.
    pub tombstones: usize,
    /// Records that were removed.
    pub removed: usize,
}

impl Purged {
    /// How many records were changed or removed.
    pub fn total(&self) -> usize {
        self.tombstones + self.removed
    }
}

/// Which records to list.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only these statuses; all if empty.
    pub status: Vec<Status>,
    /// Only this tenant's.
    pub tenant: Option<Tenant>,
    /// Only this operation's.
    pub operation: Option<Operation>,
    /// Only the one to whose effect the downstream gave this id.
    pub reference: Option<String>,
    /// Only those recorded before this time.
    pub created_before: Option<Timestamp>,
    /// Only those recorded at this time or later.
    pub created_since: Option<Timestamp>,
}

impl Filter {
    /// Whether the downstream gave the effect the id that is looked for, if one is.
    fn has_reference_of(&self, record: &Record) -> bool {
        let found = match &record.state {
            State::Done { outcome, .. } => outcome.reference.as_ref(),
            _ => None,
        };
        self.reference.is_none() || self.reference.as_ref() == found
    }
}

/// The number of intents in each status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Counts(pub BTreeMap<Status, u64>);

impl Counts {
    /// The number of intents in this status.
    pub fn of(&self, status: Status) -> u64 {
        self.0.get(&status).copied().unwrap_or_default()
    }
}

/// An event for the audit trail: something that the record itself does not show.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AuditEvent {
    /// What happened.
    pub what: EventKind,
    /// The name of the person or program that did it, as it was given.
    pub by: Option<String>,
    /// The name of the API token that was used. Unlike `by`, this is authenticated.
    #[serde(default)]
    pub token: Option<String>,
    /// A free-text note.
    pub note: Option<String>,
}

/// The kind of an audit event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A superseded owner reported an outcome. It changed nothing.
    StaleFinish,
    /// A superseded owner reported an outcome that contradicts the record.
    Contradiction,
    /// A probe found no trace of an earlier attempt, so the work was done.
    ProbeFoundNothing,
    /// An operator decided that it happened.
    ResolvedHappened,
    /// An operator decided that it did not happen.
    ResolvedDidNotHappen,
    /// An operator decided that it did not happen, and freed the key.
    ResolvedReset,
    /// An operator put running work in doubt.
    ForcedInDoubt,
    /// An attempt of the courier is known not to have happened.
    AttemptFailed,
    /// It is unknown whether an attempt of the courier happened.
    AttemptUnknown,
    /// An operator had a dead entry of the outbox tried again.
    Requeued,
    /// An operator took an entry out of the outbox.
    Cancelled,
    /// An operator had a finished entry of the outbox done again, under a new key.
    Rerun,
}

impl EventKind {
    /// The name under which a store keeps it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::StaleFinish => "stale_finish",
            Self::Contradiction => "contradiction",
            Self::ProbeFoundNothing => "probe_found_nothing",
            Self::ResolvedHappened => "resolved_happened",
            Self::ResolvedDidNotHappen => "resolved_did_not_happen",
            Self::ResolvedReset => "resolved_reset",
            Self::ForcedInDoubt => "forced_in_doubt",
            Self::AttemptFailed => "attempt_failed",
            Self::AttemptUnknown => "attempt_unknown",
            Self::Requeued => "requeued",
            Self::Cancelled => "cancelled",
            Self::Rerun => "rerun",
        }
    }

    /// The kind with that name.
    pub fn from_name(name: &str) -> Option<Self> {
        [
            Self::StaleFinish,
            Self::Contradiction,
            Self::ProbeFoundNothing,
            Self::ResolvedHappened,
            Self::ResolvedDidNotHappen,
            Self::ResolvedReset,
            Self::ForcedInDoubt,
            Self::AttemptFailed,
            Self::AttemptUnknown,
            Self::Requeued,
            Self::Cancelled,
            Self::Rerun,
        ]
        .into_iter()
        .find(|kind| kind.as_str() == name)
    }
}

/// The text without the character that PostgreSQL cannot keep.
pub(crate) fn without_nul(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// An entry of the audit trail.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct AuditEntry {
    /// When it was recorded.
    pub at: Timestamp,
    /// The event.
    #[serde(flatten)]
    pub event: AuditEvent,
}

/// Opens the store that a URL names: `memory:`, a file path, `file:PATH`, or with their features `postgres://…` and `redis://…`.
pub async fn open(url: &str) -> Result<Arc<dyn Store>, Error> {
    if url == "memory:" {
        return Ok(Arc::new(memory::Memory::new(Arc::new(SystemClock))));
    }
    #[cfg(feature = "postgres")]
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        return Ok(Arc::new(postgres::Postgres::open(url).await?));
    }
    #[cfg(feature = "redis")]
    if url.starts_with("redis://") || url.starts_with("rediss://") || url.starts_with("redis+") {
        return Ok(Arc::new(redis::Redis::open(url).await?));
    }
    let path = match url.strip_prefix("file:") {
        Some(path) => path,
        None if names_server(url) || url.is_empty() => return Err(Error::UnknownUrl(shown(url))),
        None => url,
    };
    if !names_a_file(Path::new(path)) {
        return Err(Error::UnknownUrl(shown(url)));
    }
    open_file(Path::new(path), Arc::new(SystemClock)).await
}

/// Opens the store in a file.
pub(crate) async fn open_path(path: &Path) -> Result<Arc<dyn Store>, Error> {
    if !names_a_file(path) {
        return Err(Error::UnknownUrl(path.display().to_string()));
    }
    open_file(path, Arc::new(SystemClock)).await
}

/// False for the names under which SQLite would make a temporary ledger, which no other process sees.
fn names_a_file(path: &Path) -> bool {
    !path.as_os_str().is_empty() && path != Path::new(":memory:")
}

#[cfg(feature = "sqlite")]
async fn open_file(path: &Path, clock: Arc<dyn Clock>) -> Result<Arc<dyn Store>, Error> {
    Ok(Arc::new(sqlite::Sqlite::open(path, clock).await?))
}

#[cfg(not(feature = "sqlite"))]
async fn open_file(path: &Path, _clock: Arc<dyn Clock>) -> Result<Arc<dyn Store>, Error> {
    Err(Error::UnknownUrl(path.display().to_string()))
}
