//! Exit codes, following `sysexits.h` where it has a suitable one, and the error that carries one to `main`.

use std::fmt;

/// Invalid command line: a flag, a key, JSON that cannot be an intent.
pub const USAGE: u8 = 64;
/// The same key with another command or intent.
pub const MISMATCH: u8 = 65;
/// The store is unusable.
pub const STORE: u8 = 69;
/// The command ran, and the system does not report how it ended.
pub const UNKNOWN: u8 = 70;
/// The output of a replay could not be written.
pub const NOT_WRITTEN: u8 = 74;
/// It is running elsewhere, must not be retried yet, or the ledger is at its limit.
pub const IN_FLIGHT: u8 = 75;
/// An attempt may have happened.
pub const IN_DOUBT: u8 = 76;
/// It is done, but its outcome was not kept.
pub const NOT_KEPT: u8 = 77;
/// Invalid configuration.
pub const CONFIG: u8 = 78;
/// The command exists but cannot be run, as in a shell.
pub const CANNOT_RUN: u8 = 126;
/// Command not found, as in a shell.
pub const NO_COMMAND: u8 = 127;
/// A shell adds this to the number of the signal that killed a command.
pub const SIGNAL_BASE: i32 = 128;
/// `get` found nothing, or `resolve` was refused: a result that a script can branch on.
pub const NO: u8 = 1;

/// Why the program ends early: the exit code and the message for the user.
#[derive(Debug)]
pub struct Fault {
    pub code: u8,
    pub message: String,
}

impl Fault {
    pub fn new(code: u8, message: impl fmt::Display) -> Self {
        Self { code, message: message.to_string() }
    }

    pub fn usage(message: impl fmt::Display) -> Self {
        Self::new(USAGE, message)
    }

    pub fn config(message: impl fmt::Display) -> Self {
        Self::new(CONFIG, message)
    }
}

impl From<onceward::store::Error> for Fault {
    fn from(error: onceward::store::Error) -> Self {
        Self::new(STORE, error)
    }
}

impl From<onceward::Invalid> for Fault {
    fn from(error: onceward::Invalid) -> Self {
        Self::usage(error)
    }
}

impl From<onceward::Error> for Fault {
    fn from(error: onceward::Error) -> Self {
        match error {
            onceward::Error::Invalid(error) => error.into(),
            onceward::Error::Store(error) => error.into(),
            onceward::Error::Contended { .. }
            | onceward::Error::InFlight { .. }
            | onceward::Error::Quota { .. }
            | onceward::Error::OwnerUnknown { .. } => Self::new(IN_FLIGHT, error),
            onceward::Error::InDoubt { .. } => Self::new(IN_DOUBT, error),
            error => Self::new(STORE, error),
        }
    }
}
