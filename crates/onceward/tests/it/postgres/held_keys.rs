//! Callers that wait for a key which a transaction of another program holds.

use std::time::{Duration, Instant};

use onceward::core::decide::Decision;
use onceward::{Failure, Ledger, StartOptions, Started};
use tokio_postgres::{Client, NoTls};

use super::server::Database;

const LONG: Duration = Duration::from_secs(30);

/// How long the transaction stays open while a caller waits.
const OPEN_FOR: Duration = Duration::from_millis(700);

async fn program(database: &Database) -> Client {
    let (client, connection) = tokio_postgres::connect(&database.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Claims a key in a transaction, and ends it while a caller waits. Returns whether the caller got a replay.
async fn waited_for(database: &Database, ledger: &Ledger, key: &str, end: &str) -> bool {
    let client = program(database).await;
    let claim = format!("BEGIN; SELECT onceward.claim('charge', '{key}')");
    client.batch_execute(&claim).await.unwrap();
    let began = Instant::now();
    let call = ledger.operation("charge").key(key).wait(LONG);
    let waiting = tokio::spawn(async move { call.run(|_| async { Ok(7) }).await });
    tokio::time::sleep(OPEN_FOR).await;
    assert!(!waiting.is_finished(), "{key}: {:?}", waiting.await);
    client.batch_execute(end).await.unwrap();
    let done = waiting.await.unwrap().unwrap();
    assert!(began.elapsed() < LONG / 2, "{key}: {:?}", began.elapsed());
    done.replayed
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_waits_for_an_open_transaction_gets_its_outcome_or_its_turn() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    let ledger = Ledger::open(database.url.as_str()).await.unwrap();
    assert!(!waited_for(&database, &ledger, "rolled back", "ROLLBACK").await);
    let finish = "SELECT onceward.finish('charge', 'finished', (SELECT fence FROM onceward.intent \
                  WHERE id = onceward.intent_id('default', 'charge', 'finished')), '7'); COMMIT";
    assert!(waited_for(&database, &ledger, "finished", finish).await);
    // A record that was given back is there while the transaction takes it.
    let released = ledger.operation("charge").key("released");
    assert!(released.run(|_| async { Err::<u32, _>(Failure::not_sent("no connection")) }).await.is_err());
    assert!(!waited_for(&database, &ledger, "released", "ROLLBACK").await);
    ledger.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_for_an_open_transaction_ends_in_time_and_asks_seldom() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    let ledger = Ledger::open(database.url.as_str()).await.unwrap();
    let client = program(&database).await;
    client.batch_execute("BEGIN; SELECT onceward.claim('charge', '1')").await.unwrap();
    let call = ledger.operation("charge").key("1").call().unwrap();
    let began = Instant::now();
    let started = ledger.start(&call, StartOptions::default().wait(OPEN_FOR)).await.unwrap();
    assert!(matches!(started, Started::Answered(Decision::InFlight { running: true, .. })), "{started:?}");
    assert!((OPEN_FOR..LONG).contains(&began.elapsed()), "{:?}", began.elapsed());
    let batches = database.run("SELECT coalesce(sum(mark), 0) FROM onceward.high_water_mark").await.unwrap();
    assert!(batches[0][0].as_deref().unwrap().parse::<u32>().unwrap() < 20, "{batches:?}");
    client.batch_execute("ROLLBACK").await.unwrap();
    ledger.close().await;
}
