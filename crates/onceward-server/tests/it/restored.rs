//! A ledger that was restored from an older copy.

use crate::place::Place;

#[test]
fn a_ledger_that_was_restored_from_an_older_copy_runs_nothing_until_it_is_accepted() {
    let place = Place::new();
    place.run(&["--key", "first"], "echo first").says(0, &[]);
    std::fs::copy(place.path("onceward.db"), place.path("copy.db")).unwrap();
    place.run(&["--key", "second"], "echo x >> effects").says(0, &[]);
    std::fs::copy(place.path("copy.db"), place.path("onceward.db")).unwrap();
    place
        .run(&["--key", "second"], "echo x >> effects")
        .says(69, &["older copy", "onceward accept --store onceward.db"]);
    assert_eq!(place.read("effects"), "x\n");
    place.onceward(&["accept", "--store", "onceward.db"]).says(0, &[]);
    place.run(&["--key", "second"], "echo x >> effects").says(0, &[]);
}

#[test]
fn a_wrong_path_is_not_accepted_and_no_ledger_is_created() {
    let place = Place::new();
    place.onceward(&["accept", "--store", "typo.db"]).says(69, &["no ledger", "typo.db"]);
    assert!(!place.path("typo.db").exists() && !place.path("typo.db-mark").exists());
}
