//! A ledger whose first process is killed at any moment.

use std::time::Duration;

use rusqlite::Connection;

use crate::place::Place;

/// Opening takes a few milliseconds, so some of these come too early and some too late.
const KILLS: u64 = 30;
const STEP: Duration = Duration::from_micros(700);

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
