//! Arguments and rows that must not get into the ledger through the SQL functions, and those that are there anyway.

use std::sync::Arc;

use onceward::copy::{Options, Side, copy};
use onceward::store::postgres::Postgres;
use onceward::store::{Filter, Store};
use onceward::{Begun, Ledger};

use super::server::Database;
use crate::copy::file;

const BEGIN: &str = "SELECT decision, fence FROM onceward.claim('charge', 'k'";

/// The code of the error of a statement.
async fn code(database: &Database, sql: &str) -> String {
    let error = database.run(sql).await.err().unwrap_or_else(|| panic!("accepted: {sql}"));
    error.code().unwrap_or_else(|| panic!("{sql}: {error}")).code().to_owned()
}

async fn count(database: &Database) -> Option<String> {
    database.run("SELECT count(*) FROM onceward.intent").await.unwrap()[0][0].clone()
}

/// A server takes a longer lease for that of a clock that ran ahead, and would take the claim over at once.
#[tokio::test]
async fn a_lease_is_bounded() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    for lease in ["NULL", "'0'", "'-1 second'", "'3 days 1 millisecond'", "'5 days'"] {
        assert_eq!(code(&database, &format!("{BEGIN}, lease => {lease})")).await, "OW002", "{lease}");
    }
    assert_eq!(count(&database).await.as_deref(), Some("0"));
    assert_eq!(database.run(&format!("{BEGIN}, lease => '3 days')")).await.unwrap()[0][0].as_deref(), Some("acquired"));
    let ledger = Ledger::open(database.url.as_str()).await.unwrap();
    let begun = ledger.operation("charge").key("k").begin().await.unwrap();
    assert!(!matches!(begun, Begun::Acquired(_)), "the longest lease was taken over at once");
}

#[tokio::test]
async fn arguments_that_make_a_record_unreadable_are_refused() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    for argument in [
        "key_digest => '\\x01'",
        "fingerprint => ''",
        "retention => '-1 day'",
        "retention => '200000 years'",
        "retention => '1 day', tombstone => '-1 day'",
        "in_doubt => NULL",
        "tier => NULL",
        "tenant => NULL",
    ] {
        assert_eq!(code(&database, &format!("{BEGIN}, {argument})")).await, "OW002", "{argument}");
    }
    for argument in [
        "delay => '200000 years'",
        "tier => NULL",
        "in_doubt => NULL",
        "retention => '-1 day'",
        "priority => 'urgent'",
        "priority => NULL",
        "deliver_within => '-1 day'",
        "max_attempts => 0",
    ] {
        let sql = format!("SELECT onceward.enqueue('charge', 'k', 'payload', {argument})");
        assert_eq!(code(&database, &sql).await, "OW002", "{argument}");
    }
    assert_eq!(count(&database).await.as_deref(), Some("0"));
    let fence = database.run(&format!("{BEGIN})")).await.unwrap()[0][1].clone().unwrap();
    for argument in ["body => NULL", "status => NULL", "content_type => NULL", "verdict => NULL", "verdict => 'maybe'"]
    {
        let sql = format!("SELECT onceward.finish('charge', 'k', '{fence}', {argument})");
        assert_eq!(code(&database, &sql).await, "OW002", "{argument}");
    }
    database.run(&format!("SELECT onceward.finish('charge', 'k', '{fence}', 'x')")).await.unwrap();
}

#[tokio::test]
async fn the_table_accepts_no_row_that_readers_cannot_read() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    let fence = database.run(&format!("{BEGIN})")).await.unwrap()[0][1].clone().unwrap();
    for change in [
        "payload = 'of no priority'",
        "fence = NULL",
        "until = NULL",
        "effect = NULL",
        "in_doubt = NULL",
        "tombstone_ms = NULL",
        "honours_key_for_ms = -1",
        "retention_ms = -1",
        "attempts = 4294967296",
        "version = -1",
        "key_digest = 'short'",
        "fingerprint = 'short'",
        "made_by = 'short'",
        "claims = ''",
        "claims = '17 bytes, not 16.'",
        "state = 'done'",
        "state = 'tombstone'",
    ] {
        assert_eq!(code(&database, &format!("UPDATE onceward.intent SET {change}")).await, "23514", "{change}");
    }
    database.run(&format!("SELECT onceward.finish('charge', 'k', '{fence}', 'x')")).await.unwrap();
    for column in ["body", "status", "content_type", "verdict", "finished_at"] {
        assert_eq!(code(&database, &format!("UPDATE onceward.intent SET {column} = NULL")).await, "23514", "{column}");
    }
    assert_eq!(code(&database, "UPDATE onceward.intent SET body_size = 7").await, "23514", "without a digest");
}

/// Such rows cannot get in any more; a damaged table may have them nevertheless.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_cannot_be_read_holds_up_no_other_one() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    let finished = "SELECT onceward.finish('charge', number::text, fence, 'x') FROM generate_series(1, 80) AS number, \
                    LATERAL onceward.claim('charge', number::text, retention => '0', tombstone => '0')";
    database.run(finished).await.unwrap();
    let damage = "ALTER TABLE onceward.intent DROP CONSTRAINT intent_is_complete; \
                  UPDATE onceward.intent SET body = NULL, purge_at = purge_at - interval '1 day' WHERE key::integer <= 40";
    database.run(damage).await.unwrap();
    let store = Postgres::open(&database.url).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    assert_eq!(store.purge(1000).await.unwrap().removed, 40, "the readable ones were not removed");
    assert_eq!(store.purge(1000).await.unwrap().removed, 0);
    assert_eq!(count(&database).await.as_deref(), Some("40"), "what cannot be read must stay");
    database
        .run("UPDATE onceward.intent SET purge_at = NULL, forget_at = NULL; SELECT onceward.enqueue('charge', 'good', 'x')")
        .await
        .unwrap();
    let listed = store.list(&Filter::default(), None, 10).await.unwrap().listed;
    assert_eq!(listed.len(), 1, "{listed:?}");

    // A copy must not leave any out, so that it says which one.
    let folder = tempfile::tempdir().unwrap();
    let source = Side { store: Arc::new(store), name: "postgres://…".to_owned() };
    let error =
        copy(&source, &file(&folder.path().join("target.db")).await, Options::default(), &|_| {}).await.unwrap_err();
    let ids = database.run("SELECT encode(id, 'hex') FROM onceward.intent WHERE body IS NULL").await.unwrap();
    let names_one = ids.iter().any(|row| error.to_string().contains(row[0].as_deref().unwrap()));
    assert!(names_one, "{error}");
}
