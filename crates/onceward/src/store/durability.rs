//! What an acknowledged write survives. Stores report it, and operators see it at start, in `/readyz` and in `get`.

use std::fmt;

use serde::Serialize;

/// What an acknowledged write survives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "level", rename_all = "snake_case")]
pub enum Durability {
    /// A crash of any process and of the machine.
    #[default]
    Durable,
    /// Not every failure: an acknowledged claim may be lost, and its work would run again.
    BestEffort {
        /// Why, one sentence for each reason.
        reasons: Vec<String>,
    },
    /// Nothing: the records are in the memory of one process.
    Volatile,
}

impl Durability {
    /// Best effort if there are reasons, durable otherwise.
    pub fn unless(reasons: Vec<String>) -> Self {
        if reasons.is_empty() { Self::Durable } else { Self::BestEffort { reasons } }
    }

    /// Whether acknowledged writes may be lost although the store keeps them outside this process.
    pub fn is_best_effort(&self) -> bool {
        matches!(self, Self::BestEffort { .. })
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Durable => f.write_str("durable"),
            Self::BestEffort { reasons } => write!(f, "best effort: {}", reasons.join("; ")),
            Self::Volatile => f.write_str("in memory only"),
        }
    }
}
