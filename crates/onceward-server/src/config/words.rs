//! The words of the configuration, which the command line shares. The core has the same as types; these add how
//! they are read and described.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use onceward::core::{duration, policy};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de};

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, clap::ValueEnum)]
        #[serde(rename_all = "snake_case")]
        #[value(rename_all = "snake_case")]
        pub(crate) enum $name { $($(#[$variant_doc])* $variant),+ }

        impl From<$name> for policy::$name {
            fn from(word: $name) -> Self {
                match word { $($name::$variant => Self::$variant),+ }
            }
        }
    };
}

words! {
    /// How much is at stake.
    Tier {
        /// 30 days, then a tombstone for 90.
        Payment,
        /// 7 days, then a tombstone for 14.
        Notification,
        /// 24 hours and no tombstone.
        Email,
        /// 24 hours, then a tombstone for 48.
        Standard,
        /// Never forgotten.
        Forever,
    }
}

words! {
    /// What happens to an intent whose attempt may or may not have happened.
    InDoubt {
        /// Nothing runs until somebody settles it: at most once.
        Hold,
        /// It is tried again with the same downstream key: at least once.
        Retry,
        /// The other side is asked first.
        Probe,
    }
}

words! {
    /// What an error without a class means.
    OnError {
        /// It may have happened where the error suggests so or a tier is declared; otherwise nothing happened.
        Classify,
        /// Nothing happened; the next call may try again.
        Retry,
        /// It may have happened.
        Doubt,
        /// It is the final answer, kept and replayed.
        Keep,
    }
}

words! {
    /// Where the effect takes place.
    Effect {
        /// Somewhere else.
        External,
        /// In the same transaction as the record.
        Transactional,
    }
}

words! {
    /// What a guarded call does when the store cannot be reached.
    StoreDown {
        /// Nothing runs.
        Closed,
        /// It runs unguarded, and says so.
        Open,
    }
}

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(crate) enum Scope {
    /// Begin, finish and whatever else an owner does.
    Use,
    /// Look and list.
    Read,
    /// Settle what is in doubt.
    Operate,
}

impl Scope {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Use => "use",
            Self::Read => "read",
            Self::Operate => "operate",
        }
    }
}

/// Where to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub(crate) struct Address(pub(crate) SocketAddr);

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = text.parse().map(Self);
        parsed.map_err(|_| format!("{text:?} is no address; write for example 127.0.0.1:8787 or [::1]:8787"))
    }
}

/// A duration as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub(crate) struct Length(pub(crate) Duration);

impl FromStr for Length {
    type Err = duration::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        duration::parse(text).map(Self)
    }
}

/// How long an outcome is kept: a duration, or for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub(crate) enum Retention {
    For(Duration),
    Forever,
}

impl From<Retention> for policy::Retention {
    fn from(retention: Retention) -> Self {
        match retention {
            Retention::For(length) => Self::For(length),
            Retention::Forever => Self::Forever,
        }
    }
}

impl FromStr for Retention {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "forever" => Ok(Self::Forever),
            text => match duration::parse(text) {
                Ok(Duration::ZERO) => {
                    Err(format!("{text} would forget the outcome at once, so that a repeat finds nothing to replay"))
                }
                parsed => parsed.map(Self::For).map_err(|error| format!("{error}; or write forever")),
            },
        }
    }
}

/// How long a derived key holds after its request is done: a duration, or until the answer was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub(crate) enum KeyWindow {
    For(Duration),
    Causal,
}

impl FromStr for KeyWindow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "causal" => Ok(Self::Causal),
            text => duration::parse(text).map(Self::For).map_err(|error| format!("{error}; or write causal")),
        }
    }
}

/// How long a key holds for low stakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub(crate) struct Dedup(pub(crate) Duration);

impl FromStr for Dedup {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match duration::parse(text) {
            Ok(Duration::ZERO) => Err(format!("{text} holds no key at all; write for example 10m")),
            parsed => parsed.map(Self).map_err(|error| error.to_string()),
        }
    }
}

/// A number of bytes: `65536`, `"64KiB"`, `"1MiB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub(crate) struct Size(pub(crate) usize);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
        let unit = match unit.trim_start() {
            "" | "B" => Some(1),
            "KiB" => Some(1 << 10),
            "MiB" => Some(1 << 20),
            _ => None,
        };
        let bytes = digits.parse::<usize>().ok().zip(unit).and_then(|(count, unit)| count.checked_mul(unit));
        bytes.map(Self).ok_or_else(|| format!("{text:?} is no size; write for example 65536, 64KiB or 1MiB"))
    }
}

macro_rules! from_text {
    ($($name:ident),+) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
            }
        }
    )+};
}

from_text!(Address, Length, KeyWindow, Retention, Dedup);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bytes, as in 65536 or \"64KiB\"")
            }

            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Size, E> {
                usize::try_from(bytes).map(Size).map_err(|_| E::custom("a size cannot be negative"))
            }

            fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<Size, E> {
                usize::try_from(bytes).map(Size).map_err(E::custom)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_and_without_units() {
        assert_eq!("65536".parse(), Ok(Size(65536)));
        assert_eq!("64KiB".parse(), Ok(Size(65536)));
        assert_eq!("2 MiB".parse(), Ok(Size(2 << 20)));
        for bad in ["", "KiB", "1KB", "-1", "99999999999999999999", "1.5MiB"] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
    }
}
