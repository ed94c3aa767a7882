//! A sink that runs one SQL statement in the PostgreSQL database of the ledger, in one transaction with the end of the entry: both
//! commit, or neither does.
//!
//! - `value`: the parameters of the statement.
//! - `failure`: what an error of PostgreSQL says about the attempt.
//!
//! The transaction first compares the fence and locks the record until its end. A courier that comes too late finds another fence and
//! does nothing; one that has stopped in between keeps the record locked until the server ends its transaction. So only one
//! transaction can commit, and an attempt whose answer was lost needs no doubt: the record says whether it happened.

mod failure;
mod value;

use std::time::Duration;

use async_trait::async_trait;
use tokio::time::timeout;
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use onceward_core::outcome::Outcome;

use self::failure::StatementFailure;
use self::value::TextParameter;
use super::sink::{Parcel, Sink, SinkResult};
use crate::StoreUrl;
use crate::store;
use crate::store::postgres::{OpenTransaction, TransactionClaim, TransactionPool};

pub use self::value::StatementValue;

/// How much longer than the server a client waits: the server ends what takes too long, and says so.
const GRACE: Duration = Duration::from_secs(2);

/// Takes on a role until the end of the transaction, and tells the one before.
const TAKE_ROLE: &str = "SELECT current_setting('role') AS former, set_config('role', $1, true)";

const GIVE_ROLE_BACK: &str = "SELECT set_config('role', $1, true)";

/// Plans the statement without running it. This also checks the rights of the role.
const EXPLAIN: &str = "EXPLAIN ";

/// A statement and its parameters.
#[derive(Clone, Debug)]
pub struct SqlStatement {
    /// One statement, with `$1`, `$2` and so on for its values. PostgreSQL infers their types.
    pub sql: String,
    /// What the parameters are.
    pub values: Vec<StatementValue>,
    /// The role under which it runs; `None` for that of the ledger's own user, who must be a member of it.
    pub role: Option<String>,
    /// How many rows it must change. After any other number it is rolled back, and the entry is dead.
    pub rows: Option<u64>,
    /// How long it may take.
    pub timeout: Duration,
}

/// Runs a [`SqlStatement`] for each entry, once: in one transaction with the end of the entry.
#[derive(Debug)]
pub struct StatementSink {
    pool: TransactionPool,
    statement: SqlStatement,
}

impl StatementSink {
    /// A sink that runs the statement in the database of this store, which has to be the store of the entries. It connects to
    /// nothing yet.
    pub fn new(store: &StoreUrl, statement: SqlStatement, connections: usize) -> Result<Self, store::Error> {
        Ok(Self { pool: TransactionPool::new(store, connections)?, statement })
    }

    /// Asks PostgreSQL whether it would run the statement as it is. Returns what is wrong with it.
    pub async fn mistake(&self) -> Result<Option<String>, store::Error> {
        let looking = async {
            let transaction = self.pool.begin(self.statement.timeout).await?;
            let mistake = self.explain(transaction.client()).await;
            transaction.roll_back().await;
            mistake.or_else(|error| failure::mistake(&error, EXPLAIN.len()))
        };
        let no_answer = || store::Error::Unreachable("the database did not answer in time".to_owned());
        timeout(self.statement.timeout + GRACE, looking).await.unwrap_or_else(|_| Err(no_answer()))
    }

    async fn explain(&self, client: &Client) -> Result<Option<String>, tokio_postgres::Error> {
        self.take_role(client).await?;
        let values = vec![TextParameter::default(); self.statement.values.len()];
        client.execute_typed(&format!("{EXPLAIN}{}", self.statement.sql), &parameters(&values)).await?;
        Ok(None)
    }

    /// Everything before the commit.
    async fn prepare(
        &self,
        parcel: &Parcel,
        values: &[TextParameter],
    ) -> Result<OpenTransaction<'_>, StatementFailure> {
        let transaction = self.pool.begin(self.statement.timeout).await.map_err(StatementFailure::of_store)?;
        match self.work(transaction.client(), parcel, values).await {
            Ok(()) => Ok(transaction),
            Err(failure) => {
                transaction.roll_back().await;
                Err(failure)
            }
        }
    }

    async fn work(&self, client: &Client, parcel: &Parcel, values: &[TextParameter]) -> Result<(), StatementFailure> {
        let claim = TransactionClaim::of_entry(client, parcel).await.map_err(StatementFailure::of_store)?;
        let former = self.take_role(client).await.map_err(|error| StatementFailure::of_role(&error))?;
        let changed = client.execute_typed(&self.statement.sql, &parameters(values)).await;
        let changed = changed.map_err(|error| StatementFailure::of_statement(&error))?;
        if let Some(former) = former {
            let restored = client.execute_typed(GIVE_ROLE_BACK, &[(&former, Type::TEXT)]).await;
            restored.map_err(|error| StatementFailure::of_role(&error))?;
        }
        if let Some(wanted) = self.statement.rows.filter(|wanted| *wanted != changed) {
            return Err(StatementFailure::of_entry(format!(
                "the statement changed {changed} rows and was rolled back: `rows` permits {wanted}"
            )));
        }
        let outcome = Outcome::success(format!("{{\"rows\":{changed}}}"));
        claim.finish(client, &outcome).await.map_err(StatementFailure::of_store)
    }

    /// Takes on the role, if there is one. Returns the one before.
    async fn take_role(&self, client: &Client) -> Result<Option<String>, tokio_postgres::Error> {
        let Some(role) = &self.statement.role else { return Ok(None) };
        let rows = client.query_typed(TAKE_ROLE, &[(role, Type::TEXT)]).await?;
        rows.first().map(|row| row.try_get(0)).transpose()
    }
}

fn parameters(values: &[TextParameter]) -> Vec<(&(dyn ToSql + Sync), Type)> {
    values.iter().map(|value| (value as &(dyn ToSql + Sync), Type::UNKNOWN)).collect()
}

#[async_trait]
impl Sink for StatementSink {
    async fn deliver(&self, parcel: &Parcel) -> SinkResult {
        let values = match value::of_parcel(&self.statement.values, parcel) {
            Ok(values) => values,
            Err(why) => return StatementFailure::of_entry(why).into(),
        };
        let limit = self.statement.timeout + GRACE;
        let transaction = match timeout(limit, self.prepare(parcel, &values)).await {
            Ok(Ok(transaction)) => transaction,
            Ok(Err(failure)) => return failure.into(),
            // Its connection is closed, and no commit was asked for.
            Err(_) => return StatementFailure::too_slow(self.statement.timeout).into(),
        };
        match timeout(limit, transaction.commit()).await {
            Ok(Ok(())) => SinkResult::Finished,
            Ok(Err(error)) => StatementFailure::of_commit(&error).into(),
            Err(_) => StatementFailure::unknown("there was no answer to the commit".to_owned()).into(),
        }
    }

    fn finishes_entries(&self) -> bool {
        true
    }
}
