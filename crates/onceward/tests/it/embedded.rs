//! The embedded store among others: other processes, other tools, other files.

use std::path::Path;
use std::sync::Arc;

use onceward::clock::SystemClock;
use onceward::store::sqlite::Sqlite;
use onceward::{Begun, InDoubt, Ledger, Operation};

fn url(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A call that would run at once if its owner were gone.
fn eager(ledger: &Ledger) -> Operation {
    ledger.operation("charge").key("k").in_doubt(InDoubt::Retry)
}

#[tokio::test]
async fn a_live_owner_is_seen_through_a_symbolic_link() {
    let folder = tempfile::tempdir().unwrap();
    let (real, link) = (folder.path().join("data/ledger.db"), folder.path().join("etc/ledger.db"));
    for path in [&real, &link] {
        std::fs::create_dir(path.parent().unwrap()).unwrap();
    }
    std::os::unix::fs::symlink(&real, &link).unwrap();
    // The link comes first: what it names does not exist yet.
    let (one, other) = (Ledger::open(url(&link)).await.unwrap(), Ledger::open(url(&real)).await.unwrap());
    let Begun::Acquired(guard) = eager(&one).begin().await.unwrap() else { panic!("the first claim is granted") };
    let second = eager(&other).begin().await.unwrap();
    assert!(matches!(second, Begun::Answered(_)), "two live owners at once: {second:?}");
    assert!(folder.path().join("data/ledger.db-owners").exists());
    assert!(!folder.path().join("etc/ledger.db-owners").exists());
    drop(guard);
}

#[tokio::test]
async fn a_live_owner_stays_alive_when_the_file_of_owners_is_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let one = Ledger::open(url(&path)).await.unwrap();
    let Begun::Acquired(guard) = eager(&one).begin().await.unwrap() else { panic!("the first claim is granted") };
    std::fs::remove_file(folder.path().join("ledger.db-owners")).unwrap();
    let other = Ledger::open(url(&path)).await.unwrap();
    let second = eager(&other).begin().await.unwrap();
    assert!(matches!(second, Begun::Answered(_)), "two live owners at once: {second:?}");
    drop(guard);
}

#[tokio::test]
async fn owners_of_another_file_are_told_apart_and_their_numbers_fit() {
    use onceward::store::Store;
    let folder = tempfile::tempdir().unwrap();
    for number in 0..20 {
        let path = folder.path().join(format!("{number}.db"));
        let open = || Sqlite::open(&path, Arc::new(SystemClock));
        let ids = [open().await, open().await].map(|store| store.unwrap().owner().unwrap().0);
        assert!(ids.iter().all(|id| (1..1 << 62).contains(id)), "{ids:?}");
        assert_eq!(ids[0] >> 42, ids[1] >> 42, "one file, one tag");
    }
}
