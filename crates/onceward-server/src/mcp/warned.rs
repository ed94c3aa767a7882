//! What was said on stderr already, so that each tool is warned about once.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// The most warnings of one gateway: names come from servers, which may list ever new ones.
const MOST: usize = 1000;

/// What a warning is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum About {
    /// The configuration names a tool that the server does not list.
    Missing,
    /// The gateway cannot fill the argument that takes the key.
    KeyArgument,
    /// Its calls have an argument that changes with every try.
    Volatile,
}

/// The warnings so far.
#[derive(Debug, Default)]
pub(super) struct Warned(Mutex<BTreeSet<(About, String)>>);

impl Warned {
    /// Whether this is the first warning of its kind about a tool.
    pub(super) fn is_first(&self, about: About, tool: &str) -> bool {
        let mut warned = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        warned.len() < MOST && warned.insert((about, tool.to_owned()))
    }

    /// Whether a warning would be the first of its kind about a tool.
    pub(super) fn is_due(&self, about: About, tool: &str) -> bool {
        let warned = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        warned.len() < MOST && !warned.contains(&(about, tool.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_warned_about_once_and_there_is_a_limit() {
        let warned = Warned::default();
        assert!(warned.is_first(About::Missing, "a") && warned.is_first(About::KeyArgument, "a"));
        assert!(!warned.is_first(About::Missing, "a"));
        let said = (0..2 * MOST).filter(|number| warned.is_first(About::Missing, &number.to_string())).count();
        assert_eq!(said, MOST - 2);
    }
}
