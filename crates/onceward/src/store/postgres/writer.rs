//! The threads that write, each with one connection and its share of the keys. A writer takes all waiting jobs, sends them in one
//! round trip as one statement that commits by itself, and replies once the commit was acknowledged.
//!
//! A commit whose answer is lost is unknown. The writer repeats the same jobs, which carry the ids of their writes, until a commit
//! is acknowledged: reading would prove nothing, because what is visible may not have been replicated.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use onceward_core::time::Timestamp;

use super::batch::{MAX_BATCH, answer, assume, refuse, take_batch, unreachable};
use super::composite::{Binary, RowArray, time_parameter};
use super::connection::PrimaryConnection;
use super::high_water_mark::HighWaterMark;
use super::pg_error::Fault;
use super::row::{has_quota, lock_key};
use super::write_job::{WriteJob, WriteReply};
use super::{OpenStore, row_times};
use crate::plant::{Plant, planted};
use crate::step::{Step, reached};
use crate::store::Error;
use crate::store::batching::{BatchWait, Closed, Queue, ThreadTime};

/// The most writes that may wait in the queue; further callers wait to enter it.
const QUEUE_LIMIT: usize = 4096;

/// How long a write is tried that was sent at least once: whether it was written is not known, so this is worth some patience.
const PATIENCE_SENT: Duration = Duration::from_secs(15);

/// How long a write waits for a connection before its caller is told that the store is down.
const PATIENCE_UNSENT: Duration = Duration::from_secs(3);

/// Pauses between attempts: short at first, because a connection that was lost is often back at once.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSE: Duration = Duration::from_millis(500);

/// How often in a row a batch is repeated after a deadlock or a serialisation failure before it is split.
const MAX_CONFLICTS: u32 = 5;

/// The number of expected jobs falls by this fraction with each batch that is smaller.
const EXPECTED_DECAY: usize = 8;

/// How many jobs of one batch may time out, one after the other, waiting for the rows of other transactions.
const MAX_HELD: u32 = 2;

/// Whether a whole table or the seal is locked, or is about to be: later locks wait behind one that waits.
const LOCKED: &str = "SELECT EXISTS (SELECT FROM pg_locks WHERE \
    locktype = 'relation' AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
    AND relation IN ('onceward.intent'::regclass, 'onceward.audit'::regclass, 'onceward.tenant_count'::regclass, \
        'onceward.high_water_mark'::regclass, 'onceward.ledger'::regclass) \
    AND mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock') \
    OR locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
    AND classid = 1330529093 AND objid = 0 AND objsubid = 2 AND mode = 'ExclusiveLock')";

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
            let (connection, expected, is_unsettled, held_in_a_row) = (None, 0, false, 0);
            WriterThread { shared, runtime, connection, mark, wait, expected, is_unsettled, held_in_a_row }.run(&jobs);
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
    /// How many single writes have timed out since the last one that did not.
    held_in_a_row: u32,
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
                // Always some new ones, so that a crowd that waits for one key does not keep other keys from being written.
                let most = (waiting.len() + MAX_BATCH).min(QUEUE_LIMIT);
                queue.top_up(&mut waiting, most);
                false
            };
            if is_over {
                return;
            }
            let batch = take_batch(&mut waiting);
            kept = waiting;
            let (began, size) = (ThreadTime::now(), batch.iter().map(WriteJob::callers).sum::<usize>());
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
                // Not one key, but a table: every write would wait for it in turn.
                Fault::Held if self.is_locked_out() => {
                    let why = "a transaction of another program holds a lock on a whole table of the ledger";
                    refuse(batch, &unreachable(why.to_owned(), was_sent));
                    return Vec::new();
                }
                Fault::Job(_) | Fault::Held if batch.len() > 1 => return self.one_by_one(batch, was_sent),
                Fault::Conflict(_) if conflicts >= MAX_CONFLICTS && batch.len() > 1 => {
                    return self.one_by_one(batch, was_sent);
                }
                Fault::Job(error) => {
                    refuse(batch, &error);
                    return Vec::new();
                }
                Fault::Held => {
                    self.held_in_a_row += 1;
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
            if !was_sent {
                batch = batch.into_iter().filter_map(WriteJob::unless_abandoned).collect();
            }
            // Inside the runtime, because a timer needs one.
            self.runtime.block_on(async { tokio::time::sleep(pause).await });
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// Writes each job in a transaction of its own, so that one that cannot be written does not fail the others.
    fn one_by_one(&mut self, batch: Vec<WriteJob>, was_sent: bool) -> Vec<WriteJob> {
        let mut again = Vec::new();
        self.held_in_a_row = 0;
        for job in batch {
            match self.held_in_a_row < MAX_HELD {
                true => again.extend(self.commit(vec![job], was_sent)),
                // The others are asked about again soon.
                false => job.undecided(),
            }
        }
        again
    }

    /// Whether another program holds, or waits for, a lock that no batch can pass. Told apart from locks on rows, because a call
    /// whose policy allows it runs without a store that is out of reach, and must not while another owner may have its row.
    fn is_locked_out(&self) -> bool {
        let Some(connection) = &self.connection else { return false };
        let rows = self.runtime.block_on(connection.query(LOCKED, &[]));
        rows.is_ok_and(|rows| rows.first().is_some_and(|row| row.try_get(0).unwrap_or(false)))
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
        let written = || batch.iter().filter(|job| !job.is_check());
        let lock_keys: Vec<i64> = written().map(|job| lock_key(&job.id)).collect();
        let has_quotas = written().any(|job| has_quota(&job.bytes));
        let given = self.shared.given_time();
        let (process, number, acknowledged) = (Binary(Some(self.mark.process)), self.mark.next(), self.mark.expected());
        let time = time_parameter(given);
        let asked = Instant::now();
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
        (self.is_unsettled, self.held_in_a_row) = (false, 0);
        // A repeated write is answered with the time of the first.
        if let (false, Some(now)) = (repeats, rows.first().and_then(row_times)) {
            self.shared.time.saw(now, asked);
        }
        Ok((rows, given))
    }
}
