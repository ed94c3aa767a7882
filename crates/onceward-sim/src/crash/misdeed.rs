//! Misdeeds that the crash harness commits on purpose, to see that its judge catches them. Bugs of the ledger itself are
//! planted in the ledger (`onceward_core::plant`).

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, params};

/// Something that a worker, or somebody with access to the file, does on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misdeed {
    /// A worker runs the effect although the ledger said no.
    Rogue,
    /// A worker gives its claim back as harmless although nobody knows.
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

impl Misdeed {
    /// Every misdeed, with its name on the command line.
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

    /// Ends the lease of a living owner behind its back.
    pub fn steal(path: &Path, key: &str) {
        let stolen = Connection::open(path).and_then(|connection| {
            connection.busy_timeout(Duration::from_secs(10))?;
            connection.execute("UPDATE intent SET until = 1, owner = NULL WHERE key = ?1", [key])
        });
        stolen.expect("the ledger can be spoiled");
    }

    /// Damages the ledger behind its back, for the misdeeds that are done to the file.
    pub fn spoil(self, connection: &Connection) -> rusqlite::Result<()> {
        // The newest, because it is looked at for some cycles more; the long-lived, because brief ones may go.
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
