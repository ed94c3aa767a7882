//! The threads that read, each with a connection of its own. Statements that arrive together are sent together.

use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, broadcast, mpsc, oneshot};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::OpenStore;
use super::composite::RowArray;
use super::connection::PrimaryConnection;
use super::pg_error::Fault;
use crate::store::Error;

/// The most statements that may wait; further callers wait to enter.
const QUEUE_LIMIT: usize = 1024;

/// How long a read is tried again after its connection was lost. Reading twice is harmless.
const PATIENCE: Duration = Duration::from_secs(3);

/// The pause between attempts.
const PAUSE: Duration = Duration::from_millis(50);

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
    pub(super) fn start(
        name: &str,
        shared: &Arc<OpenStore>,
        hints: Option<broadcast::Sender<String>>,
    ) -> Result<Self, Error> {
        let cannot = |error: std::io::Error| Error::Other(error.to_string());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
        let (statements, received) = mpsc::channel(QUEUE_LIMIT);
        let thread = ReaderThread { shared: Arc::clone(shared), connection: Mutex::new(None), hints };
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
        let statement = Statement { sql, values, jobs, writes, reply };
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
    connection: Mutex<Option<Arc<PrimaryConnection>>>,
    hints: Option<broadcast::Sender<String>>,
}

impl ReaderThread {
    async fn run(self: Arc<Self>, mut statements: mpsc::Receiver<Statement>) {
        let mut running = tokio::task::JoinSet::new();
        while let Some(statement) = statements.recv().await {
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
        let began = Instant::now();
        loop {
            let fault = match self.attempt(statement).await {
                Ok(rows) => return Ok(rows),
                Err(fault) => fault,
            };
            let why = match fault {
                Fault::Refused(error) | Fault::Job(error) => return Err(error),
                Fault::Behind(_) => return Err(Error::Other("a read numbers no batches".to_owned())),
                Fault::Held => "a transaction of another program holds a row".to_owned(),
                Fault::Unknown(why) | Fault::NotConnected(why) | Fault::Conflict(why) => why,
            };
            if began.elapsed() >= PATIENCE {
                return Err(Error::Unreachable(why));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn attempt(&self, statement: &Statement) -> Result<Vec<Row>, Fault> {
        let connection = self.connected().await?;
        let mut values: Vec<(&(dyn ToSql + Sync), Type)> =
            statement.values.iter().map(|(value, kind)| (&**value as &(dyn ToSql + Sync), kind.clone())).collect();
        let rows = statement.jobs.iter().flatten().map(Vec::as_slice).collect();
        let jobs = RowArray { kind: connection.job.oid(), rows };
        if statement.jobs.is_some() {
            values.push((&jobs, connection.jobs.clone()));
        }
        let rows = match statement.writes {
            true => connection.transact(&statement.sql, &values).await,
            false => connection.query(&statement.sql, &values).await,
        };
        if matches!(rows, Err(Fault::Unknown(_))) {
            let mut current = self.connection.lock().await;
            if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, &connection)) {
                *current = None;
            }
        }
        rows
    }

    async fn connected(&self) -> Result<Arc<PrimaryConnection>, Fault> {
        let mut current = self.connection.lock().await;
        if let Some(connection) = current.as_ref().filter(|connection| !connection.is_closed()) {
            return Ok(Arc::clone(connection));
        }
        let connection = Arc::new(PrimaryConnection::open(&self.shared.options, self.hints.clone()).await?);
        *current = Some(Arc::clone(&connection));
        Ok(connection)
    }
}
