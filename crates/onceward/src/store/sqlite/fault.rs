//! What SQLite's errors mean for a user.

use std::path::Path;

use rusqlite::ErrorCode;

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
        Some(ErrorCode::SystemIoFailure) => Error::Poisoned { path, reason },
        _ => Error::Other(reason),
    }
}

/// A row that holds what no record can hold; the others are whole.
pub(super) fn is_unreadable(error: &rusqlite::Error) -> bool {
    matches!(
        error,
        rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
    )
}

/// After these, what is on the disk is unknown: the handle must not be used as if nothing had happened.
pub(super) fn poisons(error: &Error) -> bool {
    matches!(error, Error::Poisoned { .. } | Error::Corrupt { .. })
}

/// A statement that failed alone; the rest of its transaction is whole.
pub(super) fn is_single(error: &Error) -> bool {
    matches!(error, Error::Other(_) | Error::Unreadable { .. })
}
