//! The embedded store together with other processes, other tools and other files.

use std::path::Path;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use onceward::clock::{Clock, ManualClock, SystemClock};
use onceward::core::record::Status;
use onceward::core::time::Timestamp;
use onceward::store::sqlite::Sqlite;
use onceward::store::{AuditEvent, Error, EventKind, Filter, Replace, Replaced, Store};
use onceward::{Begun, CallBuilder, InDoubt, Ledger};
use rusqlite::Connection;

fn url(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A call that would run at once if the owner of its claim were gone.
fn eager(ledger: &Ledger) -> CallBuilder {
    ledger.operation("charge").key("k").in_doubt(InDoubt::Retry)
}

#[tokio::test]
async fn a_live_owner_is_detected_through_a_symbolic_link() {
    let folder = tempfile::tempdir().unwrap();
    let (real, link) = (folder.path().join("data/ledger.db"), folder.path().join("etc/ledger.db"));
    for path in [&real, &link] {
        std::fs::create_dir(path.parent().unwrap()).unwrap();
    }
    std::os::unix::fs::symlink(&real, &link).unwrap();
    // The link is created first: its target does not exist yet.
    let (one, other) = (Ledger::open(url(&link)).await.unwrap(), Ledger::open(url(&real)).await.unwrap());
    let Begun::Acquired(guard) = eager(&one).begin().await.unwrap() else { panic!("the first claim is granted") };
    let second = eager(&other).begin().await.unwrap();
    assert!(matches!(second, Begun::Answered(_)), "two live owners at once: {second:?}");
    assert!(folder.path().join("data/ledger.db-owners").exists());
    assert!(!folder.path().join("etc/ledger.db-owners").exists());
    drop(guard);
}

#[tokio::test]
async fn a_live_owner_stays_alive_when_the_owners_file_is_deleted() {
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
async fn owners_of_another_file_are_distinguished_and_their_ids_fit() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..20 {
        let path = folder.path().join(format!("{number}.db"));
        let open = || Sqlite::open(&path, Arc::new(SystemClock));
        let ids = [open().await, open().await].map(|store| store.unwrap().owner().unwrap().0);
        assert!(ids.iter().all(|id| (1..1 << 62).contains(id)), "{ids:?}");
        assert_eq!(ids[0] >> 42, ids[1] >> 42, "one file, one tag");
    }
}

/// Records outcomes of 200 kB, ten at a time. Returns how long the slowest call took.
async fn fill(ledger: &Ledger, operation: &str, megabytes: usize) -> Duration {
    let mut slowest = Duration::ZERO;
    for round in 0..megabytes / 2 {
        let calls = (0..10).map(async |number| {
            let since = Instant::now();
            let call = ledger.operation(operation).key(&format!("{round}-{number}"));
            call.run(|_| async { Ok("x".repeat(200_000)) }).await.unwrap();
            since.elapsed()
        });
        slowest = slowest.max(join_all(calls).await.into_iter().max().unwrap());
    }
    slowest
}

fn length_of_log(path: &Path) -> u64 {
    std::fs::metadata(format!("{}-wal", url(path))).unwrap().len()
}

#[tokio::test]
async fn an_open_reader_delays_no_claim_however_long_the_log_grows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let ledger = Ledger::open(url(&path)).await.unwrap();
    ledger.operation("charge").key("first").run(|_| async { Ok(1) }).await.unwrap();
    let reader = Connection::open(&path).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM intent").unwrap();
    // Twice the length past which the log is restarted. A claim that waits for the reader does so for 15 seconds.
    let slowest = fill(&ledger, "charge", 140).await;
    assert!(slowest < Duration::from_secs(14), "{slowest:?}");
    let length = length_of_log(&path);
    assert!(length > 128 << 20, "the reader keeps the log from starting over: {length}");
    drop(reader);
    fill(&ledger, "refund", 100).await;
    let grown = length_of_log(&path) - length;
    assert!(grown < 80 << 20, "without the reader it starts over: {grown}");
}

#[tokio::test]
async fn a_temporary_ledger_is_refused() {
    for url in ["", "file:", ":memory:", "file::memory:"] {
        let error = Ledger::open(url).await.unwrap_err().to_string();
        assert!(error.contains("`memory:`"), "{url}: {error}");
    }
    for path in ["", ":memory:"] {
        let error = Sqlite::open_blocking(Path::new(path), Arc::new(SystemClock)).unwrap_err().to_string();
        assert!(error.contains("`memory:`"), "{path}: {error}");
    }
}

#[tokio::test]
async fn the_log_of_short_lived_writers_stays_short() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let _idle = Ledger::open(url(&path)).await.unwrap();
    for round in 0..150 {
        let ledger = Ledger::open(url(&path)).await.unwrap();
        let call = ledger.operation("report").key(&round.to_string());
        call.run(|_| async { Ok("x".repeat(50_000)) }).await.unwrap();
        ledger.close().await;
    }
    assert!(length_of_log(&path) < 2 << 20, "{} bytes", length_of_log(&path));
}

#[tokio::test]
async fn large_outcomes_are_checkpointed_as_soon_as_many_small_ones() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let ledger = Ledger::open(url(&path)).await.unwrap();
    // Only a hundred records, and many pages to checkpoint.
    fill(&ledger, "report", 20).await;
    let carried = async || std::fs::metadata(&path).unwrap().len() > 6 << 20;
    crate::eventually("the log is checkpointed", carried).await;
}

#[tokio::test]
async fn one_unreadable_record_does_not_hide_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let clock = ManualClock::default();
    let store = Arc::new(Sqlite::open(&path, Arc::new(clock.clone())).await.unwrap());
    let ledger = Ledger::builder().on(store.clone());
    for number in 0..6 {
        let call = ledger.operation("charge").key(&number.to_string()).retention(Duration::from_secs(60));
        call.run(|_| async { Ok(number) }).await.unwrap();
        clock.advance(Duration::from_secs(1));
    }
    for key in ["claimed", "damaged claim", "counted backwards", "no text", "no UTF-8", "no claim"] {
        let Begun::Acquired(guard) = ledger.operation("charge").key(key).begin().await.unwrap() else { panic!() };
        std::mem::forget(guard);
    }
    let damage = "UPDATE intent SET verdict = 'partial' WHERE key = '0';
         UPDATE intent SET id = x'00' WHERE key = '1';
         UPDATE intent SET state = 'confused' WHERE key = '2';
         UPDATE intent SET fence = x'00' WHERE key = 'damaged claim';
         UPDATE intent SET version = -version WHERE key = 'counted backwards';
         UPDATE intent SET state = CAST(x'ff' AS TEXT) WHERE key = 'no text';
         UPDATE intent SET last_error = CAST(x'ff' AS TEXT) WHERE key = 'no UTF-8';
         UPDATE intent SET state = 'open' WHERE key = 'no claim'";
    Connection::open(&path).unwrap().execute_batch(damage).unwrap();

    let listed = store.list(&Filter::default(), None, 10).await.unwrap().listed;
    let keys: Vec<&str> =
        listed.iter().map(|listed| listed.seen.record.identity.as_ref().unwrap().key.as_str()).collect();
    assert_eq!(keys, ["claimed", "5", "4", "3"]);
    assert_eq!(store.counts(None).await.unwrap().of(Status::Running), 1);

    clock.advance(Duration::from_secs(120));
    let mut purged = 0;
    for _ in 0..6 {
        purged += ledger.purge(1).await.unwrap().tombstones;
    }
    assert_eq!(purged, 3, "the unreadable ones expired first, and stay");
    let call = Ledger::builder().on(store).operation("charge").key("0");
    let broken = call.run(|_| async { Ok(0) }).await.unwrap_err().to_string();
    assert!(broken.contains("cannot be read"), "{broken}");
}

#[tokio::test]
async fn a_record_at_its_last_version_does_not_stop_the_sweeper() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let clock = ManualClock::default();
    let store = Arc::new(Sqlite::open(&path, Arc::new(clock.clone())).await.unwrap());
    let ledger = Ledger::builder().on(store);
    for key in ["last version", "another"] {
        let call = ledger.operation("charge").key(key).retention(Duration::from_secs(60));
        call.run(|_| async { Ok(1) }).await.unwrap();
        clock.advance(Duration::from_secs(1));
    }
    let count = "UPDATE intent SET version = 9223372036854775807 WHERE key = 'last version'";
    Connection::open(&path).unwrap().execute_batch(count).unwrap();

    clock.advance(Duration::from_secs(120));
    assert_eq!(ledger.purge(1).await.unwrap().tombstones, 1, "the other one, although it expired later");
    let call = Ledger::builder().on(Arc::new(Sqlite::open(&path, Arc::new(clock)).await.unwrap()));
    let stays = call.operation("charge").key("last version").get().await.unwrap().unwrap();
    assert_eq!(stays.seen.record.version, i64::MAX.unsigned_abs());
}

#[tokio::test]
async fn a_write_whose_audit_entry_fails_is_not_written_either() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let store = Arc::new(Sqlite::open(&path, Arc::new(SystemClock)).await.unwrap());
    let call = Ledger::builder().on(store.clone()).operation("charge").key("k");
    call.run(|_| async { Ok(1) }).await.unwrap();
    let before = call.get().await.unwrap().unwrap().seen.record;
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'refused'); END";
    Connection::open(&path).unwrap().execute_batch(refuse).unwrap();

    let event = AuditEvent { what: EventKind::ResolvedHappened, by: None, token: None, note: None };
    let with_event = Replace { event: Some(event), ..Replace::of(&before, before.next()) };
    // In the same transaction as other writes, which must not be lost with it.
    let other = Ledger::builder().on(store.clone()).operation("charge").key("other");
    let (refused, ran) = tokio::join!(store.replace(with_event), other.run(|_| async { Ok(1) }));
    assert!(refused.unwrap_err().to_string().contains("refused"));
    ran.unwrap();
    assert_eq!(call.get().await.unwrap().unwrap().seen.record, before);

    Connection::open(&path).unwrap().execute_batch("DROP TRIGGER refuse").unwrap();
    let replaced = store.replace(Replace::of(&before, before.next())).await.unwrap();
    assert!(matches!(replaced, Replaced::Written { .. }));
}

/// A clock that blocks its next reader until it is released: a very slow query.
#[derive(Debug, Default)]
struct BlockingClock(Mutex<Option<Receiver<()>>>);

impl Clock for BlockingClock {
    fn now(&self) -> Timestamp {
        let hangs = self.0.lock().unwrap().take();
        if let Some(let_go) = hangs {
            let _ = let_go.recv();
        }
        SystemClock.now()
    }
}

#[tokio::test]
async fn reading_one_record_never_waits_for_a_slow_list() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(BlockingClock::default());
    let store = Arc::new(Sqlite::open(&folder.path().join("ledger.db"), clock.clone()).await.unwrap());
    let id = onceward::core::hash::digest(b"any");
    let (let_go, hangs) = std::sync::mpsc::channel();
    *clock.0.lock().unwrap() = Some(hangs);
    let slow = tokio::spawn({
        let store = store.clone();
        async move { store.list(&Filter::default(), None, 10).await }
    });
    crate::eventually("the list hangs", async || clock.0.lock().unwrap().is_none()).await;
    for _ in 0..4 {
        let looks = async { (store.get(id).await, store.trail(id).await) };
        let (got, trail) = tokio::time::timeout(Duration::from_secs(5), looks).await.expect("no look waits");
        assert!(got.unwrap().is_none() && trail.unwrap().is_empty());
    }
    assert!(!slow.is_finished());
    drop(let_go);
    slow.await.unwrap().unwrap();
}

/// Opens a ledger after another tool has changed it.
fn opened_after(change: &str) -> Result<Sqlite, Error> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    drop(Sqlite::open_blocking(&path, Arc::new(SystemClock)).unwrap());
    Connection::open(&path).unwrap().execute_batch(change).unwrap();
    Sqlite::open_blocking(&path, Arc::new(SystemClock))
}

#[test]
fn tables_of_other_tools_in_a_ledger_are_accepted() {
    for change in [
        "CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER)",
        "CREATE TABLE lost_and_found (rootpgno INTEGER, pgno INTEGER); CREATE INDEX found ON lost_and_found (pgno)",
        "CREATE VIEW done AS SELECT key FROM intent WHERE state = 'done'",
        "ANALYZE",
    ] {
        opened_after(change).expect(change);
    }
}

#[test]
fn a_ledger_whose_own_tables_were_changed_is_refused() {
    for change in [
        "DROP INDEX intent_id; CREATE INDEX intent_id ON intent (id)",
        "ALTER TABLE audit RENAME TO elsewhere",
        "DROP TRIGGER intent_inserted",
        "DROP TABLE tenant",
        "ALTER TABLE intent ADD COLUMN extra TEXT",
        "CREATE TRIGGER spoil AFTER INSERT ON intent BEGIN DELETE FROM intent; END",
        "CREATE TRIGGER spoil BEFORE DELETE ON Audit BEGIN SELECT RAISE(IGNORE); END",
    ] {
        let error = opened_after(change).expect_err(change);
        assert!(matches!(error, Error::NotALedger { .. }), "{change}: {error}");
    }
}
