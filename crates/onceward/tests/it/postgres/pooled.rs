//! The conformance suite through PgBouncer in transaction mode, which gives each transaction another connection. Databases are made
//! through the server itself.

use std::sync::Arc;

use onceward::clock::ManualClock;
use onceward::conformance::Fixture;
use onceward::store::postgres::Postgres;

use super::server::Database;

/// The URL of a database through the pooler. `None`, and a message, if there is none.
pub(super) fn pooled_url(database: &Database) -> Option<String> {
    let Ok(pooler) = std::env::var("ONCEWARD_TEST_PGBOUNCER") else {
        assert!(std::env::var_os("CI").is_none(), "ONCEWARD_TEST_PGBOUNCER names no pooler");
        println!("skipped: ONCEWARD_TEST_PGBOUNCER names no pooler");
        return None;
    };
    let (_, name) = database.url.rsplit_once('/').unwrap();
    let (address, _) = pooler.rsplit_once('/').unwrap();
    Some(format!("{address}/{name}"))
}

async fn open(clock: ManualClock) -> Option<Fixture> {
    let database = Database::create("ONCEWARD_TEST_POSTGRES").await?;
    let store = Postgres::open_with(&pooled_url(&database)?, Some(Arc::new(clock))).await.unwrap();
    Some(Fixture { store: Arc::new(store), keep: Box::new(database) })
}

onceward::conformance!(open);
