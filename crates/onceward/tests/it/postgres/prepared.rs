//! Transactions of the user's own that commit in two phases.

use std::time::Duration;

use tokio_postgres::NoTls;

use super::server::Database;

/// A prepared transaction keeps its locks when its session goes on. Waiting for them, the session would wait for itself.
#[tokio::test]
async fn a_session_goes_on_beside_its_prepared_transactions() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    let (client, connection) = tokio_postgres::connect(&database.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let decision = async |key: &str| -> String {
        let sql = format!("SELECT decision FROM onceward.claim('charge', '{key}')");
        let row = tokio::time::timeout(Duration::from_secs(20), client.query_one(&sql, &[])).await;
        row.expect("the session waits for itself").unwrap().get(0)
    };
    let name = |number: u32| format!("{}-{number}", database.url.rsplit('/').next().unwrap());
    for number in 0..3 {
        client.batch_execute("BEGIN").await.unwrap();
        assert_eq!(decision(&format!("invoice-{number}")).await, "acquired");
        client.batch_execute(&format!("PREPARE TRANSACTION '{}'", name(number))).await.unwrap();
    }
    assert_eq!(decision("invoice-0").await, "in_flight", "the prepared transaction has it");
    assert_eq!(decision("invoice-4").await, "acquired");
    client.batch_execute(&format!("COMMIT PREPARED '{}'", name(0))).await.unwrap();
    client.batch_execute(&format!("ROLLBACK PREPARED '{}'", name(1))).await.unwrap();
    client.batch_execute(&format!("COMMIT PREPARED '{}'", name(2))).await.unwrap();
    assert_eq!(decision("invoice-1").await, "acquired");
    let counted =
        "SELECT (SELECT sum(records) FROM onceward.tenant_count)::text, (SELECT count(*) FROM onceward.intent)::text";
    let row = client.query_one(counted, &[]).await.unwrap();
    assert_eq!((row.get::<_, &str>(0), row.get::<_, &str>(1)), ("4", "4"));
}
