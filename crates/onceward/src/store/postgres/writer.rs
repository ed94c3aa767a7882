//! The threads that write, each with one connection and its share of the keys. A writer takes all waiting jobs, sends them in one
//! round trip as one statement that commits by itself, and replies once the commit was acknowledged.
//!
//! A commit whose answer is lost is unknown. The writer repeats the same jobs, which carry the ids of their writes, until a commit
//! is acknowledged: reading would prove nothing, because what is visible may not have been replicated.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use onceward_core::time::Timestamp;

use super::composite::{Binary, RowArray, time_parameter};
use super::connection::PrimaryConnection;
use super::high_water_mark::HighWaterMark;
use super::pg_error::Fault;
use super::row::{has_quota, lock_key};
use super::write_job::{WriteJob, WriteReply, all_written, read_answer};
use super::{OpenStore, row_times};
use crate::plant::{Plant, planted};
use crate::step::{Step, reached};
use crate::store::Error;
use crate::store::batching::{BatchWait, Closed, Queue, ThreadTime};

/// The most writes in one transaction: enough that the round trip and the commit cost little, and few enough to reply soon.
const MAX_BATCH: usize = 512;

/// The most bytes in one transaction, unless a single write has more: outcomes may have 8 MiB each.
const MAX_BATCH_BYTES: usize = 8 << 20;

/// The most writes that may wait in the queue; further callers wait to enter it.
const QUEUE_LIMIT: usize = 4096;

/// How long a write is tried that was sent at least once: whether it was written is not known, so this is worth some patience.
const PATIENCE_SENT: Duration = Duration::from_secs(15);

/// How long a write waits for a connection before its caller is told that the store is down.
const PATIENCE_UNSENT: Duration = Duration::from_secs(3);

/// How long a write waits for other transactions that change the same row.
const PATIENCE_HELD: Duration = Duration::from_secs(2);

/// Pauses between attempts: short at first, because a connection that was lost is often back at once.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSE: Duration = Duration::from_millis(500);

/// How often in a row a batch is repeated after a deadlock or a serialisation failure before it is split.
const MAX_CONFLICTS: u32 = 5;

/// The number of expected jobs falls by this fraction with each batch that is smaller.
const EXPECTED_DECAY: usize = 8;

/// `$1` inserts, `$2` replaces, `$3` their lock keys, `$4` whether there are quotas, `$5` whether it repeats, `$6` and `$7` the mark,
/// `$8` the time in tests, `$9` the last mark that was acknowledged.
const WRITE: &str = "SELECT result, at, found FROM onceward.write_v1($1, $2, $3, $4, $5, $6, $7, $8, $9)";

/// A writer as the store holds it.
#[derive(Debug)]
pub(super) struct Writer {
    queue: Arc<Queue<WriteJob>>,
    pub(super) thread: std::sync::Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    /// Starts a thread.
    pub(super) fn start(shared: &Arc<OpenStore>, number: usize) -> Result<Self, Error> {
        let queue = Arc::new(Queue::new(QUEUE_LIMIT));
        let (shared, jobs) = (Arc::clone(shared), Arc::clone(&queue));
        let cannot = |error: std::io::Error| Error::Other(error.to_string());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
        let mark = HighWaterMark::new()?;
        let thread = std::thread::Builder::new().name(format!("onceward-pg-{number}")).spawn(move || {
            let _abandon = AbandonOnDrop(&jobs);
            let wait = BatchWait::none();
            WriterThread { shared, runtime, connection: None, mark, wait, expected: 0, is_unsettled: false }.run(&jobs);
        });
        Ok(Self { queue, thread: std::sync::Mutex::new(Some(thread.map_err(cannot)?)) })
    }

    /// Queues a job. A job that may wait is written with the next one, or after about a second.
    pub(super) async fn send(&self, job: WriteJob, may_wait: bool) -> Result<(), Error> {
        let put = match may_wait {
            true => self.queue.put_idle(job).await,
            false => self.queue.put(job).await,
        };
        put.map_err(|Closed| Error::Closed)
    }

    /// Accepts no more jobs; the thread ends when the waiting ones are done.
    pub(super) fn close(&self) {
        self.queue.close();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// Abandons the queue when the writer thread ends, so that callers do not wait for ever.
struct AbandonOnDrop<'a>(&'a Queue<WriteJob>);

impl Drop for AbandonOnDrop<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

struct WriterThread {
    shared: Arc<OpenStore>,
    runtime: Runtime,
    connection: Option<PrimaryConnection>,
    mark: HighWaterMark,
    wait: BatchWait,
    /// How many jobs the next batch may have.
    expected: usize,
    /// How the last transaction ended is not known. It may still be waiting for a replica, and hold what it has written: at least
    /// the mark, which every transaction of this writer writes.
    is_unsettled: bool,
}

impl WriterThread {
    fn run(mut self, queue: &Queue<WriteJob>) {
        // Jobs that have to wait for the next batch, before those in the queue.
        let mut kept: Vec<WriteJob> = Vec::new();
        loop {
            let mut waiting = std::mem::take(&mut kept);
            let is_over = if waiting.is_empty() {
                !queue.take(&mut waiting, MAX_BATCH, &self.wait)
            } else {
                queue.top_up(&mut waiting, MAX_BATCH);
                false
            };
            if is_over {
                return;
            }
            let batch = take_batch(&mut waiting);
            kept = waiting;
            let (began, size) = (ThreadTime::now(), batch.len());
            let again = self.commit(batch, false);
            // The callers of one process are spread over several writers, so that the last batch alone says little about how many
            // may come back: the largest recent one counts, and is forgotten step by step.
            self.expected = (size + queue.waiting()).max(self.expected - self.expected.div_ceil(EXPECTED_DECAY));
            self.wait = BatchWait::after(&began, self.expected);
            if !again.is_empty() {
                // Rows that other transactions are changing: these take milliseconds.
                if kept.is_empty() {
                    std::thread::sleep(Duration::from_millis(2));
                }
                kept.splice(..0, again);
            }
        }
    }

    /// Writes a batch, and replies when it is committed. Returns the jobs that have to be tried again.
    fn commit(&mut self, mut batch: Vec<WriteJob>, mut was_sent: bool) -> Vec<WriteJob> {
        let (mut conflicts, mut pause) = (0, FIRST_PAUSE);
        let began = Instant::now();
        loop {
            let fault = match self.send(&batch, was_sent) {
                Ok((rows, given)) => return answer(batch, &rows, given),
                Err(fault) => fault,
            };
            let why = match fault {
                // A seal may refuse some jobs of a batch and accept others.
                Fault::Refused(Error::Sealed { .. }) if batch.len() > 1 => return self.one_by_one(batch, was_sent),
                Fault::Refused(error) => {
                    refuse(batch, &error);
                    return Vec::new();
                }
                // Not written again at once: from now on the store is best effort, and some calls are refused for that.
                Fault::Behind(found) => {
                    self.mark.fell_behind(found, &self.shared);
                    let why = "the database has lost acknowledged writes; this one was not made";
                    refuse(batch, &unreachable(why.to_owned(), was_sent));
                    return Vec::new();
                }
                // Not a transaction of another program: one by one, every job would wait for it in turn.
                Fault::Held if self.is_unsettled => "an earlier write of this process has not ended yet".to_owned(),
                Fault::Job(_) | Fault::Held if batch.len() > 1 => return self.one_by_one(batch, was_sent),
                Fault::Conflict(_) if conflicts >= MAX_CONFLICTS && batch.len() > 1 => {
                    return self.one_by_one(batch, was_sent);
                }
                Fault::Job(error) => {
                    refuse(batch, &error);
                    return Vec::new();
                }
                Fault::Held => {
                    batch.into_iter().for_each(WriteJob::undecided);
                    return Vec::new();
                }
                Fault::Conflict(why) => {
                    conflicts += 1;
                    why
                }
                Fault::Unknown(why) => {
                    if planted(Plant::LostCommitAssumed) {
                        return assume(batch);
                    }
                    (was_sent, self.is_unsettled) = (true, true);
                    self.connection = None;
                    why
                }
                Fault::NotConnected(why) => why,
            };
            let patience = if was_sent { PATIENCE_SENT } else { PATIENCE_UNSENT };
            // A job that waited in the queue while the store was down has waited long enough; each batch is tried once anyway.
            let oldest = batch.iter().map(|job| job.since).min().unwrap_or(began);
            let since = if was_sent { began } else { oldest };
            if since.elapsed() >= patience {
                tracing::warn!(error = %why, "a batch of writes failed; none of it was acknowledged");
                refuse(batch, &unreachable(why, was_sent));
                return Vec::new();
            }
            batch.retain(|job| !is_abandoned(job, was_sent));
            // Inside the runtime, because a timer needs one.
            self.runtime.block_on(async { tokio::time::sleep(pause).await });
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// Writes each job in a transaction of its own, so that one that cannot be written does not fail the others.
    fn one_by_one(&mut self, batch: Vec<WriteJob>, was_sent: bool) -> Vec<WriteJob> {
        batch.into_iter().flat_map(|job| self.commit(vec![job], was_sent)).collect()
    }

    /// One attempt.
    fn send(&mut self, batch: &[WriteJob], repeats: bool) -> Result<(Vec<Row>, Option<Timestamp>), Fault> {
        if self.connection.as_ref().is_none_or(PrimaryConnection::is_closed) {
            let options = &self.shared.options;
            let connection = self.runtime.block_on(PrimaryConnection::open(options, None))?;
            self.connection = Some(connection);
        }
        let Some(connection) = &self.connection else { return Err(Fault::NotConnected("no connection".to_owned())) };
        let rows_of = |wanted: fn(&WriteReply) -> bool| {
            let rows = batch.iter().filter(|job| wanted(&job.reply)).map(|job| job.bytes.as_slice());
            RowArray { kind: connection.job.oid(), rows: rows.collect() }
        };
        let inserts = rows_of(|reply| matches!(reply, WriteReply::Insert(_)));
        let replaces = rows_of(|reply| matches!(reply, WriteReply::Replace(_)));
        let written = || batch.iter().filter(|job| !matches!(job.reply, WriteReply::Check(_)));
        let lock_keys: Vec<i64> = written().map(|job| lock_key(&job.id)).collect();
        let has_quotas = written().any(|job| has_quota(&job.bytes));
        let given = self.shared.given_time();
        let (process, number, acknowledged) =
            (Binary(Some(self.mark.process)), self.mark.next(), self.mark.expected());
        let time = time_parameter(given);
        reached(Step::StoreUncommitted);
        let rows = self.runtime.block_on(connection.commit(
            WRITE,
            &[
                (&inserts, connection.jobs.clone()),
                (&replaces, connection.jobs.clone()),
                (&lock_keys, Type::INT8_ARRAY),
                (&has_quotas, Type::BOOL),
                (&repeats, Type::BOOL),
                (&process, Type::UUID),
                (&number, Type::INT8),
                (&time, Type::TIMESTAMPTZ),
                (&acknowledged, Type::INT8),
            ],
        ))?;
        reached(Step::StoreCommitted);
        self.mark.acknowledged(number);
        self.is_unsettled = false;
        if let Some(row) = rows.first() {
            self.shared.saw_time(row_times(row));
        }
        Ok((rows, given))
    }
}

/// Takes the jobs of one batch from those that wait: one for each key, because one statement cannot write a row twice.
fn take_batch(waiting: &mut Vec<WriteJob>) -> Vec<WriteJob> {
    let mut ids = HashSet::with_capacity(waiting.len());
    let mut bytes = 0;
    let (mut batch, mut later) = (Vec::with_capacity(waiting.len()), Vec::new());
    for job in waiting.drain(..) {
        bytes += job.bytes.len();
        // Once a key is left for later, all its later jobs are.
        let has_room = batch.is_empty() || bytes <= MAX_BATCH_BYTES;
        let is_first = matches!(job.reply, WriteReply::Check(_)) || ids.insert(job.id);
        if is_first && has_room && batch.len() < MAX_BATCH {
            batch.push(job);
        } else {
            later.push(job);
        }
    }
    *waiting = later;
    // The database answers inserts first, and inserts in this order: two batches with the same keys do not wait for each other in
    // a circle.
    batch.sort_unstable_by_key(|job| match job.reply {
        WriteReply::Insert(_) => (0, job.id),
        WriteReply::Replace(_) => (1, job.id),
        WriteReply::Check(_) => (2, job.id),
    });
    batch
}

/// Replies to each job. Returns those that have to be tried again.
fn answer(batch: Vec<WriteJob>, rows: &[Row], given: Option<Timestamp>) -> Vec<WriteJob> {
    if let Some(now) = rows.first().and_then(|row| all_written(row, given)) {
        batch.into_iter().for_each(|job| job.succeed(now));
        return Vec::new();
    }
    let mut rows = rows.iter();
    let mut again = Vec::new();
    for job in batch {
        if let WriteJob { reply: WriteReply::Check(reply), .. } = job {
            let _ = reply.send(Ok(()));
            continue;
        }
        let unreadable = |why| Error::Other(format!("a row cannot be read: {why}"));
        let answer = match rows.next() {
            None => Err(Error::Other("the store answered too little".to_owned())),
            Some(row) if row.try_get(0).is_ok_and(|result: &str| result == "undecided") => {
                job.undecided();
                continue;
            }
            Some(row) => read_answer(row, given).map_err(|error| unreadable(error.0)),
        };
        match job.answer(answer) {
            Some(job) if job.since.elapsed() > PATIENCE_HELD => job.undecided(),
            Some(job) => again.push(job),
            None => {}
        }
    }
    again
}

fn refuse(batch: Vec<WriteJob>, error: &Error) {
    batch.into_iter().for_each(|job| job.refuse(error.clone()));
}

/// A batch that was sent may still be written, by a connection that stalls.
fn unreachable(why: String, was_sent: bool) -> Error {
    if was_sent { Error::Unanswered(why) } else { Error::Unreachable(why) }
}

/// Whether no caller waits for the job and it was never sent.
fn is_abandoned(job: &WriteJob, was_sent: bool) -> bool {
    !was_sent
        && match &job.reply {
            WriteReply::Insert(reply) => reply.is_closed(),
            // An owner's write is worth making although its caller has gone.
            WriteReply::Replace(_) => false,
            WriteReply::Check(reply) => reply.is_closed(),
        }
}

/// The bug that a lost answer to a commit is taken for a success.
fn assume(batch: Vec<WriteJob>) -> Vec<WriteJob> {
    batch.into_iter().for_each(|job| job.succeed(Timestamp::from_millis(0)));
    Vec::new()
}
