//! Why a store operation failed, and whether the store is out of reach.

use std::path::PathBuf;

/// Why a store operation failed. Whatever the reason, nothing runs unguarded.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The URL does not name a store that this build supports.
    #[error(
        "unknown store `{0}`: use a file path, `file:PATH`, `memory:`, `postgres://…`, `redis://…`, `rediss://…`, \
         `redis+sentinel://…` or `redis+cluster://…`"
    )]
    UnknownUrl(String),
    /// The file cannot be opened.
    #[error("cannot open the ledger {}: {reason}", path.display())]
    CannotOpen {
        /// The file.
        path: PathBuf,
        /// The system's error.
        reason: String,
    },
    /// The file is not a ledger.
    #[error("{} is not an Onceward ledger: {reason}. The file was not changed; use another file", path.display())]
    NotALedger {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        reason: String,
    },
    /// The file was written by a newer Onceward.
    #[error(
        "the ledger {} has schema version {found}, and this build supports versions up to {known}: upgrade onceward",
        path.display()
    )]
    NewerSchema {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The newest version that this build supports.
        known: i64,
    },
    /// The ledger is older than its high-water mark.
    #[error(
        "the ledger {} is older than its mark (ledger {ledger}, mark {mark}): it was restored from an older copy, or its \
         write-ahead log was deleted. Work that was done since then is not in it and would run again. Restore the newer file, \
         or accept this one with `onceward accept --store {}`",
        path.display(),
        path.display()
    )]
    Behind {
        /// The file.
        path: PathBuf,
        /// The mark number in the ledger.
        ledger: u64,
        /// The mark number in the file beside it.
        mark: u64,
    },
    /// The mark belongs to another ledger.
    #[error(
        "the mark of the ledger {} belongs to another ledger: the file was replaced. Work that the other ledger recorded is \
         not in this one and would run again. Restore the other file, or accept this one with `onceward accept --store {}`",
        path.display(),
        path.display()
    )]
    Replaced {
        /// The file.
        path: PathBuf,
    },
    /// The mark exists, but the ledger does not.
    #[error(
        "there is no ledger at {}, only its mark: the ledger was deleted or moved away. A new ledger would not know which work \
         was done. Restore the file, or start a new ledger with `onceward accept --store {}`",
        path.display(),
        path.display()
    )]
    Missing {
        /// The path of the missing ledger.
        path: PathBuf,
    },
    /// A file beside the ledger cannot be used. This does not count as an unreachable store: the ledger may be an older copy.
    #[error("cannot open the ledger {}: {reason}", path.display())]
    SideFile {
        /// The ledger.
        path: PathBuf,
        /// Which file, and what is wrong with it.
        reason: String,
    },
    /// An older version of Onceward made the ledger. It names intents in another way, so finished work would not be found.
    #[error(
        "the ledger {} has schema version {found}, and this build reads only version {known}: settle everything in doubt with \
         the version that made the ledger, then move the file away and start a new ledger",
        path.display()
    )]
    OlderSchema {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The version that this build supports.
        known: i64,
    },
    /// The file cannot be written.
    #[error("the ledger {} is read-only: check the permissions of the file and its folder", path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// The disk is full.
    #[error("no space is left for the ledger {}: free some space, then try again", path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// The file is damaged.
    #[error(
        "the ledger {} is damaged ({reason}): keep a copy, recover it with `sqlite3 FILE .recover`, and check \
         which records were lost before any work runs again",
        path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// SQLite's error.
        reason: String,
    },
    /// One record cannot be read; the others can.
    #[error("a record in the ledger {} cannot be read: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Another process locked the file for too long.
    #[error("the ledger {} was locked by another process for too long; nothing was written", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// The file was removed or replaced. No other process would ever see what is written to it now.
    #[error("the ledger {} was removed or replaced while it was open, so nothing more is written: reopen it", path.display())]
    Gone {
        /// The file.
        path: PathBuf,
    },
    /// The write-ahead log was removed or replaced: other processes do not see what this one has written to it.
    #[error(
        "the write-ahead log of the ledger {} was removed while the ledger was open, so nothing more is written: reopen it. This \
         happens when the process that has the ledger open also opens or copies its file by other means, such as Python's sqlite3: \
         when it closes the file, the locks of the ledger end",
        path.display()
    )]
    LogGone {
        /// The file.
        path: PathBuf,
    },
    /// The disk failed during a write; the state on disk is unknown until the file is opened again.
    #[error("the disk failed under the ledger {} ({reason}): reopen the ledger", path.display())]
    Poisoned {
        /// The file.
        path: PathBuf,
        /// What failed.
        reason: String,
    },
    /// The store can be reached and must not be used. This does not count as an unreachable store: what it has recorded is not
    /// known.
    #[error("cannot use the store {store}: {reason}")]
    Refused {
        /// The store, without secrets.
        store: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The store has lost the ledger that it had when it was opened, or has another one.
    #[error("cannot use the store {store}: {reason}")]
    LedgerLost {
        /// The store, without secrets.
        store: String,
        /// What happened to it, and what to do.
        reason: String,
    },
    /// The store has not confirmed a write as its URL asks for. This does not count as an unreachable store: the store answers,
    /// and may have given the claim to another caller meanwhile.
    #[error("the store {store} has not confirmed a write: {reason}")]
    Unconfirmed {
        /// The store, without secrets.
        store: String,
        /// What is missing, and what became of the write.
        reason: String,
    },
    /// The ledger was moved to another store, or is being moved. Nothing may be written to it any more.
    #[error(
        "the ledger {store} is sealed, because it moves to {to}: use that store once `onceward copy` has finished. Nothing was \
         written"
    )]
    Sealed {
        /// The store, without secrets.
        store: String,
        /// Where it was moved to, without secrets.
        to: String,
    },
    /// Inside a transaction of your own: two transactions were in each other's way.
    #[error("two transactions were in each other's way ({0}): roll back and run the transaction again")]
    Conflict(String),
    /// Inside a transaction of your own: the claim is not valid any more.
    #[error("{0}: roll back, so that the effect does not happen a second time")]
    ClaimLost(String),
    /// The store cannot be reached.
    #[error("the store cannot be reached: {0}")]
    Unreachable(String),
    /// The store did not answer, and the write may still be made, even later.
    #[error("the store cannot be reached, and whether it was written is unknown: {0}")]
    Unanswered(String),
    /// The store was closed.
    #[error("the store was closed")]
    Closed,
    /// Any other error of the engine.
    #[error("the store failed: {0}")]
    Other(String),
}

impl Error {
    /// Whether the store cannot be used at all, for any record. An error about what the store holds is not that: work that it
    /// has recorded would run again without it.
    pub fn is_out_of_reach(&self) -> bool {
        matches!(
            self,
            Self::Busy { .. }
                | Self::Full { .. }
                | Self::ReadOnly { .. }
                | Self::CannotOpen { .. }
                | Self::Gone { .. }
                | Self::LogGone { .. }
                | Self::Poisoned { .. }
                | Self::Unreachable(_)
                | Self::Unanswered(_)
        )
    }

    /// Whether trying again cannot help. A store that must not be used may be put right while a caller tries: an operator frees
    /// memory, changes a setting or a password.
    pub fn is_permanent(&self) -> bool {
        matches!(
            self,
            Self::Closed
                | Self::Poisoned { .. }
                | Self::Corrupt { .. }
                | Self::Gone { .. }
                | Self::LogGone { .. }
                | Self::NewerSchema { .. }
                | Self::OlderSchema { .. }
                | Self::LedgerLost { .. }
                | Self::Sealed { .. }
        )
    }
}
