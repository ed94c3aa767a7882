//! The PostgreSQL store against a real server, which the test command starts. Without one, these tests are left out.

mod backups;
mod copies;
mod crowds;
mod cuts;
mod defaults;
mod due;
mod encrypted;
mod front;
mod function_records;
mod function_vectors;
mod functions;
mod held_keys;
mod hints;
mod losses;
mod misuse;
mod outages;
mod passwords;
mod pooled;
mod prepared;
mod proxy;
mod server;
mod statements;
mod tidying;
mod versions;

use std::sync::Arc;

use onceward::clock::ManualClock;
use onceward::conformance::Fixture;
use onceward::store::postgres::Postgres;

use server::Database;

mod conformance {
    use super::*;

    async fn open(clock: ManualClock) -> Option<Fixture> {
        let database = Database::create("ONCEWARD_TEST_POSTGRES").await?;
        let store = Postgres::open_with(&database.url, Some(Arc::new(clock))).await.unwrap();
        Some(Fixture { store: Arc::new(store), keep: Box::new(database) })
    }

    onceward::conformance!(open);
}
