//! `onceward copy` and `onceward migrate` as an operator runs them, and killed at any moment.

use std::collections::BTreeSet;
use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

use onceward::Ledger;
use tokio::runtime::Runtime;

use crate::test_folder::{TestFolder, wait_until};

/// A copy of the ledger below takes a few hundred milliseconds, so some kills come too early and some too late.
const KILLS: u32 = 12;
const STEP: Duration = Duration::from_millis(30);
const RECORDS: usize = 2000;

fn filled(folder: &TestFolder, count: usize) {
    Runtime::new().unwrap().block_on(async {
        let ledger = Ledger::open(folder.path("onceward.db")).await.unwrap();
        let each = |number: usize| {
            let call = ledger.operation("op").key(&format!("{number}"));
            async move { call.run(|_| async move { Ok("x".repeat(500)) }).await.map(drop) }
        };
        for batch in (0..count).collect::<Vec<_>>().chunks(500) {
            for done in futures_util::future::join_all(batch.iter().map(|number| each(*number))).await {
                done.unwrap();
            }
        }
        ledger.close().await;
    });
}

const COPY: [&str; 5] = ["copy", "--from", "onceward.db", "--to", "new.db"];

#[test]
fn a_copy_that_was_killed_at_any_moment_is_continued_by_the_next_command() {
    let mut seals = BTreeSet::new();
    let source = TestFolder::new();
    filled(&source, RECORDS);
    // On a slow machine the first kills may all come too early.
    for kill in 0..4 * KILLS {
        if kill >= KILLS && seals.iter().any(|seal: &String| seal.contains("\"sealed\"")) {
            break;
        }
        let folder = TestFolder::new();
        for suffix in ["", "-mark"] {
            std::fs::copy(source.path(&format!("onceward.db{suffix}")), folder.path(&format!("onceward.db{suffix}")))
                .unwrap();
        }
        let mut process = folder.command(&COPY).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(STEP * kill);
        let _ = process.kill();
        process.wait().unwrap();
        seals.insert(seal(&folder, "onceward.db"));
        // Whatever the copy had reached, the source grants a claim only while nothing was sealed, and the target only in the end.
        let claim =
            |store| folder.onceward(&["run", "--store", store, "--operation", "op", "--key", "1", "--", "false"]);
        if folder.path("new.db").exists() && seal(&folder, "new.db").contains("receiving") {
            assert_eq!(claim("new.db").code, 69, "kill {kill}");
        }
        folder.onceward(&COPY).says(0, &[]);
        assert!(seal(&folder, "onceward.db").contains("\"moved\""), "kill {kill}");
        let replayed = folder.onceward(&["list", "--store", "new.db", "--state", "done", "--limit", "1", "--json"]);
        assert_eq!(replayed.code, 0);
        let count = rusqlite::Connection::open(folder.path("new.db")).unwrap();
        let count: i64 = count.query_row("SELECT count(*) FROM intent", [], |row| row.get(0)).unwrap();
        assert_eq!(usize::try_from(count), Ok(RECORDS), "kill {kill}");
        claim("onceward.db").says(69, &["is sealed"]);
    }
    let states = seals.iter().map(|seal| seal.split('"').nth(3).unwrap_or("open").to_owned()).collect::<BTreeSet<_>>();
    assert!(states.contains("sealed"), "some kill came in the middle of the copy: {states:?}");
}

/// The seal in a file; empty while it is open.
fn seal(folder: &TestFolder, name: &str) -> String {
    let ledger = rusqlite::Connection::open(folder.path(name)).unwrap();
    let seal = ledger.query_row("SELECT seal FROM ledger", [], |row| row.get::<_, Option<String>>(0));
    seal.ok().flatten().unwrap_or_default()
}

#[test]
fn a_ledger_moves_to_another_file_and_says_where_it_went() {
    let folder = TestFolder::new();
    folder.run(&["--key", "first"], "echo first").says(0, &[]);
    let copied = folder.json(&["copy", "--from", "onceward.db", "--to", "new.db", "--json"]);
    assert_eq!((&copied["records"], &copied["states"]["done"]), (&1.into(), &1.into()));
    folder.run(&["--key", "second"], "echo x >> effects").says(69, &["is sealed", "new.db"]);
    folder.run(&["--key", "first"], "echo x >> effects").says(69, &["is sealed"]);
    assert_eq!(folder.read("effects"), "");
    let replay = folder.run(&["--store", "new.db", "--key", "first"], "echo first");
    assert_eq!((replay.code, replay.out()), (0, "first\n"));
    folder.onceward(&COPY).says(0, &[]);
    folder.onceward(&["copy", "--from", "onceward.db", "--unseal"]).says(1, &["--force"]);
    folder.onceward(&["copy", "--from", "onceward.db", "--unseal", "--force"]).says(0, &["warning", "run twice"]);
    folder.run(&["--key", "second"], "echo second").says(0, &[]);
}

#[test]
fn a_copy_waits_for_running_commands_and_may_put_them_in_doubt() {
    let folder = TestFolder::new();
    let mut running = folder.start(&["--key", "long"], "echo started > started; sleep 60");
    folder.wait_for_file("started");
    let short = [&COPY[..], &["--wait", "300ms"]].concat();
    folder.onceward(&short).says(75, &["1 intents", "--force-doubt", "--unseal"]);
    folder.run(&["--key", "other"], "echo x >> effects").says(69, &["is sealed"]);
    folder.onceward(&[&COPY[..], &["--force-doubt"]].concat()).says(0, &[]);
    let listed = folder.json(&["list", "--store", "new.db", "--json"]);
    assert_eq!(listed["intents"][0]["state"], "in_doubt");
    let _ = running.kill();
    running.wait().unwrap();
    wait_until(|| folder.read("effects").is_empty());
}

/// The old store refuses that.
#[test]
fn an_owner_whose_ledger_has_moved_is_told_to_settle_its_intent_in_the_new_store() {
    let folder = TestFolder::new();
    let script = "echo started > started; while [ ! -e go ]; do sleep 0.05; done";
    let mut running = folder.run_command(&["--key", "long"], script).stderr(Stdio::piped()).spawn().unwrap();
    folder.wait_for_file("started");
    folder.onceward(&[&COPY[..], &["--wait", "0s", "--force-doubt"]].concat()).says(0, &[]);
    folder.write("go", "");
    let mut told = String::new();
    running.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    running.wait().unwrap();
    let line = told.lines().find(|line| line.ends_with("--happened")).unwrap_or_else(|| panic!("{told}"));
    let words: Vec<&str> = line.split_whitespace().skip(1).collect();
    assert!(line.contains("--store"), "{told}");
    let settled = folder.onceward(&words);
    settled.says(0, &[]);
    assert!(settled.out().contains("was in_doubt and is now done"), "{settled:?}");
}

#[test]
fn wrong_stores_are_refused_and_no_secret_is_shown() {
    let folder = TestFolder::new();
    folder.onceward(&["copy", "--from", "typo.db", "--to", "new.db"]).says(69, &["no ledger", "typo.db"]);
    assert!(!folder.path("typo.db").exists() && !folder.path("new.db").exists());
    folder.run(&["--key", "first"], "echo first").says(0, &[]);
    folder.onceward(&["copy", "--from", "onceward.db", "--to", "onceward.db"]).says(1, &["same ledger"]);
    folder.onceward(&["copy", "--from", "onceward.db", "--to", "memory:"]).says(64, &["memory:"]);
    let secret = folder.onceward(&["copy", "--from", "onceward.db", "--to", "postgres://u:s3cret@127.0.0.1:1/db"]);
    assert!(secret.code == 69 && !secret.stderr.contains("s3cret"), "{secret:?}");
    folder.run(&["--key", "second"], "echo second").says(0, &[]);
}

#[test]
fn a_copy_that_is_given_up_releases_its_target() {
    let folder = TestFolder::new();
    let mut running = folder.start(&["--key", "long"], "echo started > started; sleep 60");
    folder.wait_for_file("started");
    let short = [&COPY[..], &["--wait", "0s"]].concat();
    folder.onceward(&short).says(75, &["--unseal"]);
    let given_up = folder.json(&["copy", "--from", "onceward.db", "--unseal", "--json"]);
    assert_eq!((&given_up["unsealed"], &given_up["target"]), (&true.into(), &"released".into()));
    folder.run(&["--store", "new.db", "--key", "own"], "echo own").says(0, &[]);
    // A target whose source is gone.
    folder.onceward(&["copy", "--from", "onceward.db", "--to", "other.db", "--wait", "0s"]).says(75, &[]);
    folder.run(&["--store", "other.db", "--key", "own"], "echo own").says(69, &[]);
    folder.onceward(&["copy", "--from", "other.db", "--unseal"]).says(0, &[]);
    folder.run(&["--store", "other.db", "--key", "own"], "echo own").says(0, &[]);
    let _ = running.kill();
    running.wait().unwrap();
}

#[test]
fn migrate_says_what_it_does() {
    let folder = TestFolder::new();
    assert_eq!(folder.onceward(&["migrate", "--store", "a.db", "--dry-run"]).code, 0);
    assert!(!folder.path("a.db").exists(), "a dry run changes nothing");
    let done = folder.json(&["migrate", "--store", "a.db", "--json"]);
    assert_eq!((&done["store"], &done["dry_run"]), (&"a.db".into(), &false.into()));
    assert!(folder.path("a.db").exists());
    std::fs::write(folder.path("onceward.toml"), "store = \"b.db\"\n[stores.fast]\nurl = \"c.db\"\n").unwrap();
    folder.onceward(&["migrate"]).says(0, &[]);
    assert!(folder.path("b.db").exists() && folder.path("c.db").exists(), "named stores too");
    let done = folder.onceward(&["migrate"]);
    assert!(done.out().contains("b.db is up to date") && done.out().contains("stores.fast: "), "{done:?}");
    assert_eq!(folder.json(&["migrate", "--json"])["stores"]["fast"]["steps"].as_array().unwrap().len(), 1);
    std::fs::remove_file(folder.path("onceward.toml")).unwrap();
    let refused = folder.onceward(&["migrate", "--store", "postgres://u:s3cret@127.0.0.1:1/db"]);
    assert!(refused.code == 69 && !refused.stderr.contains("s3cret"), "{refused:?}");
}
