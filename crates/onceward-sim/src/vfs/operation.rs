//! What is done to which file by whom.

use std::fmt;

use rusqlite::ffi;

/// Which of the files of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The file itself.
    Main,
    /// The write-ahead log.
    Log,
    /// The rollback journal, which is there only while a new file is made.
    Journal,
}

/// What is done to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// It is opened, or made.
    Open,
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// Its length is changed.
    Truncate,
    /// What was written is to be on the disk.
    Sync,
    /// Its length is asked for.
    Size,
    /// It is deleted.
    Delete,
    /// A lock is taken.
    Lock,
    /// The shared index is mapped.
    Map,
    /// A lock in the shared index is taken.
    MapLock,
}

impl Kind {
    /// Whether it changes what is on the disk.
    pub fn changes(self) -> bool {
        matches!(self, Self::Open | Self::Write | Self::Truncate | Self::Sync | Self::Delete)
    }

    /// How SQLite's own VFS says that the disk failed here.
    pub fn error(self) -> i32 {
        match self {
            Self::Open => ffi::SQLITE_CANTOPEN,
            Self::Read => ffi::SQLITE_IOERR_READ,
            Self::Write => ffi::SQLITE_IOERR_WRITE,
            Self::Truncate => ffi::SQLITE_IOERR_TRUNCATE,
            Self::Sync => ffi::SQLITE_IOERR_FSYNC,
            Self::Size => ffi::SQLITE_IOERR_FSTAT,
            Self::Delete => ffi::SQLITE_IOERR_DELETE,
            Self::Lock => ffi::SQLITE_IOERR_LOCK,
            Self::Map => ffi::SQLITE_IOERR_SHMMAP,
            Self::MapLock => ffi::SQLITE_IOERR_SHMLOCK,
        }
    }
}

/// Which thread of the ledger does it. Each does its work in a fixed order, whatever the others do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Whoever opens the ledger.
    Opener,
    /// The thread that writes.
    Writer,
    /// The thread that carries the log over into the file.
    Carrier,
    /// A thread that reads.
    Reader,
}

impl Role {
    /// The role of this thread, by its name.
    pub fn of_this_thread() -> Self {
        match std::thread::current().name() {
            Some("onceward-write") => Self::Writer,
            Some("onceward-log") => Self::Carrier,
            Some("onceward-look" | "onceward-scan") => Self::Reader,
            _ => Self::Opener,
        }
    }
}

/// What is done to which file by whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Operation {
    /// By whom.
    pub role: Role,
    /// To which file.
    pub part: Part,
    /// What.
    pub kind: Kind,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {:?} by {:?}", self.kind, self.part, self.role)
    }
}

/// Where the power may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// At any change.
    Change,
    /// While the log is carried over into the file.
    FileWrite,
    /// When the file is synced: after that the log may start over.
    FileSync,
    /// When the log is synced: after that a commit is acknowledged.
    LogSync,
    /// When the header of the log is written: the log starts over.
    LogStart,
}

impl Moment {
    /// All of them, in order.
    pub const ALL: [Self; 5] = [Self::Change, Self::FileWrite, Self::FileSync, Self::LogSync, Self::LogStart];

    /// Whether this operation is such a moment.
    pub fn is(self, part: Part, kind: Kind, offset: u64) -> bool {
        match self {
            Self::Change => kind.changes(),
            Self::FileWrite => part == Part::Main && kind == Kind::Write,
            Self::FileSync => part == Part::Main && kind == Kind::Sync,
            Self::LogSync => part == Part::Log && kind == Kind::Sync,
            Self::LogStart => part == Part::Log && kind == Kind::Write && offset == 0,
        }
    }
}
