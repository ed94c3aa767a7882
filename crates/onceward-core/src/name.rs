//! Tenant, operation, session and key: the names an intent goes by, checked once at the border so that
//! nothing behind it has to check again.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::hash::{self, Digest, Fields};
use crate::plant::{Plant, planted};

/// The longest name, in characters: what Stripe accepts for a key, and what fits every store's index.
pub const MAX_CHARACTERS: usize = 255;

/// The longest name of a stream: with a slash and the largest number behind it, it is a key.
pub const MAX_STREAM_CHARACTERS: usize = MAX_CHARACTERS - 20;

/// Which name is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Whose intent it is.
    Tenant,
    /// The kind of effect.
    Operation,
    /// The conversation or run that a derived key belongs to.
    Session,
    /// What names the intent inside tenant and operation.
    Key,
    /// What names a stream inside tenant and operation.
    Stream,
}

impl Kind {
    /// How many characters a name of this kind may have.
    fn most(self) -> usize {
        match self {
            Self::Stream => MAX_STREAM_CHARACTERS,
            Self::Tenant | Self::Operation | Self::Session | Self::Key => MAX_CHARACTERS,
        }
    }
}

impl fmt::Display for Kind {
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

/// Why a text cannot be a name. Never shows the text: it may hold personal data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is nothing there.
    #[error("the {what} is empty")]
    Empty {
        /// Which name.
        what: Kind,
    },
    /// It is longer than [`MAX_CHARACTERS`], or [`MAX_STREAM_CHARACTERS`] for a stream.
    #[error("the {what} has {characters} characters; at most {} are allowed", what.most())]
    TooLong {
        /// Which name.
        what: Kind,
        /// How many it has.
        characters: usize,
    },
    /// It contains a control character, such as a line break.
    #[error("the {what} contains a control character at position {position}")]
    ControlCharacter {
        /// Which name.
        what: Kind,
        /// Where, counted in characters from 1.
        position: usize,
    },
}

fn check(what: Kind, text: &str) -> Result<(), Error> {
    if text.is_empty() && what != Kind::Session {
        return Err(Error::Empty { what });
    }
    let characters = text.chars().count();
    if characters > what.most() {
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
            /// Checks the text and takes it.
            pub fn new(text: impl AsRef<str>) -> Result<Self, Error> {
                let text = text.as_ref();
                check(Kind::$name, text)?;
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

/// Names that clients fill with mail addresses and order numbers.
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
    /// Whose intent it is. One tenant can neither hit nor see another's keys.
    Tenant
}

name! {
    /// The kind of effect: `charge_payment`, `POST /v1/charges`, `mcp:mail/send_email`.
    Operation
}

name! {
    /// The conversation or run that a derived key belongs to; empty when keys are to meet across all of them.
    Session
}

name! {
    /// Names the intent inside tenant and operation.
    ///
    /// Clients put mail addresses and order numbers into keys, so `Debug` shows a hash and there is no
    /// `Display`: whoever wants the text asks for it with [`Key::as_str`].
    Key
}

name! {
    /// Names a stream inside tenant and operation. As secret as a key.
    Stream
}

readable!(Tenant, Operation, Session);
masked!(Key, Stream);

impl Key {
    /// A text that this crate has made itself and that keeps the rules by construction.
    pub(crate) fn made_here(text: String) -> Self {
        debug_assert_eq!(check(Kind::Key, &text), Ok(()));
        Self(text.into())
    }
}

impl Default for Tenant {
    /// The only tenant of a set-up that has just one user.
    fn default() -> Self {
        Self("default".into())
    }
}

impl Default for Session {
    /// No session: keys meet across all of them.
    fn default() -> Self {
        Self("".into())
    }
}

/// What makes an intent the same intent: whose it is, what kind of effect, and which one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// Whose intent it is.
    pub tenant: Tenant,
    /// The kind of effect.
    pub operation: Operation,
    /// Which one of that kind.
    pub key: Key,
}

impl Identity {
    /// Names the layout of the hash, so that it can change without meeting old digests.
    const SCHEME: &'static str = "intent v1";

    /// The digest under which stores keep the intent.
    pub fn digest(&self) -> Digest {
        Fields::new()
            .field(Self::SCHEME)
            .field(if planted(Plant::TenantDropped) { "" } else { self.tenant.as_str() })
            .field(self.operation.as_str())
            .field(self.key.as_str())
            .digest()
    }
}

impl fmt::Display for Identity {
    /// Safe for logs: the operation and the start of the digest, never the key. Of an operation that is a request, only
    /// where its path begins: what follows may name somebody.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operation = self.operation.as_str();
        let (shown, rest) = operation.split_at(shown_length(operation));
        write!(f, "{shown}{}#{}", if rest.is_empty() { "" } else { "…" }, self.digest().short())
    }
}

/// How much of an operation's name is shown in logs: of `POST /v1/users/ann` this is `POST /v1/`.
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
    fn a_log_shows_where_a_path_begins_and_no_more() {
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
    fn each_refusal_says_which_name_and_why() {
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
    fn length_is_counted_in_characters_and_not_in_bytes() {
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
    fn serde_checks_what_it_reads() {
        assert_eq!(serde_json::from_str::<Key>("\"k1\"").unwrap().as_str(), "k1");
        let error = serde_json::from_str::<Key>("\"\"").unwrap_err();
        assert!(error.to_string().contains("the key is empty"), "{error}");
        assert_eq!(serde_json::to_string(&Tenant::default()).unwrap(), "\"default\"");
    }

    #[test]
    fn names_that_only_join_to_the_same_text_are_different_intents() {
        assert_ne!(identity("a", "bc", "d").digest(), identity("ab", "c", "d").digest());
        assert_ne!(identity("a", "b", "cd").digest(), identity("a", "bc", "d").digest());
    }
}
