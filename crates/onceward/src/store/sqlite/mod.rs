//! The embedded store: one SQLite file that several processes may share. Chosen by measurement: it is the most
//! trusted engine, ordinary tools can read the file, and it reopens at once.
//!
//! - `schema`: opens, checks and migrates the file.
//! - `row`: converts records to rows and back.
//! - `query`: the SQL statements.
//! - `due`: the entries of the outbox that are due.
//! - `write_job`: the jobs of the writer.
//! - `writer`: the one thread that writes. It groups waiting jobs into one transaction and one fsync.
//! - `transaction`: one transaction of the writer.
//! - `checkpointer`: the thread that copies the write-ahead log into the file.
//! - `reader`: a thread with its own connection. One reads single records, one scans, and neither waits for the writer.
//! - `side_files`: the files beside the ledger and their permissions.
//! - `owner`: detects which processes are alive.
//! - `high_water_mark`: a counter beside the ledger that shows when the ledger was replaced by an older copy.
//! - `fair_lock`: lets processes that share the file take turns to write.
//! - `fork`: lets a child process open the ledgers of its parent again.
//! - `transfer`: moves whole ledgers into a file or out of it.
//! - `sqlite_error`: maps SQLite's errors to store errors.

mod checkpointer;
mod due;
mod fair_lock;
#[cfg(unix)]
mod fork;
mod high_water_mark;
mod owner;
mod query;
mod reader;
mod row;
mod schema;
mod side_files;
mod sqlite_error;
mod transaction;
mod transfer;
mod write_job;
mod writer;

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use tokio::sync::oneshot;

use onceward_core::hash::Digest;
use onceward_core::name::{Operation, Tenant};
use onceward_core::record::{Draft, Owner, Seen};
use onceward_core::time::Timestamp;

use super::{
    AuditEntry, AuditEvent, Counts, Cursor, DueEntries, DueQuery, Error, Filter, Inserted, MAX_PAGE_SIZE,
    MAX_PURGE_SIZE, Page, Purged, Replace, Replaced, Store,
};
use crate::clock::Clock;
use crate::store::transfer::Transfer;
#[cfg(unix)]
pub(crate) use fork::{
    prepare as before_fork, resume_child as after_fork_in_child, resume_parent as after_fork_in_parent,
};
use high_water_mark::HighWaterMark;
pub use high_water_mark::{Accepted, accept};
use reader::Reader;
use write_job::WriteJob;
use writer::Writer;

/// The most records that one commit purges, so that waiting claims are not delayed for long.
const PURGE_BATCH: usize = 32;

/// State that all threads of one open ledger share.
#[derive(Debug)]
struct Shared {
    /// The path as the user gave it, for errors.
    path: PathBuf,
    /// The path of the file itself, with symbolic links resolved.
    file: PathBuf,
    /// The file's device and inode when it was opened.
    inode: Inode,
    /// SQLite's write-ahead log.
    log: PathBuf,
    /// The log's device and inode. It stays as long as a connection is open whose lock on the file has not ended.
    log_inode: Inode,
    clock: Arc<dyn Clock>,
    owners: owner::Owners,
    /// Set by any thread after a failure that leaves the state on disk unknown. Only reopening clears it.
    poison: OnceLock<Error>,
    /// What a child process has to know about the file.
    #[cfg(unix)]
    _open: fork::OpenFile,
}

impl Shared {
    /// Fails if the file or its log was removed or replaced since it was opened.
    fn check_files(&self) -> Result<(), Error> {
        if is_gone(&self.file, self.inode) {
            return Err(Error::Gone { path: self.path.clone() });
        }
        if is_gone(&self.log, self.log_inode) {
            return Err(Error::LogGone { path: self.path.clone() });
        }
        Ok(())
    }

    /// The ledger's name in messages.
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Poisons the ledger if the failure is one after which nothing more may be written.
    fn note(&self, error: &Error) {
        if sqlite_error::poisons(error) {
            self.poison(error.clone());
        }
    }

    /// Refuses all further writes. The first failure is the one that is reported.
    fn poison(&self, error: Error) {
        let _ = self.poison.set(error);
    }
}

/// Device and inode number.
type Inode = (u64, u64);

#[cfg(unix)]
fn inode(file: &Path) -> io::Result<Inode> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(file).map(|file| (file.dev(), file.ino()))
}

/// On other systems an open file cannot be removed.
#[cfg(not(unix))]
fn inode(_file: &Path) -> io::Result<Inode> {
    Ok((0, 0))
}

/// Whether a path leads to another file than the one that was opened, or to none.
fn is_gone(path: &Path, opened: Inode) -> bool {
    match inode(path) {
        Ok(now) => now != opened,
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

/// A ledger in one SQLite file.
#[derive(Debug)]
pub struct Sqlite {
    shared: Arc<Shared>,
    writer: Writer,
    /// Reads single records: short, and callers wait for them.
    lookups: Reader,
    /// Lists and counts: these take long, so they have their own thread.
    scans: Reader,
}

impl Sqlite {
    /// Opens a ledger, or creates one if there is no file. A file that is not a ledger is refused.
    pub async fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        let path = path.to_owned();
        let (reply, opened) = oneshot::channel();
        // Opening reads and may migrate the file, which would block the caller's runtime.
        std::thread::spawn(move || drop(reply.send(Self::open_blocking(&path, clock))));
        opened.await.unwrap_or(Err(Error::Closed))
    }

    /// Like [`Sqlite::open`], without a runtime.
    pub fn open_blocking(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        // Before anything is opened: a fork may come at any moment.
        #[cfg(unix)]
        let open = fork::OpenFile::new(path);
        let found = high_water_mark::find(path)?;
        let (connection, file) = schema::open(path)?;
        let mark = HighWaterMark::check(&found, &connection, &file, path)?;
        let owners = owner::Owners::register(&file)
            .map_err(|error| Error::SideFile { path: path.to_owned(), reason: error.to_string() })?;
        let log = side_files::beside(&file, side_files::LOG);
        let [inode, log_inode] = [inode(&file), inode(&log)];
        let inode = inode.map_err(|error| schema::cannot_open(path, &error))?;
        let log_inode = log_inode.map_err(|error| schema::cannot_open(path, &error))?;
        let path = path.to_owned();
        let poison = OnceLock::new();
        let shared = Arc::new(Shared {
            path,
            file,
            inode,
            log,
            log_inode,
            clock,
            owners,
            poison,
            #[cfg(unix)]
            _open: open,
        });
        let lookups = Reader::start("onceward-look", &shared)?;
        let scans = Reader::start("onceward-scan", &shared)?;
        let writer = Writer::start(&shared, connection, mark)?;
        Ok(Self { shared, writer, lookups, scans })
    }

    async fn write<A>(&self, job: impl FnOnce(oneshot::Sender<Result<A, Error>>) -> WriteJob) -> Result<A, Error> {
        self.write_with(false, job).await
    }

    /// Sends a job to the writer. A job that may wait is written with the next one, or after about a second.
    async fn write_with<A>(
        &self,
        may_wait: bool,
        job: impl FnOnce(oneshot::Sender<Result<A, Error>>) -> WriteJob,
    ) -> Result<A, Error> {
        let (reply, result) = oneshot::channel();
        self.writer.send(job(reply), may_wait).await?;
        result.await.unwrap_or(Err(Error::Closed))
    }
}

#[async_trait]
impl Store for Sqlite {
    async fn insert(&self, draft: Draft, max_records: Option<u64>) -> Result<Inserted, Error> {
        self.write(|reply| WriteJob::Insert(Box::new(draft), max_records, reply)).await
    }

    async fn replace(&self, replace: Replace) -> Result<Replaced, Error> {
        let may_wait = replace.may_wait;
        self.write_with(may_wait, |reply| WriteJob::Replace(Box::new(replace), reply)).await
    }

    async fn get(&self, id: Digest) -> Result<Option<Seen>, Error> {
        self.lookups.read(move |connection, shared| query::get(connection, shared, id)).await
    }

    async fn due(&self, queue: &DueQuery) -> Result<DueEntries, Error> {
        let queue = queue.clone();
        self.lookups.read(move |connection, shared| due::due(connection, shared, &queue)).await
    }

    async fn purge(&self, limit: usize) -> Result<Purged, Error> {
        let limit = limit.min(MAX_PURGE_SIZE);
        let mut purged = Purged::default();
        while purged.total() < limit {
            let step = PURGE_BATCH.min(limit - purged.total());
            let freed = self.write(|reply| WriteJob::Purge(step, reply)).await?;
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
        let limit = limit.clamp(1, MAX_PAGE_SIZE);
        self.scans.read(move |connection, shared| query::list(connection, shared, &filter, after, limit)).await
    }

    async fn counts(&self, tenant: Option<&Tenant>) -> Result<Counts, Error> {
        let tenant = tenant.cloned();
        self.scans.read(move |connection, shared| query::counts(connection, shared, tenant.as_ref())).await
    }

    async fn append(&self, id: Digest, event: AuditEvent) -> Result<(), Error> {
        self.write(|reply| WriteJob::Append(id, event, reply)).await
    }

    async fn trail(&self, id: Digest) -> Result<Vec<AuditEntry>, Error> {
        self.lookups.read(move |connection, _| query::trail(connection, id)).await
    }

    async fn check(&self) -> Result<(), Error> {
        self.write(WriteJob::Check).await
    }

    async fn claim_operations(&self, names: &[Operation]) -> Result<(), Error> {
        let names = names.iter().map(ToString::to_string).collect();
        self.write(|reply| WriteJob::ClaimOperations(names, reply)).await
    }

    async fn release_operations(&self, names: &[Operation]) -> Result<(), Error> {
        let names = names.iter().map(ToString::to_string).collect();
        self.write(|reply| WriteJob::ReleaseOperations(names, reply)).await
    }

    async fn has_operation(&self, name: &Operation) -> Result<bool, Error> {
        let name = name.to_string();
        self.lookups.read(move |connection, _| query::has_operation(connection, &name)).await
    }

    async fn operations(&self) -> Result<Vec<String>, Error> {
        self.lookups.read(|connection, _| query::operations(connection)).await
    }

    fn transfer(&self) -> Option<&dyn Transfer> {
        Some(self)
    }

    fn owner(&self) -> Option<Owner> {
        self.shared.owners.own_id()
    }

    fn share_with_children(&self) {
        self.shared.owners.share_with_children();
    }

    fn now(&self) -> Option<Timestamp> {
        Some(self.shared.clock.now())
    }

    async fn close(&self) {
        self.lookups.close().await;
        self.scans.close().await;
        self.writer.close().await;
    }
}
