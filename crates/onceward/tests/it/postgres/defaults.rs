//! Databases with another default isolation level than PostgreSQL's own.

use onceward::Ledger;

use super::server::Database;

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
