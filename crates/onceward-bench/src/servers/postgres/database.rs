//! PostgreSQL: the databases of a measurement, the simple use of it, and what its server reports.

use std::sync::Arc;
use std::time::{Duration, Instant};

use onceward::store::postgres::migrate;
use onceward_runtime::exit::Fault;
use serde::Serialize;
use tokio_postgres::{Client, NoTls, Row, Statement};

use super::super::failed;
use super::super::figures::Counters;
use crate::pairs::{self, BODY, FinishedKeys, PairSamples};
use crate::processor;

/// Pages are half full, so that the finish has space next to its claim and need not update the index again.
const TABLE: &str = "CREATE TABLE simple_intent (key text PRIMARY KEY, fence bytea NOT NULL, lease_until timestamptz, \
    outcome bytea) WITH (fillfactor = 50)";

const CLAIM: &str = "INSERT INTO simple_intent (key, fence, lease_until) VALUES ($1, $2, now() + interval '180 seconds') \
    ON CONFLICT (key) DO NOTHING";

const FINISH: &str =
    "UPDATE simple_intent SET outcome = $3, lease_until = NULL WHERE key = $1 AND fence = $2 AND outcome IS NULL";

const COUNTERS: &str = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8, pg_backend_pid()";

/// The sizes of one record in each state, as the table stores it, and of the whole table.
const SIZES: &str = "SELECT pg_table_size('onceward.intent')::float8, pg_indexes_size('onceward.intent')::float8, \
    (SELECT count(*)::float8 FROM onceward.intent), \
    (SELECT avg(pg_column_size(intent.*))::float8 FROM (SELECT * FROM onceward.intent LIMIT 1000) AS intent)";

/// A database that was made for the measurement.
#[derive(Debug)]
pub(super) struct Database {
    pub(super) url: String,
    pub(super) name: String,
    server: String,
    client: Client,
}

/// Bytes that finished records use.
#[derive(Debug, Serialize)]
pub(in crate::servers) struct Sizes {
    pub(in crate::servers) records: f64,
    pub(in crate::servers) table_bytes_per_record: f64,
    pub(in crate::servers) index_bytes_per_record: f64,
    row_bytes: f64,
}

impl Database {
    /// A new database with the schema, on the server of a URL.
    pub(super) async fn create(server: &str, purpose: &str) -> Result<Self, Fault> {
        let name = format!("onceward_bench_{purpose}_{}", std::process::id());
        let maker = connect(server).await?;
        maker.batch_execute(&format!("CREATE DATABASE {name}")).await.map_err(|error| {
            Fault::usage(format!(
                "cannot create a database for the measurement: {}\n  A measurement writes many records, so it uses a \
                 database of its own: name a server whose user may create databases.",
                error.as_db_error().map_or_else(|| error.to_string(), |error| error.message().to_owned())
            ))
        })?;
        let url = with_database(server, &name);
        migrate(&url, false).await?;
        let client = connect(&url).await?;
        Ok(Self { client, url, name, server: server.to_owned() })
    }

    /// Drops the database.
    pub(super) async fn remove(self) -> Result<(), Fault> {
        drop(self.client);
        let maker = connect(&self.server).await?;
        maker.batch_execute(&format!("DROP DATABASE {} WITH (FORCE)", self.name)).await.map_err(failed)
    }

    pub(super) async fn counters(&self) -> Result<Counters, Fault> {
        let row = self.client.query_one(COUNTERS, &[]).await.map_err(failed)?;
        let backend: i32 = row.try_get(1).map_err(failed)?;
        Ok(Counters { wal_bytes: Some(number(&row, 0)?), processor: server_processor(backend) })
    }

    /// How many connections the ledger has.
    pub(super) async fn connections(&self) -> Result<i64, Fault> {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                   AND application_name = 'onceward'";
        self.client.query_one(sql, &[]).await.and_then(|row| row.try_get(0)).map_err(failed)
    }

    pub(super) async fn sizes(&self) -> Result<Sizes, Fault> {
        let row = self.client.query_one(SIZES, &[]).await.map_err(failed)?;
        let records = number(&row, 2)?.max(1.0);
        Ok(Sizes {
            records,
            table_bytes_per_record: number(&row, 0)? / records,
            index_bytes_per_record: number(&row, 1)? / records,
            row_bytes: number(&row, 3)?,
        })
    }

    /// Adds copies of the oldest finished record, each with an identity and a fence of its own.
    pub(super) async fn fill(&self, from: u64, count: u64) -> Result<(), Fault> {
        let columns = "SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum), string_agg(CASE attname \
            WHEN 'id' THEN 'sha256(convert_to(number::text, ''UTF8''))' WHEN 'key' THEN '''filled-'' || number' \
            WHEN 'write_id' THEN 'gen_random_uuid()' WHEN 'fence' THEN 'gen_random_uuid()' \
            WHEN 'fingerprint' THEN 'sha256(convert_to(number::text || ''f'', ''UTF8''))' \
            ELSE quote_ident(attname) END, ', ' ORDER BY attnum) FROM pg_attribute \
            WHERE attrelid = 'onceward.intent'::regclass AND attnum > 0 AND attidentity = '' AND NOT attisdropped";
        let row = self.client.query_one(columns, &[]).await.map_err(failed)?;
        let (names, values): (String, String) = (row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?);
        let last = from + count - 1;
        let sql = format!(
            "INSERT INTO onceward.intent ({names}) SELECT {values} FROM generate_series({from}::bigint, {last}) AS number, \
             (SELECT * FROM onceward.intent WHERE state = 'done' ORDER BY row LIMIT 1) AS sample"
        );
        self.client.batch_execute(&sql).await.map_err(failed)
    }

    /// What autovacuum and the next checkpoint would do during the measurement.
    pub(super) async fn settle(&self) -> Result<(), Fault> {
        self.client.batch_execute("VACUUM ANALYZE onceward.intent").await.map_err(failed)?;
        // Only a superuser may; without it, one may happen later.
        let _ = self.client.batch_execute("CHECKPOINT").await;
        Ok(())
    }
}

/// One statement per call: each caller has a connection, on which every call is a prepared statement that commits by itself.
pub(super) struct SimpleUse {
    connections: Vec<Arc<PeerConnection>>,
}

struct PeerConnection {
    client: Client,
    claim: Statement,
    finish: Statement,
}

impl SimpleUse {
    pub(super) async fn prepare(database: &Database, callers: usize) -> Result<Self, Fault> {
        database.client.batch_execute(TABLE).await.map_err(failed)?;
        let mut connections = Vec::with_capacity(callers);
        for _ in 0..callers {
            let client = connect(&database.url).await?;
            let claim = client.prepare(CLAIM).await.map_err(failed)?;
            let finish = client.prepare(FINISH).await.map_err(failed)?;
            connections.push(Arc::new(PeerConnection { client, claim, finish }));
        }
        Ok(Self { connections })
    }

    pub(super) async fn claim_and_finish(
        &self,
        keys: &FinishedKeys,
        callers: usize,
        time: Duration,
    ) -> Result<PairSamples, Fault> {
        let pieces = self.connections[..callers].iter().map(|connection| {
            let (connection, keys) = (Arc::clone(connection), keys.clone());
            move || {
                let (connection, key) = (Arc::clone(&connection), pairs::name(keys.take()));
                async move { connection.pair(&key).await }
            }
        });
        pairs::each(pieces.collect(), time).await
    }
}

impl PeerConnection {
    async fn pair(&self, key: &str) -> Result<(Duration, Duration), Fault> {
        let started = Instant::now();
        // As random as that of a ledger, and as long.
        let fence = onceward::core::hash::digest(key.as_bytes());
        let fence = &fence.as_bytes()[..16];
        let inserted = self.client.execute(&self.claim, &[&key, &fence]).await.map_err(failed)?;
        let claimed = started.elapsed();
        let updated = self.client.execute(&self.finish, &[&key, &fence, &BODY.as_bytes()]).await.map_err(failed)?;
        if inserted != 1 || updated != 1 {
            return Err(failed("a new key was not granted"));
        }
        Ok((claimed, started.elapsed()))
    }
}

async fn connect(url: &str) -> Result<Client, Fault> {
    let (client, connection) = tokio_postgres::connect(&without_our_parameters(url), NoTls).await.map_err(failed)?;
    // Ends when the client is dropped; a failure shows in the client's next call.
    tokio::spawn(connection);
    Ok(client)
}

/// The URL without the parameters that only a ledger understands.
fn without_our_parameters(url: &str) -> String {
    let Some((address, query)) = url.split_once('?') else { return url.to_owned() };
    let is_ours = |pair: &&str| pair.starts_with("writers=") || pair.starts_with("timeout=");
    let kept: Vec<&str> = query.split('&').filter(|pair| !is_ours(pair)).collect();
    if kept.is_empty() { address.to_owned() } else { format!("{address}?{}", kept.join("&")) }
}

/// Another database on the server of a URL.
fn with_database(server: &str, name: &str) -> String {
    let (address, query) = server.split_once('?').map_or((server, None), |(address, query)| (address, Some(query)));
    let start = address.find("://").map_or(0, |at| at + 3);
    let end = address[start..].find('/').map_or(address.len(), |at| start + at);
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    format!("{}/{name}{query}", &address[..end])
}

/// The processor time of the server's processes, if a backend of this number runs on this machine.
fn server_processor(backend: i32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{backend}/stat")).ok()?;
    let (name, behind) = stat.rsplit_once(')')?;
    let parent = behind.split_whitespace().nth(1)?.parse().ok()?;
    name.contains("postgres").then(|| processor::used(&[parent]))
}

fn number(row: &Row, index: usize) -> Result<f64, Fault> {
    row.try_get(index).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::{with_database, without_our_parameters};

    #[test]
    fn only_the_database_of_a_url_changes() {
        assert_eq!(
            with_database("postgres://u:p@h:1/old?sslmode=disable", "new"),
            "postgres://u:p@h:1/new?sslmode=disable"
        );
        assert_eq!(with_database("postgres://h", "new"), "postgres://h/new");
    }

    #[test]
    fn parameters_of_the_ledger_are_left_out() {
        assert_eq!(without_our_parameters("postgres://h/d?writers=3"), "postgres://h/d");
        assert_eq!(
            without_our_parameters("postgres://h/d?writers=3&sslmode=disable"),
            "postgres://h/d?sslmode=disable"
        );
    }
}
