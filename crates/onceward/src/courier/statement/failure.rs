//! What an error of PostgreSQL says about an attempt: before the commit, every error is a proof that nothing happened.

use std::time::Duration;

use tokio_postgres::error::{DbError, ErrorPosition, Severity};

use onceward_core::breaker::Health;

use crate::courier::SinkResult;
use crate::store::Error;
use crate::store::postgres::error_text;

/// Why an attempt did not get to its end.
#[derive(Debug)]
pub(super) struct StatementFailure {
    error: String,
    /// Whether a later attempt may succeed.
    again: bool,
    health: Health,
    /// Nothing can have happened.
    is_proven: bool,
}

impl From<StatementFailure> for SinkResult {
    fn from(failure: StatementFailure) -> Self {
        let StatementFailure { error, again, health, is_proven } = failure;
        match is_proven {
            true => Self::Refused { error, retry_after: None, again, health },
            false => Self::Unknown { error, retry_after: None, health },
        }
    }
}

impl StatementFailure {
    fn proven(error: String, again: bool, health: Health) -> Self {
        Self { error, again, health, is_proven: true }
    }

    /// Whether the transaction was committed is for the record to say.
    pub(super) fn unknown(error: String) -> Self {
        Self { error, again: true, health: Health::Failing, is_proven: false }
    }

    /// The entry cannot be delivered as it is.
    pub(super) fn of_entry(error: String) -> Self {
        Self::proven(error, false, Health::Working)
    }

    pub(super) fn too_slow(limit: Duration) -> Self {
        Self::proven(format!("it took longer than {limit:?} and was not committed"), true, Health::Failing)
    }

    /// An error about the ledger, in the transaction or before it.
    pub(super) fn of_store(error: Error) -> Self {
        let health = match &error {
            // Its new owner goes on with it.
            Error::ClaimLost(why) => {
                return Self { error: why.clone(), again: true, health: Health::Working, is_proven: false };
            }
            Error::Conflict(_) => Health::Working,
            _ => Health::Failing,
        };
        Self::proven(error.to_string(), true, health)
    }

    /// The role cannot be taken on. That says nothing about the entry.
    pub(super) fn of_role(error: &tokio_postgres::Error) -> Self {
        Self::proven(format!("cannot take on the role of the sink: {}", error_text(error)), true, Health::Failing)
    }

    /// An error of the statement, before the commit was asked for.
    pub(super) fn of_statement(error: &tokio_postgres::Error) -> Self {
        let Some(db) = error.as_db_error() else {
            let error = format!("the connection was lost before the commit: {}", error_text(error));
            return Self::proven(error, true, Health::Failing);
        };
        let (again, health) = judged(db.code().code());
        Self::proven(shown(db), again, health)
    }

    /// An error of the commit: constraints may be checked only then. Anything but a plain error of the server leaves open
    /// whether it was committed.
    pub(super) fn of_commit(error: &tokio_postgres::Error) -> Self {
        match error.as_db_error().filter(|db| is_rolled_back(db)) {
            Some(_) => Self::of_statement(error),
            None => Self::unknown(format!("the answer to the commit was lost: {}", error_text(error))),
        }
    }
}

/// Whether an error of a commit is a proof that it was rolled back. Errors about the connection and the server are not: a pooler
/// may have sent them, or the server after the commit.
fn is_rolled_back(db: &DbError) -> bool {
    let code = db.code().code();
    let is_about_server = ["08", "57", "58", "F0", "XX"].contains(&class(code)) || code == "40003";
    db.parsed_severity() == Some(Severity::Error) && !is_about_server
}

fn class(code: &str) -> &str {
    code.get(..2).unwrap_or(code)
}

/// Whether an attempt with this error may succeed later, and what it says about the database. By the classes of appendix A of the
/// PostgreSQL manual.
fn judged(code: &str) -> (bool, Health) {
    match class(code) {
        // A value or a constraint, or an error that the user's own code raises: the same entry would fail again.
        "21" | "22" | "23" | "27" | "44" | "54" | "P0" => (false, Health::Working),
        _ if code == "OW002" => (false, Health::Working),
        // The connection, the server, or the statement itself: every entry would fail, so that the breaker stops them.
        "08" | "0A" | "25" | "28" | "3D" | "3F" | "42" | "53" | "57" | "58" | "F0" | "XX" => (true, Health::Failing),
        // Other transactions are in the way, or the code is one of the user's own.
        _ => (true, Health::Working),
    }
}

/// The error as a record keeps it. The details, and messages about values, quote what the entry holds.
fn shown(db: &DbError) -> String {
    let code = db.code().code();
    match class(code) {
        "22" => format!("PostgreSQL cannot use a value of the entry (SQLSTATE {code})"),
        _ => format!("PostgreSQL: {} (SQLSTATE {code})", db.message()),
    }
}

/// What an error of a look at the statement says about it. The statement begins after `offset` characters.
pub(super) fn mistake(error: &tokio_postgres::Error, offset: usize) -> Result<Option<String>, Error> {
    let Some(db) = error.as_db_error() else { return Err(Error::Unreachable(error_text(error))) };
    let code = db.code().code();
    match class(code) {
        // The look has no values, which some types refuse.
        "22" | "23" if code != "22023" => return Ok(None),
        "40" | "53" | "55" | "57" | "58" | "XX" => return Err(Error::Unreachable(error_text(error))),
        _ => {}
    }
    let place = match db.position() {
        Some(ErrorPosition::Original(at)) => at.checked_sub(u32::try_from(offset).unwrap_or(u32::MAX)),
        _ => None,
    };
    let place = place.map(|at| format!(", at character {at}")).unwrap_or_default();
    Ok(Some(format!("PostgreSQL does not accept it: {} (SQLSTATE {code}){place}", db.message())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_is_judged() {
        for code in ["22P02", "23505", "23P01", "44000", "P0001", "54000", "21000", "OW002"] {
            assert_eq!(judged(code), (false, Health::Working), "{code}");
        }
        for code in ["40001", "40P01", "55P03", "OW001", "U0001", ""] {
            assert_eq!(judged(code), (true, Health::Working), "{code}");
        }
        for code in ["08006", "25006", "28P01", "42P01", "42501", "53300", "57014", "57P01", "XX000"] {
            assert_eq!(judged(code), (true, Health::Failing), "{code}");
        }
    }
}
