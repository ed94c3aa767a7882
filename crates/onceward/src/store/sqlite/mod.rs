//! The embedded store: one SQLite file that several processes may share. Chosen by measurement: it is the most
//! trusted engine, ordinary tools can read the file, and it reopens at once.
//!
//! - `schema`: opening, checking and migrating the file.
//! - `row`: records as rows.
//! - `query`: the statements over them.
//! - `queue`: what waits to be written. `pace`: how long the writer waits for more of it.
//! - `job`: what the writer is asked to do.
//! - `writer`: the one thread that writes; it groups what is waiting into one transaction and one fsync.
//! - `carrier`: the thread that carries the log over into the file.
//! - `reader`: a thread with a connection of its own; one looks, one scans, and neither waits for writing.
//! - `side`: the files beside the ledger, and who may read them.
//! - `owner`: which processes are alive.
//! - `mark`: how far the ledger has come, so that an older copy of it is noticed.
//! - `turn`: processes that share the file take turns to write.
//! - `fault`: what SQLite's errors mean for a user.

mod carrier;
mod fault;
mod job;
mod mark;
mod owner;
mod pace;
mod query;
mod queue;
mod reader;
mod row;
mod schema;
mod side;
mod turn;
mod writer;

/// The queue of the writer, for a measurement beside it.
#[doc(hidden)]
pub mod measured {
    pub use super::pace::{Moment, Pace};
    pub use super::queue::{Closed, Queue};
}

/// What the queue is made of.
mod sync {
    pub(super) use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
    pub(super) use tokio::sync::Notify;
}

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use tokio::sync::oneshot;

use onceward_core::hash::Digest;
use onceward_core::name::Tenant;
use onceward_core::record::{Draft, Owner, Seen};
use onceward_core::time::Timestamp;

use super::{
    Counts, Cursor, Entry, Error, Event, Filter, Inserted, LARGEST_PAGE, LARGEST_PURGE, Page, Purged, Replace,
    Replaced, Store,
};
use crate::clock::Clock;
use job::Job;
use mark::Mark;
pub use mark::{Accepted, accept};
use reader::Reader;
use writer::Writer;

/// A commit frees at most this many, so that claims wait for few of them.
const PURGE_STEP: usize = 32;

/// What every thread of one open ledger shares.
#[derive(Debug)]
struct Shared {
    /// As the user gave it, for errors.
    path: PathBuf,
    /// The file itself, without links.
    file: PathBuf,
    /// Which one that was when it was opened.
    inode: Inode,
    clock: Arc<dyn Clock>,
    owners: owner::Owners,
    /// Set by a failure after which the state of the disk is unknown, whichever thread met it. Only reopening clears
    /// it.
    poison: OnceLock<Error>,
}

impl Shared {
    /// Whether others who open the ledger get another file than the one that is open here, or none.
    fn is_gone(&self) -> bool {
        match inode(&self.file) {
            Ok(now) => now != self.inode,
            Err(error) => error.kind() == ErrorKind::NotFound,
        }
    }

    /// Remembers a failure, if it is one after which nothing may be written any more.
    fn note(&self, error: &Error) {
        if fault::poisons(error) {
            self.spoil(error.clone());
        }
    }

    /// Nothing may be written any more. The first failure says what happened.
    fn spoil(&self, error: Error) {
        let _ = self.poison.set(error);
    }
}

/// A file on its device.
type Inode = (u64, u64);

#[cfg(unix)]
fn inode(file: &Path) -> io::Result<Inode> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(file).map(|file| (file.dev(), file.ino()))
}

/// Elsewhere an open file cannot be removed.
#[cfg(not(unix))]
fn inode(_file: &Path) -> io::Result<Inode> {
    Ok((0, 0))
}

/// A ledger in one SQLite file.
#[derive(Debug)]
pub struct Sqlite {
    shared: Arc<Shared>,
    writer: Writer,
    /// Looks at one record: short, and callers wait for them.
    looks: Reader,
    /// Lists and counts: long, so they have a thread to themselves.
    scans: Reader,
}

impl Sqlite {
    /// Opens a ledger, or makes a new one where there is no file. Anything that is not a ledger is refused.
    pub async fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        let path = path.to_owned();
        let (reply, opened) = oneshot::channel();
        // Opening reads and may migrate the file: not on the caller's runtime.
        std::thread::spawn(move || drop(reply.send(Self::open_blocking(&path, clock))));
        opened.await.unwrap_or(Err(Error::Closed))
    }

    /// The same without a runtime.
    pub fn open_blocking(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        let found = mark::find(path)?;
        let (connection, file) = schema::open(path)?;
        let mark = Mark::check(&found, &connection, &file, path)?;
        let owners = owner::Owners::enter(&file)
            .map_err(|error| Error::SideFile { path: path.to_owned(), reason: error.to_string() })?;
        let inode = inode(&file).map_err(|error| schema::cannot_open(path, &error))?;
        let path = path.to_owned();
        let shared = Arc::new(Shared { path, file, inode, clock, owners, poison: OnceLock::new() });
        let looks = Reader::start("onceward-look", &shared)?;
        let scans = Reader::start("onceward-scan", &shared)?;
        let writer = Writer::start(&shared, connection, mark)?;
        Ok(Self { shared, writer, looks, scans })
    }

    async fn write<A>(&self, job: impl FnOnce(oneshot::Sender<Result<A, Error>>) -> Job) -> Result<A, Error> {
        self.write_with(false, job).await
    }

    /// A job that may wait is written with the next one, or after about a second.
    async fn write_with<A>(
        &self,
        may_wait: bool,
        job: impl FnOnce(oneshot::Sender<Result<A, Error>>) -> Job,
    ) -> Result<A, Error> {
        let (reply, answer) = oneshot::channel();
        self.writer.send(job(reply), may_wait).await?;
        answer.await.unwrap_or(Err(Error::Closed))
    }
}

#[async_trait]
impl Store for Sqlite {
    async fn insert(&self, draft: Draft, most: Option<u64>) -> Result<Inserted, Error> {
        self.write(|reply| Job::Insert(Box::new(draft), most, reply)).await
    }

    async fn replace(&self, replace: Replace) -> Result<Replaced, Error> {
        let may_wait = replace.may_wait;
        self.write_with(may_wait, |reply| Job::Replace(Box::new(replace), reply)).await
    }

    async fn get(&self, id: Digest) -> Result<Option<Seen>, Error> {
        self.looks.read(move |connection, shared| query::get(connection, shared, id)).await
    }

    async fn purge(&self, limit: usize) -> Result<Purged, Error> {
        let limit = limit.min(LARGEST_PURGE);
        let mut purged = Purged::default();
        while purged.total() < limit {
            let step = PURGE_STEP.min(limit - purged.total());
            let freed = self.write(|reply| Job::Purge(step, reply)).await?;
            purged =
                Purged { tombstones: purged.tombstones + freed.tombstones, removed: purged.removed + freed.removed };
            if freed.total() < step {
                break;
            }
        }
        Ok(purged)
    }

    async fn list(&self, filter: &Filter, after: Option<Cursor>, limit: usize) -> Result<Page, Error> {
        let filter = filter.clone();
        let limit = limit.clamp(1, LARGEST_PAGE);
        self.scans.read(move |connection, shared| query::list(connection, shared, &filter, after, limit)).await
    }

    async fn counts(&self, tenant: Option<&Tenant>) -> Result<Counts, Error> {
        let tenant = tenant.cloned();
        self.scans.read(move |connection, shared| query::counts(connection, shared, tenant.as_ref())).await
    }

    async fn append(&self, id: Digest, event: Event) -> Result<(), Error> {
        self.write(|reply| Job::Append(id, event, reply)).await
    }

    async fn trail(&self, id: Digest) -> Result<Vec<Entry>, Error> {
        self.looks.read(move |connection, _| query::trail(connection, id)).await
    }

    async fn check(&self) -> Result<(), Error> {
        self.write(Job::Check).await
    }

    fn owner(&self) -> Option<Owner> {
        self.shared.owners.me()
    }

    fn lend(&self) {
        self.shared.owners.lend();
    }

    fn now(&self) -> Option<Timestamp> {
        Some(self.shared.clock.now())
    }

    async fn close(&self) {
        self.looks.close().await;
        self.scans.close().await;
        self.writer.close().await;
    }
}
