//! Tenant, operation, session, key and stream: the names of an intent. They are checked when they are made, so that other code
//! need not check them again.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::hash::{self, Digest, Fields};

/// The longest name, in characters: the limit of Stripe's keys, and short enough for the index of every store.
pub const MAX_CHARACTERS: usize = 255;

/// The longest name of a stream: together with a slash and the largest number it still is a valid key.
pub const MAX_STREAM_CHARACTERS: usize = MAX_CHARACTERS - 20;

/// A kind of name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// The tenant that the intent belongs to.
    Tenant,
    /// The kind of effect.
    Operation,
    /// The conversation or run that a derived key belongs to.
    Session,
    /// The name of the intent inside tenant and operation.
    Key,
    /// The name of a stream inside tenant and operation.
    Stream,
}

impl NameKind {
    /// The longest name of this kind, in characters.
    fn max_characters(self) -> usize {
        match self {
            Self::Stream => MAX_STREAM_CHARACTERS,
            Self::Tenant | Self::Operation | Self::Session | Self::Key => MAX_CHARACTERS,
        }
    }
}

impl fmt::Display for NameKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tenant => "tenant",
            Self::Operation => "operation",
            Self::Session => "session",
            Self::Key => "key",
            Self::Stream => "stream",
        })
    }
}

/// Why a text cannot be a name. The message never shows the text, which may contain personal data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is empty.
    #[error("the {what} is empty")]
    Empty {
        /// Which name.
        what: NameKind,
    },
    /// The text is longer than [`MAX_CHARACTERS`], or [`MAX_STREAM_CHARACTERS`] for a stream.
    #[error("the {what} has {characters} characters; at most {} are allowed", what.max_characters())]
    TooLong {
        /// Which name.
        what: NameKind,
        /// The number of characters.
        characters: usize,
    },
    /// The text contains a control character, such as a line break.
    #[error("the {what} contains a control character at position {position}")]
    ControlCharacter {
        /// Which name.
        what: NameKind,
        /// The position, counted in characters from 1.
        position: usize,
    },
}

fn check(what: NameKind, text: &str) -> Result<(), Error> {
    if text.is_empty() && what != NameKind::Session {
        return Err(Error::Empty { what });
    }
    let characters = text.chars().count();
    if characters > what.max_characters() {
        return Err(Error::TooLong { what, characters });
    }
    match text.chars().position(char::is_control) {
        Some(index) => Err(Error::ControlCharacter { what, position: index + 1 }),
        None => Ok(()),
    }
}

macro_rules! name {
    ($(#[$documentation:meta])* $name:ident) => {
        $(#[$documentation])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks the text and makes it a name.
            pub fn new(text: impl AsRef<str>) -> Result<Self, Error> {
                let text = text.as_ref();
                check(NameKind::$name, text)?;
                Ok(Self(text.into()))
            }

            /// The text itself.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::new(String::deserialize(deserializer)?).map_err(de::Error::custom)
            }
        }

        impl std::str::FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self, Error> {
                Self::new(text)
            }
        }
    };
}

macro_rules! readable {
    ($($name:ident),+) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($name)).field(&&*self.0).finish()
            }
        }
    )+};
}

/// For names that may contain mail addresses and order numbers: `Debug` shows only a hash.
macro_rules! masked {
    ($($name:ident),+) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), hash::digest(self.0.as_bytes()).short())
            }
        }
    )+};
}

name! {
    /// The tenant that an intent belongs to. One tenant can neither use nor see another's keys.
    Tenant
}

name! {
    /// The kind of effect: `charge_payment`, `POST /v1/charges`, `mcp:mail/send_email`.
    Operation
}

name! {
    /// The conversation or run that a derived key belongs to. If it is empty, keys are shared between all of them.
    Session
}

name! {
    /// Names the intent inside tenant and operation.
    ///
    /// Clients put mail addresses and order numbers into keys, so `Debug` shows a hash and there is no `Display`. Code that
    /// needs the text calls [`Key::as_str`].
    Key
}

name! {
    /// Names a stream inside tenant and operation. Treated as secret, like a key.
    Stream
}

readable!(Tenant, Operation, Session);
masked!(Key, Stream);

impl Key {
    /// A key from a text that this crate made and that is valid by construction.
    pub(crate) fn made_here(text: String) -> Self {
        debug_assert_eq!(check(NameKind::Key, &text), Ok(()));
        Self(text.into())
    }
}

impl Default for Tenant {
    /// The tenant of a set-up with a single user.
    fn default() -> Self {
        Self("default".into())
    }
}

impl Default for Session {
    /// No session: keys are shared between all sessions.
    fn default() -> Self {
        Self("".into())
    }
}

/// The identity of an intent: two calls with the same identity are the same intent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// The tenant that it belongs to.
    pub tenant: Tenant,
    /// The kind of effect.
    pub operation: Operation,
    /// The key inside tenant and operation.
    pub key: Key,
}

impl Identity {
    /// The version of the hash layout, so that a new layout never produces an old digest.
    const SCHEME: &'static str = "intent v1";

    /// The digest under which stores keep the intent.
    pub fn digest(&self) -> Digest {
        Fields::new()
            .field(Self::SCHEME)
            .field(self.tenant.as_str())
            .field(self.operation.as_str())
            .field(self.key.as_str())
            .digest()
    }
}

impl fmt::Display for Identity {
    /// Safe for logs: the operation and the start of the digest, never the key. For an operation that is an HTTP request, only
    /// the first segment of its path is shown, because the rest may contain personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operation = self.operation.as_str();
        let (shown, rest) = operation.split_at(shown_length(operation));
        write!(f, "{shown}{}#{}", if rest.is_empty() { "" } else { "…" }, self.digest().short())
    }
}

/// How much of an operation's name is shown in logs: for `POST /v1/users/ann` it is `POST /v1/`.
fn shown_length(operation: &str) -> usize {
    let Some((method, path)) = operation.split_once(' ') else { return operation.len() };
    let is_request = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
    match path.strip_prefix('/').and_then(|path| path.find('/')) {
        Some(at) if is_request => method.len() + 1 + at + 2,
        _ => operation.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_show_only_the_first_segment_of_a_path() {
        let shown = |operation| identity("a", operation, "k").to_string().split('#').next().unwrap().to_owned();
        assert_eq!(shown("POST /v1/users/ann@example.com/charges"), "POST /v1/…");
        assert_eq!(shown("POST /charges"), "POST /charges");
        assert_eq!(shown("PATCH /v1/"), "PATCH /v1/");
        assert_eq!(shown("mcp:mail/send_email"), "mcp:mail/send_email");
        assert_eq!(shown("charge a/b/c"), "charge a/b/c");
    }

    fn identity(tenant: &str, operation: &str, key: &str) -> Identity {
        Identity {
            tenant: Tenant::new(tenant).unwrap(),
            operation: Operation::new(operation).unwrap(),
            key: Key::new(key).unwrap(),
        }
    }

    #[test]
    fn each_error_says_which_name_is_invalid_and_why() {
        assert_eq!(Key::new("").unwrap_err().to_string(), "the key is empty");
        assert_eq!(
            Key::new("k".repeat(300)).unwrap_err().to_string(),
            "the key has 300 characters; at most 255 are allowed"
        );
        assert_eq!(
            Operation::new("ab\ncd").unwrap_err().to_string(),
            "the operation contains a control character at position 3"
        );
        assert_eq!(Tenant::new("").unwrap_err().to_string(), "the tenant is empty");
        assert_eq!(
            Session::new("\u{85}").unwrap_err().to_string(),
            "the session contains a control character at position 1"
        );
    }

    #[test]
    fn lengths_are_counted_in_characters_and_not_in_bytes() {
        assert!(Key::new("é".repeat(255)).is_ok());
        assert!(Key::new("é".repeat(256)).is_err());
    }

    #[test]
    fn a_stream_leaves_room_for_its_numbers() {
        assert!(Stream::new("s".repeat(235)).is_ok());
        assert_eq!(
            Stream::new("s".repeat(236)).unwrap_err().to_string(),
            "the stream has 236 characters; at most 235 are allowed"
        );
        assert_eq!(Stream::new("").unwrap_err().to_string(), "the stream is empty");
    }

    #[test]
    fn only_a_session_may_be_empty() {
        assert_eq!(Session::new(""), Ok(Session::default()));
        assert!(Tenant::new("").is_err() && Operation::new("").is_err() && Key::new("").is_err());
    }

    #[test]
    fn the_default_tenant_is_called_default() {
        assert_eq!(Tenant::default(), Tenant::new("default").unwrap());
    }

    #[test]
    fn a_key_never_shows_its_text_by_accident() {
        let identity = identity("acme", "mail", "ann@example.com");
        for shown in [format!("{identity:?}"), format!("{identity}"), format!("{:?}", identity.key)] {
            assert!(!shown.contains("ann"), "{shown}");
        }
        assert_eq!(identity.to_string(), format!("mail#{}", identity.digest().short()));
    }

    #[test]
    fn names_are_checked_when_they_are_deserialised() {
        assert_eq!(serde_json::from_str::<Key>("\"k1\"").unwrap().as_str(), "k1");
        let error = serde_json::from_str::<Key>("\"\"").unwrap_err();
        assert!(error.to_string().contains("the key is empty"), "{error}");
        assert_eq!(serde_json::to_string(&Tenant::default()).unwrap(), "\"default\"");
    }

    #[test]
    fn names_that_concatenate_to_the_same_text_are_different_intents() {
        assert_ne!(identity("a", "bc", "d").digest(), identity("ab", "c", "d").digest());
        assert_ne!(identity("a", "b", "cd").digest(), identity("a", "bc", "d").digest());
    }
}
