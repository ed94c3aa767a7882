//! What PostgreSQL's errors mean for a write: whether it may have happened, and whether another attempt may help.

use tokio_postgres::error::SqlState;

use crate::store::Error;
use crate::store::tls_failure::is_tls_failure;
use crate::store::transfer::{Seal, WriteKind};

/// Why a batch failed.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// The connection was lost, or the answer did not come: the batch may have been committed.
    Unknown(String),
    /// There is no connection, so nothing was sent.
    NotConnected(String),
    /// Two transactions were in each other's way. Nothing was written; the same batch may succeed.
    Conflict(String),
    /// A transaction of another program held a row for too long. Nothing was written.
    Held,
    /// The database has lost acknowledged batches: it knows only those up to this number. Nothing was written.
    Behind(i64),
    /// One of the jobs cannot be written; the others can.
    Job(Error),
    /// The store must not be used as it is, and another attempt does not help.
    Refused(Error),
}

/// What an error of a statement means. `shown` names the store.
pub(super) fn fault(error: &tokio_postgres::Error, shown: &str) -> Fault {
    let Some(db) = error.as_db_error() else {
        return Fault::Unknown(text(error));
    };
    let code = db.code();
    let refused = |reason: String| Fault::Refused(Error::Refused { store: shown.to_owned(), reason });
    match code.code() {
        // Raised by our own functions.
        "OW001" => Fault::Refused(sealed(db.detail(), shown)),
        "OW006" => Fault::Behind(db.detail().and_then(|number| number.parse().ok()).unwrap_or(0)),
        "OW004" => refused(format!("{}; nothing was written. Copy into an empty ledger", db.message())),
        _ if *code == SqlState::T_R_SERIALIZATION_FAILURE || *code == SqlState::T_R_DEADLOCK_DETECTED => {
            Fault::Conflict(text(error))
        }
        _ if *code == SqlState::LOCK_NOT_AVAILABLE => Fault::Held,
        _ if is_schema(code) => refused(format!(
            "its schema is missing or not complete ({}): run `onceward migrate --store {shown}`. If there was a ledger \
             before, restore it instead: with a new one, its finished work would run again",
            db.message()
        )),
        _ if *code == SqlState::INSUFFICIENT_PRIVILEGE => {
            refused(format!("{}: grant the user the rights that the guide to PostgreSQL names", db.message()))
        }
        // Connections, shutdown, a standby that was found instead of the primary, a full disk, an operator that cancelled: the
        // class says that the connection or the server is at fault, not the job.
        code if ["08", "0A", "57", "53", "25", "58", "XX", "F0"].iter().any(|class| code.starts_with(class)) => {
            Fault::Unknown(text(error))
        }
        // The text may quote a value, so that only the code is shown.
        code => Fault::Job(Error::Other(format!("PostgreSQL refused a record (SQLSTATE {code})"))),
    }
}

/// The error of a ledger with this seal.
fn sealed(seal: Option<&str>, shown: &str) -> Error {
    let refused = || Error::Sealed { store: shown.to_owned(), to: "another store".to_owned() };
    match Seal::from_text(shown, seal) {
        Ok(seal) => seal.refusal(shown, WriteKind::NewRecord).unwrap_or_else(refused),
        Err(error) => error,
    }
}

/// Whether a schema, table, type or function is missing.
pub(super) fn is_schema(code: &SqlState) -> bool {
    [
        SqlState::UNDEFINED_TABLE,
        SqlState::UNDEFINED_FUNCTION,
        SqlState::UNDEFINED_OBJECT,
        SqlState::UNDEFINED_COLUMN,
        SqlState::INVALID_SCHEMA_NAME,
    ]
    .contains(code)
}

/// What an attempt to connect failed with.
pub(super) fn cannot_connect(error: &tokio_postgres::Error, shown: &str) -> Fault {
    let refused = |reason: String| Fault::Refused(Error::Refused { store: shown.to_owned(), reason });
    match error.code() {
        Some(code)
            if *code == SqlState::INVALID_PASSWORD
                || *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION
                || *code == SqlState::INVALID_CATALOG_NAME =>
        {
            refused(text(error))
        }
        // The server answers, so that no work may run without its records.
        _ if is_tls_failure(error) || offers_no_tls(error) => refused(text(error)),
        _ => Fault::NotConnected(text(error)),
    }
}

/// Whether the server has answered that it does not encrypt. The client has no other sign of it than this text.
fn offers_no_tls(error: &tokio_postgres::Error) -> bool {
    std::error::Error::source(error).is_some_and(|cause| cause.to_string() == "server does not support TLS")
}

/// The error with its causes. Messages of the server that reach this place name users, databases and hosts, never values.
pub(crate) fn text(error: &tokio_postgres::Error) -> String {
    if let Some(db) = error.as_db_error() {
        return format!("{} (SQLSTATE {})", db.message(), db.code().code());
    }
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
