//! The high-water mark of a ledger: a restored older copy is detected.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use onceward::Ledger;
use onceward::clock::SystemClock;
use onceward::store::Error;
use onceward::store::sqlite::{Sqlite, accept};
use rusqlite::Connection;

fn beside(path: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", path.display()))
}

fn refusal(path: &Path) -> Error {
    Sqlite::open_blocking(path, Arc::new(SystemClock)).expect_err("the ledger is not opened")
}

fn opens(path: &Path) {
    Sqlite::open_blocking(path, Arc::new(SystemClock)).expect("the ledger is opened");
}

async fn charge(ledger: &Ledger, key: &str) -> (i32, bool) {
    let done = ledger.operation("charge").key(key).run(|_| async { Ok(1) }).await.unwrap();
    (done.value, done.replayed)
}

/// Opens the ledger, charges once, and closes it.
async fn work(path: &Path, key: &str) {
    let ledger = Ledger::open(path.to_str().unwrap()).await.unwrap();
    charge(&ledger, key).await;
    ledger.close().await;
}

/// The backup that the guide recommends.
fn back_up(path: &Path, copy: &Path) {
    Connection::open(path).unwrap().execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
}

/// Restores a copy as operators do: with everything stopped, the copy replaces the ledger.
fn restore(copy: &Path, path: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(beside(path, suffix));
    }
    std::fs::copy(copy, path).unwrap();
}

fn number(path: &Path) -> i64 {
    Connection::open(path).unwrap().query_row("SELECT mark FROM ledger", [], |row| row.get(0)).unwrap()
}

/// The highest number in the mark file.
fn marked(path: &Path) -> i64 {
    let text = std::fs::read_to_string(beside(path, "-mark")).unwrap_or_default();
    text.lines().filter_map(|line| line.split_whitespace().nth(2)?.parse().ok()).max().unwrap_or(-1)
}

#[tokio::test]
async fn a_ledger_that_was_restored_from_an_older_copy_is_refused_until_it_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("ledger.db"), folder.path().join("copy.db"));
    work(&path, "first").await;
    back_up(&path, &copy);
    work(&path, "second").await;
    opens(&path);
    restore(&copy, &path);
    for _ in 0..2 {
        let error = refusal(&path);
        assert!(matches!(error, Error::Behind { ledger, mark, .. } if ledger < mark), "{error}");
        assert!(error.to_string().contains("older copy") && error.to_string().contains("onceward accept"), "{error}");
    }
    let accepted = accept(&path).unwrap();
    assert!(accepted.mark > Some(accepted.ledger), "{accepted:?}");
    work(&path, "third").await;
    // The same copy is refused the next time.
    restore(&copy, &path);
    assert!(matches!(refusal(&path), Error::Behind { .. }));
}

#[tokio::test]
async fn a_ledger_that_was_never_closed_has_a_mark_too() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("ledger.db"), folder.path().join("copy.db"));
    work(&path, "first").await;
    back_up(&path, &copy);
    let ledger = Ledger::open(path.to_str().unwrap()).await.unwrap();
    charge(&ledger, "second").await;
    // As if the process had been killed here and the copy restored.
    let elsewhere = folder.path().join("elsewhere.db");
    std::fs::copy(&copy, &elsewhere).unwrap();
    std::fs::copy(beside(&path, "-mark"), beside(&elsewhere, "-mark")).unwrap();
    assert!(matches!(refusal(&elsewhere), Error::Behind { .. }));
    ledger.close().await;
}

#[tokio::test]
async fn the_mark_of_an_idle_ledger_follows_its_last_write_and_never_leads() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let ledger = Ledger::open(path.to_str().unwrap()).await.unwrap();
    charge(&ledger, "first").await;
    let first = number(&path);
    for key in ["second", "third", "fourth"] {
        charge(&ledger, key).await;
        let mark = marked(&path);
        assert!(mark <= number(&path), "the mark leads");
    }
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while marked(&path) <= first {
        assert!(std::time::Instant::now() < deadline, "the mark stays at {first}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(marked(&path), number(&path));
    ledger.close().await;
    assert_eq!(marked(&path), number(&path));
}

#[tokio::test]
async fn a_ledger_without_its_mark_is_opened_and_gets_a_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let (path, moved) = (folder.path().join("ledger.db"), folder.path().join("moved.db"));
    work(&path, "first").await;
    std::fs::rename(&path, &moved).unwrap();
    work(&moved, "second").await;
    assert_eq!(marked(&moved), number(&moved));
}

/// Root may read everything, so the test opens the ledger as an unprivileged user: Linux has a file system user per thread.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_unreadable_mark_is_not_treated_as_a_missing_one() {
    use std::os::unix::fs::PermissionsExt;
    const UNPRIVILEGED_USER: u32 = 65_534;
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("ledger.db"), folder.path().join("copy.db"));
    work(&path, "first").await;
    back_up(&path, &copy);
    work(&path, "second").await;
    restore(&copy, &path);
    let mark = beside(&path, "-mark");
    std::fs::set_permissions(&mark, std::fs::Permissions::from_mode(0o000)).unwrap();
    let is_root = nix::unistd::geteuid().is_root();
    if is_root {
        let files = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
        for file in files.chain([folder.path().to_owned()]) {
            std::os::unix::fs::chown(file, Some(UNPRIVILEGED_USER), Some(UNPRIVILEGED_USER)).unwrap();
        }
    }
    let opening = std::thread::spawn(move || {
        if is_root {
            nix::unistd::setfsuid(UNPRIVILEGED_USER.into());
        }
        (refusal(&path), accept(&path).expect_err("the ledger is not accepted"))
    });
    let (opened, accepted) = opening.join().unwrap();
    for error in [opened, accepted] {
        let message = error.to_string();
        assert!(matches!(error, Error::SideFile { .. }), "{message}");
        assert!(message.contains(mark.to_str().unwrap()) && message.contains("ermission denied"), "{message}");
    }
}

#[tokio::test]
async fn a_mark_without_its_ledger_is_reported_and_nothing_is_created() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    work(&path, "first").await;
    std::fs::remove_file(&path).unwrap();
    let error = refusal(&path);
    assert!(matches!(error, Error::Missing { .. }), "{error}");
    assert!(error.to_string().contains("onceward accept"), "{error}");
    assert!(!path.exists());
    accept(&path).unwrap();
    work(&path, "first").await;
}

#[test]
fn a_path_without_a_ledger_and_without_a_mark_is_not_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let error = accept(&folder.path().join("typo.db")).expect_err("there is nothing to accept");
    assert!(matches!(error, Error::CannotOpen { .. }), "{error}");
    assert!(error.to_string().contains("no ledger"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn the_mark_of_another_ledger_is_reported_and_not_compared() {
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("ledger.db"), folder.path().join("other.db"));
    work(&path, "first").await;
    for key in ["a", "b", "c", "d"] {
        work(&other, key).await;
    }
    restore(&other, &path);
    let error = refusal(&path);
    assert!(matches!(error, Error::Replaced { .. }), "{error}");
    accept(&path).unwrap();
    work(&path, "second").await;
}

#[tokio::test]
async fn one_torn_slot_of_the_mark_is_harmless() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("ledger.db"), folder.path().join("copy.db"));
    work(&path, "first").await;
    back_up(&path, &copy);
    for key in ["second", "third", "fourth"] {
        work(&path, key).await;
    }
    let whole = std::fs::read(beside(&path, "-mark")).unwrap();
    restore(&copy, &path);
    for slot in 0..2 {
        let mut torn = whole.clone();
        torn[slot * 512 + 20..slot * 512 + 40].fill(b'0');
        std::fs::write(beside(&path, "-mark"), torn).unwrap();
        assert!(matches!(refusal(&path), Error::Behind { .. }), "slot {slot}");
    }
    // A mark without a readable slot counts as a missing mark.
    std::fs::write(beside(&path, "-mark"), vec![0; 1024]).unwrap();
    opens(&path);
}

/// A limit that the guide documents: nothing outside the folder shows that the folder is older.
#[tokio::test]
async fn restoring_the_whole_folder_is_not_detected() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("ledger.db"), folder.path().join("copy.db"));
    work(&path, "first").await;
    back_up(&path, &copy);
    std::fs::copy(beside(&path, "-mark"), beside(&copy, "-mark")).unwrap();
    work(&path, "second").await;
    restore(&copy, &path);
    std::fs::copy(beside(&copy, "-mark"), beside(&path, "-mark")).unwrap();
    opens(&path);
}

#[tokio::test]
async fn a_ledger_that_was_removed_while_it_was_open_leaves_no_mark_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let ledger = Ledger::open(path.to_str().unwrap()).await.unwrap();
    ledger.operation("charge").key("k").run(|_| async { Ok::<_, onceward::Failure>(1) }).await.unwrap();
    for file in std::fs::read_dir(folder.path()).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    // Its last write fails, and its mark is not written again.
    let _ = ledger.operation("charge").key("l").run(|_| async { Ok::<_, onceward::Failure>(1) }).await;
    ledger.close().await;
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().ends_with("-mark")), "{left:?}");
    Ledger::open(path.to_str().unwrap()).await.unwrap();
}
