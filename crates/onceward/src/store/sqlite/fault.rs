//! What SQLite's errors mean for a user.

use std::path::Path;

use rusqlite::{ErrorCode, ffi};

use crate::store::Error;

/// Names the fault. What cannot be named is reported as SQLite says it.
pub(super) fn named(path: &Path, error: &rusqlite::Error) -> Error {
    let path = path.to_owned();
    let reason = error.to_string();
    if is_unreadable(error) {
        return Error::Unreadable { path, reason };
    }
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Error::Full { path },
        Some(ErrorCode::ReadOnly) => Error::ReadOnly { path },
        Some(ErrorCode::DatabaseCorrupt) => Error::Corrupt { path, reason },
        Some(ErrorCode::NotADatabase) => Error::NotALedger { path, reason: "it is no SQLite file".to_owned() },
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::Busy { path },
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => Error::CannotOpen { path, reason },
        Some(ErrorCode::SystemIoFailure) => match error.sqlite_error().map(|error| error.extended_code) {
            // The index that processes share in memory; the file itself is untouched.
            Some(ffi::SQLITE_IOERR_SHMSIZE) => Error::Full { path },
            Some(ffi::SQLITE_IOERR_SHMOPEN | ffi::SQLITE_IOERR_SHMMAP) => Error::CannotOpen { path, reason },
            _ => Error::Poisoned { path, reason },
        },
        _ => Error::Other(reason),
    }
}

/// The same for a commit. SQLite tells the shared index last, when the log is already written: if only that
/// failed, the transaction is not visible now, and may be after a crash.
pub(super) fn named_at_commit(path: &Path, error: &rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::SystemIoFailure) => Error::Poisoned { path: path.to_owned(), reason: error.to_string() },
        _ => named(path, error),
    }
}

/// A row that holds what no record can hold; the others are whole.
pub(super) fn is_unreadable(error: &rusqlite::Error) -> bool {
    matches!(
        error,
        rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::Utf8Error(..)
    )
}

/// After these, what is on the disk is unknown, or nobody else sees it: the handle must not be used as if nothing had
/// happened.
pub(super) fn poisons(error: &Error) -> bool {
    matches!(
        error,
        Error::Poisoned { .. }
            | Error::Corrupt { .. }
            | Error::Gone { .. }
            | Error::NewerSchema { .. }
            | Error::OlderSchema { .. }
    )
}

/// A statement that failed alone; the rest of its transaction is whole.
pub(super) fn is_single(error: &Error) -> bool {
    matches!(error, Error::Other(_) | Error::Unreadable { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: i32) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
    }

    #[test]
    fn only_a_failure_of_the_file_itself_poisons() {
        let path = Path::new("ledger.db");
        for code in
            [ffi::SQLITE_IOERR_WRITE, ffi::SQLITE_IOERR_FSYNC, ffi::SQLITE_IOERR_TRUNCATE, ffi::SQLITE_IOERR_READ]
        {
            assert!(poisons(&named(path, &failure(code))), "{code}");
        }
        for code in [ffi::SQLITE_IOERR_SHMSIZE, ffi::SQLITE_IOERR_SHMOPEN, ffi::SQLITE_IOERR_SHMMAP, ffi::SQLITE_FULL] {
            assert!(!poisons(&named(path, &failure(code))), "{code}");
        }
        assert!(matches!(named(path, &failure(ffi::SQLITE_IOERR_SHMSIZE)), Error::Full { .. }));
    }

    #[test]
    fn a_commit_that_failed_half_way_poisons_whatever_failed() {
        let path = Path::new("ledger.db");
        assert!(poisons(&named_at_commit(path, &failure(ffi::SQLITE_IOERR_SHMSIZE))));
        assert!(!poisons(&named_at_commit(path, &failure(ffi::SQLITE_FULL))));
    }
}
