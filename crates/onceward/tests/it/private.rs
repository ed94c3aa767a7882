//! Who may read the files of a ledger.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use onceward::Ledger;
use onceward::clock::SystemClock;
use onceward::store::sqlite::Sqlite;
use rusqlite::Connection;

/// The mode of every file in a folder, by name.
fn modes(folder: &Path) -> BTreeMap<String, u32> {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .map(|entry| {
            let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
            (entry.file_name().into_string().unwrap(), mode)
        })
        .collect()
}

fn assert_private(folder: &Path) {
    let modes = modes(folder);
    assert!(["ledger.db", "ledger.db-wal", "ledger.db-shm"].iter().all(|name| modes.contains_key(*name)), "{modes:?}");
    assert!(modes.values().all(|mode| *mode == 0o600), "{modes:?}");
}

async fn open_with_one_charge(path: &Path) -> Ledger {
    let ledger = Ledger::open(path.to_str().unwrap()).await.unwrap();
    ledger.operation("charge").key("k").run(|_| async { Ok(1) }).await.unwrap();
    ledger
}

#[tokio::test]
async fn every_file_of_a_new_ledger_is_for_its_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open_with_one_charge(&folder.path().join("ledger.db")).await;
    assert_private(folder.path());
    ledger.close().await;
}

#[tokio::test]
async fn a_new_ledger_behind_a_dangling_link_is_created_where_the_link_leads() {
    let folder = tempfile::tempdir().unwrap();
    let (data, link) = (folder.path().join("data"), folder.path().join("link.db"));
    std::fs::create_dir(&data).unwrap();
    std::os::unix::fs::symlink("data/ledger.db", &link).unwrap();
    let ledger = open_with_one_charge(&link).await;
    assert_private(&data);
    ledger.close().await;
}

#[tokio::test]
async fn an_existing_ledger_that_others_can_read_is_tightened_on_opening() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let ledger = open_with_one_charge(&path).await;
    for name in modes(folder.path()).keys() {
        std::fs::set_permissions(folder.path().join(name), std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    let again = open_with_one_charge(&path).await;
    assert_private(folder.path());
    again.close().await;
    ledger.close().await;
}

#[test]
fn the_mode_of_a_file_that_is_not_a_ledger_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.db");
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE account (id INTEGER)").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    Sqlite::open_blocking(&path, Arc::new(SystemClock)).expect_err("this is not a ledger");
    assert_eq!(modes(folder.path())["other.db"], 0o644);
}
