//! One connection to the primary. It lives on the thread that uses it, and is dropped after any failure: a time-out never cancels a
//! statement, because a cancelled commit may still have happened.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join3;
use tokio::sync::broadcast;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::error::{DbError, Severity, SqlState};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::types::{Kind, ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls, Row, SimpleQueryMessage, Socket};

use super::pg_error::{Fault, cannot_connect, fault, text};
use super::url::Options;
use super::{migrate, tls};
use crate::store::Error;

/// The least time for connecting to a host: looking up its name, the handshakes and the password.
const CONNECTING: Duration = Duration::from_secs(5);

/// A connection, with the task that carries it.
#[derive(Debug)]
pub(super) struct PrimaryConnection {
    client: Client,
    driver: JoinHandle<()>,
    /// The server sent a warning since the last look. A commit with a warning may not have been replicated.
    warned: Arc<AtomicBool>,
    /// The type of a job and of an array of jobs in this database.
    pub(super) job: Type,
    pub(super) jobs: Type,
    /// The database has another default isolation level, so that every transaction states its own.
    states_level: AtomicBool,
    shown: Arc<str>,
    limit: Duration,
}

impl Drop for PrimaryConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl PrimaryConnection {
    /// Connects to the primary, and checks that the schema is one that this build knows.
    pub(super) async fn open(options: &Options, hints: Option<broadcast::Sender<String>>) -> Result<Self, Fault> {
        let mut connection = Self::connect_within(options, hints).await?;
        connection.look_up_types().await?;
        Ok(connection)
    }

    /// Connects to the primary, whatever schema it has.
    pub(super) async fn bare(options: &Options) -> Result<Self, Fault> {
        Self::connect_within(options, None).await
    }

    async fn connect_within(options: &Options, hints: Option<broadcast::Sender<String>>) -> Result<Self, Fault> {
        let connecting = async {
            match tls::connector(options).map_err(Fault::Refused)? {
                None => Self::connect(options, NoTls, hints).await,
                Some(connector) => Self::connect(options, connector, hints).await,
            }
        };
        // Callers wait meanwhile, so a host that does not answer must not take longer than a statement.
        let hosts = u32::try_from(options.config.get_hosts().len()).unwrap_or(1).max(1);
        let limit = options.timeout.max(CONNECTING) * hosts;
        let connected = timeout(limit, connecting)
            .await
            .unwrap_or_else(|_| Err(Fault::NotConnected("timed out while connecting".to_owned())));
        connected.map_err(|fault| match fault {
            // One of several stores: the reason alone does not tell which.
            Fault::NotConnected(why) => Fault::NotConnected(format!("{}: {why}", options.shown)),
            fault => fault,
        })
    }

    async fn connect<T>(options: &Options, tls: T, hints: Option<broadcast::Sender<String>>) -> Result<Self, Fault>
    where
        T: MakeTlsConnect<Socket> + Clone,
        T::Stream: Send + 'static,
        T::TlsConnect: TlsConnect<Socket>,
    {
        let (client, mut connection) = connect_to_one(options, tls).await?;
        let warned = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&warned);
        let mut is_first = true;
        let driver = tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                match message {
                    // Before the answer that it belongs to is passed on.
                    AsyncMessage::Notice(notice) if is_unreplicated(&notice) => flag.store(true, Ordering::SeqCst),
                    // Its text may quote a record. Once for each connection: a trigger may warn about every row.
                    AsyncMessage::Notice(notice) if is_warning(&notice) && std::mem::take(&mut is_first) => {
                        tracing::warn!(
                            code = notice.code().code(),
                            from = notice.routine().unwrap_or("unknown"),
                            "the database warns"
                        );
                    }
                    AsyncMessage::Notification(notification) => {
                        if let Some(hints) = &hints {
                            let _ = hints.send(notification.payload().to_owned());
                        }
                    }
                    _ => {}
                }
            }
        });
        let shown = options.shown.as_str().into();
        let (job, jobs) = (Type::ANY, Type::ANY);
        let states_level = AtomicBool::new(false);
        Ok(Self { client, driver, warned, job, jobs, states_level, shown, limit: options.timeout })
    }

    async fn look_up_types(&mut self) -> Result<(), Fault> {
        let rows = self.simple(migrate::LOOK).await?;
        let number = |index: usize| rows.first()?.get(index)?.as_ref()?.parse::<i64>().ok();
        let (Some(job), Some(jobs), Some(version), Some(server)) = (number(0), number(1), number(2), number(3)) else {
            return Err(Fault::Refused(Error::Refused {
                store: self.shown.to_string(),
                reason: "its schema cannot be read".to_owned(),
            }));
        };
        migrate::check_server(server, &self.shown).map_err(Fault::Refused)?;
        migrate::check_version(version, &self.shown).map_err(Fault::Refused)?;
        let oid = |number: i64| u32::try_from(number).unwrap_or_default();
        let named = |name: &str, oid, kind| Type::new(name.to_owned(), oid, kind, "onceward".to_owned());
        self.job = named("job_v1", oid(job), Kind::Composite(Vec::new()));
        self.jobs = named("_job_v1", oid(jobs), Kind::Array(self.job.clone()));
        Ok(())
    }

    /// For transactions of more than one statement.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Whether the server has closed the connection.
    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Runs a statement with text results, as the simplest protocol has it.
    pub(super) async fn simple(&self, sql: &str) -> Result<Vec<Vec<Option<String>>>, Fault> {
        let messages = self.within(self.client.simple_query(sql)).await?;
        let rows = messages.into_iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|index| row.get(index).map(str::to_owned)).collect())
            }
            _ => None,
        });
        Ok(rows.collect())
    }

    /// Runs one statement. It is not prepared by name, so that a pooler may give each transaction another connection.
    pub(super) async fn query(&self, sql: &str, values: &[(&(dyn ToSql + Sync), Type)]) -> Result<Vec<Row>, Fault> {
        self.within(self.client.query_typed(sql, values)).await
    }

    /// Runs one statement that reads. The server ends it shortly before its caller is told that there is no answer: otherwise it
    /// would go on, and hold up the next one. The limit is part of the transaction, because a pooler keeps no settings.
    pub(super) async fn query_for_limited_time(
        &self,
        sql: &str,
        values: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, Fault> {
        let millis = self.limit.as_millis() * 9 / 10;
        let begin = format!("BEGIN READ ONLY; SET LOCAL statement_timeout = {millis}");
        let statements = join3(
            self.client.batch_execute(&begin),
            self.client.query_typed(sql, values),
            self.client.batch_execute("COMMIT"),
        );
        let (begun, rows, _) = timeout(self.limit, statements).await.map_err(|_| no_answer())?;
        let judged = |error: tokio_postgres::Error| match error.code() {
            // Another attempt would take as long.
            Some(code) if *code == SqlState::QUERY_CANCELED => {
                Fault::Job(Error::Unreachable(format!("a query took more than {millis} ms, and was ended")))
            }
            _ => fault(&error, &self.shown),
        };
        begun.map_err(judged)?;
        rows.map_err(judged)
    }

    /// Runs one statement that commits by itself: one message, and one answer after the commit. It has to refuse to run under another
    /// isolation level than READ COMMITTED; where that is not the default of the database, the transaction states it.
    pub(super) async fn commit(&self, sql: &str, values: &[(&(dyn ToSql + Sync), Type)]) -> Result<Vec<Row>, Fault> {
        if self.states_level.load(Ordering::Relaxed) {
            return self.transact(sql, values).await;
        }
        self.warned.store(false, Ordering::SeqCst);
        // The last message is sent after the commit, and an error of the commit comes before it.
        let answer = timeout(self.limit, self.client.query_typed(sql, values)).await.map_err(|_| no_answer())?;
        match answer {
            Ok(rows) => self.unless_warned(rows),
            // Nothing was written.
            Err(error) if needs_stated_level(&error) => {
                self.states_level.store(true, Ordering::Relaxed);
                self.transact(sql, values).await
            }
            Err(error) => Err(fault(&error, &self.shown)),
        }
    }

    /// Runs one statement in a transaction that states its isolation level, in one round trip.
    pub(super) async fn transact(&self, sql: &str, values: &[(&(dyn ToSql + Sync), Type)]) -> Result<Vec<Row>, Fault> {
        self.warned.store(false, Ordering::SeqCst);
        let statements = join3(
            // Stated, because a database may have another default; the functions rely on seeing what others have committed.
            self.client.batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"),
            self.client.query_typed(sql, values),
            self.client.batch_execute("COMMIT"),
        );
        let (begun, rows, committed) = timeout(self.limit, statements).await.map_err(|_| no_answer())?;
        let judged = |error: tokio_postgres::Error| fault(&error, &self.shown);
        begun.map_err(judged)?;
        let rows = rows.map_err(judged)?;
        // After an error of the statement, the commit was a rollback. An error of the commit itself proves nothing.
        committed.map_err(|error| match fault(&error, &self.shown) {
            Fault::Conflict(why) => Fault::Conflict(why),
            _ => Fault::Unknown(text(&error)),
        })?;
        self.unless_warned(rows)
    }

    fn unless_warned(&self, rows: Vec<Row>) -> Result<Vec<Row>, Fault> {
        match self.warned.load(Ordering::SeqCst) {
            true => {
                Err(Fault::Unknown("the commit came with a warning, so it may not have been replicated".to_owned()))
            }
            false => Ok(rows),
        }
    }

    async fn within<A>(&self, statement: impl Future<Output = Result<A, tokio_postgres::Error>>) -> Result<A, Fault> {
        let answer = timeout(self.limit, statement).await.map_err(|_| no_answer())?;
        answer.map_err(|error| fault(&error, &self.shown))
    }
}

/// Connects to the first host that can be used.
async fn connect_to_one<T>(options: &Options, tls: T) -> Result<(Client, Connection<Socket, T::Stream>), Fault>
where
    T: MakeTlsConnect<Socket> + Clone,
{
    let mut reason = Fault::NotConnected("the URL names no host".to_owned());
    // A file that is missing for a moment is being replaced.
    for config in options.each_host().map_err(Fault::NotConnected)? {
        match config.connect(tls.clone()).await {
            Ok(connected) => return Ok(connected),
            Err(error) => match (cannot_connect(&error, &options.shown), &reason) {
                // A host that answers and refuses may have the records: one that is not there does not hide it.
                (Fault::NotConnected(_), Fault::Refused(_)) => {}
                (fault, _) => reason = fault,
            },
        }
    }
    Err(reason)
}

fn no_answer() -> Fault {
    Fault::Unknown("the store did not answer in time".to_owned())
}

/// Whether a statement refused to run under the default isolation level of the database.
fn needs_stated_level(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| code.code() == "OW005")
}

/// Whether a commit was not confirmed by the standbys. That warning has no code of its own; the function of the server that sends it
/// is told beside it. A warning that does not say where it comes from may be this one.
fn is_unreplicated(notice: &DbError) -> bool {
    is_warning(notice)
        && (notice.routine().is_none_or(|routine| routine == "SyncRepWaitForLSN")
            || *notice.code() == SqlState::ADMIN_SHUTDOWN)
}

/// The server translates the word in the message, and not the one beside it.
fn is_warning(notice: &DbError) -> bool {
    notice.parsed_severity().map_or(notice.severity() == "WARNING", |severity| severity == Severity::Warning)
}
