//! A ledger that was restored from an older copy.

use crate::test_folder::TestFolder;

#[test]
fn a_ledger_that_was_restored_from_an_older_copy_runs_nothing_until_it_is_accepted() {
    let folder = TestFolder::new();
    folder.run(&["--key", "first"], "echo first").says(0, &[]);
    std::fs::copy(folder.path("onceward.db"), folder.path("copy.db")).unwrap();
    folder.run(&["--key", "second"], "echo x >> effects").says(0, &[]);
    std::fs::copy(folder.path("copy.db"), folder.path("onceward.db")).unwrap();
    folder
        .run(&["--key", "second"], "echo x >> effects")
        .says(69, &["older copy", "onceward accept --store onceward.db"]);
    assert_eq!(folder.read("effects"), "x\n");
    folder.onceward(&["accept", "--store", "onceward.db"]).says(0, &[]);
    folder.run(&["--key", "second"], "echo x >> effects").says(0, &[]);
}

#[test]
fn a_wrong_path_is_not_accepted_and_no_ledger_is_created() {
    let folder = TestFolder::new();
    folder.onceward(&["accept", "--store", "typo.db"]).says(69, &["no ledger", "typo.db"]);
    assert!(!folder.path("typo.db").exists() && !folder.path("typo.db-mark").exists());
}

#[test]
fn an_unreadable_mark_does_not_count_as_an_unreachable_store() {
    let folder = TestFolder::new();
    std::fs::write(folder.path("onceward.toml"), "[operation.o]\nstore_down = \"open\"\n").unwrap();
    let run =
        ["run", "--store", "onceward.db", "--operation", "o", "--key", "k", "--", "sh", "-c", "echo x >> effects"];
    folder.onceward(&run).says(0, &[]);
    std::fs::remove_file(folder.path("onceward.db-mark")).unwrap();
    std::fs::create_dir(folder.path("onceward.db-mark")).unwrap();
    folder.onceward(&run).says(69, &["onceward.db-mark is not a regular file"]);
    assert_eq!(folder.read("effects"), "x\n");
}
