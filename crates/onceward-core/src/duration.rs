//! Durations as text: `100ms`, `30s`, `1h30m`, `30d`. `forever` is not a duration; settings that allow it handle it themselves.

use std::time::Duration;

/// Each unit with its length in milliseconds, longest first.
const UNITS: [(&str, u64); 6] =
    [("w", 604_800_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// The longest duration, in milliseconds: the largest value that can be added to a [`Timestamp`](crate::time::Timestamp).
const MAX_MILLIS: u64 = i64::MAX as u64;

/// How many characters of a refused text an error quotes. No duration is longer.
const QUOTED_CHARACTERS: usize = 40;

/// Why a text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is empty.
    #[error("the duration is empty; write for example 30s, 24h or 1h30m")]
    Empty,
    /// A number without a unit.
    #[error("{text:?} has a number without a unit; units are ms, s, m, h, d, w, as in 30s or 1h30m")]
    MissingUnit {
        /// What was written.
        text: String,
    },
    /// There is no whole number before a unit, for example because of a sign, a fraction or a space.
    #[error("{text:?} needs a whole number before each unit, as in 30s or 1h30m; units are ms, s, m, h, d, w")]
    MissingNumber {
        /// What was written.
        text: String,
    },
    /// A unit that does not exist.
    #[error("{text:?} has the unknown unit {unit:?}; units are ms, s, m, h, d, w")]
    UnknownUnit {
        /// What was written.
        text: String,
        /// The unit.
        unit: String,
    },
    /// The units are not ordered from long to short, or a unit comes twice.
    #[error("{text:?} must name its units once each, from long to short (w, d, h, m, s, ms), as in 1h30m")]
    Order {
        /// What was written.
        text: String,
    },
    /// The duration has more milliseconds than can be added to a timestamp.
    #[error("{text:?} is too long: a duration can have at most {MAX_MILLIS} milliseconds")]
    TooLong {
        /// What was written.
        text: String,
    },
}

/// Reads a duration: whole numbers with the units `ms`, `s`, `m`, `h`, `d` and `w`, from long to short, or
/// a plain `0`.
pub fn parse(text: &str) -> Result<Duration, Error> {
    if text.is_empty() {
        return Err(Error::Empty);
    }
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = text;
    let mut total: u64 = 0;
    let mut shortest_so_far = u64::MAX;
    while !rest.is_empty() {
        let (digits, after) = split_while(rest, |character| character.is_ascii_digit());
        let (unit, after) = split_while(after, |character| character.is_alphabetic());
        let length = unit_length(text, digits, unit)?;
        if length >= shortest_so_far {
            return Err(Error::Order { text: quoted(text) });
        }
        // `digits` is one or more ASCII digits, so the only possible error is an overflow.
        total = digits
            .parse::<u64>()
            .ok()
            .and_then(|count| count.checked_mul(length))
            .and_then(|millis| millis.checked_add(total))
            .filter(|total| *total <= MAX_MILLIS)
            .ok_or_else(|| Error::TooLong { text: quoted(text) })?;
        shortest_so_far = length;
        rest = after;
    }
    Ok(Duration::from_millis(total))
}

fn unit_length(text: &str, digits: &str, unit: &str) -> Result<u64, Error> {
    let text = || quoted(text);
    match UNITS.iter().find(|(name, _)| *name == unit) {
        _ if digits.is_empty() => Err(Error::MissingNumber { text: text() }),
        _ if unit.is_empty() => Err(Error::MissingUnit { text: text() }),
        None => Err(Error::UnknownUnit { text: text(), unit: quoted(unit) }),
        Some((_, length)) => Ok(*length),
    }
}

fn split_while(text: &str, accept: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|character| !accept(character)).unwrap_or(text.len()))
}

fn quoted(text: &str) -> String {
    text.chars().take(QUOTED_CHARACTERS).collect()
}

/// Formats a duration as the shortest text that [`parse`] reads back: `90s`, `30d`, `1h1ms`. Fractions of a millisecond are
/// dropped.
pub fn format(duration: Duration) -> String {
    let millis = crate::time::millis(duration).unsigned_abs();
    // Every combination of units, long ones first; `min_by_key` keeps the first of equally short texts.
    let choices = (1_u32..1 << UNITS.len()).rev().filter_map(|choice| format_with(millis, choice));
    choices.min_by_key(|(parts, text)| (text.len(), *parts)).map_or_else(|| "0".to_owned(), |(_, text)| text)
}

/// The text that uses only the units whose bits are set, if they divide the duration, and its number of parts.
fn format_with(millis: u64, choice: u32) -> Option<(usize, String)> {
    let mut rest = millis;
    let mut parts = 0;
    let mut text = String::new();
    for (position, (unit, length)) in UNITS.iter().enumerate() {
        let count = rest / length;
        if choice & (1 << (UNITS.len() - 1 - position)) != 0 && count > 0 {
            text += &format!("{count}{unit}");
            parts += 1;
            rest %= length;
        }
    }
    (rest == 0 && parts > 0).then_some((parts, text))
}

/// For `#[serde(with = "...")]`: a duration as whole milliseconds.
pub mod as_millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes whole milliseconds.
    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(crate::time::millis(*duration))
    }

    /// Reads whole milliseconds.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

/// For `#[serde(with = "...")]`: a duration that may be absent, as whole milliseconds or null.
pub mod as_millis_option {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Writes whole milliseconds, or nothing.
    pub fn serialize<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        duration.map(crate::time::millis).serialize(serializer)
    }

    /// Reads whole milliseconds, or nothing.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_millis))
    }
}

/// For `#[serde(with = "...")]`: a duration as text, for configuration files.
pub mod as_text {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de};

    /// Writes the shortest text.
    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::format(*duration))
    }

    /// Reads the text.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        super::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(text: &str) -> u128 {
        parse(text).unwrap().as_millis()
    }

    #[test]
    fn every_unit_is_parsed() {
        assert_eq!(millis("100ms"), 100);
        assert_eq!(millis("30s"), 30_000);
        assert_eq!(millis("10m"), 600_000);
        assert_eq!(millis("24h"), 86_400_000);
        assert_eq!(millis("30d"), 30 * 86_400_000);
        assert_eq!(millis("2w"), 14 * 86_400_000);
        assert_eq!(millis("1h30m"), 5_400_000);
        assert_eq!(millis("1w2d3h4m5s6ms"), 604_800_000 + 2 * 86_400_000 + 10_800_000 + 245_006);
    }

    #[test]
    fn only_zero_needs_no_unit() {
        assert_eq!(millis("0"), 0);
        assert_eq!(millis("0s"), 0);
        assert!(matches!(parse("10"), Err(Error::MissingUnit { .. })));
        assert!(matches!(parse("1h30"), Err(Error::MissingUnit { .. })));
    }

    #[test]
    fn each_invalid_duration_has_its_own_error() {
        assert_eq!(parse(""), Err(Error::Empty));
        for text in ["s", "-1s", "+1s", " 1s", "forever", "1s ", "1..5h"] {
            assert!(matches!(parse(text), Err(Error::MissingNumber { .. } | Error::MissingUnit { .. })), "{text}");
        }
        assert!(matches!(parse("1.5h"), Err(Error::MissingUnit { .. })));
        assert!(matches!(parse("30m1h"), Err(Error::Order { .. })));
        assert!(matches!(parse("1h1h"), Err(Error::Order { .. })));
        assert!(matches!(parse("99999999999999999999s"), Err(Error::TooLong { .. })));
        assert!(matches!(parse("9223372036854775807s"), Err(Error::TooLong { .. })));
        assert_eq!(
            parse("3 fortnights").unwrap_err().to_string(),
            "\"3 fortnights\" has a number without a unit; units are ms, s, m, h, d, w, as in 30s or 1h30m"
        );
        assert_eq!(
            parse("3min").unwrap_err().to_string(),
            "\"3min\" has the unknown unit \"min\"; units are ms, s, m, h, d, w"
        );
    }

    #[test]
    fn a_duration_is_formatted_as_the_shortest_text() {
        for (text, shortest) in [
            ("0s", "0"),
            ("24h", "1d"),
            ("30d", "30d"),
            ("90s", "90s"),
            ("1h30m", "90m"),
            ("14d", "2w"),
            ("7d", "1w"),
            ("1000ms", "1s"),
            ("8d1ms", "8d1ms"),
            ("61s", "61s"),
            ("1w12h", "180h"),
            ("1h1ms", "1h1ms"),
        ] {
            assert_eq!(format(parse(text).unwrap()), shortest);
        }
    }

    #[test]
    fn a_formatted_duration_is_parsed_back() {
        for millis in (0..5_000_000).step_by(7_919).chain([MAX_MILLIS, 604_800_001, 31 * 86_400_000 + 999]) {
            let duration = Duration::from_millis(millis);
            assert_eq!(parse(&format(duration)), Ok(duration));
        }
        assert_eq!(parse(&format(Duration::MAX)), Ok(Duration::from_millis(MAX_MILLIS)));
    }
}
