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

#[test]
fn a_mark_that_cannot_be_read_does_not_count_as_a_store_that_is_out_of_reach() {
    let place = Place::new();
    std::fs::write(place.path("onceward.toml"), "[operation.o]\nstore_down = \"open\"\n").unwrap();
    let run =
        ["run", "--store", "onceward.db", "--operation", "o", "--key", "k", "--", "sh", "-c", "echo x >> effects"];
    place.onceward(&run).says(0, &[]);
    std::fs::remove_file(place.path("onceward.db-mark")).unwrap();
    std::fs::create_dir(place.path("onceward.db-mark")).unwrap();
    place.onceward(&run).says(69, &["onceward.db-mark is not a regular file"]);
    assert_eq!(place.read("effects"), "x\n");
}
