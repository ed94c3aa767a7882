//! Backups of a database with a ledger, made and restored as the guide says.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;

use onceward::Ledger;
use onceward::store::postgres::{Postgres, migrate};

use super::server::Database;

/// Runs a program with this input, and returns its output.
fn piped(program: &str, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (mut stdin, input) = (child.stdin.take().unwrap(), input.to_vec());
    let writer = std::thread::spawn(move || {
        // A program that fails does not read all of it.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

async fn ledger(url: &str) -> Ledger {
    Ledger::builder().on(Arc::new(Postgres::open(url).await.unwrap()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_made_as_the_guide_says_is_restored_with_what_was_done() {
    let Some(source) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    ledger(&source.url).await.operation("charge").key("1").run(|_| async { Ok(7) }).await.unwrap();
    let psql = ["-q", "-X", "-v", "ON_ERROR_STOP=1", "-d"];
    for (dump, restore, options) in [("-Fc", "pg_restore", &["-d"][..]), ("-Fp", "psql", &psql[..])] {
        let backup = piped("pg_dump", &[dump, &source.url], b"");
        let target = Database::empty("ONCEWARD_TEST_POSTGRES").await.unwrap();
        piped(restore, &[options, &[&target.url]].concat(), &backup);
        let done = ledger(&target.url).await.operation("charge").key("1").run(|_| async { Ok(8) }).await.unwrap();
        assert_eq!((done.value, done.replayed), (7, true), "{restore}");
        let answer = target.run("SELECT decision FROM onceward.claim('charge', '2')").await.unwrap();
        assert_eq!(answer[0][0].as_deref(), Some("acquired"), "{restore}");
    }
}

/// As a part of a larger script of psql: what follows is a statement of its own.
#[tokio::test(flavor = "multi_thread")]
async fn psql_runs_what_a_dry_run_of_a_migration_prints() {
    let Some(database) = Database::empty("ONCEWARD_TEST_POSTGRES").await else { return };
    let mut script = migrate(&database.url, true).await.unwrap().join("\n");
    script.push_str("\nCREATE TABLE charge (invoice text);\nCOPY charge FROM stdin;\ninvoice-1\n\\.\n");
    piped("psql", &["-q", "-X", "-v", "ON_ERROR_STOP=1", "-d", &database.url], script.as_bytes());
    assert_eq!(database.run("SELECT invoice FROM charge").await.unwrap()[0][0].as_deref(), Some("invoice-1"));
    assert!(migrate(&database.url, false).await.unwrap()[0].contains("nothing to do"));
}
