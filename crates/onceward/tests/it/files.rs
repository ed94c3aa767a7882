//! The file of the embedded store: which files are refused, and what happens when the disk is full or fails.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use onceward::clock::SystemClock;
use onceward::store::sqlite::Sqlite;
use onceward::store::transfer::Seal;
use onceward::store::{self, Error, Store};
use onceward::{Begun, Failure, Ledger};
use rusqlite::Connection;

use crate::{Effects, status};

fn url(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn refusal(path: &Path) -> Error {
    Sqlite::open_blocking(path, Arc::new(SystemClock)).expect_err("the file must be refused")
}

async fn ledger_with_one_charge(path: &Path) {
    let ledger = Ledger::open(url(path)).await.unwrap();
    ledger.operation("charge").key("k").run(|_| async { Ok(1) }).await.unwrap();
    ledger.close().await;
}

#[tokio::test]
async fn finished_work_is_kept_when_the_ledger_is_closed_and_opened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    ledger_with_one_charge(&path).await;
    let ledger = Ledger::open(&format!("file:{}", url(&path))).await.unwrap();
    let done = ledger.operation("charge").key("k").run(|_| async { Ok(2) }).await.unwrap();
    assert_eq!((done.value, done.replayed), (1, true));
}

#[test]
fn a_file_that_is_not_a_ledger_is_refused_and_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("notes.txt");
    std::fs::write(&text, "Dear diary, today I did not use SQLite. ".repeat(100)).unwrap();
    let before = std::fs::read(&text).unwrap();
    let error = refusal(&text);
    assert!(matches!(error, Error::NotALedger { .. }), "{error}");
    assert!(error.to_string().contains("notes.txt is not an Onceward ledger"), "{error}");
    assert_eq!(std::fs::read(&text).unwrap(), before);

    let other = folder.path().join("other.db");
    Connection::open(&other).unwrap().execute_batch("CREATE TABLE account (id INTEGER)").unwrap();
    let before = std::fs::read(&other).unwrap();
    let error = refusal(&other);
    assert!(error.to_string().contains("another application"), "{error}");
    assert_eq!(std::fs::read(&other).unwrap(), before);
    assert!(!folder.path().join("other.db-wal").exists());
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    ledger_with_one_charge(&path).await;
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let error = refusal(&path);
    assert!(matches!(error, Error::NewerSchema { found: 99, .. }), "{error}");
    assert!(error.to_string().contains("upgrade onceward"), "{error}");
}

#[tokio::test]
async fn an_older_or_unknown_schema_is_refused_and_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    ledger_with_one_charge(&path).await;
    for version in [1, 0, -7] {
        Connection::open(&path).unwrap().pragma_update(None, "user_version", version).unwrap();
        let before = std::fs::read(&path).unwrap();
        let error = refusal(&path);
        assert!(matches!(error, Error::OlderSchema { found, .. } if found == version), "{error}");
        assert!(error.to_string().contains("start a new ledger"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}

#[tokio::test]
async fn a_ledger_that_a_newer_build_has_migrated_is_no_longer_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let ledger = Ledger::open(url(&path)).await.unwrap();
    ledger.ping().await.unwrap();
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let error = ledger.ping().await.unwrap_err();
    assert!(matches!(error, Error::NewerSchema { found: 99, .. }), "{error}");
    let run = ledger.operation("charge").key("k").run(|_| async { Ok::<_, Failure>(7) }).await;
    assert!(run.is_err());
}

#[tokio::test]
async fn a_ledger_without_its_unique_index_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    ledger_with_one_charge(&path).await;
    Connection::open(&path).unwrap().execute_batch("DROP INDEX intent_id").unwrap();
    assert!(matches!(refusal(&path), Error::NotALedger { .. }));
}

#[tokio::test]
async fn a_damaged_file_is_refused_and_nothing_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    ledger_with_one_charge(&path).await;
    let mut bytes = std::fs::read(&path).unwrap();
    // The header is intact; everything after the first page is overwritten.
    bytes.iter_mut().skip(4096).for_each(|byte| *byte = 0xA5);
    std::fs::write(&path, &bytes).unwrap();
    let effects = Effects::default();
    let error = match Ledger::open(url(&path)).await {
        Err(error) => error.to_string(),
        Ok(ledger) => {
            let run = ledger.operation("charge").key("k").run(|_| async { Ok(effects.happen()) }).await;
            run.unwrap_err().to_string()
        }
    };
    assert!(error.contains("damaged"), "{error}");
    assert_eq!(effects.count(), 0);
}

#[tokio::test]
async fn one_unreadable_record_does_not_affect_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    ledger_with_one_charge(&path).await;
    Connection::open(&path).unwrap().execute("UPDATE intent SET state = 'confused'", []).unwrap();
    let ledger = Ledger::open(url(&path)).await.unwrap();
    let effects = Effects::default();
    let broken = ledger.operation("charge").key("k").run(|_| async { Ok(effects.happen()) }).await;
    assert!(broken.unwrap_err().to_string().contains("cannot be read"));
    assert_eq!(effects.count(), 0);
    ledger.operation("charge").key("other").run(|_| async { Ok(effects.happen()) }).await.unwrap();
}

#[test]
fn a_folder_and_a_missing_folder_have_clear_errors() {
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path().to_owned(), folder.path().join("missing/ledger.db")] {
        let error = refusal(&path);
        assert!(matches!(error, Error::CannotOpen { .. }), "{error}");
    }
}

#[tokio::test]
async fn an_unknown_url_is_refused_without_showing_its_password() {
    let error = Ledger::open("mongodb://user:secret@host/db").await.unwrap_err().to_string();
    assert!(error.contains("mongodb://…") && !error.contains("secret"), "{error}");
}

#[test]
fn many_handles_may_create_one_file_concurrently() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| Sqlite::open_blocking(&path, Arc::new(SystemClock)).unwrap());
        }
    });
}

#[tokio::test]
async fn the_claim_of_an_owner_that_is_gone_lapses_immediately() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let open = async || Arc::new(Sqlite::open(&path, Arc::new(SystemClock)).await.unwrap());
    let (one, other) = (open().await, open().await);
    assert_ne!(one.owner(), other.owner());
    let owning = Ledger::builder().on(one.clone());
    let call = Ledger::builder().on(other).operation("charge").key("k");
    match owning.operation("charge").key("k").begin().await.unwrap() {
        // As in a killed process, the claim never ends.
        Begun::Acquired(guard) => std::mem::forget(guard),
        Begun::Answered(decision) => panic!("{decision:?}"),
    }
    assert_eq!(status(&call).await, "running", "a claim lives as long as its process, even if it is forgotten");
    let seen = call.get().await.unwrap().unwrap().seen;
    assert!(!seen.owner_gone);

    // The owner is now a process that does not exist, as after a kill.
    let gone = onceward::core::record::Owner(one.owner().unwrap().0 ^ 2);
    let mut draft = seen.record.next();
    if let onceward::core::record::State::Leased(lease) = &mut draft.state {
        lease.owner = Some(gone);
    }
    one.replace(onceward::store::Replace::of(&seen.record, draft)).await.unwrap();
    assert!(call.get().await.unwrap().unwrap().seen.owner_gone, "no process holds that owner's lock");
    assert_eq!(status(&call).await, "in_doubt");
}

/// A small file system, if this machine lets a test mount one.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(size: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let options = format!("size={size}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(folder.path()).status();
        if !mounted.is_ok_and(|status| status.success()) {
            println!("skipped: no file system can be mounted here");
            return None;
        }
        Some(Self(folder))
    }

    fn remount_read_only(&self) {
        let status = Command::new("mount").args(["-o", "remount,ro"]).arg(self.0.path()).status().unwrap();
        assert!(status.success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[tokio::test]
async fn a_full_disk_fails_closed_and_recovers() {
    let Some(disk) = SmallDisk::mount("1m") else { return };
    let ledger = Ledger::open(url(&disk.0.path().join("ledger.db"))).await.unwrap();
    let ballast = disk.0.path().join("ballast");
    let effects = Effects::default();
    let mut refused = None;
    for number in 0..2000 {
        if number == 20 {
            // Fills the rest of the disk.
            let _ = std::fs::write(&ballast, vec![0u8; 1024 * 1024]);
        }
        let before = effects.count();
        let run = ledger.operation("charge").key(&number.to_string()).run(|_| async { Ok(effects.happen()) }).await;
        if let Err(error) = run {
            if matches!(error, onceward::Error::NotRecorded { .. }) {
                // It ran while there was still space for its claim; the next one will be refused.
                continue;
            }
            assert_eq!(effects.count(), before, "nothing ran");
            refused = Some((number, error.to_string()));
            break;
        }
    }
    let (number, error) = refused.expect("a disk of 1 MiB becomes full");
    assert!(error.contains("no space is left"), "{error}");
    std::fs::remove_file(&ballast).unwrap();
    let call = ledger.operation("charge").key(&number.to_string());
    call.run(|_| async { Ok(effects.happen()) }).await.unwrap();
    let first = ledger.operation("charge").key("0").run(|_| async { Ok(usize::MAX) }).await.unwrap();
    assert_eq!(first.value, 1, "nothing that was acknowledged is lost");
}

#[tokio::test]
async fn a_disk_that_is_full_on_opening_is_reported_and_recovers() {
    let Some(disk) = SmallDisk::mount("1m") else { return };
    let path = disk.0.path().join("ledger.db");
    ledger_with_one_charge(&path).await;
    let ballast = disk.0.path().join("ballast");
    let _ = std::fs::write(&ballast, vec![0u8; 1024 * 1024]);
    let error = refusal(&path);
    assert!(error.to_string().contains("no space is left"), "{error}");
    std::fs::remove_file(&ballast).unwrap();
    ledger_with_one_charge(&path).await;
}

#[tokio::test]
async fn a_read_only_file_is_refused() {
    let Some(disk) = SmallDisk::mount("4m") else { return };
    let path = disk.0.path().join("ledger.db");
    ledger_with_one_charge(&path).await;
    disk.remount_read_only();
    let error = refusal(&path);
    assert!(error.to_string().contains("read-only"), "{error}");
}

#[tokio::test]
async fn a_ledger_whose_log_was_removed_writes_nothing_more() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let (ledger, effects) = (Ledger::open(url(&path)).await.unwrap(), Effects::default());
    ledger.operation("charge").key("a").run(|_| async { Ok(effects.happen()) }).await.unwrap();
    // As another copy of SQLite in this process does when it closes the file: the locks of this ledger do not stop it.
    std::fs::remove_file(format!("{}-wal", url(&path))).unwrap();
    for _ in 0..2 {
        let error = ledger.operation("charge").key("b").run(|_| async { Ok(effects.happen()) }).await.unwrap_err();
        assert!(error.to_string().contains("write-ahead log"), "{error}");
    }
    assert_eq!(effects.count(), 1);
}

#[tokio::test]
async fn a_ledger_whose_file_was_removed_writes_nothing_more() {
    for is_replaced in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        let (ledger, effects) = (Ledger::open(url(&path)).await.unwrap(), Effects::default());
        ledger.operation("charge").key("a").run(|_| async { Ok(effects.happen()) }).await.unwrap();
        for end in ["", "-wal", "-shm", "-mark"] {
            std::fs::remove_file(format!("{}{end}", url(&path))).unwrap();
        }
        if is_replaced {
            ledger_with_one_charge(&path).await;
        }
        for _ in 0..2 {
            let error = ledger.operation("charge").key("k").run(|_| async { Ok(effects.happen()) }).await.unwrap_err();
            assert!(error.to_string().contains("removed or replaced while it was open"), "{error}");
        }
        assert_eq!(effects.count(), 1);
        let again = Ledger::open(url(&path)).await.unwrap();
        let done = again.operation("charge").key("k").run(|_| async { Ok(7) }).await.unwrap();
        assert_eq!((done.value, done.replayed), if is_replaced { (1, true) } else { (7, false) });
    }
}

#[tokio::test]
async fn a_ledger_of_the_schema_before_is_migrated_and_keeps_its_records() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let old = Connection::open(&path).unwrap();
    for migration in [1, 2, 3] {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/store/sqlite/schema_v{migration}.sql"));
        old.execute_batch(&std::fs::read_to_string(file).unwrap()).unwrap();
    }
    old.pragma_update(None, "application_id", 0x4f4e_4357).unwrap();
    old.pragma_update(None, "user_version", 3).unwrap();
    old.execute("INSERT INTO tenant VALUES ('acme', 0)", []).unwrap();
    drop(old);
    let store = store::open(path.to_str().unwrap()).await.unwrap();
    assert_eq!(store.transfer().unwrap().seal().await.unwrap(), Seal::Open);
    store.check().await.unwrap();
    let version: i64 =
        Connection::open(&path).unwrap().pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(version, 5);
}
