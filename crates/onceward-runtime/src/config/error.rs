//! Error messages for `onceward.toml`: file and line, the path of the field, what is wrong, and what to write.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::exit::Fault;

/// How many mistakes one message lists; the user can start at the top.
const MAX_SHOWN: usize = 20;

/// One mistake.
#[derive(Debug)]
pub(super) struct Mistake {
    /// Byte offset in the text.
    pub(super) at: usize,
    /// The path of the field; empty if the text is not valid TOML.
    pub(super) path: String,
    pub(super) what: String,
}

/// All mistakes in a file.
#[derive(Debug)]
pub(super) struct Mistakes {
    file: PathBuf,
    lines: Vec<(usize, Mistake)>,
}

impl Mistakes {
    pub(super) fn new(file: &Path, text: &str, mut problems: Vec<Mistake>) -> Self {
        problems.sort_by_key(|problem| problem.at);
        let line = |at: usize| text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1;
        let lines = problems.into_iter().map(|problem| (line(problem.at), problem)).collect();
        Self { file: file.to_owned(), lines }
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        let separator = match self.lines.len() {
            1 => "",
            count => {
                write!(f, "{file} has {count} mistakes; nothing was done.")?;
                "\n  "
            }
        };
        for (line, Mistake { path, what, .. }) in self.lines.iter().take(MAX_SHOWN) {
            let colon = if path.is_empty() { "" } else { ": " };
            write!(f, "{separator}{file}:{line}: {path}{colon}{what}")?;
        }
        Ok(())
    }
}

impl From<Mistakes> for Fault {
    fn from(mistakes: Mistakes) -> Self {
        Self::config(mistakes)
    }
}

/// Suggests the known name that `name` may be a typo of, or lists all known names.
pub fn suggestion<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let mut known: Vec<&str> = known.collect();
    known.sort_unstable();
    let distance = |candidate: &&&str| strsim::damerau_levenshtein(name, candidate);
    // A third of the letters wrong is still a typo; more is another word.
    let slip = (name.chars().count() / 3).max(1);
    match known.iter().min_by_key(distance).filter(|best| distance(best) <= slip) {
        Some(best) => format!("did you mean `{best}`?"),
        None if known.is_empty() => "none are known".to_owned(),
        None => format!("known names are {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_is_corrected_and_any_other_word_gets_the_list() {
        let known = || ["retention", "tier", "wait"].into_iter();
        assert_eq!(suggestion("retenton", known()), "did you mean `retention`?");
        assert_eq!(suggestion("teir", known()), "did you mean `tier`?");
        assert_eq!(suggestion("colour", known()), "known names are retention, tier, wait");
        assert_eq!(suggestion("colour", [].into_iter()), "none are known");
    }
}
