//! Where a secret is: never in the configuration itself, which ends up in repositories and backups.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use onceward::core::hash::{Digest, digest};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de};

/// A shorter one can be guessed.
const SHORTEST: usize = 16;

/// A file with a secret holds one line; anything longer is another file.
const LARGEST_FILE: u64 = 64 * 1024;

/// Where a secret is.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub(crate) enum Secret {
    /// In this variable of the environment.
    Environment(String),
    /// In this file, without the line break at its end.
    File(PathBuf),
    /// Nowhere here: only its SHA-256 is.
    Hashed(Digest),
}

/// What is wrong with it. Never shows what was written: it may be the secret itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Wrong {
    #[error("`env:` is followed by the name of a variable, as in \"env:ACME_TOKEN\"")]
    Variable,
    #[error("`file:` is followed by a path, as in \"file:/run/secrets/acme\"")]
    Path,
    #[error("`sha256:` is followed by 64 hex digits; `onceward token new` prints them")]
    Hash,
    #[error(
        "a secret does not stand in the file itself: write \"env:NAME\", \"file:PATH\" or \"sha256:HEX\"; `onceward token \
         new` makes a token and prints its hash"
    )]
    InTheOpen,
}

impl FromStr for Secret {
    type Err = Wrong;

    fn from_str(text: &str) -> Result<Self, Wrong> {
        match text.split_once(':') {
            Some(("env", name)) if is_variable(name) => Ok(Self::Environment(name.to_owned())),
            Some(("env", _)) => Err(Wrong::Variable),
            Some(("file", "")) => Err(Wrong::Path),
            Some(("file", path)) => Ok(Self::File(path.into())),
            Some(("sha256", hex)) => Digest::from_hex(hex).map(Self::Hashed).ok_or(Wrong::Hash),
            _ => Err(Wrong::InTheOpen),
        }
    }
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl Secret {
    /// The SHA-256 of the secret. A relative path starts from `folder`.
    pub(crate) fn hashed(&self, folder: &Path) -> Result<Digest, String> {
        if let Self::Hashed(digest) = self {
            return Ok(*digest);
        }
        let secret = self.text(folder)?;
        if secret.len() < SHORTEST || secret.contains(|c: char| c.is_whitespace() || c.is_control()) {
            let place = self.place(folder);
            return Err(format!(
                "the secret in {place} has less than {SHORTEST} characters, or spaces; `onceward token new` makes a good one"
            ));
        }
        Ok(digest(secret.as_bytes()))
    }

    /// The secret itself, without the line break at its end.
    pub(crate) fn text(&self, folder: &Path) -> Result<String, String> {
        let place = self.place(folder);
        let text = match self {
            Self::Hashed(_) => {
                return Err("its hash is not enough here: write \"env:NAME\" or \"file:PATH\"".to_owned());
            }
            Self::Environment(name) => std::env::var(name).map_err(|_| format!("there is no text in {place}"))?,
            Self::File(path) => read(&folder.join(path)).map_err(|error| format!("{place}: {error}"))?,
        };
        let text = text.strip_suffix('\n').unwrap_or(&text);
        Ok(text.strip_suffix('\r').unwrap_or(text).to_owned())
    }

    /// Where it is, for messages.
    fn place(&self, folder: &Path) -> String {
        match self {
            Self::Environment(name) => format!("the variable {name}"),
            Self::File(path) => folder.join(path).display().to_string(),
            Self::Hashed(_) => "the configuration".to_owned(),
        }
    }
}

fn read(path: &Path) -> Result<String, Box<dyn fmt::Display>> {
    let size = std::fs::metadata(path).map_err(boxed)?.len();
    if size > LARGEST_FILE {
        return Err(Box::new("it is too large for a secret"));
    }
    std::fs::read_to_string(path).map_err(boxed)
}

fn boxed(error: std::io::Error) -> Box<dyn fmt::Display> {
    Box::new(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_in_the_open_is_refused_without_showing_it() {
        for text in ["hunter2-hunter2-hunter2", "plain:hunter2", "env:", "file:", "sha256:hunter2", ""] {
            let wrong = text.parse::<Secret>().unwrap_err().to_string();
            assert!(!wrong.contains("hunter2"), "{wrong}");
        }
    }

    #[test]
    fn each_place_has_its_form() {
        assert_eq!("env:A".parse(), Ok(Secret::Environment("A".to_owned())));
        assert_eq!("file:a b".parse(), Ok(Secret::File("a b".into())));
        let hash = digest(b"abc");
        assert_eq!(format!("sha256:{}", hash.to_hex()).parse(), Ok(Secret::Hashed(hash)));
    }
}
