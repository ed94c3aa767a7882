//! Whole ledgers moved into PostgreSQL and out of it.

use std::sync::Arc;
use std::time::Duration;

use onceward::Begun;
use onceward::copy::{Options, Side, copy};
use onceward::store::postgres::Postgres;
use onceward::store::{Error, Filter};

use super::server::Database;
use crate::copy::{contents, file, fill, ledger};

async fn side(database: &Database) -> Side {
    let store = Postgres::open(&database.url).await.unwrap();
    Side { store: Arc::new(store), name: "postgres://…".to_owned() }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_state_arrives_in_postgresql_and_comes_back() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (file(&folder.path().join("source.db")).await, side(&database).await);
    fill(&source, 40).await;
    copy(&source, &target, Options::default(), &|_| {}).await.unwrap();
    assert_eq!(contents(&target).await, contents(&source).await);

    // Claims go to the target now, and the source refuses them.
    let refused = ledger(&source).operation("charge").key("new").begin().await.unwrap_err();
    assert!(matches!(refused, onceward::Error::Store(Error::Sealed { .. })), "{refused}");
    assert!(matches!(ledger(&target).operation("charge").key("new").begin().await.unwrap(), Begun::Acquired(_)));
    let listed = target.store.list(&Filter::default(), None, 1).await.unwrap();
    assert_eq!(listed.listed[0].seen.record.identity.as_ref().unwrap().key.as_str(), "new", "the newest comes first");

    let back = file(&folder.path().join("back.db")).await;
    let options = Options { force_doubt: true, ..Options::default() };
    copy(&target, &back, options, &|_| {}).await.unwrap();
    assert_eq!(contents(&back).await, contents(&target).await);
    let refused = ledger(&target).operation("charge").key("newer").begin().await.unwrap_err();
    assert!(matches!(refused, onceward::Error::Store(Error::Sealed { .. })), "{refused}");
    let sql = database.run("SELECT onceward.claim('charge', 'newer')").await.unwrap_err();
    assert_eq!(sql.code().unwrap().code(), "OW001", "a transaction of the user's own must be refused too");
}

/// Such a transaction does not see the seal, and its claim would be in a ledger that no one reads any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_is_older_than_the_seal_claims_nothing() {
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
        let folder = tempfile::tempdir().unwrap();
        let (source, target) = (side(&database).await, file(&folder.path().join("target.db")).await);
        let (client, connection) = tokio_postgres::connect(&database.url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        let begin = format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM onceward.intent");
        client.batch_execute(&begin).await.unwrap();
        copy(&source, &target, Options::default(), &|_| {}).await.unwrap();
        let error = client.batch_execute("SELECT onceward.claim('charge', 'invoice-1')").await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "40001", "{level}: {error}");
        client.batch_execute("ROLLBACK; SELECT 1").await.unwrap();
        // A later one sees it.
        let error = client.batch_execute(&format!("{begin}; SELECT onceward.claim('charge', 'a')")).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "OW001", "{level}: {error}");
    }
}

/// Each of them is short, but there is always one: the seal has to queue behind them, and later ones behind the seal.
#[tokio::test(flavor = "multi_thread")]
async fn overlapping_transactions_of_a_program_do_not_keep_the_seal_away() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    let folder = tempfile::tempdir().unwrap();
    let (source, target) = (side(&database).await, file(&folder.path().join("target.db")).await);
    let programs = (0..4).map(|program| {
        let url = database.url.clone();
        tokio::spawn(async move {
            let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
            tokio::spawn(connection);
            tokio::time::sleep(Duration::from_millis(200 * program)).await;
            for number in 0..100 {
                let begin =
                    format!("BEGIN; SELECT onceward.claim('charge', '{program}-{number}'); SELECT pg_sleep(0.8)");
                if let Err(error) = client.batch_execute(&begin).await {
                    return error.code().unwrap().code().to_owned();
                }
                client.batch_execute("ROLLBACK").await.unwrap();
            }
            "never".to_owned()
        })
    });
    let programs: Vec<_> = programs.collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    copy(&source, &target, Options::default(), &|_| {}).await.unwrap();
    for program in programs {
        assert_eq!(program.await.unwrap(), "OW001", "it was refused after the seal");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_a_sealed_ledger_in_postgresql_refuses_leaves_no_trace() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    crate::refused_claims::leave_no_trace(&side(&database).await).await;
}
