//! What can be wrong with a recipe, or with an intent that it is applied to.

use std::fmt;

use crate::duration;
use crate::json::PointerError;

/// What a recipe uses a field for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Part of the identity.
    Key,
    /// Must agree.
    Match,
    /// Selects the window of time.
    Window,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Key => "key",
            Self::Match => "match",
            Self::Window => "window",
        })
    }
}

impl Role {
    fn after_a_change(self) -> &'static str {
        match self {
            Self::Key | Self::Window => "a new intent",
            Self::Match => "a mismatch",
        }
    }
}

/// Why a definition is not a recipe, or a recipe cannot be applied to an intent. Never shows a value of the intent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No key fields.
    #[error("the recipe's key names no field; every intent would be the same one")]
    EmptyKey,
    /// A malformed pointer.
    #[error("in the recipe's {role}: {source}")]
    Pointer {
        /// The part of the recipe.
        role: Role,
        /// What is wrong with it.
        source: PointerError,
    },
    /// The same pointer twice in one list.
    #[error("the recipe's {role} names {pointer:?} twice")]
    Repeated {
        /// Which list.
        role: Role,
        /// The pointer.
        pointer: String,
    },
    /// A match field or window that lies in the key: whenever it differs, so does the key.
    #[error(
        "the recipe's {role} names {pointer:?}, which its key already contains with {key:?}; \
         a different value makes a different key, so nothing would be left for {role} to do"
    )]
    AlreadyInKey {
        /// The part of the recipe that names it.
        role: Role,
        /// The pointer.
        pointer: String,
        /// The key's pointer that contains it.
        key: String,
    },
    /// A normaliser that does not exist.
    #[error("unknown normaliser {name:?}; use trim, case, nfc or number")]
    UnknownNormaliser {
        /// The text in the definition.
        name: String,
    },
    /// A field whose name suggests that it changes with every try.
    #[error(
        "the recipe's {role} names {pointer:?}, which by its name changes from one try to the next, so that \
         a retry would be {}; leave it out, or set allow_volatile = true if it really stays the same",
        role.after_a_change()
    )]
    Volatile {
        /// The part of the recipe.
        role: Role,
        /// The pointer.
        pointer: String,
    },
    /// A window cut from the clock without `allow_now`.
    #[error(
        "the recipe's window is cut from the clock (of = \"now\"), so that a retry after the window's end would \
         be a new intent; name a field of the intent, or set allow_now = true"
    )]
    NowNotAllowed,
    /// An unknown window length.
    #[error("the recipe's window is cut every {every:?}; use day, week, month, or a duration above zero such as 6h")]
    UnknownEvery {
        /// The text in the definition.
        every: String,
        /// Why it is not a duration either, unless it is zero.
        #[source]
        source: Option<duration::Error>,
    },
    /// A time zone that does not exist.
    #[error("unknown time zone {zone:?}; use an IANA name such as Europe/Berlin")]
    UnknownZone {
        /// The text in the definition.
        zone: String,
    },
    /// An intent without a field that its identity needs. Going on would merge different intents.
    #[error(
        "the intent has no {pointer:?}, which the recipe's {role} needs; without it, different intents would be one"
    )]
    Missing {
        /// The part of the recipe that needs it.
        role: Role,
        /// The pointer.
        pointer: String,
    },
    /// A window field that is not a time.
    #[error(
        "{pointer:?}, from which the recipe's window is cut, is not an RFC 3339 time, date, date with time, or whole \
         number of epoch seconds between the years 0000 and 9999"
    )]
    BadTime {
        /// The pointer, or `now`.
        pointer: String,
    },
}

impl Error {
    /// A stable name of the kind of refusal, the same in the vectors and in every language.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::EmptyKey => "empty_key",
            Self::Pointer { .. } => "bad_pointer",
            Self::Repeated { .. } => "repeated",
            Self::AlreadyInKey { .. } => "already_in_key",
            Self::UnknownNormaliser { .. } => "unknown_normaliser",
            Self::Volatile { .. } => "volatile",
            Self::NowNotAllowed => "now_not_allowed",
            Self::UnknownEvery { .. } => "unknown_every",
            Self::UnknownZone { .. } => "unknown_zone",
            Self::Missing { .. } => "missing",
            Self::BadTime { .. } => "bad_time",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_part_of_the_recipe_that_it_is_about() {
        for (role, name) in [(Role::Key, "key"), (Role::Match, "match"), (Role::Window, "window")] {
            let error = Error::Repeated { role, pointer: "/a".to_owned() };
            assert_eq!(error.to_string(), format!("the recipe's {name} names \"/a\" twice"));
        }
    }
}
