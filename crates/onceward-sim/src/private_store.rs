//! A store of its own for one run, on a server that others use as well: a new database of PostgreSQL, or new keys in Redis.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use onceward::clock::Clock;
use onceward::core::hash::Digest;
use onceward::core::record::State;
use onceward::store::postgres::{self, Postgres};
use onceward::store::redis::Redis;
use onceward::store::{Error, Store};
use tokio_postgres::NoTls;

use crate::redis_keys;

/// Numbers the stores of this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// An empty ledger. A database is dropped with this value; keys of Redis stay until its server ends.
#[derive(Debug)]
pub struct PrivateStore {
    /// The URL of the ledger.
    pub url: String,
    server: String,
    name: String,
    kept: bool,
}

impl PrivateStore {
    /// Makes a ledger on the server of a URL.
    pub async fn create(server: &str) -> Self {
        let store = Self::create_empty(server).await;
        let made = store.migrate().await;
        made.expect("the server accepts a ledger");
        store
    }

    /// Makes the place for a ledger: a database without a schema, or a prefix without keys.
    pub async fn create_empty(server: &str) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sim_{}_{}_{number}", since.as_nanos(), std::process::id());
        let (address, query) = server.split_once('?').map_or((server, None), |(address, query)| (address, Some(query)));
        let query = query.map(|query| format!("&{query}")).unwrap_or_default();
        let url = if is_redis(server) {
            format!("{address}?prefix={name}{query}")
        } else {
            run(server, &format!("CREATE DATABASE {name}")).await.expect("the server accepts a database");
            let (host, _) = address.rsplit_once('/').expect("the URL names a database");
            format!("{host}/{name}{}", query.replacen('&', "?", 1))
        };
        Self { url, server: server.to_owned(), name, kept: false }
    }

    /// Makes the ledger, or completes it.
    pub async fn migrate(&self) -> Result<Vec<String>, Error> {
        migrate(&self.url).await
    }

    /// Leaves the ledger on the server. Returns its URL.
    pub fn keep(mut self) -> String {
        self.kept = true;
        self.url.clone()
    }

    /// Opens the ledger with a clock of the harness.
    pub async fn open(&self, clock: Arc<dyn Clock>) -> Arc<dyn Store> {
        match is_redis(&self.url) {
            true => Arc::new(Redis::open_with_clock(&self.url, clock).await.expect("the ledger opens")),
            false => Arc::new(Postgres::open_with(&self.url, Some(clock)).await.expect("the ledger opens")),
        }
    }

    /// The records that Redis will remove by itself although they are not tombstones.
    pub async fn records_with_expiry(&self, store: &Arc<dyn Store>) -> Vec<String> {
        let mut found = Vec::new();
        if !is_redis(&self.url) {
            return found;
        }
        for (text, left) in redis_keys::with_expiry(&self.server, &self.name).await.expect("the server lists its keys")
        {
            let Some(id) = text.rsplit(':').next().and_then(Digest::from_hex) else { continue };
            let Some(seen) = store.get(id).await.expect("the store can be read") else { continue };
            if !matches!(seen.record.state, State::Tombstone { .. }) {
                found.push(format!("{text} expires in {left} ms, and is not a tombstone"));
            }
        }
        found
    }
}

impl Drop for PrivateStore {
    fn drop(&mut self) {
        if self.kept || is_redis(&self.server) {
            return;
        }
        let (server, name) = (self.server.clone(), self.name.clone());
        // This may run on a runtime, on which nothing can be waited for.
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
            let _ = runtime.block_on(run(&server, &format!("DROP DATABASE {name} WITH (FORCE)")));
        });
        let _ = dropped.join();
    }
}

/// Makes the ledger of a URL, or completes it.
pub async fn migrate(url: &str) -> Result<Vec<String>, Error> {
    match is_redis(url) {
        true => Redis::migrate(url, false).await,
        false => postgres::migrate(url, false).await,
    }
}

fn is_redis(url: &str) -> bool {
    url.starts_with("redis")
}

async fn run(url: &str, sql: &str) -> Result<(), tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    let driver = tokio::spawn(connection);
    let done = client.simple_query(sql).await.map(drop);
    drop(client);
    let _ = driver.await;
    done
}
