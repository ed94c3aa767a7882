//! Types of single values in the configuration, shared with the command line. They mirror the types of the core and add
//! parsing and descriptions.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use onceward::core::{duration, policy};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de};

macro_rules! choices {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, clap::ValueEnum)]
        #[serde(rename_all = "snake_case")]
        #[value(rename_all = "snake_case")]
        pub enum $name { $($(#[$variant_doc])* $variant),+ }

        impl From<$name> for policy::$name {
            fn from(word: $name) -> Self {
                match word { $($name::$variant => Self::$variant),+ }
            }
        }
    };
}

choices! {
    /// How much is at stake.
    Tier {
        /// Outcome kept 30 days, then a tombstone for 90 days.
        Payment,
        /// Outcome kept 7 days, then a tombstone for 14 days.
        Notification,
        /// Outcome kept 24 hours, no tombstone.
        Email,
        /// Outcome kept 24 hours, then a tombstone for 48 hours.
        Standard,
        /// Outcome kept forever.
        Forever,
    }
}

choices! {
    /// What to do with an intent whose attempt may or may not have happened.
    InDoubt {
        /// Run nothing until the doubt is settled: at most once.
        Hold,
        /// Retry with the same downstream key: at least once.
        Retry,
        /// Ask the downstream first.
        Probe,
    }
}

choices! {
    /// How to treat an error without a class.
    OnError {
        /// In doubt if the error suggests it or a tier is set; otherwise nothing happened.
        Classify,
        /// Nothing happened; the next call may retry.
        Retry,
        /// It may have happened: in doubt.
        Doubt,
        /// Final outcome: kept and replayed.
        Keep,
    }
}

choices! {
    /// Where the effect takes place.
    Effect {
        /// In another system.
        External,
        /// In the same transaction as the record: refused, because only the SQL functions for PostgreSQL can do that.
        Transactional,
    }
}

choices! {
    /// What a guarded call does when the store is unreachable.
    StoreDown {
        /// Fail; nothing runs.
        Closed,
        /// Run unguarded and report it.
        Open,
    }
}

/// What a token permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Scope {
    /// Begin, finish and all other calls of an owner.
    Use,
    /// Get and list intents.
    Read,
    /// Settle intents in doubt.
    Operate,
}

impl Scope {
    pub fn as_str(self) -> &'static str {
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
pub struct ListenAddress(pub SocketAddr);

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = text.parse().map(Self);
        parsed.map_err(|_| format!("invalid address {text:?}; write for example 127.0.0.1:8787 or [::1]:8787"))
    }
}

/// A duration in human-readable form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub struct Length(pub Duration);

impl FromStr for Length {
    type Err = duration::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        duration::parse(text).map(Self)
    }
}

/// How long to keep an outcome: a duration, or forever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub enum Retention {
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
                    Err(format!("{text} would drop the outcome at once, so a repeat would find nothing to replay"))
                }
                parsed => parsed.map(Self::For).map_err(|error| format!("{error}; or write forever")),
            },
        }
    }
}

/// How long a derived key is held after its request is done: a duration, or until the response is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub enum KeyWindow {
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

/// How long a key is held, for low stakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub struct Dedup(pub Duration);

impl FromStr for Dedup {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match duration::parse(text) {
            Ok(Duration::ZERO) => Err(format!("{text} would hold no key at all; write for example 10m")),
            parsed => parsed.map(Self).map_err(|error| error.to_string()),
        }
    }
}

/// A number of bytes: `65536`, `"64KiB"`, `"1MiB"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub struct Size(pub usize);

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
        bytes.map(Self).ok_or_else(|| format!("invalid size {text:?}; write for example 65536, 64KiB or 1MiB"))
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

from_text!(ListenAddress, Length, KeyWindow, Retention, Dedup);

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
