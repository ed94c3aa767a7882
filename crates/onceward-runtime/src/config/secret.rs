//! Where a secret is stored: never in the configuration itself, which ends up in repositories and backups.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use onceward::core::hash::{Digest, digest};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de};

/// A shorter secret can be guessed.
const MIN_LENGTH: usize = 16;

/// A file with a secret holds one line; a larger file is something else.
const MAX_FILE_SIZE: u64 = 64 * 1024;

/// Where a secret is stored.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub enum Secret {
    /// In this environment variable.
    Environment(String),
    /// In this file, without the line break at its end.
    File(PathBuf),
    /// Not stored here: only its SHA-256 is.
    Hashed(Digest),
}

/// An invalid secret. The message never shows the text: it may be the secret itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSecret {
    #[error("`env:` must be followed by the name of a variable, as in \"env:ACME_TOKEN\"")]
    Variable,
    #[error("`file:` must be followed by a path, as in \"file:/run/secrets/acme\"")]
    Path,
    #[error("`sha256:` must be followed by 64 hex digits; `onceward token new` prints them")]
    Hash,
    #[error(
        "a secret must not be in the file itself: write \"env:NAME\", \"file:PATH\" or \"sha256:HEX\"; `onceward token new` \
         creates a token and prints its hash"
    )]
    InPlainText,
}

impl FromStr for Secret {
    type Err = InvalidSecret;

    fn from_str(text: &str) -> Result<Self, InvalidSecret> {
        match text.split_once(':') {
            Some(("env", name)) if is_variable(name) => Ok(Self::Environment(name.to_owned())),
            Some(("env", _)) => Err(InvalidSecret::Variable),
            Some(("file", "")) => Err(InvalidSecret::Path),
            Some(("file", path)) => Ok(Self::File(path.into())),
            Some(("sha256", hex)) => Digest::from_hex(hex).map(Self::Hashed).ok_or(InvalidSecret::Hash),
            _ => Err(InvalidSecret::InPlainText),
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
    /// The SHA-256 of the secret. A relative path starts at `folder`.
    pub fn hashed(&self, folder: &Path) -> Result<Digest, String> {
        if let Self::Hashed(digest) = self {
            return Ok(*digest);
        }
        let secret = self.text(folder)?;
        if secret.len() < MIN_LENGTH || secret.contains(|c: char| c.is_whitespace() || c.is_control()) {
            let place = self.place(folder);
            return Err(format!(
                "the secret in {place} is shorter than {MIN_LENGTH} characters or contains spaces; `onceward token new` creates a good one"
            ));
        }
        Ok(digest(secret.as_bytes()))
    }

    /// The secret itself, without the line break at its end.
    pub fn text(&self, folder: &Path) -> Result<String, String> {
        let place = self.place(folder);
        let text = match self {
            Self::Hashed(_) => {
                return Err("a hash is not enough here: write \"env:NAME\" or \"file:PATH\"".to_owned());
            }
            Self::Environment(name) => std::env::var(name).map_err(|_| format!("{place} is not set"))?,
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
    if size > MAX_FILE_SIZE {
        return Err(Box::new("the file is too large for a secret"));
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
    fn a_secret_in_plain_text_is_refused_without_showing_it() {
        for text in ["hunter2-hunter2-hunter2", "plain:hunter2", "env:", "file:", "sha256:hunter2", ""] {
            let wrong = text.parse::<Secret>().unwrap_err().to_string();
            assert!(!wrong.contains("hunter2"), "{wrong}");
        }
    }

    #[test]
    fn each_kind_of_reference_is_parsed() {
        assert_eq!("env:A".parse(), Ok(Secret::Environment("A".to_owned())));
        assert_eq!("file:a b".parse(), Ok(Secret::File("a b".into())));
        let hash = digest(b"abc");
        assert_eq!(format!("sha256:{}", hash.to_hex()).parse(), Ok(Secret::Hashed(hash)));
    }
}
