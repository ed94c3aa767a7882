//! The permissions of the files of a ledger, and which side files are refused.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use onceward::Ledger;
use onceward::clock::SystemClock;
use onceward::store::Error;
use onceward::store::sqlite::{Sqlite, accept};
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
async fn only_the_owner_may_read_the_files_of_a_new_ledger() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open_with_one_charge(&folder.path().join("ledger.db")).await;
    assert_private(folder.path());
    ledger.close().await;
}

#[tokio::test]
async fn a_new_ledger_behind_a_dangling_link_is_created_at_the_target() {
    let folder = tempfile::tempdir().unwrap();
    let (data, link) = (folder.path().join("data"), folder.path().join("link.db"));
    std::fs::create_dir(&data).unwrap();
    std::os::unix::fs::symlink("data/ledger.db", &link).unwrap();
    let ledger = open_with_one_charge(&link).await;
    assert_private(&data);
    ledger.close().await;
}

#[tokio::test]
async fn opening_a_ledger_removes_the_permissions_of_other_users() {
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
fn the_mode_of_a_file_that_is_not_a_ledger_is_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.db");
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE account (id INTEGER)").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    Sqlite::open_blocking(&path, Arc::new(SystemClock)).expect_err("this is not a ledger");
    assert_eq!(modes(folder.path())["other.db"], 0o644);
}

/// A ledger in its own folder, with one of its side files replaced.
async fn ledger_with(suffix: &str, put: impl FnOnce(&Path)) -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    open_with_one_charge(&path).await.close().await;
    let side = PathBuf::from(format!("{}{suffix}", path.display()));
    std::fs::remove_file(&side).unwrap();
    put(&side);
    (folder, path, side)
}

/// Opens the ledger on a separate thread, so that an open that hangs fails the test instead of blocking it.
fn refusal(path: &Path) -> Error {
    let (path, (tell, told)) = (path.to_owned(), std::sync::mpsc::channel());
    std::thread::spawn(move || tell.send(Sqlite::open_blocking(&path, Arc::new(SystemClock)).map(drop)));
    let opened = told.recv_timeout(Duration::from_secs(30)).expect("opening does not hang");
    opened.expect_err("the ledger is not opened")
}

fn assert_names(error: &Error, side: &Path) {
    let said = error.to_string();
    assert!(matches!(error, Error::SideFile { .. }), "{said}");
    assert!(said.contains(side.to_str().unwrap()) && said.contains("not a regular file"), "{said}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_side_file_that_is_a_link_is_refused_and_its_target_is_not_changed() {
    for suffix in ["-mark", "-owners"] {
        let elsewhere = tempfile::tempdir().unwrap();
        let foreign = elsewhere.path().join("foreign");
        std::fs::write(&foreign, "precious").unwrap();
        std::fs::set_permissions(&foreign, std::fs::Permissions::from_mode(0o644)).unwrap();
        let (_folder, path, side) =
            ledger_with(suffix, |side| std::os::unix::fs::symlink(&foreign, side).unwrap()).await;
        assert_names(&refusal(&path), &side);
        if suffix == "-mark" {
            assert_names(&accept(&path).expect_err("the ledger is not accepted"), &side);
        }
        assert_eq!(std::fs::read_to_string(&foreign).unwrap(), "precious");
        assert_eq!(modes(elsewhere.path())["foreign"], 0o644, "{suffix}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_side_file_that_is_a_pipe_a_folder_or_a_socket_is_refused_at_once() {
    let pipe = |side: &Path| nix::unistd::mkfifo(side, nix::sys::stat::Mode::from_bits_truncate(0o644)).unwrap();
    let folder = |side: &Path| std::fs::create_dir(side).unwrap();
    let socket = |side: &Path| drop(std::os::unix::net::UnixListener::bind(side).unwrap());
    let kinds: [&dyn Fn(&Path); 3] = [&pipe, &folder, &socket];
    for suffix in ["-mark", "-owners"] {
        for put in kinds {
            let (_folder, path, side) = ledger_with(suffix, put).await;
            std::fs::set_permissions(&side, std::fs::Permissions::from_mode(0o755)).unwrap();
            assert_names(&refusal(&path), &side);
            assert_eq!(side.metadata().unwrap().permissions().mode() & 0o777, 0o755, "{suffix}");
        }
    }
}
