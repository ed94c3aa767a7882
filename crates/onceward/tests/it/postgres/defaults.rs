//! Databases with other defaults than PostgreSQL's own: another isolation level, another encoding.

use onceward::Ledger;
use onceward::store::postgres::migrate;

use super::server::{Database, run};

/// Serializable transactions would fail beside each other, and repeatable reads would not see what others have committed.
#[tokio::test]
async fn another_default_isolation_level_changes_nothing() {
    for level in ["serializable", "repeatable read"] {
        let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
        let name = database.url.rsplit('/').next().unwrap().split('?').next().unwrap();
        database.run(&format!("ALTER DATABASE {name} SET default_transaction_isolation = '{level}'")).await.unwrap();
        let ledger = Ledger::open(database.url.as_str()).await.unwrap();
        for replayed in [false, true] {
            let done = ledger.operation("charge").intent(&7).run(|_| async { Ok(42) }).await.unwrap();
            assert_eq!((done.value, done.replayed), (42, replayed), "{level}");
        }
        ledger.close().await;
    }
}

/// Half of all keys could not be recorded in it.
#[tokio::test]
async fn a_database_that_does_not_hold_every_text_is_refused() {
    let Some(database) = Database::empty("ONCEWARD_TEST_POSTGRES").await else { return };
    let (address, name) = database.url.rsplit_once('/').unwrap();
    let latin = format!("{name}_latin");
    let create = format!("CREATE DATABASE {latin} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0");
    database.run(&create).await.unwrap();
    let url = format!("{address}/{latin}");
    for dry_run in [true, false] {
        let error = migrate(&url, dry_run).await.unwrap_err().to_string();
        assert!(error.contains("LATIN1") && error.contains("UTF8"), "{error}");
    }
    let schemas = run(&url, "SELECT count(*) FROM pg_namespace WHERE nspname = 'onceward'").await.unwrap();
    assert_eq!(schemas[0][0].as_deref(), Some("0"));
    database.run(&format!("DROP DATABASE {latin} WITH (FORCE)")).await.unwrap();
}
