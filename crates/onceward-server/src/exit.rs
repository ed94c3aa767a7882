//! Exit codes, after `sysexits.h` where it has a fitting one, and the fault that carries one to `main`.

use std::fmt;

/// The command line is wrong: a flag, a key, JSON that cannot be an intent.
pub(crate) const USAGE: u8 = 64;
/// The same key came with another command or intent.
pub(crate) const MISMATCH: u8 = 65;
/// The store cannot be used.
pub(crate) const STORE: u8 = 69;
/// The command ran, and the system does not say how it ended.
pub(crate) const UNKNOWN: u8 = 70;
/// The output of a repeat cannot be written.
pub(crate) const NOT_WRITTEN: u8 = 74;
/// It is running elsewhere, may not be tried again yet, or has no place in the ledger at this moment.
pub(crate) const IN_FLIGHT: u8 = 75;
/// An attempt may have happened.
pub(crate) const IN_DOUBT: u8 = 76;
/// It is done, and its outcome is not kept.
pub(crate) const NOT_KEPT: u8 = 77;
/// The configuration is wrong.
pub(crate) const CONFIG: u8 = 78;
/// The command is there and cannot be run, as in a shell.
pub(crate) const CANNOT_RUN: u8 = 126;
/// There is no such command, as in a shell.
pub(crate) const NO_COMMAND: u8 = 127;
/// A shell adds this to the number of the signal that ended a command.
pub(crate) const SIGNAL_BASE: i32 = 128;
/// `get` found nothing, or `resolve` was refused: an answer that a script can branch on.
pub(crate) const NO: u8 = 1;

/// Why the program ends early: the exit code, and what a person reads.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) code: u8,
    pub(crate) message: String,
}

impl Fault {
    pub(crate) fn new(code: u8, message: impl fmt::Display) -> Self {
        Self { code, message: message.to_string() }
    }

    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self::new(USAGE, message)
    }

    pub(crate) fn config(message: impl fmt::Display) -> Self {
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
