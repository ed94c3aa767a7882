//! A ledger in a schema of a PostgreSQL database, shared by any number of machines. It also runs behind a pooler that gives each
//! transaction another connection (PgBouncer in transaction mode): nothing is prepared by name and no session state is relied on.
//!
//! - `url`: reads the URL. `tls`: encryption and trust.
//! - `schema_v1.sql`: tables, and the functions that write. `migrate`: makes and upgrades them.
//! - `connection`: one connection to the primary. `pg_error`: what an error means for a write.
//! - `composite`: the binary format of rows. `row`: records as rows.
//! - `write_job`: a write and its answer. `batch`: those that are written together. `writer`: the threads that write them.
//! - `reader`: the threads that read. `query`: their statements.
//! - `due`: the entries of the outbox that are due. `sweeping`: expires records, and tidies up.
//! - `hints`: tells other processes that intents have ended.
//! - `high_water_mark`: notices that the database has lost acknowledged writes.
//! - `functions_v1.sql`: what a transaction of your own calls. `transaction`: the same from Rust. `transaction_pool`: connections for
//!   such transactions of this process.
//! - `transfer`: moves whole ledgers in and out.
//! - `settings`: what an acknowledged write survives, by the settings of the server.

mod batch;
mod composite;
mod connection;
mod due;
mod high_water_mark;
mod hints;
mod migrate;
mod pg_error;
mod query;
mod reader;
mod row;
mod settings;
mod sweeping;
mod tls;
mod transaction;
mod transaction_pool;
mod transfer;
mod url;
mod write_job;
mod writer;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use async_trait::async_trait;
use tokio::sync::oneshot;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use onceward_core::hash::Digest;
use onceward_core::name::{Operation, Tenant};
use onceward_core::policy::LONGEST_CREDIBLE_LEASE;
use onceward_core::record::{Draft, Record, Seen, State};
use onceward_core::time::Timestamp;

use super::server_time::ServerTime;
use super::transfer::Transfer;
use super::{
    AuditEntry, AuditEvent, Counts, Cursor, DueEntries, DueQuery, Durability, Error, Filter, Inserted, MAX_PAGE_SIZE,
    MAX_PURGE_SIZE, Page, Purged, Replace, Replaced, Store,
};
use crate::clock::Clock;
use crate::plant::{Plant, planted};
use hints::Hints;
pub use migrate::migrate;
pub(crate) use pg_error::text as error_text;
use reader::{Reader, Reads};
use row::{ExpectedRow, Job};
pub use transaction::{InTransaction, TransactionClaim, begin};
pub(crate) use transaction_pool::{OpenTransaction, TransactionPool};
use url::Options;
use write_job::{Micros, WriteJob, WriteReply, seen};
use writer::Writer;

/// How often a large record may be removed between the attempt to insert it and the look at it.
const MAX_REMOVED: usize = 3;

/// What all threads of one open store share.
#[derive(Debug)]
struct OpenStore {
    options: Options,
    /// Replaces the clock of the database in tests.
    clock: Option<Arc<dyn Clock>>,
    time: ServerTime,
    /// How many acknowledged batches the database has lost.
    lost: Mutex<i64>,
    tidied: Mutex<Option<Instant>>,
}

impl OpenStore {
    fn given_time(&self) -> Option<Timestamp> {
        if planted(Plant::ClientClock) {
            return Some(crate::clock::SystemClock.now());
        }
        self.clock.as_ref().map(|clock| clock.now())
    }

    fn lost_writes(&self, batches: i64) {
        tracing::error!(
            batches,
            "the database has lost acknowledged writes: it was restored from a backup, or a replica was promoted that had \
             not received them. Work that they recorded may run again"
        );
        *self.lost.lock().unwrap_or_else(PoisonError::into_inner) += batches;
    }
}

/// The time in the answer to a write.
fn row_times(row: &Row) -> Option<Timestamp> {
    row.try_get::<_, Micros>(1).ok().map(|micros| micros.0)
}

/// 128 random bits.
fn random_id() -> Result<[u8; 16], Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| Error::Other(error.to_string()))?;
    Ok(bytes)
}

/// A ledger in PostgreSQL.
#[derive(Debug)]
pub struct Postgres {
    shared: Arc<OpenStore>,
    writers: Vec<Writer>,
    lookups: Reader,
    scans: Reader,
    /// Started when they are first needed: most short commands need none.
    hints: OnceLock<Option<Hints>>,
}

impl Postgres {
    /// Opens a ledger. Its schema must be there: `onceward migrate` makes it.
    pub async fn open(url: &str) -> Result<Self, Error> {
        Self::open_with(url, None).await
    }

    /// Opens a ledger whose time is that of a clock, not of the database. For tests.
    #[doc(hidden)]
    pub async fn open_with(url: &str, clock: Option<Arc<dyn Clock>>) -> Result<Self, Error> {
        let options = Options::parse(url)?;
        let number = options.writers;
        let shared = Arc::new(OpenStore {
            options,
            clock,
            time: ServerTime::unknown(),
            lost: Mutex::default(),
            tidied: Mutex::default(),
        });
        let writers = (0..number).map(|number| Writer::start(&shared, number)).collect::<Result<_, _>>()?;
        let lookups = Reader::start("onceward-pg-look", &shared, Reads::Lookups)?;
        let scans = Reader::start("onceward-pg-scan", &shared, Reads::Scans)?;
        let store = Self { shared, writers, lookups, scans, hints: OnceLock::new() };
        // So that a wrong URL, a missing schema or a server that is down shows at once.
        store.lookups.run("SELECT 1", Vec::new(), false).await?;
        Ok(store)
    }

    fn started_hints(&self) -> Option<&Hints> {
        self.hints.get_or_init(|| Hints::start(&self.shared).ok()).as_ref()
    }

    /// Two writes of one key go through the same connection, so that they are never under way at once.
    fn writer_of(&self, id: &Digest) -> Option<&Writer> {
        let number = usize::from(id.as_bytes()[31]) % self.writers.len().max(1);
        self.writers.get(number)
    }

    /// Writes, in the next batch. `None` if the row is there and too large to be part of the answer.
    async fn write<A>(
        &self,
        job: Job<'_>,
        may_wait: bool,
        reply: impl FnOnce(oneshot::Sender<Result<Option<A>, Error>>) -> WriteReply,
    ) -> Result<Option<A>, Error> {
        let (sender, answer) = oneshot::channel();
        let id = job.draft.id;
        let job = WriteJob::new(id, job.expected, job.encode()?, reply(sender));
        self.writer_of(&id).ok_or(Error::Closed)?.send(job, may_wait).await?;
        answer.await.unwrap_or(Err(Error::Closed))
    }
}

#[async_trait]
impl Store for Postgres {
    async fn insert(&self, draft: Draft, max_records: Option<u64>) -> Result<Inserted, Error> {
        let exists = |seen| Inserted::Exists(Box::new(seen));
        for _ in 0..MAX_REMOVED {
            let (expected, write_id) = (ExpectedRow::default(), random_id()?);
            let job = Job { expected, write_id, max_records, event: None, draft: &draft };
            match self.write(job, false, WriteReply::Insert).await {
                // A ledger that is being moved still answers repeats of what it holds.
                Err(sealed @ Error::Sealed { .. }) => return self.get(draft.id).await?.map(exists).ok_or(sealed),
                Err(error) => return Err(error),
                Ok(Some(inserted)) => return Ok(inserted),
                Ok(None) => {
                    if let Some(seen) = self.get(draft.id).await? {
                        return Ok(exists(seen));
                    }
                }
            }
        }
        Ok(Inserted::Undecided)
    }

    async fn replace(&self, replace: Replace) -> Result<Replaced, Error> {
        let mut expected = ExpectedRow { fence: replace.fence, version: Some(replace.version), time: replace.time };
        if planted(Plant::VersionNotCompared) || planted(Plant::StoreFenceNotCompared) {
            let now = self.get(replace.draft.id).await?.map(|seen| seen.record);
            if planted(Plant::VersionNotCompared) {
                expected.version = now.as_ref().map(|record| record.version);
            } else {
                expected.fence = now.as_ref().and_then(Record::fence);
            }
        }
        if planted(Plant::TimeNotCompared) {
            expected.time = None;
        }
        let event = replace.event.as_ref();
        let job = Job { expected, write_id: random_id()?, max_records: None, event, draft: &replace.draft };
        let replaced = match self.write(job, replace.may_wait, WriteReply::Replace).await? {
            Some(replaced) => replaced,
            None => Replaced::Conflict(self.get(replace.draft.id).await?.map(Box::new)),
        };
        let has_ended = !matches!(replace.draft.state, State::Leased(_)) && !replace.may_wait;
        if let (true, Replaced::Written { .. }, Some(hints)) = (has_ended, &replaced, self.started_hints()) {
            hints.ended(replace.draft.id);
        }
        Ok(replaced)
    }

    async fn get(&self, id: Digest) -> Result<Option<Seen>, Error> {
        let asked = Instant::now();
        let rows = self.lookups.run(query::GET, vec![query::id_value(id)], false).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let (now, record) = query::record(row)?;
        self.shared.time.saw(now, asked);
        Ok(Some(seen(record, self.shared.given_time().unwrap_or(now))))
    }

    async fn due(&self, queue: &DueQuery) -> Result<DueEntries, Error> {
        self.due_entries(queue).await
    }

    async fn purge(&self, limit: usize) -> Result<Purged, Error> {
        self.tidy().await;
        self.sweep(limit.min(MAX_PURGE_SIZE)).await
    }

    async fn list(&self, filter: &Filter, after: Option<Cursor>, limit: usize) -> Result<Page, Error> {
        let limit = limit.clamp(1, MAX_PAGE_SIZE);
        let (mut end, mut latest) = (i64::MAX, None);
        if let Some(cursor) = after {
            let tenant = filter.tenant.as_ref().map(Tenant::as_str);
            let values = vec![query::id_value(cursor.id), query::text_value(tenant)];
            let rows = self.scans.run(query::ORDER, values, false).await?;
            match rows.first().and_then(|row| row.try_get(0).ok()) {
                Some(row) => end = row,
                None => latest = Some(cursor.at),
            }
        }
        let given = self.shared.given_time();
        let mut page = Page::default();
        loop {
            let wanted = (limit - page.listed.len()).max(query::MIN_ROWS);
            let (sql, values) = query::list(filter, end, latest, wanted);
            let rows = self.scans.run(sql, values, false).await?;
            let last = query::fill(&mut page, &rows, filter, given, limit)?;
            match last {
                // The page is full.
                None if page.listed.len() == limit => return Ok(page),
                Some(last) if rows.len() == wanted => end = last,
                _ => break,
            }
        }
        page.next = None;
        Ok(page)
    }

    async fn counts(&self, tenant: Option<&Tenant>) -> Result<Counts, Error> {
        let tenant = tenant.map(Tenant::as_str);
        let (settled, timed) = query::count_statements();
        let settled = self.scans.run(settled, vec![query::text_value(tenant)], false).await?;
        let credible = query::number_value(usize::try_from(LONGEST_CREDIBLE_LEASE.as_millis()).unwrap_or(usize::MAX));
        let values = vec![query::text_value(tenant), query::time_value(self.shared.given_time()), credible];
        let timed = self.scans.run(timed, values, false).await?;
        query::counts(&settled, &timed)
    }

    async fn append(&self, id: Digest, event: AuditEvent) -> Result<(), Error> {
        let values = vec![
            query::id_value(id),
            query::time_value(self.shared.given_time()),
            query::text_value(Some(event.what.as_str())),
            query::text_value(event.by.as_deref()),
            query::text_value(event.token.as_deref()),
            query::text_value(event.note.as_deref()),
            query::uuid_value(random_id()?),
        ];
        self.lookups.run(query::APPEND, values, true).await.map(drop)
    }

    async fn trail(&self, id: Digest) -> Result<Vec<AuditEntry>, Error> {
        let values = vec![query::id_value(id), query::number_value(MAX_PAGE_SIZE)];
        let rows = self.lookups.run(query::TRAIL, values, false).await?;
        let entries = rows.iter().map(query::entry).collect::<Result<Vec<_>, _>>()?;
        Ok(entries.into_iter().flatten().collect())
    }

    async fn check(&self) -> Result<(), Error> {
        let (sender, answer) = oneshot::channel();
        let id = onceward_core::hash::digest(b"check");
        let job = WriteJob::new(id, ExpectedRow::default(), Vec::new(), WriteReply::Check(sender));
        self.writer_of(&id).ok_or(Error::Closed)?.send(job, false).await?;
        answer.await.unwrap_or(Err(Error::Closed))?;
        self.seal().await?.not_ready(&self.shared.options.shown).map_or(Ok(()), Err)
    }

    async fn durability(&self) -> Result<Durability, Error> {
        let rows = self.lookups.run(settings::READ, Vec::new(), false).await?;
        let lost = *self.shared.lost.lock().unwrap_or_else(PoisonError::into_inner);
        settings::durability(rows.first(), lost)
    }

    async fn claim_operations(&self, names: &[Operation]) -> Result<(), Error> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let values: Vec<reader::Value> = vec![(Box::new(names), Type::TEXT_ARRAY)];
        self.lookups.run(query::CLAIM_OPERATIONS, values, true).await.map(drop)
    }

    async fn release_operations(&self, names: &[Operation]) -> Result<(), Error> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let values: Vec<reader::Value> = vec![(Box::new(names), Type::TEXT_ARRAY)];
        self.lookups.run(query::RELEASE_OPERATIONS, values, true).await.map(drop)
    }

    async fn has_operation(&self, name: &Operation) -> Result<bool, Error> {
        let values: Vec<reader::Value> = vec![(Box::new(name.to_string()), Type::TEXT)];
        Ok(!self.lookups.run(query::HAS_OPERATION, values, false).await?.is_empty())
    }

    async fn operations(&self) -> Result<Vec<String>, Error> {
        let rows = self.lookups.run(query::OPERATIONS, Vec::new(), false).await?;
        rows.iter().map(|row| row.try_get(0).map_err(|error| Error::Other(error.to_string()))).collect()
    }

    fn hints(&self) -> Option<tokio::sync::broadcast::Receiver<Digest>> {
        self.started_hints().map(Hints::subscribe)
    }

    fn transfer(&self) -> Option<&dyn Transfer> {
        Some(self)
    }

    fn now(&self) -> Option<Timestamp> {
        if let Some(given) = self.shared.given_time() {
            return Some(given);
        }
        self.shared.time.now()
    }

    async fn close(&self) {
        self.lookups.close();
        self.scans.close();
        self.writers.iter().for_each(Writer::close);
        let hints = self.hints.get().and_then(Option::as_ref);
        hints.into_iter().for_each(Hints::close);
        let threads =
            self.writers.iter().map(|writer| &writer.thread).chain([&self.lookups.thread, &self.scans.thread]);
        let threads = threads
            .chain(hints.map(|hints| &hints.thread))
            .filter_map(|thread| thread.lock().unwrap_or_else(PoisonError::into_inner).take());
        super::batching::join(threads.collect()).await;
    }
}
