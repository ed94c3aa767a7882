//! The one thread of this process that writes. It takes whatever is waiting, writes it in one transaction,
//! commits with one fsync, and only then answers.

use std::mem;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::oneshot;

use onceward_core::decide::{Command, Write, decide};
use onceward_core::hash::Digest;
use onceward_core::plant::{Plant, planted};
use onceward_core::record::{Draft, Seen};
use onceward_core::time::Timestamp;

use super::carrier::Carrier;
use super::fault::{is_single, named, named_at_commit};
use super::job::{Answer, Job, Reply, refuse};
use super::mark::Mark;
use super::pace::{Moment, Pace};
use super::query::{Last, Writes};
use super::queue::{Closed, Queue};
use super::turn::{Turn, Turns};
use super::{Shared, query, schema};
use crate::step::{Step, reached};
use crate::store::{Error, Inserted, Purged, Replace, Replaced};

/// One fsync carries at most this many writes: enough to saturate a disk, little enough to answer soon.
const BATCH: usize = 512;

/// How many writes may wait before callers are held back.
const QUEUE: usize = 4096;

/// Pages written between two checkpoints: about 8 MiB of log. A page that many writes touch is then carried over once
/// for all of them.
const CHECKPOINT_EVERY: usize = 2000;

/// How many expired records that cannot be read a purge goes past. They stay, because nobody knows what they are.
const UNREADABLE: usize = 1000;

#[derive(Debug)]
pub(super) struct Writer {
    queue: Arc<Queue<Job>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Writer {
    pub(super) fn start(shared: &Arc<Shared>, connection: Connection, mark: Mark) -> Result<Self, Error> {
        let queue = Arc::new(Queue::new(QUEUE));
        let (tick, ticks) = std::sync::mpsc::sync_channel(1);
        let checkpoints = schema::open_reader(shared)?;
        let turns = Turns::open(&shared.file);
        let thread = Thread { connection, shared: Arc::clone(shared), turns, tick };
        let carrier = Carrier { connection: checkpoints, shared: Arc::clone(shared) };
        let (jobs, start_over) = (Arc::clone(&queue), Arc::clone(&queue));
        let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
            let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body);
            thread.map_err(|error| Error::Other(error.to_string()))
        };
        // First, so that a thread ends again when the other cannot be started.
        let writer = Self { queue, threads: Mutex::default() };
        let write = spawn(
            "onceward-write",
            Box::new(move || {
                let _taker = Taker(&jobs);
                thread.run(&jobs, mark);
                // In this order: the other thread's connection is to be the last.
                drop(thread.connection);
                drop(thread.tick);
            }),
        )?;
        let log = spawn(
            "onceward-log",
            Box::new(move || {
                carrier.run(&ticks, &start_over);
                schema::close_last(carrier.connection, &carrier.shared);
            }),
        )?;
        writer.threads.lock().unwrap_or_else(PoisonError::into_inner).extend([write, log]);
        Ok(writer)
    }

    /// Has a job written. One that may wait is written with the next one, or after about a second.
    pub(super) async fn send(&self, job: Job, may_wait: bool) -> Result<(), Error> {
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

/// However the thread ends, nobody waits for it any more.
struct Taker<'a>(&'a Queue<Job>);

impl Drop for Taker<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

impl Drop for Writer {
    /// A ledger that is dropped and not closed ends its threads too.
    fn drop(&mut self) {
        self.queue.close();
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

struct Thread {
    connection: Connection,
    shared: Arc<Shared>,
    turns: Turns,
    tick: std::sync::mpsc::SyncSender<()>,
}

impl Thread {
    fn run(&self, jobs: &Queue<Job>, mut mark: Mark) {
        let mut writes = match Writes::prepare(&self.connection) {
            Ok(writes) => Some(writes),
            Err(error) => {
                self.shared.spoil(named(&self.shared.path, &error));
                None
            }
        };
        let mut batch = Vec::new();
        let mut answers = Vec::new();
        // How much was written since the last checkpoint.
        let mut pages = 0;
        let mut pace = Pace::idle();
        loop {
            // What was written last is to be covered by the mark as well, when nothing follows.
            let is_late = mark.patience().is_some_and(|patience| !jobs.wait(patience));
            let is_over = !is_late && !jobs.take(&mut batch, BATCH, &pace);
            if is_over && !mark.is_behind() {
                break;
            }
            let (Some(writes), None) = (&mut writes, self.shared.poison.get()) else {
                if is_over {
                    break;
                }
                mark.failed();
                let poison = self.shared.poison.get().cloned().unwrap_or(Error::Closed);
                batch.drain(..).for_each(|job| refuse(job, &poison));
                continue;
            };
            let turn = self.turns.take();
            // Others may have come while it waited.
            jobs.top_up(&mut batch, BATCH);
            let (began, size) = (Moment::now(), batch.len());
            pages += batch.iter().map(Job::pages).sum::<usize>();
            if is_over {
                mark.hurry();
            }
            self.commit(writes, &mut batch, &mut answers, turn, &mut mark);
            if is_over {
                break;
            }
            pace = Pace::after(&began, size + jobs.waiting());
            if pages >= CHECKPOINT_EVERY {
                pages = 0;
                let _ = self.tick.try_send(());
            }
        }
    }

    /// Writes a batch in one transaction, and answers when it is on the disk.
    fn commit(
        &self,
        writes: &mut Writes<'_>,
        batch: &mut Vec<Job>,
        answers: &mut Vec<Answer>,
        turn: Turn<'_>,
        mark: &mut Mark,
    ) {
        let start_over = batch.iter().position(|job| matches!(job, Job::StartLogOver(_)));
        let start_over = start_over.map(|index| batch.remove(index));
        let ended = self.transact(writes, batch, answers, mark.is_due());
        // Another process may write while this one answers, unless the log is started over: that needs the file too.
        let turn = start_over.is_some().then_some(turn);
        if let Err(error) = &ended {
            tracing::error!(%error, "a batch of writes failed; none of it was acknowledged");
            self.shared.note(error);
            batch.drain(..).for_each(|job| refuse(job, error));
        }
        let (ended, raised) = match ended {
            Ok(raised) => (Ok(()), raised),
            Err(error) => (Err(error), None),
        };
        for answer in answers.drain(..) {
            answer.give(&ended);
        }
        match ended {
            Ok(()) => mark.committed(raised),
            Err(_) => mark.failed(),
        }
        if let Some(asked) = start_over {
            self.start_log_over();
            drop(asked);
            drop(turn);
        }
    }

    /// Nearly all of the log has been carried over, so this is short.
    fn start_log_over(&self) {
        if self.shared.poison.get().is_some() {
            return;
        }
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

    /// The answer is the number that the mark beside the ledger may have now, if it was raised.
    fn transact(
        &self,
        writes: &mut Writes<'_>,
        batch: &mut Vec<Job>,
        answers: &mut Vec<Answer>,
        raises: bool,
    ) -> Result<Option<u64>, Error> {
        let shared = &self.shared;
        let fault = |error: rusqlite::Error| named(&shared.path, &error);
        if shared.is_gone() {
            return Err(Error::Gone { path: shared.path.clone() });
        }
        writes.begin().map_err(fault)?;
        // A newer build may have opened the ledger since, and may mean something else by a row.
        let version = writes.version().map_err(fault).and_then(|version| schema::check_version(version, &shared.path));
        if let Err(error) = version {
            writes.undo();
            return Err(error);
        }
        let now = shared.clock.now();
        let mut at = At { connection: &self.connection, writes, shared, now };
        let mut purged = false;
        let mut jobs = mem::take(batch).into_iter();
        while let Some(job) = jobs.next() {
            purged |= matches!(job, Job::Purge(..));
            if let ControlFlow::Break(error) = at.apply(job, answers) {
                // The engine itself failed, so nothing of this batch may be acknowledged.
                batch.extend(jobs);
                at.writes.undo();
                return Err(error);
            }
        }
        let raised = raises.then(|| at.writes.raise()).transpose().map_err(|error| {
            at.writes.undo();
            fault(error)
        })?;
        reached(Step::StoreUncommitted);
        let ended = at.writes.commit().map_err(|error| named_at_commit(&shared.path, &error));
        if ended.is_ok() {
            reached(if purged { Step::PurgeCommitted } else { Step::StoreCommitted });
        } else {
            at.writes.undo();
        }
        ended.map(|()| raised)
    }
}

/// One moment inside a transaction.
struct At<'a, 'c> {
    connection: &'a Connection,
    writes: &'a mut Writes<'c>,
    shared: &'a Shared,
    now: Timestamp,
}

impl At<'_, '_> {
    fn apply(&mut self, job: Job, answers: &mut Vec<Answer>) -> ControlFlow<Error> {
        match job {
            Job::Insert(draft, most, reply) => {
                let inserted = self.insert(*draft, most);
                self.answer(inserted, reply, answers, Answer::Inserted)
            }
            Job::Replace(replace, reply) => {
                let replaced = match replace.event {
                    Some(_) => self.together(|at| at.replace(*replace)),
                    None => self.replace(*replace),
                };
                self.answer(replaced, reply, answers, Answer::Replaced)
            }
            Job::Purge(limit, reply) => {
                let purged = self.purge(limit);
                self.answer(purged, reply, answers, Answer::Purged)
            }
            Job::Append(id, event, reply) => {
                let appended = query::append(self.connection, id, self.now, &event);
                self.answer(appended, reply, answers, Answer::Appended)
            }
            Job::Check(reply) => {
                let checked = query::check(self.connection);
                self.answer(checked, reply, answers, Answer::Checked)
            }
            Job::StartLogOver(_) => ControlFlow::Continue(()),
        }
    }

    /// Holds an answer back until the commit. A statement that failed alone (too big, say) fails alone; if the
    /// engine rolled everything back, the batch is over.
    fn answer<A>(
        &self,
        result: rusqlite::Result<A>,
        reply: Reply<A>,
        answers: &mut Vec<Answer>,
        held: fn(A, Reply<A>) -> Answer,
    ) -> ControlFlow<Error> {
        match result {
            Ok(answer) if planted(Plant::AnswersBeforeSync) => {
                let _ = reply.send(Ok(answer));
                ControlFlow::Continue(())
            }
            Ok(answer) => {
                answers.push(held(answer, reply));
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

    fn insert(&mut self, draft: Draft, most: Option<u64>) -> rusqlite::Result<Inserted> {
        let record = draft.stamp(self.now);
        if planted(Plant::InsertOverwrites) {
            query::remove(self.connection, record.id)?;
        }
        if self.writes.insert(&record, most)? {
            return Ok(Inserted::Created { now: self.now });
        }
        match self.seen(record.id)? {
            Some(seen) => Ok(Inserted::Exists(Box::new(seen))),
            None if most.is_some() => Ok(Inserted::Full),
            None => Err(rusqlite::Error::QueryReturnedNoRows),
        }
    }

    fn replace(&mut self, mut replace: Replace) -> rusqlite::Result<Replaced> {
        if planted(Plant::VersionNotCompared) {
            replace.version = self.seen(replace.draft.id)?.map_or(0, |seen| seen.record.version);
        }
        if planted(Plant::StoreFenceNotCompared) {
            replace.fence = self.seen(replace.draft.id)?.and_then(|seen| seen.record.fence());
        }
        if planted(Plant::TimeNotCompared) {
            replace.time = None;
        }
        let record = replace.draft.stamp(self.now);
        let last = Last { fence: replace.fence, version: replace.version, time: replace.time };
        if !self.writes.replace(&record, last)? {
            return Ok(Replaced::Conflict(self.seen(record.id)?.map(Box::new)));
        }
        if let Some(event) = &replace.event {
            query::append(self.connection, record.id, self.now, event)?;
        }
        Ok(Replaced::Written { now: self.now })
    }

    /// Several statements as one: if the last fails alone, the first are undone, and the rest of the batch stays.
    fn together<A>(&mut self, write: impl FnOnce(&mut Self) -> rusqlite::Result<A>) -> rusqlite::Result<A> {
        self.connection.execute_batch("SAVEPOINT together")?;
        let written = write(self);
        if written.is_ok() {
            self.connection.execute_batch("RELEASE together")?;
        } else if !self.connection.is_autocommit() {
            self.connection.execute_batch("ROLLBACK TO together; RELEASE together")?;
        }
        written
    }

    fn purge(&mut self, limit: usize) -> rusqlite::Result<Purged> {
        let mut purged = Purged::default();
        let mut window = limit;
        loop {
            let expired = query::expired(self.connection, self.now, window)?;
            for id in expired.ids {
                if purged.total() == limit {
                    break;
                }
                self.free(id, &mut purged)?;
            }
            if purged.total() == limit || !expired.more || window > limit + UNREADABLE {
                return Ok(purged);
            }
            // What cannot be read is in the way: look further.
            window = window.saturating_mul(4);
        }
    }

    fn free(&mut self, id: Digest, purged: &mut Purged) -> rusqlite::Result<()> {
        let Some(seen) = query::readable(Some(id), self.seen(id))?.flatten() else { return Ok(()) };
        match decide(Some(&seen), &Command::Expire).write {
            Write::Replace(draft) if !planted(Plant::PurgeDropsTombstones) => {
                match self.writes.replace(&draft.stamp(self.now), Last::of(&seen.record)) {
                    // No row can hold its next version. It stays, and stops no other.
                    Err(rusqlite::Error::ToSqlConversionFailure(_)) => {}
                    written => purged.tombstones += usize::from(written?),
                }
            }
            Write::Remove | Write::Replace(_) => {
                query::remove(self.connection, id)?;
                purged.removed += 1;
            }
            Write::None | Write::Insert(_) => {}
        }
        Ok(())
    }

    fn seen(&mut self, id: Digest) -> rusqlite::Result<Option<Seen>> {
        self.writes.look(self.shared, id, self.now)
    }
}
