//! What is wrong with `onceward.toml`, as a person reads it: file and line, the path of the field, and what to write
//! instead.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::exit::Fault;

/// How many mistakes are told at once; who has more starts at the top.
const MOST: usize = 20;

/// One mistake.
#[derive(Debug)]
pub(super) struct Problem {
    /// Where in the text, in bytes.
    pub(super) at: usize,
    /// The path of the field; empty when the text is not even TOML.
    pub(super) path: String,
    pub(super) what: String,
}

/// All mistakes of a file.
#[derive(Debug)]
pub(super) struct Mistakes {
    file: PathBuf,
    lines: Vec<(usize, Problem)>,
}

impl Mistakes {
    pub(super) fn new(file: &Path, text: &str, mut problems: Vec<Problem>) -> Self {
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
        for (line, Problem { path, what, .. }) in self.lines.iter().take(MOST) {
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

/// What somebody who wrote `name` may have meant, or else all that there is.
pub(crate) fn instead<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let mut known: Vec<&str> = known.collect();
    known.sort_unstable();
    let distance = |candidate: &&&str| strsim::damerau_levenshtein(name, candidate);
    // A third of the letters wrong is still a slip; more is another word.
    let slip = (name.chars().count() / 3).max(1);
    match known.iter().min_by_key(distance).filter(|best| distance(best) <= slip) {
        Some(best) => format!("did you mean `{best}`?"),
        None if known.is_empty() => "there are none".to_owned(),
        None => format!("there are {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_corrected_and_another_word_gets_the_list() {
        let known = || ["retention", "tier", "wait"].into_iter();
        assert_eq!(instead("retenton", known()), "did you mean `retention`?");
        assert_eq!(instead("teir", known()), "did you mean `tier`?");
        assert_eq!(instead("colour", known()), "there are retention, tier, wait");
        assert_eq!(instead("colour", [].into_iter()), "there are none");
    }
}
