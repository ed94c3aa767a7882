//! PostgreSQL: every call is one prepared statement that commits by itself.

use tokio_postgres::{Client, Config, NoTls, Statement};

use super::{RunSize, SystemResult, measure_callers};
use crate::BoxError;
use crate::load::{BenchIntent, Caller};
use crate::service::Postgres;

/// A new table for every run, so that autovacuum has nothing else to do. Pages are half full, so that the finish has space
/// next to its claim and need not update the index again.
const TABLE: &str = "DROP TABLE IF EXISTS intent, idemkit_records; \
    CREATE TABLE intent (key text PRIMARY KEY, fence bytea NOT NULL, lease_until timestamptz, outcome bytea) \
    WITH (fillfactor = 50)";

const CLAIM: &str = "INSERT INTO intent (key, fence, lease_until) VALUES ($1, $2, now() + interval '180 seconds') \
    ON CONFLICT (key) DO NOTHING";

const FINISH: &str =
    "UPDATE intent SET outcome = $3, lease_until = NULL WHERE key = $1 AND fence = $2 AND outcome IS NULL";

const REPLAY: &str = "SELECT outcome FROM intent WHERE key = $1";

struct Connection {
    client: Client,
    claim: Statement,
    finish: Statement,
    replay: Statement,
}

impl Caller for Connection {
    async fn claim(&mut self, intent: &BenchIntent) -> Result<bool, BoxError> {
        let inserted = self.client.execute(&self.claim, &[&intent.key, &intent.fence.as_slice()]).await?;
        Ok(inserted == 1)
    }

    async fn finish(&mut self, intent: &BenchIntent, outcome: &[u8]) -> Result<bool, BoxError> {
        let updated = self.client.execute(&self.finish, &[&intent.key, &intent.fence.as_slice(), &outcome]).await?;
        Ok(updated == 1)
    }

    async fn replay(&mut self, intent: &BenchIntent) -> Result<Vec<u8>, BoxError> {
        let row = self.client.query_one(&self.replay, &[&intent.key]).await?;
        Ok(row.try_get(0)?)
    }
}

/// Measures callers with one connection each.
pub async fn measure(postgres: &Postgres, size: RunSize) -> Result<SystemResult, BoxError> {
    let mut config = Config::new();
    config.host_path(&postgres.sockets).user("postgres").dbname("postgres");
    let first = connect(&config).await?;
    first.batch_execute(TABLE).await?;
    let mut callers = Vec::with_capacity(size.callers);
    for _ in 0..size.callers {
        let client = connect(&config).await?;
        callers.push(Connection {
            claim: client.prepare(CLAIM).await?,
            finish: client.prepare(FINISH).await?,
            replay: client.prepare(REPLAY).await?,
            client,
        });
    }
    measure_callers(callers, postgres.server.pid(), size).await
}

async fn connect(config: &Config) -> Result<Client, BoxError> {
    let (client, connection) = config.connect(NoTls).await?;
    // Ends when the client is dropped; a failure shows in the client's next call.
    tokio::spawn(connection);
    Ok(client)
}
