//! The threads that read, each with a connection of its own. Statements that arrive together are sent together.

use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, mpsc, oneshot};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::OpenStore;
use super::composite::RowArray;
use super::connection::PrimaryConnection;
use super::pg_error::Fault;
use crate::store::Error;

/// The most statements that may wait; further callers wait to enter.
const QUEUE_LIMIT: usize = 1024;

/// The most lookups that run at once. They share round trips, and each may read 8 MiB.
const MAX_LOOKUPS: usize = 32;

/// How long a read is tried again after its connection was lost. Reading twice is harmless.
const PATIENCE: Duration = Duration::from_secs(3);

/// The pause between attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// The longest pause between attempts to connect. All statements that wait share them.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// What a reader is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reads {
    /// Short statements, which callers wait for.
    Lookups,
    /// Lists, counts, expiry and copies, which may take long. They run one by one, so that none of them spends its time behind
    /// another one, and the server ends those that take too long.
    Scans,
}

/// A value of a statement, with its type.
pub(super) type Value = (Box<dyn ToSql + Sync + Send>, Type);

/// A statement.
pub(super) struct Statement {
    pub(super) sql: std::borrow::Cow<'static, str>,
    pub(super) values: Vec<Value>,
    /// One more value: an array of jobs, whose type each database numbers by itself.
    pub(super) jobs: Option<Vec<Vec<u8>>>,
    /// Whether it changes anything. It must be safe to repeat.
    pub(super) writes: bool,
    pub(super) since: Instant,
    pub(super) reply: oneshot::Sender<Result<Vec<Row>, Error>>,
}

/// A reader as the store holds it.
pub(super) struct Reader {
    statements: std::sync::Mutex<Option<mpsc::Sender<Statement>>>,
    pub(super) thread: std::sync::Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reader")
    }
}

impl Reader {
    pub(super) fn start(name: &str, shared: &Arc<OpenStore>, reads: Reads) -> Result<Self, Error> {
        let cannot = |error: std::io::Error| Error::Other(error.to_string());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
        let (statements, received) = mpsc::channel(QUEUE_LIMIT);
        let thread = ReaderThread { shared: Arc::clone(shared), reads, link: Mutex::default() };
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || runtime.block_on(Arc::new(thread).run(received)))
            .map_err(cannot)?;
        let (statements, thread) = (Some(statements), Some(thread));
        Ok(Self { statements: std::sync::Mutex::new(statements), thread: std::sync::Mutex::new(thread) })
    }

    /// Runs a statement, and returns its rows.
    pub(super) async fn run(
        &self,
        sql: impl Into<std::borrow::Cow<'static, str>>,
        values: Vec<Value>,
        writes: bool,
    ) -> Result<Vec<Row>, Error> {
        self.send(sql.into(), values, None, writes).await
    }

    /// Runs a function whose only argument is an array of jobs.
    pub(super) async fn run_jobs(&self, sql: &'static str, jobs: Vec<Vec<u8>>) -> Result<Vec<Row>, Error> {
        self.send(sql.into(), Vec::new(), Some(jobs), true).await
    }

    /// Runs a function whose last argument is an array of jobs.
    pub(super) async fn run_with_jobs(
        &self,
        sql: &'static str,
        values: Vec<Value>,
        jobs: Vec<Vec<u8>>,
    ) -> Result<Vec<Row>, Error> {
        self.send(sql.into(), values, Some(jobs), true).await
    }

    async fn send(
        &self,
        sql: std::borrow::Cow<'static, str>,
        values: Vec<Value>,
        jobs: Option<Vec<Vec<u8>>>,
        writes: bool,
    ) -> Result<Vec<Row>, Error> {
        let statements = self.statements.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        let statements = statements.ok_or(Error::Closed)?;
        let (reply, rows) = oneshot::channel();
        let statement = Statement { sql, values, jobs, writes, since: Instant::now(), reply };
        statements.send(statement).await.map_err(|_| Error::Closed)?;
        rows.await.unwrap_or(Err(Error::Closed))
    }

    /// Accepts no more statements; the thread ends when the waiting ones are done.
    pub(super) fn close(&self) {
        self.statements.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
    }
}

struct ReaderThread {
    shared: Arc<OpenStore>,
    reads: Reads,
    link: Mutex<SharedConnection>,
}

/// The connection, or how the last attempt to open one ended.
#[derive(Default)]
struct SharedConnection {
    connection: Option<Arc<PrimaryConnection>>,
    failure: Option<(Instant, Fault)>,
    /// Before the next attempt.
    pause: Duration,
}

impl ReaderThread {
    async fn run(self: Arc<Self>, mut statements: mpsc::Receiver<Statement>) {
        let most = match self.reads {
            Reads::Lookups => MAX_LOOKUPS,
            Reads::Scans => 1,
        };
        let mut running = tokio::task::JoinSet::new();
        while let Some(statement) = statements.recv().await {
            while running.len() >= most {
                running.join_next().await;
            }
            // Its caller has gone away.
            if statement.reply.is_closed() {
                continue;
            }
            let thread = Arc::clone(&self);
            running.spawn(async move {
                let rows = thread.rows(&statement).await;
                let _ = statement.reply.send(rows);
            });
            while running.try_join_next().is_some() {}
        }
        while running.join_next().await.is_some() {}
    }

    async fn rows(&self, statement: &Statement) -> Result<Vec<Row>, Error> {
        if statement.since.elapsed() >= self.shared.options.timeout * 2 + PATIENCE {
            return Err(Error::Unreachable("other statements of this process take too long".to_owned()));
        }
        // An attempt to connect that ended while the statement was waiting counts for it.
        let mut asked = statement.since;
        loop {
            let fault = match self.attempt(statement, asked).await {
                Ok(rows) => return Ok(rows),
                Err(fault) => fault,
            };
            let why = match fault {
                Fault::Refused(error) | Fault::Job(error) => return Err(error),
                Fault::Behind(_) => return Err(Error::Other("a read numbers no batches".to_owned())),
                Fault::Held => "a transaction of another program holds a row".to_owned(),
                Fault::Unknown(why) | Fault::NotConnected(why) | Fault::Conflict(why) => why,
            };
            if statement.since.elapsed() >= PATIENCE || statement.reply.is_closed() {
                return Err(Error::Unreachable(why));
            }
            tokio::time::sleep(PAUSE).await;
            asked = Instant::now();
        }
    }

    async fn attempt(&self, statement: &Statement, asked: Instant) -> Result<Vec<Row>, Fault> {
        let connection = self.connected(asked).await?;
        let mut values: Vec<(&(dyn ToSql + Sync), Type)> =
            statement.values.iter().map(|(value, kind)| (&**value as &(dyn ToSql + Sync), kind.clone())).collect();
        let rows = statement.jobs.iter().flatten().map(Vec::as_slice).collect();
        let jobs = RowArray { kind: connection.job.oid(), rows };
        if statement.jobs.is_some() {
            values.push((&jobs, connection.jobs.clone()));
        }
        let rows = match (statement.writes, self.reads) {
            (true, _) => connection.transact(&statement.sql, &values).await,
            (false, Reads::Lookups) => connection.query(&statement.sql, &values).await,
            (false, Reads::Scans) => connection.query_for_limited_time(&statement.sql, &values).await,
        };
        if matches!(rows, Err(Fault::Unknown(_))) {
            let mut link = self.link.lock().await;
            if link.connection.as_ref().is_some_and(|current| Arc::ptr_eq(current, &connection)) {
                link.connection = None;
            }
        }
        rows
    }

    /// The connection, opened if there is none. Statements that wait for it share the attempt: its failure after `asked` is the
    /// answer to all of them.
    async fn connected(&self, asked: Instant) -> Result<Arc<PrimaryConnection>, Fault> {
        let mut link = self.link.lock().await;
        if let Some(connection) = link.connection.as_ref().filter(|connection| !connection.is_closed()) {
            return Ok(Arc::clone(connection));
        }
        if let Some((_, fault)) = link.failure.as_ref().filter(|(at, _)| *at >= asked) {
            return Err(fault.clone());
        }
        tokio::time::sleep(link.pause).await;
        match PrimaryConnection::open(&self.shared.options, None).await {
            Ok(connection) => {
                let connection = Arc::new(connection);
                *link = SharedConnection { connection: Some(Arc::clone(&connection)), ..SharedConnection::default() };
                Ok(connection)
            }
            Err(fault) => {
                link.failure = Some((Instant::now(), fault.clone()));
                link.pause = (link.pause * 2).clamp(PAUSE, MAX_PAUSE);
                Err(fault)
            }
        }
    }
}
