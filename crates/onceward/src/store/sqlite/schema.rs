//! Opening, checking and migrating the file.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use onceward_core::plant::{Plant, planted};

use super::fault::named;
use super::{Shared, side};
use crate::store::{Error, names_a_file};

/// `ONCW`, in the header of every ledger.
const APPLICATION_ID: i64 = 0x4f4e_4357;

/// Each entry leads from the version that is its index to the next. Never edit one that was released.
pub(super) const MIGRATIONS: [&str; 3] =
    [include_str!("schema_v1.sql"), include_str!("schema_v2.sql"), include_str!("schema_v3.sql")];

const VERSION: i64 = MIGRATIONS.len() as i64;

/// Another process commits in milliseconds; one that holds the file this long is stuck, and failing closed with
/// a clear error is better than hanging.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(15);

/// Between two tries where SQLite does not wait by itself; the other process needs about as long.
const BUSY_PAUSE: Duration = Duration::from_millis(2);

/// Kilobytes of pages that the writer keeps at hand: the upper levels of the index of many million records, and the
/// newest rows.
const WRITER_CACHE: i64 = 8 * 1024;

/// Statements are few and fixed; all of them stay prepared.
const STATEMENTS: usize = 32;

/// Opens the file for writing, checks that it is a ledger, and brings its schema up to date. The answer has the
/// file's real path too, without links: everything beside the ledger must be beside the same file for everybody.
pub(super) fn open(path: &Path) -> Result<(Connection, PathBuf), Error> {
    if !names_a_file(path) {
        return Err(Error::UnknownUrl(path.display().to_string()));
    }
    // An absolute path is never taken for one of SQLite's own URLs.
    let absolute = std::path::absolute(path).map_err(|error| cannot_open(path, &error))?;
    let (mut connection, is_new) = create_or_open(&absolute, path)?;
    let file = absolute.canonicalize().map_err(|error| cannot_open(path, &error))?;
    leave_the_log(&connection, true).map_err(|error| named(path, &error))?;
    check_writable(path, &connection)?;
    prepare(&mut connection, path)?;
    // Only now: it is a ledger, and not the file of someone else.
    side::tighten(&file);
    if is_new {
        sync_folder(&file);
    }
    Ok((connection, file))
}

/// SQLite would create the file with the mode that the umask leaves, so it is created here, with a mode of its own. True if
/// it is new.
fn create_or_open(absolute: &Path, path: &Path) -> Result<(Connection, bool), Error> {
    static ALONE: Mutex<()> = Mutex::new(());
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    // Closing the handle that created the file would drop the locks of a ledger that another thread opened meanwhile.
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let is_new = side::create_empty(absolute).map_err(|error| match error.kind() {
        ErrorKind::StorageFull => Error::Full { path: path.to_owned() },
        _ => cannot_open(path, &error),
    })?;
    let connection = Connection::open_with_flags(absolute, flags).map_err(|error| named(path, &error))?;
    Ok((connection, is_new))
}

/// Opens a connection to that file that can only look. Errors name the path as the user gave it.
pub(super) fn open_reader(shared: &Shared) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || {
        let connection = Connection::open_with_flags(&shared.file, flags)?;
        leave_the_log(&connection, true)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        reach_the_disk(&connection)?;
        connection.pragma_update(None, "query_only", true)?;
        Ok(connection)
    };
    open().map_err(|error| named(&shared.path, &error))
}

pub(super) fn cannot_open(path: &Path, error: &std::io::Error) -> Error {
    Error::CannotOpen { path: path.to_owned(), reason: error.to_string() }
}

fn check_writable(path: &Path, connection: &Connection) -> Result<(), Error> {
    match connection.is_readonly("main") {
        Ok(false) => Ok(()),
        Ok(true) => Err(Error::ReadOnly { path: path.to_owned() }),
        Err(error) => Err(named(path, &error)),
    }
}

fn prepare(connection: &mut Connection, path: &Path) -> Result<(), Error> {
    let fault = |error: rusqlite::Error| named(path, &error);
    connection.busy_timeout(BUSY_TIMEOUT).map_err(fault)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // Before anything is changed: is this ours? In one transaction, because another process may be making this
    // very ledger: its number and its tables must be from the same moment.
    let moment = connection.transaction().map_err(fault)?;
    let version = check_header(&moment, path)?;
    moment.finish().map_err(fault)?;
    keep_a_log(connection, path)?;
    // Every commit is on the disk before anybody is told.
    let synchronous = if planted(Plant::SyncSkipped) { "off" } else { "full" };
    connection.pragma_update(None, "synchronous", synchronous).map_err(fault)?;
    reach_the_disk(connection).map_err(fault)?;
    connection.pragma_update(None, "cache_size", -WRITER_CACHE).map_err(fault)?;
    // A statement with a trigger can be undone alone, and keeps the pages for that aside: never in a file in /tmp, which may
    // be full or missing.
    connection.pragma_update(None, "temp_store", "memory").map_err(fault)?;
    // Checkpoints run on a thread of their own, off the claim path.
    connection.pragma_update(None, "wal_autocheckpoint", 0).map_err(fault)?;
    if version < VERSION {
        migrate(connection, path)?;
    }
    check_schema(connection, path)?;
    settle_the_log(connection).map_err(fault)
}

/// Carries the log that was found over into the file before anything is added to it. If an earlier process met a failed
/// sync, this system may show parts of the log that are not on the disk and never will be: what comes behind them would be
/// lost with them. After this the next write starts the log over. Who shares the file with somebody alive has found
/// nothing left over; then this may come to nothing, and need not.
fn settle_the_log(connection: &Connection) -> rusqlite::Result<()> {
    checkpoint(connection).map(drop)
}

/// Carries over what no reader needs any more, without waiting. The answer is the length of the log in pages.
pub(super) fn checkpoint(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get(1))
}

/// Carries the rest over, so that the next write starts the log over. It must not wait for anybody who reads: no claim
/// is worth less than a short log. False if somebody was in the way.
pub(super) fn start_log_over(connection: &Connection) -> rusqlite::Result<bool> {
    connection.busy_timeout(Duration::ZERO)?;
    let busy = connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |row| row.get::<_, bool>(0));
    connection.busy_timeout(BUSY_TIMEOUT)?;
    Ok(!busy?)
}

/// Closes the connection of the thread that carries the log over. If no other is open, the log is deleted, but not after
/// a failure: it is then the only thing that is known to be whole.
pub(super) fn close_last(connection: Connection, shared: &Shared) {
    if shared.poison.get().is_none()
        && let Err(error) = leave_the_log(&connection, false)
    {
        tracing::warn!(%error, "the log is left beside the file");
    }
}

/// Whether the log stays as it is when this connection is closed and no other is open. By default SQLite then carries it
/// over and deletes it, whatever has failed before. So only the one thread that knows does that.
fn leave_the_log(connection: &Connection, leave: bool) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, leave).map(drop)
}

/// On macOS a plain fsync stops at the drive's own cache, which a power cut empties; elsewhere this changes nothing.
fn reach_the_disk(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "fullfsync", true)?;
    connection.pragma_update(None, "checkpoint_fullfsync", true)
}

/// Sets the file to write-ahead logging. Two processes that do this to a new file at the same moment block each
/// other, and SQLite then says `busy` at once instead of waiting: so the waiting is done here.
fn keep_a_log(connection: &Connection, path: &Path) -> Result<(), Error> {
    let deadline = Instant::now() + BUSY_TIMEOUT;
    loop {
        match ask_for_a_log(connection) {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(mode) => {
                let reason = format!("its file system cannot share a write-ahead log, SQLite offers `{mode}` instead");
                return Err(Error::CannotOpen { path: path.to_owned(), reason });
            }
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && Instant::now() < deadline => {
                std::thread::sleep(BUSY_PAUSE);
            }
            Err(error) => return Err(named(path, &error)),
        }
    }
}

/// The answer is the mode that SQLite says. It says so first and commits afterwards, so it must be heard out: otherwise a
/// commit that failed goes unnoticed, and the file has no log.
fn ask_for_a_log(connection: &Connection) -> rusqlite::Result<String> {
    let mut statement = connection.prepare("PRAGMA journal_mode = wal")?;
    let modes = statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()?;
    Ok(modes.into_iter().next().unwrap_or_default())
}

/// Reads the header. The answer is the schema version; 0 for an empty file.
fn check_header(connection: &Connection, path: &Path) -> Result<i64, Error> {
    let fault = |error: rusqlite::Error| named(path, &error);
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).map_err(fault);
    let (application, version) = (number("application_id")?, number("user_version")?);
    let objects: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(fault)?;
    let is_empty = application == 0 && version == 0 && objects == 0;
    if application != APPLICATION_ID && !is_empty {
        let reason = "it is a SQLite file of another application".to_owned();
        return Err(Error::NotALedger { path: path.to_owned(), reason });
    }
    if !is_empty {
        check_version(version, path)?;
    }
    Ok(version)
}

/// Only the version of this build is read and written: an older one names intents in another way, and of a newer one nothing
/// is known.
pub(super) fn check_version(found: i64, path: &Path) -> Result<(), Error> {
    let (path, known) = (path.to_owned(), VERSION);
    match found.cmp(&known) {
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(Error::NewerSchema { path, found, known }),
        Ordering::Less => Err(Error::OlderSchema { path, found, known }),
    }
}

/// Migrates in one transaction. Another process may have been faster, so the version is read again inside.
fn migrate(connection: &mut Connection, path: &Path) -> Result<(), Error> {
    let fault = |error: rusqlite::Error| named(path, &error);
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fault)?;
    let version = check_header(&transaction, path)?;
    for migration in MIGRATIONS.iter().skip(usize::try_from(version).unwrap_or(0)) {
        transaction.execute_batch(migration).map_err(fault)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(fault)?;
    transaction.pragma_update(None, "user_version", VERSION).map_err(fault)?;
    transaction.commit().map_err(fault)
}

/// A ledger without its unique index would hand out two claims, and a trigger may undo anything: our own tables,
/// indexes and triggers must be exactly the known ones. Tables of other tools beside them do no harm.
fn check_schema(connection: &Connection, path: &Path) -> Result<(), Error> {
    let fault = |error: rusqlite::Error| named(path, &error);
    let expected = Connection::open_in_memory().map_err(fault)?;
    for migration in MIGRATIONS {
        expected.execute_batch(migration).map_err(fault)?;
    }
    let (found, expected) = (objects(connection).map_err(fault)?, objects(&expected).map_err(fault)?);
    let tables: HashSet<&str> = expected.iter().map(|object| object.table.as_str()).collect();
    let is_harmful = |object: &Object| {
        object.kind == "trigger" && tables.contains(object.table.as_str()) && !expected.contains(object)
    };
    let reason = if !expected.is_subset(&found) {
        "its tables are not those of a ledger"
    } else if found.iter().any(is_harmful) {
        "its tables have triggers that are not ours"
    } else {
        return Ok(());
    };
    Err(Error::NotALedger { path: path.to_owned(), reason: reason.to_owned() })
}

#[derive(PartialEq, Eq, Hash)]
struct Object {
    kind: String,
    name: String,
    table: String,
    sql: Option<String>,
}

fn objects(connection: &Connection) -> rusqlite::Result<HashSet<Object>> {
    connection
        .prepare("SELECT type, name, lower(tbl_name), sql FROM sqlite_schema")?
        .query_map([], |row| Ok(Object { kind: row.get(0)?, name: row.get(1)?, table: row.get(2)?, sql: row.get(3)? }))?
        .collect()
}

/// The name of a new file is on the disk only when its folder is. Not every file system can do this, and then
/// there is nothing more to be done.
fn sync_folder(path: &Path) {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_log_is_refused() {
        // A database in memory can have no log either.
        let connection = Connection::open_in_memory().expect("there is memory");
        let error = keep_a_log(&connection, Path::new("ledger.db")).expect_err("there is no log");
        assert!(error.to_string().contains("write-ahead log"), "{error}");
    }
}
