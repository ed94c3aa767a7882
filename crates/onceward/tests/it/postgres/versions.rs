//! Schemas of other versions: a server also runs on the next one, and refuses all others. Servers that are too old are refused.

use onceward::Ledger;
use onceward::store::Store;
use onceward::store::postgres::{Postgres, migrate};

use super::server::{Database, run};

async fn pay(ledger: &Ledger, number: u32) {
    let done = ledger.operation("charge").intent(&number).run(|_| async { Ok(42) }).await.unwrap();
    assert_eq!(done.value, 42);
}

#[tokio::test]
async fn a_server_runs_on_the_next_version_of_the_schema_and_on_no_later_one() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    let rows = run(&database.url, "SELECT max(version)::text FROM onceward.schema_version").await.unwrap();
    let known: i64 = rows[0][0].as_deref().unwrap().parse().unwrap();
    let upgrade = |by: i64| format!("INSERT INTO onceward.schema_version (version) VALUES ({})", known + by);
    let running = Ledger::open(database.url.as_str()).await.unwrap();
    pay(&running, 1).await;
    database.run(&upgrade(1)).await.unwrap();
    pay(&running, 2).await;
    let started_later = Ledger::open(database.url.as_str()).await.unwrap();
    pay(&started_later, 3).await;
    let error = migrate(&database.url, false).await.unwrap_err().to_string();
    assert!(error.contains("newer than this build") && error.contains("upgrade onceward"), "{error}");
    database.run(&upgrade(2)).await.unwrap();
    let error = Postgres::open(&database.url).await.unwrap_err().to_string();
    assert!(error.contains(&format!("has version {}", known + 2)) && error.contains("upgrade onceward"), "{error}");
    database.run("DELETE FROM onceward.schema_version").await.unwrap();
    let error = Postgres::open(&database.url).await.unwrap_err().to_string();
    assert!(error.contains("schema"), "{error}");
    running.close().await;
    started_later.close().await;
}

/// In front of the functions of PostgreSQL, the database has one that answers like an old server.
#[tokio::test]
async fn a_server_that_is_too_old_is_refused_with_the_version_that_is_needed() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    let name = database.url.rsplit('/').next().unwrap().split('?').next().unwrap();
    let pretend = |version: &str| {
        format!(
            "CREATE SCHEMA IF NOT EXISTS old; CREATE OR REPLACE FUNCTION old.current_setting(name text) RETURNS text \
             LANGUAGE sql AS $$ SELECT CASE name WHEN 'server_version_num' THEN '{version}' \
             ELSE pg_catalog.current_setting(name) END $$; ALTER DATABASE {name} SET search_path = old, pg_catalog, public"
        )
    };
    database.run(&pretend("130018")).await.unwrap();
    let opened = Postgres::open(&database.url).await.map(drop).unwrap_err();
    for error in [opened, migrate(&database.url, false).await.unwrap_err()] {
        assert!(error.to_string().contains("PostgreSQL 13") && error.to_string().contains("14 or later"), "{error}");
        assert!(!error.is_out_of_reach(), "{error}");
    }
    database.run(&pretend("140000")).await.unwrap();
    migrate(&database.url, false).await.unwrap();
    Postgres::open(&database.url).await.unwrap().close().await;
}
