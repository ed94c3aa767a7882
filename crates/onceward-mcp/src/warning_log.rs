//! The warnings already written to stderr, so that each tool gets each warning once.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// The most warnings of one gateway: a server may list ever new tools.
const MAX_WARNINGS: usize = 1000;

/// The kind of a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WarningKind {
    /// The configuration names a tool that the server does not list.
    Missing,
    /// The gateway cannot fill the argument that takes the key.
    KeyArgument,
    /// Its calls have an argument that changes with every attempt.
    Volatile,
}

/// The warnings given so far.
#[derive(Debug, Default)]
pub(super) struct WarningLog(Mutex<BTreeSet<(WarningKind, String)>>);

impl WarningLog {
    /// Notes a warning. Returns whether it is the first of its kind about the tool.
    pub(super) fn insert(&self, kind: WarningKind, tool: &str) -> bool {
        let mut warnings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        warnings.len() < MAX_WARNINGS && warnings.insert((kind, tool.to_owned()))
    }

    /// Whether a warning would be the first of its kind about the tool.
    pub(super) fn is_new(&self, kind: WarningKind, tool: &str) -> bool {
        let warnings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        warnings.len() < MAX_WARNINGS && !warnings.contains(&(kind, tool.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_warning_is_given_once_and_their_number_is_limited() {
        let warnings = WarningLog::default();
        assert!(warnings.insert(WarningKind::Missing, "a") && warnings.insert(WarningKind::KeyArgument, "a"));
        assert!(!warnings.insert(WarningKind::Missing, "a"));
        let inserted =
            (0..2 * MAX_WARNINGS).filter(|number| warnings.insert(WarningKind::Missing, &number.to_string())).count();
        assert_eq!(inserted, MAX_WARNINGS - 2);
    }
}
