//! A ledger whose first process, or the one that migrates it, is killed at any moment.

use std::time::Duration;

use rusqlite::Connection;

use crate::place::Place;

/// Opening takes a few milliseconds, so some of these come too early and some too late.
const KILLS: u64 = 30;
const STEP: Duration = Duration::from_micros(700);

/// Starts a process on the ledger, and kills it a little later.
fn kill_while_opening(place: &Place, after: Duration) {
    let mut process = place.command(&["list"]).stdout(std::process::Stdio::null()).spawn().unwrap();
    std::thread::sleep(after);
    let _ = process.kill();
    process.wait().unwrap();
}

fn version(place: &Place) -> i64 {
    let ledger = Connection::open(place.path("onceward.db")).unwrap();
    ledger.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
}

#[test]
fn a_new_ledger_can_be_opened_whenever_its_first_process_was_killed() {
    for kill in 0..KILLS {
        let place = Place::new();
        let mut process = place.start(&["--key", "first"], "true");
        std::thread::sleep(STEP * u32::try_from(kill).unwrap());
        let _ = process.kill();
        process.wait().unwrap();
        let answer = place.run(&["--key", "second"], "echo done");
        assert_eq!(answer.code, 0, "kill {kill}: {answer:?}");
        assert!(!answer.stderr.contains("mark"), "kill {kill}: {answer:?}");
        assert_eq!(version(&place), 3);
    }
}

#[test]
fn a_migration_that_was_killed_is_made_again_and_loses_nothing() {
    let place = Place::new();
    place.run(&["--key", "done"], "echo x >> effects; echo out").says(0, &[]);
    for kill in 0..KILLS {
        std::fs::remove_file(place.path("onceward.db-mark")).unwrap();
        // The second version of the schema.
        let older = "DROP TABLE ledger; DROP INDEX intent_untried;
             ALTER TABLE intent DROP COLUMN claims; ALTER TABLE intent DROP COLUMN made_by;
             ALTER TABLE audit DROP COLUMN token;
             CREATE INDEX intent_untried ON intent (forget_at) WHERE state = 'open' AND forget_at IS NOT NULL;
             PRAGMA user_version = 2";
        Connection::open(place.path("onceward.db")).unwrap().execute_batch(older).unwrap();
        kill_while_opening(&place, STEP * u32::try_from(kill).unwrap());
        let version = version(&place);
        assert!([2, 3].contains(&version), "kill {kill}: {version}");
        place.run(&["--key", "done"], "echo x >> effects; echo out").says(0, &[]);
    }
    assert_eq!(place.read("effects"), "x\n", "what was done before is still known");
}
