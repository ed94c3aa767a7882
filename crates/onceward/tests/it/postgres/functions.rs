//! The SQL functions for transactions of the user's own, and the same from Rust.

use std::time::Duration;

use onceward::core::decide::Decision;
use onceward::core::outcome::Outcome;
use onceward::store::postgres::{InTransaction, begin};
use onceward::{Begun, Ledger};
use tokio_postgres::{Client, NoTls};

use super::server::Database;

/// A database with a table of business rows, a ledger in it, and a client of the user's own.
async fn shop() -> Option<(Database, Ledger, Client)> {
    let database = Database::create("ONCEWARD_TEST_POSTGRES").await?;
    database.run("CREATE TABLE charge (customer text)").await.unwrap();
    let ledger = Ledger::open(database.url.as_str()).await.unwrap();
    let client = connect(&database).await;
    Some((database, ledger, client))
}

async fn connect(database: &Database) -> Client {
    let (client, connection) = tokio_postgres::connect(&database.url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn charges(database: &Database) -> i64 {
    database.run("SELECT count(*) FROM charge").await.unwrap()[0][0].as_ref().unwrap().parse().unwrap()
}

/// Charges once: the row and the record commit together.
async fn charge(client: &mut Client, ledger: &Ledger, key: &str) -> Result<Decision, onceward::store::Error> {
    let call = ledger.operation("charge").key(key).call().unwrap();
    let transaction = client.transaction().await.unwrap();
    match begin(&transaction, &call).await? {
        InTransaction::Acquired(claim) => {
            transaction.execute("INSERT INTO charge VALUES ('cus_7')", &[]).await.unwrap();
            claim.finish(&transaction, &Outcome::success("\"receipt\"")).await?;
            transaction.commit().await.unwrap();
            Ok(Decision::Queued { created: true })
        }
        InTransaction::Answered(decision) => Ok(decision),
        InTransaction::Lapsed => panic!("the claim was committed without being finished"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_effect_and_the_record_commit_together_and_a_repeat_gets_the_outcome() {
    let Some((database, ledger, mut client)) = shop().await else { return };
    charge(&mut client, &ledger, "invoice-1").await.unwrap();
    let repeat = charge(&mut client, &ledger, "invoice-1").await.unwrap();
    assert!(
        matches!(&repeat, Decision::Replay { outcome, .. } if *outcome == Outcome::success("\"receipt\"")),
        "{repeat:?}"
    );
    assert_eq!(charges(&database).await, 1);
    // Every other surface sees the same record.
    match ledger.operation("charge").key("invoice-1").begin().await.unwrap() {
        Begun::Answered(Decision::Replay { outcome, .. }) => assert_eq!(outcome, Outcome::success("\"receipt\"")),
        other => panic!("the ledger does not know it: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_takes_the_intent_back_too() {
    let Some((database, ledger, mut client)) = shop().await else { return };
    let call = ledger.operation("charge").key("invoice-1").call().unwrap();
    let transaction = client.transaction().await.unwrap();
    let InTransaction::Acquired(claim) = begin(&transaction, &call).await.unwrap() else { panic!("not acquired") };
    transaction.execute("INSERT INTO charge VALUES ('cus_7')", &[]).await.unwrap();
    claim.finish(&transaction, &Outcome::success("1")).await.unwrap();
    transaction.rollback().await.unwrap();
    assert_eq!(charges(&database).await, 0);
    charge(&mut client, &ledger, "invoice-1").await.unwrap();
    assert_eq!(charges(&database).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_fence_is_an_error_and_the_transaction_cannot_commit() {
    let Some((database, ledger, mut client)) = shop().await else { return };
    let call = ledger.operation("charge").key("invoice-1").call().unwrap();
    // A claim that was committed by itself, and then settled by a person.
    let InTransaction::Acquired(claim) = begin(&client, &call).await.unwrap() else { panic!("not acquired") };
    database.run("UPDATE onceward.intent SET fence = gen_random_uuid(), version = version + 1").await.unwrap();
    let transaction = client.transaction().await.unwrap();
    transaction.execute("INSERT INTO charge VALUES ('cus_7')", &[]).await.unwrap();
    let error = claim.finish(&transaction, &Outcome::success("1")).await.unwrap_err();
    assert!(error.to_string().contains("not valid any more"), "{error}");
    // PostgreSQL turns this commit into a rollback.
    transaction.commit().await.unwrap();
    assert_eq!(charges(&database).await, 0, "a second effect was committed");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_transaction_is_in_flight_for_others_and_holds_up_no_other_key() {
    let Some((database, ledger, mut client)) = shop().await else { return };
    let call = ledger.operation("charge").key("invoice-1").call().unwrap();
    let transaction = client.transaction().await.unwrap();
    let InTransaction::Acquired(claim) = begin(&transaction, &call).await.unwrap() else { panic!("not acquired") };
    // The transaction ends only after all of them.
    let in_time = Duration::from_secs(20);
    let during = tokio::time::timeout(in_time, ledger.operation("charge").key("invoice-1").begin()).await;
    match during.expect("the caller waits for the transaction").unwrap() {
        Begun::Answered(Decision::InFlight { .. }) => {}
        other => panic!("a second caller has the claim: {other:?}"),
    }
    let mut second = connect(&database).await;
    let other = tokio::time::timeout(in_time, charge(&mut second, &ledger, "invoice-1")).await;
    assert!(matches!(other.expect("the transaction waits"), Ok(Decision::InFlight { .. })));
    for number in 2..12 {
        let other = ledger.operation("charge").key(&format!("invoice-{number}"));
        let free = tokio::time::timeout(in_time, other.begin()).await.expect("another key waits").unwrap();
        assert!(matches!(free, Begun::Acquired(_)));
    }
    claim.finish(&transaction, &Outcome::success("1")).await.unwrap();
    transaction.commit().await.unwrap();
    let after = ledger.operation("charge").key("invoice-1").begin().await.unwrap();
    assert!(matches!(after, Begun::Answered(Decision::Replay { .. })), "{after:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_transactions_of_one_key_charge_once() {
    let Some((database, ledger, _)) = shop().await else { return };
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let mut client = connect(&database).await;
        let ledger = ledger.clone();
        tasks.spawn(async move {
            for number in 0..20 {
                let _ = charge(&mut client, &ledger, &format!("invoice-{number}")).await;
            }
        });
    }
    while let Some(joined) = tasks.join_next().await {
        joined.unwrap();
    }
    assert_eq!(charges(&database).await, 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_released_claim_is_free_for_the_next_caller_wherever_it_is() {
    let Some((_database, ledger, client)) = shop().await else { return };
    let call = ledger.operation("charge").key("invoice-1").call().unwrap();
    let InTransaction::Acquired(claim) = begin(&client, &call).await.unwrap() else { panic!("not acquired") };
    claim.release(&client, "no funds were reserved", Duration::ZERO).await.unwrap();
    let InTransaction::Acquired(claim) = begin(&client, &call).await.unwrap() else { panic!("not acquired again") };
    assert_eq!(claim.attempt(), 2);
    claim.release(&client, "again", Duration::ZERO).await.unwrap();
    let Begun::Acquired(guard) = ledger.operation("charge").key("invoice-1").begin().await.unwrap() else {
        panic!("the ledger does not get it")
    };
    assert_eq!(guard.claim().attempt(), 3);
}

#[tokio::test]
async fn ids_and_downstream_keys_are_those_of_the_vectors() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    let vectors = include_str!("../../../../../spec/vectors/keys.json");
    let vectors: serde_json::Value = serde_json::from_str(vectors).unwrap();
    let quoted = |value: &serde_json::Value| format!("'{}'", value.as_str().unwrap().replace('\'', "''"));
    for case in vectors["identities"].as_array().unwrap() {
        let [tenant, operation, key] = ["tenant", "operation", "key"].map(|name| quoted(&case[name]));
        let sql = format!("SELECT encode(onceward.intent_id({tenant}, {operation}, {key}), 'hex')");
        assert_eq!(database.run(&sql).await.unwrap()[0][0].as_deref(), case["digest"].as_str(), "{}", case["name"]);
    }
    let mut downstream = 0;
    for case in vectors["downstream"].as_array().unwrap().iter().filter(|case| case["sink"] == "") {
        let [tenant, operation, key] = ["tenant", "operation", "key"].map(|name| quoted(&case[name]));
        let sql = format!("SELECT onceward.downstream_key({tenant}, {operation}, {key}, {})", case["generation"]);
        assert_eq!(database.run(&sql).await.unwrap()[0][0].as_deref(), case["downstream_key"].as_str(), "{case}");
        downstream += 1;
    }
    assert!(downstream > 0);
}

#[tokio::test]
async fn names_that_no_surface_accepts_are_refused() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    for call in [
        "onceward.begin('', 'k')",
        "onceward.begin('o', NULL)",
        "onceward.begin('o', repeat('k', 256))",
        "onceward.begin('o', E'a\\nb')",
        "onceward.begin('o', E'a\\u0085b')",
        "onceward.begin('o', 'k', tenant => '')",
        "onceward.begin('o', 'k', fingerprint => 'short')",
        "onceward.begin('o', 'k', tier => 'gold')",
        "onceward.begin('o', 'k', in_doubt => 'guess')",
        "onceward.enqueue('o', 'k', NULL)",
        "onceward.finish('o', 'k', gen_random_uuid())",
        "onceward.finish('o', 'k', NULL)",
    ] {
        assert!(database.run(&format!("SELECT {call}")).await.is_err(), "{call}");
    }
    assert_eq!(database.run("SELECT count(*) FROM onceward.intent").await.unwrap()[0][0].as_deref(), Some("0"));
}
