//! The one thread of this process that writes. It takes whatever is waiting, writes it in one transaction,
//! commits with one fsync, and only then answers. A second thread carries the log over into the file.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use bytes::Bytes;
use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use onceward_core::decide::{Command, Write, decide};
use onceward_core::hash::Digest;
use onceward_core::outcome::{Body, Outcome};
use onceward_core::plant::{Plant, planted};
use onceward_core::record::{Draft, Seen, State};
use onceward_core::time::Timestamp;

use super::fault::{is_single, named, named_at_commit};
use super::{Shared, query, schema};
use crate::step::{Step, reached};
use crate::store::{Error, Event, Inserted, Purged, Replace, Replaced};

/// One fsync carries at most this many writes: enough to saturate a disk, little enough to answer soon.
const BATCH: usize = 512;

/// How many writes may wait before callers are held back.
const QUEUE: usize = 4096;

/// Pages written between two checkpoints: about 4 MiB of log.
const CHECKPOINT_EVERY: usize = 1000;

/// SQLite's default; it only serves to guess how much log a body takes.
const PAGE: usize = 4096;

/// Pages of log past which the writer pauses to start the log over: 64 MiB. Until then checkpoints stay off
/// its path altogether. Somebody who reads for long keeps the log from starting over: then it is tried again
/// after as many pages more, and not at every checkpoint.
const LONGEST_LOG: i64 = 16 * 1024;

/// How many expired records that cannot be read a purge goes past. They stay, because nobody knows what they are.
const UNREADABLE: usize = 1000;

pub(super) type Reply<A> = oneshot::Sender<Result<A, Error>>;

pub(super) enum Job {
    Insert(Box<Draft>, Reply<Inserted>),
    Replace(Box<Replace>, Reply<Replaced>),
    Purge(usize, Reply<Purged>),
    Append(Digest, Event, Reply<()>),
    StartLogOver,
}

impl Job {
    /// About how many pages of log it takes: one for each row, and those that its bytes fill.
    fn pages(&self) -> usize {
        match self {
            Self::Insert(draft, _) => 1 + bytes(draft) / PAGE,
            Self::Replace(replace, _) => 1 + bytes(&replace.draft) / PAGE,
            Self::Purge(limit, _) => *limit,
            Self::Append(..) => 1,
            Self::StartLogOver => 0,
        }
    }
}

/// What may be large in a record.
fn bytes(draft: &Draft) -> usize {
    let payload = draft.payload.as_ref().map_or(0, Bytes::len);
    match &draft.state {
        State::Done { outcome: Outcome { body: Body::Kept(body), .. }, .. } => payload + body.len(),
        _ => payload,
    }
}

/// An answer that is given only when the transaction is on the disk.
type Answer = Box<dyn FnOnce(Result<(), Error>) + Send>;

#[derive(Debug)]
pub(super) struct Writer {
    queue: Mutex<Option<mpsc::Sender<Job>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Writer {
    pub(super) fn start(shared: &Arc<Shared>, connection: Connection) -> Result<Self, Error> {
        let (queue, jobs) = mpsc::channel(QUEUE);
        let (tick, ticks) = std::sync::mpsc::sync_channel(1);
        let checkpoints = schema::open_reader(shared)?;
        let mut thread = Thread { connection, shared: Arc::clone(shared), pages: 0, tick };
        let carrier = Carrier { connection: checkpoints, shared: Arc::clone(shared) };
        let start_over = queue.downgrade();
        let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
            let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body);
            thread.map_err(|error| Error::Other(error.to_string()))
        };
        let threads = vec![
            spawn(
                "onceward-write",
                Box::new(move || {
                    thread.run(jobs);
                    schema::close(thread.connection, &thread.shared);
                }),
            )?,
            spawn(
                "onceward-log",
                Box::new(move || {
                    carrier.run(&ticks, &start_over);
                    schema::close(carrier.connection, &carrier.shared);
                }),
            )?,
        ];
        Ok(Self { queue: Mutex::new(Some(queue)), threads: Mutex::new(threads) })
    }

    pub(super) async fn send(&self, job: Job) -> Result<(), Error> {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner).clone();
        queue.ok_or(Error::Closed)?.send(job).await.map_err(|_| Error::Closed)
    }

    pub(super) async fn close(&self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).take();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        join(threads).await;
    }
}

/// Waits for threads without blocking the runtime.
pub(super) async fn join(threads: Vec<JoinHandle<()>>) {
    let (done, ended) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        for thread in threads {
            let _ = thread.join();
        }
        drop(done);
    });
    let _ = ended.await;
}

/// Moves pages from the log into the file while the writer goes on.
struct Carrier {
    connection: Connection,
    shared: Arc<Shared>,
}

impl Carrier {
    /// When the log has grown too long because the writer never rested, asks it to start over. It begins and ends with
    /// a checkpoint: a process that lives too shortly to write much would otherwise leave its part of the log, and
    /// that of one that was killed, to nobody.
    fn run(&self, ticks: &std::sync::mpsc::Receiver<()>, start_over: &mpsc::WeakSender<Job>) {
        let mut too_long = LONGEST_LOG;
        loop {
            match self.checkpoint() {
                Some(pages) if pages <= LONGEST_LOG => too_long = LONGEST_LOG,
                Some(pages) if pages > too_long => {
                    too_long = pages + LONGEST_LOG;
                    if let Some(queue) = start_over.upgrade() {
                        let _ = queue.blocking_send(Job::StartLogOver);
                    }
                }
                _ => {}
            }
            if ticks.recv().is_err() {
                break;
            }
        }
        self.checkpoint();
    }

    /// Carries over what no reader needs any more, without waiting. The answer is the length of the log in pages.
    ///
    /// After a failed sync the system may have dropped pages that it had taken, and the next sync would say that all is
    /// well. SQLite would then start the log over, and what only the log still held would be gone. So nothing is
    /// carried over after a failure, and nothing is written either.
    fn checkpoint(&self) -> Option<i64> {
        if self.shared.poison.get().is_some() {
            return None;
        }
        let carried = schema::checkpoint(&self.connection).map_err(|error| named(&self.shared.path, &error));
        if let Err(error) = &carried {
            tracing::error!(%error, "the log could not be carried over into the file");
            self.shared.note(error);
        }
        carried.ok()
    }
}

struct Thread {
    connection: Connection,
    shared: Arc<Shared>,
    /// How much was written since the last checkpoint.
    pages: usize,
    tick: std::sync::mpsc::SyncSender<()>,
}

impl Thread {
    fn run(&mut self, mut jobs: mpsc::Receiver<Job>) {
        let mut batch = Vec::with_capacity(BATCH);
        while jobs.blocking_recv_many(&mut batch, BATCH) > 0 {
            if let Some(poison) = self.shared.poison.get() {
                batch.drain(..).for_each(|job| refuse(job, poison));
                continue;
            }
            self.commit(&mut batch);
            if self.pages >= CHECKPOINT_EVERY {
                self.pages = 0;
                let _ = self.tick.try_send(());
            }
        }
    }

    /// Writes a batch in one transaction, and answers when it is on the disk.
    fn commit(&mut self, batch: &mut Vec<Job>) {
        let start_over = batch.iter().any(|job| matches!(job, Job::StartLogOver));
        let (answers, ended) = self.transact(batch);
        if let Err(error) = &ended {
            tracing::error!(%error, "a batch of writes failed; none of it was acknowledged");
            self.shared.note(error);
            batch.drain(..).for_each(|job| refuse(job, error));
        }
        for answer in answers {
            answer(ended.clone());
        }
        if start_over && self.shared.poison.get().is_none() {
            self.start_log_over();
        }
    }

    /// Nearly all of the log has been carried over, so this is short.
    fn start_log_over(&self) {
        match schema::start_log_over(&self.connection).map_err(|error| named(&self.shared.path, &error)) {
            Ok(true) => {}
            Ok(false) => {
                tracing::warn!("the log of the ledger grows: something has been reading the file for long");
            }
            Err(error) => {
                tracing::error!(%error, "the log of the ledger could not be started over");
                self.shared.note(&error);
            }
        }
    }

    fn transact(&mut self, batch: &mut Vec<Job>) -> (Vec<Answer>, Result<(), Error>) {
        let mut answers: Vec<Answer> = Vec::with_capacity(batch.len());
        let shared = &self.shared;
        let fault = |error: rusqlite::Error| named(&shared.path, &error);
        let transaction = match self.connection.transaction_with_behavior(TransactionBehavior::Immediate) {
            Ok(transaction) => transaction,
            Err(error) => return (answers, Err(fault(error))),
        };
        let at = At { connection: &transaction, shared, now: shared.clock.now() };
        let mut purged = false;
        let mut jobs = std::mem::take(batch).into_iter();
        while let Some(job) = jobs.next() {
            purged |= matches!(job, Job::Purge(..));
            self.pages += job.pages();
            if let ControlFlow::Break(error) = at.apply(job, &mut answers) {
                // The engine itself failed, so nothing of this batch may be acknowledged.
                batch.extend(jobs);
                return (answers, Err(error));
            }
        }
        reached(Step::StoreUncommitted);
        let ended = transaction.commit().map_err(|error| named_at_commit(&shared.path, &error));
        if ended.is_ok() {
            reached(if purged { Step::PurgeCommitted } else { Step::StoreCommitted });
        }
        (answers, ended)
    }
}

/// One moment inside a transaction.
struct At<'a> {
    connection: &'a Connection,
    shared: &'a Shared,
    now: Timestamp,
}

impl At<'_> {
    fn apply(&self, job: Job, answers: &mut Vec<Answer>) -> ControlFlow<Error> {
        match job {
            Job::Insert(draft, reply) => self.answer(self.insert(*draft), reply, answers),
            Job::Replace(replace, reply) if replace.event.is_some() => {
                self.answer(self.together(|| self.replace(*replace)), reply, answers)
            }
            Job::Replace(replace, reply) => self.answer(self.replace(*replace), reply, answers),
            Job::Purge(limit, reply) => self.answer(self.purge(limit), reply, answers),
            Job::Append(id, event, reply) => {
                self.answer(query::append(self.connection, id, self.now, &event), reply, answers)
            }
            Job::StartLogOver => ControlFlow::Continue(()),
        }
    }

    /// Holds an answer back until the commit. A statement that failed alone (too big, say) fails alone; if the
    /// engine rolled everything back, the batch is over.
    fn answer<A: Send + 'static>(
        &self,
        result: rusqlite::Result<A>,
        reply: Reply<A>,
        answers: &mut Vec<Answer>,
    ) -> ControlFlow<Error> {
        match result {
            Ok(answer) if planted(Plant::AnswersBeforeSync) => {
                let _ = reply.send(Ok(answer));
                ControlFlow::Continue(())
            }
            Ok(answer) => {
                answers.push(Box::new(move |ended| drop(reply.send(ended.map(|()| answer)))));
                ControlFlow::Continue(())
            }
            Err(error) => {
                let error = named(&self.shared.path, &error);
                let _ = reply.send(Err(error.clone()));
                if self.connection.is_autocommit() || !is_single(&error) {
                    return ControlFlow::Break(error);
                }
                ControlFlow::Continue(())
            }
        }
    }

    fn insert(&self, draft: Draft) -> rusqlite::Result<Inserted> {
        let record = draft.stamp(self.now);
        if planted(Plant::InsertOverwrites) {
            query::remove(self.connection, record.id)?;
        }
        if query::insert(self.connection, &record)? {
            return Ok(Inserted::Created { now: self.now });
        }
        match self.seen(record.id)? {
            Some(seen) => Ok(Inserted::Exists(Box::new(seen))),
            None => Err(rusqlite::Error::QueryReturnedNoRows),
        }
    }

    fn replace(&self, mut replace: Replace) -> rusqlite::Result<Replaced> {
        if planted(Plant::VersionNotCompared) {
            replace.version = self.seen(replace.draft.id)?.map_or(0, |seen| seen.record.version);
        }
        if planted(Plant::StoreFenceNotCompared) {
            replace.fence = self.seen(replace.draft.id)?.and_then(|seen| seen.record.fence());
        }
        let record = replace.draft.stamp(self.now);
        if !query::replace(self.connection, &record, replace.fence, replace.version)? {
            return Ok(Replaced::Conflict(self.seen(record.id)?.map(Box::new)));
        }
        if let Some(event) = &replace.event {
            query::append(self.connection, record.id, self.now, event)?;
        }
        Ok(Replaced::Written { now: self.now })
    }

    /// Several statements as one: if the last fails alone, the first are undone, and the rest of the batch stays.
    fn together<A>(&self, write: impl FnOnce() -> rusqlite::Result<A>) -> rusqlite::Result<A> {
        self.connection.execute_batch("SAVEPOINT together")?;
        let written = write();
        if written.is_ok() {
            self.connection.execute_batch("RELEASE together")?;
        } else if !self.connection.is_autocommit() {
            self.connection.execute_batch("ROLLBACK TO together; RELEASE together")?;
        }
        written
    }

    fn purge(&self, limit: usize) -> rusqlite::Result<Purged> {
        let mut purged = Purged::default();
        for id in query::expired(self.connection, self.now, limit + UNREADABLE)? {
            if purged.total() == limit {
                break;
            }
            let Some(seen) = query::readable(Some(id), self.seen(id))?.flatten() else { continue };
            match decide(Some(&seen), &Command::Expire).write {
                Write::Replace(draft) if !planted(Plant::PurgeDropsTombstones) => {
                    let (fence, version) = (seen.record.fence(), seen.record.version);
                    query::replace(self.connection, &draft.stamp(self.now), fence, version)?;
                    purged.tombstones += 1;
                }
                Write::Remove | Write::Replace(_) => {
                    query::remove(self.connection, id)?;
                    purged.removed += 1;
                }
                Write::None | Write::Insert(_) => {}
            }
        }
        Ok(purged)
    }

    fn seen(&self, id: Digest) -> rusqlite::Result<Option<Seen>> {
        query::look(self.connection, self.shared, id, self.now)
    }
}

fn refuse(job: Job, error: &Error) {
    let error = error.clone();
    match job {
        Job::Insert(_, reply) => drop(reply.send(Err(error))),
        Job::Replace(_, reply) => drop(reply.send(Err(error))),
        Job::Purge(_, reply) => drop(reply.send(Err(error))),
        Job::Append(_, _, reply) => drop(reply.send(Err(error))),
        Job::StartLogOver => {}
    }
}
