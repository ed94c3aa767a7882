//! Why a command changes nothing.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::record::Status;

/// Why a command is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The intent does not exist.
    Absent,
    /// A caller is doing the work now.
    Running,
    /// The record has changed since it was read.
    Changed,
    /// There is nothing to settle: the intent is in this state.
    NothingToDo(Status),
    /// The worker promised to mark its entry as sent before it sends, and has not done so. It cannot have finished it.
    NotSent,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("there is no such intent"),
            Self::Running => f.write_str("a caller is doing the work now"),
            Self::Changed => f.write_str("the record has changed since it was read"),
            Self::NotSent => f.write_str("the entry was not marked as sent, so it cannot be finished"),
            Self::NothingToDo(status) => write!(f, "there is nothing to settle: the intent is {}", status.as_str()),
        }
    }
}
