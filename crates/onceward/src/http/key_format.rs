//! The format that a route requires of client keys: a UUID, a ULID, a pattern, or a minimum entropy. Also warns about keys
//! that look like the time of a call, because every retry with such a key would be a new request.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Once;

use regex_automata::nfa::thompson;
use regex_automata::nfa::thompson::pikevm::PikeVM;
use regex_automata::util::syntax;
use serde_json::{Value, json};

use onceward_core::key_content;

use super::problem::{Kind, Problem};
use super::rules::Rules;
use crate::clock::{Clock, SystemClock};

/// The limit for a compiled pattern, in bytes: far more than any key format needs.
const MAX_PATTERN_SIZE: usize = 1024 * 1024;

/// More bits than any key can have: at most 255 characters of less than 7 bits.
const MAX_ENTROPY_BITS: u32 = 1024;

/// The required format of the keys of a route.
#[derive(Clone, Debug)]
pub enum KeyFormat {
    /// A UUID of any version except the nil and the max UUID, which are constants.
    Uuid,
    /// A ULID.
    Ulid,
    /// The whole key matches this regular expression.
    Pattern(String, Box<PikeVM>),
    /// At least this many bits of entropy, estimated from the characters of the key.
    MinimumEntropy(u32),
}

impl KeyFormat {
    /// A regular expression for the whole key. Matching takes time linear in the lengths of key and pattern.
    pub fn pattern(text: &str) -> Result<Self, String> {
        let built = PikeVM::builder()
            .syntax(syntax::Config::new().unicode(false).utf8(false))
            .thompson(thompson::Config::new().utf8(false).nfa_size_limit(Some(MAX_PATTERN_SIZE)))
            .build(&format!(r"\A(?:{text})\z"));
        let built = built.map_err(|error| {
            let causes = std::iter::successors(std::error::Error::source(&error), |cause| (*cause).source());
            let what = causes.last().map_or_else(|| error.to_string(), ToString::to_string);
            format!("{text:?} is not a regular expression: {what}")
        })?;
        Ok(Self::Pattern(text.to_owned(), Box::new(built)))
    }

    /// Whether a key has this format.
    pub fn matches(&self, key: &str) -> bool {
        match self {
            Self::Uuid => is_uuid(key),
            Self::Ulid => is_ulid(key),
            Self::Pattern(_, pattern) => pattern.is_match(&mut pattern.create_cache(), key),
            Self::MinimumEntropy(bits) => entropy(key) >= f64::from(*bits),
        }
    }

    /// The format as a JSON value, for the member `key_format` of a problem.
    pub fn to_json(&self) -> Value {
        match self {
            Self::Uuid => json!("uuid"),
            Self::Ulid => json!("ulid"),
            Self::Pattern(text, _) => json!({"pattern": text}),
            Self::MinimumEntropy(bits) => json!({"min_entropy_bits": bits}),
        }
    }
}

impl fmt::Display for KeyFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uuid => f.write_str("a UUID"),
            Self::Ulid => f.write_str("a ULID"),
            Self::Pattern(text, _) => write!(f, "a string that matches the pattern {text}"),
            Self::MinimumEntropy(bits) => {
                write!(f, "a string with at least {bits} bits of entropy, such as a random UUID")
            }
        }
    }
}

impl FromStr for KeyFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "uuid" => Ok(Self::Uuid),
            None if text == "ulid" => Ok(Self::Ulid),
            Some(("pattern", pattern)) => Self::pattern(pattern),
            Some(("entropy", bits)) => match bits.parse() {
                Ok(bits @ 1..=MAX_ENTROPY_BITS) => Ok(Self::MinimumEntropy(bits)),
                _ => Err(format!("{bits:?} is not a number of bits from 1 to {MAX_ENTROPY_BITS}")),
            },
            _ => Err(format!("unknown key format {text:?}; use uuid, ulid, pattern:REGEX or entropy:BITS")),
        }
    }
}

impl Rules {
    /// Checks the format of a client's key. A key that looks like the time of a call is logged as a warning, once.
    pub(super) fn check_key_format(&self, key: &str) -> Result<(), Problem> {
        static WARNED: Once = Once::new();
        if !WARNED.is_completed() && key_content::is_timestamp(key, SystemClock.now()) {
            WARNED.call_once(|| {
                tracing::warn!(
                    "an idempotency key of a client looks like a timestamp: a retry with a new timestamp would be a new \
                     request. A key must stay the same for every retry; set key_format to require a format"
                );
            });
        }
        match self.key_format.as_ref().filter(|format| !format.matches(key)) {
            None => Ok(()),
            Some(format) => {
                let detail = format!("On this route an idempotency key has to be {format}.");
                Err(Problem::because(Kind::KeyMalformed, detail).with("key_format", format.to_json()))
            }
        }
    }
}

/// Five groups of hex digits. The nil and the max UUID are constants, and cannot name an intent.
fn is_uuid(key: &str) -> bool {
    let groups: Vec<&str> = key.split('-').collect();
    let has_shape = groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12]);
    let digits = || groups.iter().flat_map(|group| group.bytes());
    let is_constant = digits().all(|digit| digit == b'0') || digits().all(|digit| digit.eq_ignore_ascii_case(&b'f'));
    has_shape && digits().all(|digit| digit.is_ascii_hexdigit()) && !is_constant
}

/// 26 characters of Crockford's base 32 encode 128 bits: the first character encodes only three of them.
fn is_ulid(key: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() && !b"ILOU".contains(&byte.to_ascii_uppercase());
    key.len() == 26 && key.bytes().all(is_digit) && matches!(key.as_bytes().first(), Some(b'0'..=b'7'))
}

/// An upper bound of the entropy: what the key would have if its characters were drawn at random with their frequencies in the
/// key. A long key of few different characters has little; whether the rest is random cannot be seen from one key.
fn entropy(key: &str) -> f64 {
    let length = key.len() as f64;
    let mut counts: HashMap<u8, u32> = HashMap::new();
    key.bytes().for_each(|byte| *counts.entry(byte).or_default() += 1);
    let frequency = |count: &u32| f64::from(*count) / length;
    counts.values().map(|count| -frequency(count).log2() * f64::from(*count)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_accepts_good_keys_and_refuses_bad_ones() {
        let (uuid, ulid) = ("8e03978e-40d5-43e8-bc93-6894a57f9324", "01ARZ3NDEKTSV4RRFFQ69G5FAV");
        for (format, good, bad) in [
            (
                "uuid",
                &[uuid, "8E03978E-40D5-43E8-BC93-6894A57F9324"][..],
                &["", "order-17", "00000000-0000-0000-0000-000000000000", "8e03978e40d543e8bc936894a57f9324", ulid][..],
            ),
            (
                "ulid",
                &[ulid, "01arz3ndektsv4rrffq69g5fav"],
                &["81ARZ3NDEKTSV4RRFFQ69G5FAV", "01ARZ3NDEKTSV4RRFFQ69G5FAU", uuid],
            ),
            ("pattern:ord_\\d{4}|x", &["ord_1234", "x"], &["ord_123", "ord_12345", "xx", "an ord_1234", "ord_1234\n"]),
            (
                "entropy:64",
                &[uuid, ulid, "9f86d081884c7d659a2feaa0c55ad015"],
                &["order-17", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "1763424000"],
            ),
        ] {
            let format: KeyFormat = format.parse().unwrap();
            good.iter().for_each(|key| assert!(format.matches(key), "{format} {key}"));
            bad.iter().for_each(|key| assert!(!format.matches(key), "{format} {key}"));
        }
    }

    #[test]
    fn an_unknown_format_is_refused() {
        for text in
            ["", "guid", "pattern:(", "entropy:", "entropy:0", "entropy:9999", "pattern:(a{9999}){9999}", "uuid:4"]
        {
            assert!(text.parse::<KeyFormat>().is_err(), "{text}");
        }
    }
}
