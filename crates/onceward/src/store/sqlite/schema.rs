//! Opens, checks and migrates the file.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use crate::plant::{Plant, planted};

use super::sqlite_error::store_error;
use super::{Shared, side_files};
use crate::store::{Error, names_a_file};

/// `ONCW`, the application id in the header of every ledger.
const APPLICATION_ID: i64 = 0x4f4e_4357;

/// Each entry migrates from the version that is its index to the next. Never edit one that was released.
pub(super) const MIGRATIONS: [&str; 5] = [
    include_str!("schema_v1.sql"),
    include_str!("schema_v2.sql"),
    include_str!("schema_v3.sql"),
    include_str!("schema_v4.sql"),
    include_str!("schema_v5.sql"),
];

const VERSION: i64 = MIGRATIONS.len() as i64;

/// The oldest version that is migrated. An older one names intents in another way.
const OLDEST: i64 = 3;

/// Another process commits in milliseconds. A process that locks the file for this long is stuck, and failing closed with a
/// clear error is better than hanging.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(15);

/// The pause between two attempts where SQLite does not wait itself; the other process needs about as long.
const BUSY_PAUSE: Duration = Duration::from_millis(2);

/// The writer's page cache in kilobytes: enough for the upper levels of the index of many million records, and the newest
/// rows. Not more: SQLite scans its whole cache at the end of a commit that splits a page; with 64 MB that was a fifth of all
/// writing.
const WRITER_CACHE: i64 = 8 * 1024;

/// More than the number of different statements, so that all of them stay prepared.
const STATEMENT_CACHE: usize = 32;

/// Opens the file for writing, checks that it is a ledger, and migrates its schema. Also returns the path of the file with its
/// symbolic links resolved: all processes must find the side files beside the same file.
pub(super) fn open(path: &Path) -> Result<(Connection, PathBuf), Error> {
    if !names_a_file(path) {
        return Err(Error::UnknownUrl(path.display().to_string()));
    }
    // SQLite never interprets an absolute path as a URL.
    let absolute = std::path::absolute(path).map_err(|error| cannot_open(path, &error))?;
    let (mut connection, is_new) = create_or_open(&absolute, path)?;
    let file = absolute.canonicalize().map_err(|error| cannot_open(path, &error))?;
    keep_log_on_close(&connection, true).map_err(|error| store_error(path, &error))?;
    check_writable(path, &connection)?;
    prepare(&mut connection, path)?;
    // Only now is it certain that the file is a ledger and not the file of another program.
    side_files::restrict_modes(&file);
    if is_new {
        sync_folder(&file);
    }
    Ok((connection, file))
}

/// Held while a file is created.
static CREATING: Mutex<()> = Mutex::new(());

/// Waits until no other thread creates a file, and keeps it so.
pub(super) fn creating() -> MutexGuard<'static, ()> {
    CREATING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Creates the file here because SQLite would create it with a mode that depends on the umask. The flag is true for a new file.
fn create_or_open(absolute: &Path, path: &Path) -> Result<(Connection, bool), Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    // Closing the handle that created the file would drop the locks of a ledger that another thread opened meanwhile.
    let _creating = creating();
    let is_new = side_files::create_empty(absolute).map_err(|error| match error.kind() {
        ErrorKind::StorageFull => Error::Full { path: path.to_owned() },
        _ => cannot_open(path, &error),
    })?;
    let connection = Connection::open_with_flags(absolute, flags).map_err(|error| store_error(path, &error))?;
    Ok((connection, is_new))
}

/// Opens a read-only connection. Errors name the path as the user gave it.
pub(super) fn open_reader(shared: &Shared) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || {
        let connection = Connection::open_with_flags(&shared.file, flags)?;
        keep_log_on_close(&connection, true)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE);
        sync_to_disk(&connection)?;
        connection.pragma_update(None, "query_only", true)?;
        Ok(connection)
    };
    open().map_err(|error| store_error(&shared.path, &error))
}

pub(super) fn cannot_open(path: &Path, error: &std::io::Error) -> Error {
    Error::CannotOpen { path: path.to_owned(), reason: error.to_string() }
}

fn check_writable(path: &Path, connection: &Connection) -> Result<(), Error> {
    match connection.is_readonly("main") {
        Ok(false) => Ok(()),
        Ok(true) => Err(Error::ReadOnly { path: path.to_owned() }),
        Err(error) => Err(store_error(path, &error)),
    }
}

fn prepare(connection: &mut Connection, path: &Path) -> Result<(), Error> {
    let fault = |error: rusqlite::Error| store_error(path, &error);
    connection.busy_timeout(BUSY_TIMEOUT).map_err(fault)?;
    connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE);
    // Before any change, check that this is a ledger. In one transaction, because another process may be creating this very
    // ledger: version and tables must be read at the same point in time.
    let snapshot = connection.transaction().map_err(fault)?;
    let version = check_header(&snapshot, path)?;
    snapshot.finish().map_err(fault)?;
    use_write_ahead_log(connection, path)?;
    // Every commit is on disk before its callers get their results.
    let synchronous = if planted(Plant::SyncSkipped) { "off" } else { "full" };
    connection.pragma_update(None, "synchronous", synchronous).map_err(fault)?;
    sync_to_disk(connection).map_err(fault)?;
    connection.pragma_update(None, "cache_size", -WRITER_CACHE).map_err(fault)?;
    // For a statement with a trigger, SQLite keeps an undo journal. It must not be a file in /tmp, which may be full or missing.
    connection.pragma_update(None, "temp_store", "memory").map_err(fault)?;
    // Checkpoints run on their own thread, off the claim path.
    connection.pragma_update(None, "wal_autocheckpoint", 0).map_err(fault)?;
    if version < VERSION {
        migrate(connection, path)?;
    }
    check_schema(connection, path)?;
    checkpoint_existing_log(connection).map_err(fault)
}

/// Copies an existing log into the file before anything is appended to it. If an earlier process met a failed sync, the system
/// may show parts of the log that are not on disk and never will be; anything appended after them would be lost with them.
/// After this checkpoint the next write restarts the log. If another live process shares the file, there is no such leftover
/// log, so it does not matter that the checkpoint may then do nothing.
fn checkpoint_existing_log(connection: &Connection) -> rusqlite::Result<()> {
    checkpoint(connection).map(drop)
}

/// Copies the pages that no reader needs any more, without waiting. Returns the length of the log in pages.
pub(super) fn checkpoint(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get(1))
}

/// Copies the rest of the log, so that the next write restarts it. Does not wait for readers: claims matter more than a short
/// log. Returns false if a reader prevented it.
pub(super) fn restart_log(connection: &Connection) -> rusqlite::Result<bool> {
    connection.busy_timeout(Duration::ZERO)?;
    let busy = connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |row| row.get::<_, bool>(0));
    connection.busy_timeout(BUSY_TIMEOUT)?;
    Ok(!busy?)
}

/// Closes the connection of the checkpoint thread. If it is the last one, SQLite deletes the log. After a failure the log is
/// kept, because only the log is then known to be intact.
pub(super) fn close_last(connection: Connection, shared: &Shared) {
    if shared.poison.get().is_none()
        && let Err(error) = keep_log_on_close(&connection, false)
    {
        tracing::warn!(%error, "the write-ahead log stays beside the file");
    }
}

/// Sets whether the log stays when this connection is closed as the last one. By default SQLite then checkpoints and deletes
/// it, whatever has failed before. So only the checkpoint thread, which knows about failures, lets it.
fn keep_log_on_close(connection: &Connection, keep: bool) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keep).map(drop)
}

/// On macOS a plain fsync does not flush the drive's cache, which is lost in a power cut. No effect on other systems.
fn sync_to_disk(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "fullfsync", true)?;
    connection.pragma_update(None, "checkpoint_fullfsync", true)
}

/// Sets the file to write-ahead logging. Two processes that do this to a new file at the same time block each other, and SQLite
/// then fails with `busy` at once instead of waiting: so this function waits.
fn use_write_ahead_log(connection: &Connection, path: &Path) -> Result<(), Error> {
    let deadline = Instant::now() + BUSY_TIMEOUT;
    loop {
        match set_wal_mode(connection) {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(mode) => {
                let reason = format!(
                    "its file system does not support a shared write-ahead log; SQLite offers `{mode}` instead"
                );
                return Err(Error::CannotOpen { path: path.to_owned(), reason });
            }
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && Instant::now() < deadline => {
                std::thread::sleep(BUSY_PAUSE);
            }
            Err(error) => return Err(store_error(path, &error)),
        }
    }
}

/// Returns the mode that SQLite reports. SQLite reports it before it commits the change, so the statement is read to its end:
/// otherwise a failed commit would go unnoticed, and the file would have no log.
fn set_wal_mode(connection: &Connection) -> rusqlite::Result<String> {
    let mut statement = connection.prepare("PRAGMA journal_mode = wal")?;
    let modes = statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()?;
    Ok(modes.into_iter().next().unwrap_or_default())
}

/// Reads the header. Returns the schema version; 0 for an empty file.
fn check_header(connection: &Connection, path: &Path) -> Result<i64, Error> {
    let fault = |error: rusqlite::Error| store_error(path, &error);
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).map_err(fault);
    let (application, version) = (number("application_id")?, number("user_version")?);
    let objects: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(fault)?;
    let is_empty = application == 0 && version == 0 && objects == 0;
    if application != APPLICATION_ID && !is_empty {
        let reason = "it is a SQLite file of another application".to_owned();
        return Err(Error::NotALedger { path: path.to_owned(), reason });
    }
    if !is_empty && !(OLDEST..VERSION).contains(&version) {
        check_version(version, path)?;
    }
    Ok(version)
}

/// An open ledger has the version of this build: a newer build may have changed anything.
pub(super) fn check_version(found: i64, path: &Path) -> Result<(), Error> {
    let path = path.to_owned();
    match found.cmp(&VERSION) {
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(Error::NewerSchema { path, found, known: VERSION }),
        Ordering::Less => Err(Error::OlderSchema { path, found, known: OLDEST }),
    }
}

/// Migrates in one transaction. The version is read again inside, because another process may have migrated meanwhile.
fn migrate(connection: &mut Connection, path: &Path) -> Result<(), Error> {
    let fault = |error: rusqlite::Error| store_error(path, &error);
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fault)?;
    let version = check_header(&transaction, path)?;
    for migration in MIGRATIONS.iter().skip(usize::try_from(version).unwrap_or(0)) {
        transaction.execute_batch(migration).map_err(fault)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(fault)?;
    transaction.pragma_update(None, "user_version", VERSION).map_err(fault)?;
    transaction.commit().map_err(fault)
}

/// Checks that the ledger's tables, indexes and triggers are exactly the expected ones: without its unique index a ledger would
/// grant two claims, and an unknown trigger could undo anything. Tables of other tools do no harm.
fn check_schema(connection: &Connection, path: &Path) -> Result<(), Error> {
    let fault = |error: rusqlite::Error| store_error(path, &error);
    let expected = Connection::open_in_memory().map_err(fault)?;
    for migration in MIGRATIONS {
        expected.execute_batch(migration).map_err(fault)?;
    }
    let (found, expected) = (objects(connection).map_err(fault)?, objects(&expected).map_err(fault)?);
    let tables: HashSet<&str> = expected.iter().map(|object| object.table.as_str()).collect();
    let is_harmful = |object: &SchemaObject| {
        object.kind == "trigger" && tables.contains(object.table.as_str()) && !expected.contains(object)
    };
    let reason = if !expected.is_subset(&found) {
        "its tables are not those of a ledger"
    } else if found.iter().any(is_harmful) {
        "its tables have unknown triggers"
    } else {
        return Ok(());
    };
    Err(Error::NotALedger { path: path.to_owned(), reason: reason.to_owned() })
}

#[derive(PartialEq, Eq, Hash)]
struct SchemaObject {
    kind: String,
    name: String,
    table: String,
    sql: Option<String>,
}

fn objects(connection: &Connection) -> rusqlite::Result<HashSet<SchemaObject>> {
    connection
        .prepare("SELECT type, name, lower(tbl_name), sql FROM sqlite_schema")?
        .query_map([], |row| {
            Ok(SchemaObject { kind: row.get(0)?, name: row.get(1)?, table: row.get(2)?, sql: row.get(3)? })
        })?
        .collect()
}

/// Syncs the folder, because the name of a new file is on disk only when its folder is. Some file systems cannot do this; then
/// there is nothing more to do.
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
    fn a_file_without_a_write_ahead_log_is_refused() {
        // A database in memory cannot have a write-ahead log.
        let connection = Connection::open_in_memory().expect("there is memory");
        let error = use_write_ahead_log(&connection, Path::new("ledger.db")).expect_err("there is no log");
        assert!(error.to_string().contains("write-ahead log"), "{error}");
    }
}
