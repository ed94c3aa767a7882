//! Connections for transactions that this process makes beside the store, such as those of a sink. Opened when they are needed, and
//! kept while they work.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use tokio_postgres::Client;

use super::connection::PrimaryConnection;
use super::migrate::unreachable;
use super::pg_error::text;
use super::url::Options;
use crate::StoreUrl;
use crate::store::Error;

/// At most so many connections, however many transactions are asked for.
#[derive(Debug)]
pub(crate) struct TransactionPool {
    options: Options,
    idle: Mutex<Vec<PrimaryConnection>>,
    room: Semaphore,
}

/// An open transaction. Dropped without an end, its connection is closed, and the server rolls it back.
#[derive(Debug)]
pub(crate) struct OpenTransaction<'a> {
    pool: &'a TransactionPool,
    connection: PrimaryConnection,
    _room: SemaphorePermit<'a>,
}

impl TransactionPool {
    /// Connects to nothing yet.
    pub(crate) fn new(store: &StoreUrl, most: usize) -> Result<Self, Error> {
        let url = store.with_password();
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            let reason = "it is not a PostgreSQL database".to_owned();
            return Err(Error::Refused { store: store.to_string(), reason });
        }
        Ok(Self { options: Options::parse(&url)?, idle: Mutex::default(), room: Semaphore::new(most.max(1)) })
    }

    /// Begins a transaction. The server ends a statement that takes longer than the limit, and the transaction if it waits for its
    /// client for longer: one that has stopped must not hold its rows for ever. The limits are part of the transaction, because a
    /// pooler keeps no settings.
    pub(crate) async fn begin(&self, limit: Duration) -> Result<OpenTransaction<'_>, Error> {
        let millis = limit.as_millis().clamp(1, i32::MAX.unsigned_abs().into());
        let begin = format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL statement_timeout = {millis}; \
             SET LOCAL idle_in_transaction_session_timeout = {millis}"
        );
        let room = self.room.acquire().await.map_err(|_| Error::Closed)?;
        let kept = self.idle().pop();
        if let Some(connection) = kept
            && let Ok(Ok(())) = timeout(self.options.timeout, connection.client().batch_execute(&begin)).await
        {
            return Ok(OpenTransaction { pool: self, connection, _room: room });
        }
        // The server may have restarted or been demoted since, so that the others are as old.
        self.idle().clear();
        let connection = PrimaryConnection::open(&self.options, None).await.map_err(unreachable)?;
        connection.client().batch_execute(&begin).await.map_err(|error| Error::Unreachable(text(&error)))?;
        Ok(OpenTransaction { pool: self, connection, _room: room })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<PrimaryConnection>> {
        // Every change is one call, so a panic elsewhere leaves the list consistent.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenTransaction<'_> {
    pub(crate) fn client(&self) -> &Client {
        self.connection.client()
    }

    /// Commits. After an error that is not one of the server, the transaction may have been committed, or may be later.
    pub(crate) async fn commit(self) -> Result<(), tokio_postgres::Error> {
        self.client().batch_execute("COMMIT").await?;
        self.keep();
        Ok(())
    }

    /// Rolls back. A connection that does not answer in time is closed, which is a rollback too.
    pub(crate) async fn roll_back(self) {
        let rolled_back = timeout(self.pool.options.timeout, self.client().batch_execute("ROLLBACK")).await;
        if matches!(rolled_back, Ok(Ok(()))) {
            self.keep();
        }
    }

    fn keep(self) {
        let Self { pool, connection, .. } = self;
        if !connection.is_closed() {
            pool.idle().push(connection);
        }
    }
}
