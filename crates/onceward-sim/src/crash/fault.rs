//! Faults that the crash harness commits on purpose, to prove that its judge finds them. Bugs of the product itself are
//! planted in the product (`onceward::plant`).

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, params};

/// A fault of a worker, or of a ledger file that is changed from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A worker runs the effect although it did not get the claim.
    Rogue,
    /// A worker releases its claim although the result is unknown.
    Release,
    /// The ledger loses a finished record.
    Lose,
    /// The ledger changes a finished outcome.
    Forge,
    /// The ledger drops a finished outcome before its time.
    Hasten,
    /// The ledger forgets a doubt and lets the next caller run.
    Forget,
    /// The ledger is in doubt about an attempt that had sent nothing.
    Doubt,
    /// The ledger takes a living owner for dead.
    Steal,
}

impl Fault {
    /// Every fault, with its name on the command line.
    pub const ALL: [(&str, Self); 8] = [
        ("rogue", Self::Rogue),
        ("release", Self::Release),
        ("lose", Self::Lose),
        ("forge", Self::Forge),
        ("hasten", Self::Hasten),
        ("forget", Self::Forget),
        ("doubt", Self::Doubt),
        ("steal", Self::Steal),
    ];

    /// Whether it changes the file of the ledger from outside. The others are faults of a worker, on every store.
    pub fn changes_the_file(self) -> bool {
        !matches!(self, Self::Rogue | Self::Release)
    }

    /// Ends the lease of a living owner in the file.
    pub fn steal(path: &Path, key: &str) {
        let stolen = Connection::open(path).and_then(|connection| {
            connection.busy_timeout(Duration::from_secs(10))?;
            connection.execute("UPDATE intent SET until = 1, owner = NULL WHERE key = ?1", [key])
        });
        stolen.expect("the ledger can be spoiled");
    }

    /// Damages the ledger file, for the faults of the ledger.
    pub fn spoil(self, connection: &Connection) -> rusqlite::Result<()> {
        // The newest, because it is audited for some more cycles; not a brief one, because those may go.
        let newest = |state: &str| {
            format!(
                "(SELECT row FROM intent WHERE state IN ({state}) AND (retention IS NULL OR retention > 1000)
                  ORDER BY row DESC LIMIT 1)"
            )
        };
        let done = newest("'done'");
        let sql = match self {
            Self::Rogue | Self::Release | Self::Steal => return Ok(()),
            Self::Lose => format!("DELETE FROM intent WHERE row = {done}"),
            Self::Forge => format!("UPDATE intent SET body = CAST('\"forged\"' AS BLOB) WHERE row = {done}"),
            Self::Hasten => format!("UPDATE intent SET until = 1 WHERE row = {done}"),
            Self::Forget => format!(
                "UPDATE intent SET state = 'open', fence = NULL, owner = NULL, until = 1, doubt_since = NULL
                 WHERE row = {}",
                newest("'in_doubt', 'sent'")
            ),
            Self::Doubt => format!("UPDATE intent SET state = 'sent' WHERE row = {}", newest("'claimed'")),
        };
        connection.execute(&sql, params![]).map(|_| ())
    }
}
