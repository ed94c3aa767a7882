//! A database that has lost acknowledged writes is noticed, also behind a pooler, and a healthy one is not taken for that.

use onceward::store::postgres::Postgres;
use onceward::store::{Inserted, Store};

use super::cuts::claim_of;
use super::server::Database;
use onceward::core::record::Fence;

async fn claim(store: &Postgres, key: &str) -> Result<Inserted, onceward::store::Error> {
    store.insert(claim_of(key, Fence::from_bits(7)), None).await
}

/// Behind a pooler, the connection of the store outlives the restore.
#[tokio::test]
async fn a_restored_database_is_noticed_by_the_first_write_on_an_open_connection() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    let store = Postgres::open(&format!("{}?writers=1", database.url)).await.unwrap();
    for key in ["a", "b", "c"] {
        assert!(matches!(claim(&store, key).await, Ok(Inserted::Created { .. })));
    }
    database.run("UPDATE onceward.high_water_mark SET mark = mark - 2; DELETE FROM onceward.intent").await.unwrap();
    let error = claim(&store, "c").await.unwrap_err();
    assert!(error.to_string().contains("lost acknowledged writes") && error.is_out_of_reach(), "{error}");
    assert_eq!(database.run("SELECT count(*) FROM onceward.intent").await.unwrap()[0][0].as_deref(), Some("0"));
    assert!(store.durability().await.unwrap().to_string().contains("(2 batches of this process)"));
    assert!(matches!(claim(&store, "c").await, Ok(Inserted::Created { .. })), "it is reported once");
    store.close().await;
}

/// A statement that a stalled connection carries out late has the number of its time.
#[tokio::test]
async fn a_late_copy_of_a_batch_does_not_set_the_mark_back() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    let store = Postgres::open(&format!("{}?writers=1", database.url)).await.unwrap();
    for key in ["a", "b", "c"] {
        claim(&store, key).await.unwrap();
    }
    let late = "SELECT FROM onceward.write_v1('{}', '{}', '{}', false, false, \
                (SELECT process FROM onceward.high_water_mark), 1, NULL)";
    database.run(late).await.unwrap();
    let mark = database.run("SELECT mark FROM onceward.high_water_mark").await.unwrap();
    assert_eq!(mark[0][0].as_deref(), Some("3"));
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
               WHERE application_name = 'onceward' AND datname = current_database()";
    database.run(cut).await.unwrap();
    assert!(matches!(claim(&store, "d").await, Ok(Inserted::Created { .. })));
    assert!(!store.durability().await.unwrap().is_best_effort());
    store.close().await;
}
