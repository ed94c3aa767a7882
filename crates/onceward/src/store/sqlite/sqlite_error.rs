//! Maps SQLite's errors to store errors that tell the user what to do.

use std::path::Path;

use rusqlite::{ErrorCode, ffi};

use crate::store::Error;

/// The store error for an error of SQLite. Errors without a specific meaning are reported in SQLite's words.
pub(super) fn store_error(path: &Path, error: &rusqlite::Error) -> Error {
    let path = path.to_owned();
    let reason = error.to_string();
    if is_unreadable(error) {
        return Error::Unreadable { path, reason };
    }
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Error::Full { path },
        Some(ErrorCode::ReadOnly) => Error::ReadOnly { path },
        Some(ErrorCode::DatabaseCorrupt) => Error::Corrupt { path, reason },
        Some(ErrorCode::NotADatabase) => Error::NotALedger { path, reason: "it is not a SQLite file".to_owned() },
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::Busy { path },
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => Error::CannotOpen { path, reason },
        Some(ErrorCode::SystemIoFailure) => match error.sqlite_error().map(|error| error.extended_code) {
            // Only the shared-memory index is affected; the ledger file itself is unchanged.
            Some(ffi::SQLITE_IOERR_SHMSIZE) => Error::Full { path },
            Some(ffi::SQLITE_IOERR_SHMOPEN | ffi::SQLITE_IOERR_SHMMAP) => Error::CannotOpen { path, reason },
            _ => Error::Poisoned { path, reason },
        },
        _ => Error::Other(reason),
    }
}

/// The store error for a failed commit. SQLite updates the shared-memory index last, after the log is written: if only that
/// step failed, the transaction is not visible now, but may become visible after a crash.
pub(super) fn commit_error(path: &Path, error: &rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::SystemIoFailure) => Error::Poisoned { path: path.to_owned(), reason: error.to_string() },
        _ => store_error(path, error),
    }
}

/// Whether the error concerns only one row, with a value that no record can have.
pub(super) fn is_unreadable(error: &rusqlite::Error) -> bool {
    matches!(
        error,
        rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::Utf8Error(..)
    )
}

/// Whether the handle must not be used after this error: the state on disk is unknown, or other processes do not see it.
pub(super) fn poisons(error: &Error) -> bool {
    matches!(
        error,
        Error::Poisoned { .. }
            | Error::Corrupt { .. }
            | Error::Gone { .. }
            | Error::LogGone { .. }
            | Error::NewerSchema { .. }
            | Error::OlderSchema { .. }
    )
}

/// Whether only one statement failed, and the rest of its transaction is intact.
pub(super) fn is_single_failure(error: &Error) -> bool {
    matches!(error, Error::Other(_) | Error::Unreadable { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: i32) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
    }

    #[test]
    fn only_a_failure_of_the_file_itself_poisons_the_handle() {
        let path = Path::new("ledger.db");
        for code in
            [ffi::SQLITE_IOERR_WRITE, ffi::SQLITE_IOERR_FSYNC, ffi::SQLITE_IOERR_TRUNCATE, ffi::SQLITE_IOERR_READ]
        {
            assert!(poisons(&store_error(path, &failure(code))), "{code}");
        }
        for code in [ffi::SQLITE_IOERR_SHMSIZE, ffi::SQLITE_IOERR_SHMOPEN, ffi::SQLITE_IOERR_SHMMAP, ffi::SQLITE_FULL] {
            assert!(!poisons(&store_error(path, &failure(code))), "{code}");
        }
        assert!(matches!(store_error(path, &failure(ffi::SQLITE_IOERR_SHMSIZE)), Error::Full { .. }));
    }

    #[test]
    fn a_commit_that_failed_half_way_poisons_the_handle() {
        let path = Path::new("ledger.db");
        assert!(poisons(&commit_error(path, &failure(ffi::SQLITE_IOERR_SHMSIZE))));
        assert!(!poisons(&commit_error(path, &failure(ffi::SQLITE_FULL))));
    }
}
