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

/// One call of a function by itself.
async fn first(database: &Database, sql: &str) -> String {
    database.run(sql).await.unwrap()[0][0].clone().unwrap()
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

/// Its effect may have been committed, by itself or with something else.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_was_committed_and_never_finished_is_in_doubt() {
    let Some((database, ledger, client)) = shop().await else { return };
    let begin = "SELECT decision FROM onceward.claim('charge', 'invoice-1', lease => '1 millisecond', retention => '0', tombstone => '0')";
    assert_eq!(first(&database, begin).await, "acquired");
    database.run("INSERT INTO charge VALUES ('cus_7')").await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(first(&database, begin).await, "in_doubt");
    match ledger.operation("charge").key("invoice-1").begin().await.unwrap() {
        Begun::Answered(Decision::InDoubt { .. }) => {}
        other => panic!("the charge would be made again: {other:?}"),
    }
    // It is never forgotten, and its owner may still settle it.
    let purge_at = database.run("SELECT purge_at FROM onceward.intent").await.unwrap();
    assert_eq!(purge_at[0][0], None);
    let finish = "SELECT onceward.finish('charge', 'invoice-1', fence, 'receipt') FROM onceward.intent";
    client.batch_execute(finish).await.unwrap();
    assert_eq!(charges(&database).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn repeats_of_finished_work_do_not_wait_for_each_other() {
    let Some((database, ledger, mut client)) = shop().await else { return };
    charge(&mut client, &ledger, "invoice-1").await.unwrap();
    let transaction = client.transaction().await.unwrap();
    let (begin, enqueue) =
        ("SELECT decision FROM onceward.claim('charge', 'invoice-1'", "onceward.enqueue('charge', 'invoice-1', 'x'");
    let fingerprint = "fingerprint => (SELECT fingerprint FROM onceward.intent))";
    for sql in [format!("{begin}, {fingerprint}"), format!("SELECT decision FROM {enqueue}, {fingerprint}")] {
        assert_eq!(transaction.query_one(&sql, &[]).await.unwrap().get::<_, &str>(0), "replay", "{sql}");
        assert_eq!(first(&database, &sql).await, "replay", "{sql}");
    }
    // Nor does another request with the key.
    assert_eq!(first(&database, &format!("{begin}, fingerprint => sha256('other'))")).await, "mismatch");
}

/// Each intent takes a place in the lock table of the server, and a full table fails the statements of everyone.
#[tokio::test]
async fn one_transaction_cannot_fill_the_lock_table() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    let enqueue = |number: u32| {
        format!(
            "SELECT count(*) FROM generate_series(1, {number}) AS number, LATERAL onceward.enqueue('mail', number::text, 'x')"
        )
    };
    let error = database.run(&enqueue(2001)).await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "OW007", "{error}");
    assert_eq!(first(&database, &enqueue(2000)).await, "2000");
    // The next transaction of the same session counts anew.
    let client = connect(&database).await;
    for _ in 0..2 {
        client.query_one(&enqueue(1500), &[]).await.unwrap();
    }
}

#[tokio::test]
async fn an_error_says_what_the_caller_may_not_do() {
    let Some((_database, ledger, client)) = shop().await else { return };
    let call = ledger.operation("charge").key("invoice-1").call().unwrap();
    client.batch_execute("REVOKE USAGE ON SCHEMA onceward FROM CURRENT_USER").await.unwrap();
    let error = begin(&client, &call).await.unwrap_err();
    assert!(matches!(error, onceward::store::Error::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains("permission denied for schema onceward"), "{error}");
    client.batch_execute("DROP SCHEMA onceward CASCADE").await.unwrap();
    let error = begin(&client, &call).await.unwrap_err();
    assert!(error.to_string().contains("onceward migrate"), "{error}");
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
        "onceward.claim('', 'k')",
        "onceward.claim('o', NULL)",
        "onceward.claim('o', repeat('k', 256))",
        "onceward.claim('o', E'a\\nb')",
        "onceward.claim('o', E'a\\u0085b')",
        "onceward.claim('o', 'k', tenant => '')",
        "onceward.claim('o', 'k', fingerprint => 'short')",
        "onceward.claim('o', 'k', tier => 'gold')",
        "onceward.claim('o', 'k', in_doubt => 'guess')",
        "onceward.enqueue('o', 'k', NULL)",
        "onceward.finish('o', 'k', gen_random_uuid())",
        "onceward.finish('o', 'k', NULL)",
    ] {
        assert!(database.run(&format!("SELECT {call}")).await.is_err(), "{call}");
    }
    assert_eq!(database.run("SELECT count(*) FROM onceward.intent").await.unwrap()[0][0].as_deref(), Some("0"));
}
