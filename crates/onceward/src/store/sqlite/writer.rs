//! The one thread of this process that writes. It takes all waiting jobs, writes them in one transaction, commits with one
//! fsync, and only then replies.

use std::mem;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;

use super::checkpointer::Checkpointer;
use super::fair_lock::{FairLock, WriteTurn};
use super::high_water_mark::HighWaterMark;
use super::query::WriteStatements;
use super::sqlite_error::{commit_error, store_error};
use super::transaction::Transaction;
use super::write_job::{PendingReply, WriteJob, refuse};
use super::{Shared, schema};
use crate::step::{Step, reached};
use crate::store::Error;
use crate::store::batching::{BatchWait, Closed, Queue, ThreadTime, join};
use crate::store::transfer::Seal;

/// The most writes in one transaction: enough to saturate a disk, and few enough to reply soon.
const MAX_BATCH: usize = 512;

/// The most writes that may wait in the queue; further callers wait to enter it.
const QUEUE_LIMIT: usize = 4096;

/// Pages written between two checkpoints: about 8 MiB of log. A page that many writes change is then copied only once.
const PAGES_PER_CHECKPOINT: usize = 2000;

#[derive(Debug)]
pub(super) struct Writer {
    queue: Arc<Queue<WriteJob>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Writer {
    pub(super) fn start(shared: &Arc<Shared>, connection: Connection, mark: HighWaterMark) -> Result<Self, Error> {
        let queue = Arc::new(Queue::new(QUEUE_LIMIT));
        let (tick, ticks) = std::sync::mpsc::sync_channel(1);
        let checkpoints = schema::open_reader(shared)?;
        let fair_lock = FairLock::open(&shared.file);
        let thread = WriterThread { connection, shared: Arc::clone(shared), fair_lock, tick };
        let checkpointer = Checkpointer { connection: checkpoints, shared: Arc::clone(shared) };
        let (jobs, checkpointer_jobs) = (Arc::clone(&queue), Arc::clone(&queue));
        let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
            let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body);
            thread.map_err(|error| Error::Other(error.to_string()))
        };
        // Created first: dropping it ends the first thread if the second one cannot be started.
        let writer = Self { queue, threads: Mutex::default() };
        let write = spawn(
            "onceward-write",
            Box::new(move || {
                let _abandon = AbandonOnDrop(&jobs);
                thread.run(&jobs, mark);
                // In this order, so that the checkpoint thread closes the last connection.
                drop(thread.connection);
                drop(thread.tick);
            }),
        )?;
        let log = spawn(
            "onceward-log",
            Box::new(move || {
                checkpointer.run(&ticks, &checkpointer_jobs);
                schema::close_last(checkpointer.connection, &checkpointer.shared);
            }),
        )?;
        writer.threads.lock().unwrap_or_else(PoisonError::into_inner).extend([write, log]);
        Ok(writer)
    }

    /// Queues a job. A job that may wait is written with the next one, or after about a second.
    pub(super) async fn send(&self, job: WriteJob, may_wait: bool) -> Result<(), Error> {
        let put = match may_wait {
            true => self.queue.put_idle(job).await,
            false => self.queue.put(job).await,
        };
        put.map_err(|Closed| Error::Closed)
    }

    pub(super) async fn close(&self) {
        self.queue.close();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        join(threads).await;
    }
}

/// Abandons the queue when the writer thread ends, so that callers do not wait for ever.
struct AbandonOnDrop<'a>(&'a Queue<WriteJob>);

impl Drop for AbandonOnDrop<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

impl Drop for Writer {
    /// The threads also end when the ledger is dropped without a call of `close`.
    fn drop(&mut self) {
        self.queue.close();
    }
}

struct WriterThread {
    connection: Connection,
    shared: Arc<Shared>,
    fair_lock: FairLock,
    tick: std::sync::mpsc::SyncSender<()>,
}

impl WriterThread {
    fn run(&self, jobs: &Queue<WriteJob>, mut mark: HighWaterMark) {
        let mut statements = match WriteStatements::prepare(&self.connection) {
            Ok(statements) => Some(statements),
            Err(error) => {
                self.shared.poison(store_error(&self.shared.path, &error));
                None
            }
        };
        let mut batch = Vec::new();
        let mut replies = Vec::new();
        // Pages written since the last checkpoint.
        let mut pages = 0;
        let mut wait = BatchWait::none();
        loop {
            // If no further write follows, the mark still has to be raised for the last one.
            let is_late = mark.due_in().is_some_and(|due_in| !jobs.wait(due_in));
            let is_over = !is_late && !jobs.take(&mut batch, MAX_BATCH, &wait);
            if is_over && !mark.is_behind() {
                break;
            }
            let (Some(statements), None) = (&mut statements, self.shared.poison.get()) else {
                if is_over {
                    break;
                }
                mark.failed();
                let poison = self.shared.poison.get().cloned().unwrap_or(Error::Closed);
                batch.drain(..).for_each(|job| refuse(job, &poison));
                continue;
            };
            let turn = self.fair_lock.take();
            // More jobs may have arrived while it waited for its turn.
            jobs.top_up(&mut batch, MAX_BATCH);
            let (began, size) = (ThreadTime::now(), batch.len());
            pages += batch.iter().map(WriteJob::pages).sum::<usize>();
            if is_over {
                mark.raise_next();
            }
            self.commit(statements, &mut batch, &mut replies, turn, &mut mark);
            if is_over {
                break;
            }
            wait = BatchWait::after(&began, size + jobs.waiting());
            if pages >= PAGES_PER_CHECKPOINT {
                pages = 0;
                let _ = self.tick.try_send(());
            }
        }
    }

    /// Writes a batch in one transaction, and replies when it is on disk.
    fn commit(
        &self,
        statements: &mut WriteStatements<'_>,
        batch: &mut Vec<WriteJob>,
        replies: &mut Vec<PendingReply>,
        turn: WriteTurn<'_>,
        mark: &mut HighWaterMark,
    ) {
        let restart = batch.iter().position(|job| matches!(job, WriteJob::RestartLog(_)));
        let restart = restart.map(|index| batch.remove(index));
        let committed = self.transact(statements, batch, replies, mark.is_due());
        // The turn ends before the replies, unless the log is restarted, which needs the file too.
        let turn = restart.is_some().then_some(turn);
        if let Err(error) = &committed {
            tracing::error!(%error, "a batch of writes failed; none of it was acknowledged");
            self.shared.note(error);
            batch.drain(..).for_each(|job| refuse(job, error));
        }
        let (committed, raised) = match committed {
            Ok(raised) => (Ok(()), raised),
            Err(error) => (Err(error), None),
        };
        for reply in replies.drain(..) {
            reply.send(&committed);
        }
        match committed {
            Ok(()) => mark.committed(raised),
            Err(_) => mark.failed(),
        }
        if let Some(restart) = restart {
            self.restart_log();
            drop(restart);
            drop(turn);
        }
    }

    /// Restarts the log. The checkpoint thread has copied nearly all of it, so this is short.
    fn restart_log(&self) {
        if self.shared.poison.get().is_some() {
            return;
        }
        match schema::restart_log(&self.connection).map_err(|error| store_error(&self.shared.path, &error)) {
            Ok(true) => {}
            Ok(false) => {
                tracing::warn!(
                    "the write-ahead log of the ledger grows: another program has been reading the file for a long time"
                );
            }
            Err(error) => {
                tracing::error!(%error, "the write-ahead log of the ledger could not be restarted");
                self.shared.note(&error);
            }
        }
    }

    /// Runs the transaction. Returns the new number of the high-water mark if `raises_mark`.
    fn transact(
        &self,
        statements: &mut WriteStatements<'_>,
        batch: &mut Vec<WriteJob>,
        replies: &mut Vec<PendingReply>,
        raises_mark: bool,
    ) -> Result<Option<u64>, Error> {
        let shared = &self.shared;
        let fault = |error: rusqlite::Error| store_error(&shared.path, &error);
        shared.check_files()?;
        statements.begin().map_err(fault)?;
        // A newer build may have opened and migrated the ledger in the meantime.
        let version =
            statements.version().map_err(fault).and_then(|version| schema::check_version(version, &shared.path));
        if let Err(error) = version {
            statements.roll_back();
            return Err(error);
        }
        let seal = statements.seal().map_err(fault).and_then(|text| Seal::from_text(&shared.name(), text.as_deref()));
        let seal = match seal {
            Ok(seal) => seal,
            Err(error) => {
                statements.roll_back();
                return Err(error);
            }
        };
        let now = shared.clock.now();
        let mut transaction = Transaction { connection: &self.connection, statements, shared, now, seal };
        let mut purged = false;
        let mut jobs = mem::take(batch).into_iter();
        while let Some(job) = jobs.next() {
            purged |= matches!(job, WriteJob::Purge(..));
            if let ControlFlow::Break(error) = transaction.apply(job, replies) {
                // SQLite itself failed, so nothing in this batch may be acknowledged.
                batch.extend(jobs);
                transaction.statements.roll_back();
                return Err(error);
            }
        }
        let raised = raises_mark.then(|| transaction.statements.raise_mark()).transpose().map_err(|error| {
            transaction.statements.roll_back();
            fault(error)
        })?;
        reached(Step::StoreUncommitted);
        let committed = transaction.statements.commit().map_err(|error| commit_error(&shared.path, &error));
        // Once more: what was written to a log that is gone must not be acknowledged.
        let committed = committed.and_then(|()| shared.check_files());
        if committed.is_ok() {
            reached(if purged { Step::PurgeCommitted } else { Step::StoreCommitted });
        } else {
            transaction.statements.roll_back();
        }
        committed.map(|()| raised)
    }
}
