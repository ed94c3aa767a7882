//! A ledger whose first process is killed at any moment.

use std::time::Duration;

use rusqlite::Connection;

use crate::test_folder::TestFolder;

/// Opening takes a few milliseconds, so some kills come too early and some too late.
const KILLS: u64 = 30;
const STEP: Duration = Duration::from_micros(700);

fn version(folder: &TestFolder) -> i64 {
    let ledger = Connection::open(folder.path("onceward.db")).unwrap();
    ledger.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
}

#[test]
fn a_new_ledger_can_be_opened_after_its_first_process_was_killed_at_any_moment() {
    for kill in 0..KILLS {
        let folder = TestFolder::new();
        let mut process = folder.start(&["--key", "first"], "true");
        std::thread::sleep(STEP * u32::try_from(kill).unwrap());
        let _ = process.kill();
        process.wait().unwrap();
        let answer = folder.run(&["--key", "second"], "echo done");
        assert_eq!(answer.code, 0, "kill {kill}: {answer:?}");
        assert!(!answer.stderr.contains("mark"), "kill {kill}: {answer:?}");
        assert_eq!(version(&folder), 5);
    }
}
