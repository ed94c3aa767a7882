//! PostgreSQL: every call is one prepared statement that commits by itself.

use tokio_postgres::{Client, Config, NoTls, Statement};

use super::{Amount, Result, crowd};
use crate::Fault;
use crate::load::{Caller, Intent};
use crate::service::Postgres;

/// Anew for every run, and nothing else is there that autovacuum could be busy with. Pages are filled
/// by half, so that the finish finds room beside its claim and need not touch the index again.
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
    async fn claim(&mut self, intent: &Intent) -> std::result::Result<bool, Fault> {
        let inserted = self.client.execute(&self.claim, &[&intent.key, &intent.fence.as_slice()]).await?;
        Ok(inserted == 1)
    }

    async fn finish(&mut self, intent: &Intent, outcome: &[u8]) -> std::result::Result<bool, Fault> {
        let updated = self.client.execute(&self.finish, &[&intent.key, &intent.fence.as_slice(), &outcome]).await?;
        Ok(updated == 1)
    }

    async fn replay(&mut self, intent: &Intent) -> std::result::Result<Vec<u8>, Fault> {
        let row = self.client.query_one(&self.replay, &[&intent.key]).await?;
        Ok(row.try_get(0)?)
    }
}

/// Measures callers with a connection each.
pub async fn measure(postgres: &Postgres, amount: Amount) -> std::result::Result<Result, Fault> {
    let mut config = Config::new();
    config.host_path(&postgres.sockets).user("postgres").dbname("postgres");
    let first = connect(&config).await?;
    first.batch_execute(TABLE).await?;
    let mut callers = Vec::with_capacity(amount.callers);
    for _ in 0..amount.callers {
        let client = connect(&config).await?;
        callers.push(Connection {
            claim: client.prepare(CLAIM).await?,
            finish: client.prepare(FINISH).await?,
            replay: client.prepare(REPLAY).await?,
            client,
        });
    }
    crowd(callers, postgres.server.pid(), amount).await
}

async fn connect(config: &Config) -> std::result::Result<Client, Fault> {
    let (client, connection) = config.connect(NoTls).await?;
    // Ends when the client is dropped; a failure shows in the client's next call.
    tokio::spawn(connection);
    Ok(client)
}
