//! The back-end under the ledger: one atomic conditional write and a few queries. A store knows no policy; what
//! may be written is decided in [`onceward_core::decide`].
//!
//! - [`memory`]: for tests and for processes that need no durability.
//! - [`sqlite`]: one file, several processes, group commit.

pub mod memory;
mod page;
#[cfg(feature = "sqlite")]
pub mod sqlite;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use onceward_core::hash::Digest;
use onceward_core::name::{Operation, Tenant};
use onceward_core::record::{Draft, Fence, Owner, Record, Seen, Status};
use onceward_core::time::Timestamp;

use crate::clock::{Clock, SystemClock};

pub use page::{Cursor, Listed, NotACursor, Page};

/// The most records that one page of a list holds.
pub const LARGEST_PAGE: usize = 1000;

/// The most records that one purge touches, so that it never holds up a claim for long.
pub const LARGEST_PURGE: usize = 1000;

/// A store of records. Every answer carries the store's own time.
#[async_trait]
pub trait Store: Send + Sync + fmt::Debug {
    /// Writes a record where there is none, or hands back the one that is there. This is the lock. With `most`, it writes
    /// only while the record's tenant has fewer records than that; tombstones have no tenant and do not count.
    async fn insert(&self, draft: Draft, most: Option<u64>) -> Result<Inserted, Error>;

    /// Writes the next version of a record, if fence and version are still what the caller saw.
    async fn replace(&self, replace: Replace) -> Result<Replaced, Error>;

    /// Looks at a record.
    async fn get(&self, id: Digest) -> Result<Option<Seen>, Error>;

    /// Applies [`Command::Expire`](onceward_core::decide::Command::Expire) to at most `limit` records whose time
    /// has come, found without scanning.
    async fn purge(&self, limit: usize) -> Result<Purged, Error>;

    /// Lists records, the newest first, at most `limit` of them after the cursor. Outcomes and payloads are not read.
    async fn list(&self, filter: &Filter, after: Option<Cursor>, limit: usize) -> Result<Page, Error>;

    /// How many intents stand how: all of them, or one tenant's. Tombstones have no names any more, so they are nobody's.
    async fn counts(&self, tenant: Option<&Tenant>) -> Result<Counts, Error>;

    /// Appends to the audit trail.
    async fn append(&self, id: Digest, event: Event) -> Result<(), Error>;

    /// The audit trail of one intent, the oldest first, at most [`LARGEST_PAGE`] entries.
    async fn trail(&self, id: Digest) -> Result<Vec<Entry>, Error>;

    /// Whether the store can be written: writes something that changes no record. A store that cannot do that frees one
    /// expired record, if there is one.
    async fn check(&self) -> Result<(), Error> {
        self.purge(1).await.map(drop)
    }

    /// This process, if the store can tell whether it is alive.
    fn owner(&self) -> Option<Owner> {
        None
    }

    /// Lets the processes that this one starts from now on keep its claims alive: its end is then known only when they
    /// have ended too. For callers whose work is another process.
    fn lend(&self) {}

    /// The store's time, if it is known without asking. Only then may finished outcomes be cached.
    fn now(&self) -> Option<Timestamp> {
        None
    }

    /// Ends the store's own threads and waits for them.
    async fn close(&self) {}
}

/// The answer to [`Store::insert`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// The record is written.
    Created {
        /// When.
        now: Timestamp,
    },
    /// There is one already. This comes first: a full tenant still gets the records that it has.
    Exists(Box<Seen>),
    /// The tenant has as many records as it may have. Nothing was written.
    Full,
}

/// A conditional write.
#[derive(Clone, Debug)]
pub struct Replace {
    /// The fence that must still be there.
    pub fence: Option<Fence>,
    /// The version that must still be there.
    pub version: u64,
    /// The time in a state without a fence that must still be there; `None` asks for nothing.
    pub time: Option<Timestamp>,
    /// What is written then.
    pub draft: Draft,
    /// What is added to the audit trail in the same transaction.
    pub event: Option<Event>,
    /// Nothing is lost with it, so it may wait for the next write of any caller, for about a second, to share its sync.
    pub may_wait: bool,
}

impl Replace {
    /// The write that holds only while the record is still as it was seen.
    pub fn of(seen: &Record, draft: Draft) -> Self {
        let (fence, version, time) = (seen.fence(), seen.version, seen.time().copied());
        Self { fence, version, time, draft, event: None, may_wait: false }
    }
}

/// The answer to [`Store::replace`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// The next version is written.
    Written {
        /// When.
        now: Timestamp,
    },
    /// The record is another one by now.
    Conflict(Option<Box<Seen>>),
}

/// The answer to [`Store::purge`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Purged {
    /// Outcomes that were dropped; their tombstones stay.
    pub tombstones: usize,
    /// Records that are gone.
    pub removed: usize,
}

impl Purged {
    /// How many records were touched.
    pub fn total(&self) -> usize {
        self.tombstones + self.removed
    }
}

/// Which records to list.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only these; all when empty.
    pub status: Vec<Status>,
    /// Only this tenant's.
    pub tenant: Option<Tenant>,
    /// Only this operation's.
    pub operation: Option<Operation>,
    /// Only those recorded before this time.
    pub created_before: Option<Timestamp>,
    /// Only those recorded at this time or later.
    pub created_since: Option<Timestamp>,
}

/// How many intents stand how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Counts(pub BTreeMap<Status, u64>);

impl Counts {
    /// How many intents stand like this.
    pub fn of(&self, status: Status) -> u64 {
        self.0.get(&status).copied().unwrap_or_default()
    }
}

/// Something that the record itself does not tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// What happened.
    pub what: What,
    /// Who did it, as they said themselves.
    pub by: Option<String>,
    /// The name of the token with which it was asked for: what is proven of who did it.
    #[serde(default)]
    pub token: Option<String>,
    /// Anything to add.
    pub note: Option<String>,
}

/// What an entry of the audit trail is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A superseded owner reported an outcome, which changed nothing.
    StaleFinish,
    /// The same, and the report cannot be true together with the record.
    Contradiction,
    /// A probe found no trace of an earlier attempt, and the work went on.
    ProbeFoundNothing,
    /// Somebody decided that it happened.
    ResolvedHappened,
    /// Somebody decided that it did not happen.
    ResolvedDidNotHappen,
    /// Somebody decided that it did not happen, and freed the key.
    ResolvedReset,
    /// A person turned running work into a doubt.
    ForcedInDoubt,
}

impl What {
    /// The name, as a store keeps it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::StaleFinish => "stale_finish",
            Self::Contradiction => "contradiction",
            Self::ProbeFoundNothing => "probe_found_nothing",
            Self::ResolvedHappened => "resolved_happened",
            Self::ResolvedDidNotHappen => "resolved_did_not_happen",
            Self::ResolvedReset => "resolved_reset",
            Self::ForcedInDoubt => "forced_in_doubt",
        }
    }

    /// The entry of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        [
            Self::StaleFinish,
            Self::Contradiction,
            Self::ProbeFoundNothing,
            Self::ResolvedHappened,
            Self::ResolvedDidNotHappen,
            Self::ResolvedReset,
            Self::ForcedInDoubt,
        ]
        .into_iter()
        .find(|what| what.as_str() == name)
    }
}

/// An entry of the audit trail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// When.
    pub at: Timestamp,
    /// What.
    #[serde(flatten)]
    pub event: Event,
}

/// Why a store cannot do what it was asked. Whatever it is, nothing runs unguarded.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The URL names no store that this build has.
    #[error("`{0}` is no store that this build knows: use `memory:`, a file path, or `file:PATH`")]
    UnknownUrl(String),
    /// The file cannot be opened.
    #[error("cannot open the ledger {}: {reason}", path.display())]
    CannotOpen {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// The file is something else.
    #[error("{} is not an Onceward ledger: {reason}; name another file, nothing was changed in this one", path.display())]
    NotALedger {
        /// The file.
        path: PathBuf,
        /// What it is.
        reason: String,
    },
    /// The file was written by a newer Onceward.
    #[error(
        "the ledger {} has schema version {found}, and this build knows versions up to {known}: upgrade onceward",
        path.display()
    )]
    NewerSchema {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The newest version that is known.
        known: i64,
    },
    /// The file is older than the mark beside it.
    #[error(
        "the ledger {} is older than the mark beside it (ledger {ledger}, mark {mark}): it was restored from an older copy, or \
         its log was deleted. What was done since then is not in it and would run again. Restore the newer file, or accept \
         this one with `onceward accept --store {}`",
        path.display(),
        path.display()
    )]
    Behind {
        /// The file.
        path: PathBuf,
        /// How far it has come.
        ledger: u64,
        /// How far it had come.
        mark: u64,
    },
    /// The mark beside the file is of another ledger.
    #[error(
        "the mark beside the ledger {} belongs to another ledger: the file was replaced. What was done in the other one is not \
         in it and would run again. Restore the other file, or accept this one with `onceward accept --store {}`",
        path.display(),
        path.display()
    )]
    Replaced {
        /// The file.
        path: PathBuf,
    },
    /// There is a mark and no ledger.
    #[error(
        "there is no ledger at {}, only the mark of one: it was deleted or moved away. A new ledger would not know what was \
         done. Restore the file, or start a new ledger with `onceward accept --store {}`",
        path.display(),
        path.display()
    )]
    Missing {
        /// Where it was.
        path: PathBuf,
    },
    /// A file beside the ledger cannot be used. The store is not out of reach then: the ledger may be an older copy.
    #[error("cannot open the ledger {}: {reason}", path.display())]
    SideFile {
        /// The ledger.
        path: PathBuf,
        /// Which file it is, and what is wrong with it.
        reason: String,
    },
    /// An older version of Onceward made the ledger, and names intents in another way: what is done would not be found.
    #[error(
        "the ledger {} has schema version {found}, and this build reads only version {known}: settle what is in doubt with \
         the version that made it, then move the file away and start a new ledger",
        path.display()
    )]
    OlderSchema {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The version that is known.
        known: i64,
    },
    /// The file cannot be written.
    #[error("the ledger {} is read-only: check the permissions of the file and its folder", path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// No space is left.
    #[error("no space is left for the ledger {}: free some, then try again", path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// The file is damaged.
    #[error(
        "the ledger {} is damaged ({reason}): keep a copy, recover it with `sqlite3 FILE .recover`, and check \
         what was lost before anything runs again",
        path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        reason: String,
    },
    /// One record cannot be read; the others can.
    #[error("a record in the ledger {} cannot be read: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Another process holds the file for too long.
    #[error("the ledger {} was locked by another process for too long; nothing was written", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// The file was taken away. What is written to it now, nobody else would ever find.
    #[error("the ledger {} was removed or replaced while it was open; nothing is written any more: reopen it", path.display())]
    Gone {
        /// The file.
        path: PathBuf,
    },
    /// The disk failed in the middle of a write; what is on it is unknown until the file is opened again.
    #[error("the disk failed under the ledger {} ({reason}): reopen the ledger", path.display())]
    Poisoned {
        /// The file.
        path: PathBuf,
        /// What failed.
        reason: String,
    },
    /// The store cannot be reached.
    #[error("the store cannot be reached: {0}")]
    Unreachable(String),
    /// The store was closed.
    #[error("the store was closed")]
    Closed,
    /// Anything else that the engine reports.
    #[error("the store failed: {0}")]
    Other(String),
}

/// Opens the store that a URL names: `memory:`, a file path, or `file:PATH`.
pub async fn open(url: &str) -> Result<Arc<dyn Store>, Error> {
    if url == "memory:" {
        return Ok(Arc::new(memory::Memory::new(Arc::new(SystemClock))));
    }
    let path = match url.strip_prefix("file:") {
        Some(path) => path,
        None if url.contains("://") || url.is_empty() => return Err(Error::UnknownUrl(masked(url))),
        None => url,
    };
    if !names_a_file(Path::new(path)) {
        return Err(Error::UnknownUrl(masked(url)));
    }
    open_file(Path::new(path), Arc::new(SystemClock)).await
}

/// Under these names SQLite would make a ledger that nobody else sees and that is gone when it is closed.
fn names_a_file(path: &Path) -> bool {
    !path.as_os_str().is_empty() && path != Path::new(":memory:")
}

/// A URL may hold a password, and an error may end up in a log.
fn masked(url: &str) -> String {
    match url.split_once("://") {
        Some((scheme, _)) => format!("{scheme}://…"),
        None => url.to_owned(),
    }
}

#[cfg(feature = "sqlite")]
async fn open_file(path: &Path, clock: Arc<dyn Clock>) -> Result<Arc<dyn Store>, Error> {
    Ok(Arc::new(sqlite::Sqlite::open(path, clock).await?))
}

#[cfg(not(feature = "sqlite"))]
async fn open_file(path: &Path, _clock: Arc<dyn Clock>) -> Result<Arc<dyn Store>, Error> {
    Err(Error::UnknownUrl(path.display().to_string()))
}
