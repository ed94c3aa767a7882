//! What is done to which file by which thread.

use std::fmt;

use rusqlite::ffi;

/// Which of the files of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FilePart {
    /// The file itself.
    Main,
    /// The write-ahead log.
    Log,
    /// The rollback journal, which exists only while a new file is created.
    Journal,
}

/// What is done to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// It is opened, or created.
    Open,
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// Its length is changed.
    Truncate,
    /// Written bytes must be on the disk.
    Sync,
    /// Its length is read.
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

    /// The error code of SQLite's own VFS for a disk that failed here.
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

/// The thread of the ledger. Each does its work in a fixed order, whatever the others do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The thread that opens the ledger.
    Opener,
    /// The writer thread.
    Writer,
    /// The checkpoint thread.
    Carrier,
    /// A reader thread.
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

/// What is done to which file by which thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Operation {
    /// The thread.
    pub role: Role,
    /// The file.
    pub part: FilePart,
    /// What is done.
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
    /// While the log is checkpointed into the file.
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
    pub fn is(self, part: FilePart, kind: Kind, offset: u64) -> bool {
        match self {
            Self::Change => kind.changes(),
            Self::FileWrite => part == FilePart::Main && kind == Kind::Write,
            Self::FileSync => part == FilePart::Main && kind == Kind::Sync,
            Self::LogSync => part == FilePart::Log && kind == Kind::Sync,
            Self::LogStart => part == FilePart::Log && kind == Kind::Write && offset == 0,
        }
    }
}
