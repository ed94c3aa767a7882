//! A window of time that is part of an intent's identity: one digest a day, one report a week. Cut from a field of the
//! intent; reads neither the clock nor the system's time zone files.

use std::time::Duration;

use jiff::civil::DateTime;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use serde::{Deserialize, Serialize};

use super::{Error, Role};
use crate::json::{Pointer, Value};
use crate::time::{self, Timestamp};

/// The value of `of` for a window that is cut from the clock.
const NOW: &str = "now";

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A window as it is written in a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowDefinition {
    /// A JSON pointer to a time, or `now`.
    pub of: String,
    /// `day`, `week`, `month`, or a duration.
    pub every: String,
    /// An IANA time zone; UTC unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Allows `of = "now"`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_now: bool,
}

/// How long a window is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    /// A calendar day in the window's zone.
    Day,
    /// An ISO week, from Monday, in the window's zone.
    Week,
    /// A calendar month in the window's zone.
    Month,
    /// This long, counted from the Unix epoch.
    Duration(Duration),
}

/// A checked window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// `None` is the clock.
    field: Option<Pointer>,
    every: Every,
    zone: TimeZone,
}

impl Window {
    pub(super) fn new(definition: &WindowDefinition) -> Result<Self, Error> {
        let field = match definition.of.as_str() {
            NOW if !definition.allow_now => return Err(Error::NowNotAllowed),
            NOW => None,
            pointer => Some(Pointer::parse(pointer).map_err(|source| Error::Pointer { role: Role::Window, source })?),
        };
        let zone = definition.zone.as_deref().map_or(Ok(TimeZone::UTC), named_zone)?;
        Ok(Self { field, every: Every::parse(&definition.every)?, zone })
    }

    /// The field that it is cut from; `None` when it is cut from the clock.
    pub fn field(&self) -> Option<&Pointer> {
        self.field.as_ref()
    }

    /// Whether it is cut from the clock, so that a retry after its end is a new intent.
    pub fn is_of_now(&self) -> bool {
        self.field.is_none()
    }

    /// How long it is.
    pub fn every(&self) -> Every {
        self.every
    }

    /// How long it lasts at most, give or take an hour of daylight saving.
    pub fn length(&self) -> Duration {
        match self.every {
            Every::Day => DAY,
            Every::Week => DAY * 7,
            Every::Month => DAY * 31,
            Every::Duration(duration) => duration,
        }
    }

    /// The name of the window that the intent falls into: `2026-11-15`, `2026-W46`, `2026-11`, or the
    /// start of a window of some duration in UTC.
    pub(super) fn label(&self, intent: &Value, now: Timestamp) -> Result<String, Error> {
        let Some(pointer) = &self.field else {
            let bad_time = Error::BadTime { pointer: NOW.to_owned() };
            let moment = jiff::Timestamp::from_millisecond(now.as_millis()).ok().map(Moment::Exact);
            return moment.and_then(|moment| self.label_of(moment)).ok_or(bad_time);
        };
        let value =
            pointer.find(intent).ok_or_else(|| Error::Missing { role: Role::Window, pointer: pointer.to_string() })?;
        Moment::read(value)
            .and_then(|moment| self.label_of(moment))
            .ok_or_else(|| Error::BadTime { pointer: pointer.to_string() })
    }

    fn label_of(&self, moment: Moment) -> Option<String> {
        if let Every::Duration(duration) = self.every {
            return start(moment.exact(&self.zone)?, duration);
        }
        let date = moment.civil(&self.zone).date();
        let week = date.iso_week_date();
        // Languages write years before 0 differently.
        if date.year() < 0 || week.year() < 0 {
            return None;
        }
        Some(match self.every {
            Every::Week => format!("{:04}-W{:02}", week.year(), week.week()),
            Every::Month => format!("{:04}-{:02}", date.year(), date.month()),
            _ => format!("{:04}-{:02}-{:02}", date.year(), date.month(), date.day()),
        })
    }
}

impl Every {
    fn parse(text: &str) -> Result<Self, Error> {
        let unknown = |source| Error::UnknownEvery { every: text.to_owned(), source };
        match text {
            "day" => Ok(Self::Day),
            "week" => Ok(Self::Week),
            "month" => Ok(Self::Month),
            _ => match crate::duration::parse(text) {
                Ok(Duration::ZERO) => Err(unknown(None)),
                Ok(duration) => Ok(Self::Duration(duration)),
                Err(source) => Err(unknown(Some(source))),
            },
        }
    }
}

fn named_zone(name: &str) -> Result<TimeZone, Error> {
    TimeZoneDatabase::bundled().get(name).map_err(|_| Error::UnknownZone { zone: name.to_owned() })
}

/// A time as an intent gives it: absolute, or local to the window's zone.
enum Moment {
    Exact(jiff::Timestamp),
    Civil(DateTime),
}

impl Moment {
    fn read(value: &Value) -> Option<Self> {
        match value {
            Value::Number(seconds) => jiff::Timestamp::from_second(seconds.as_i64()?).ok().map(Self::Exact),
            Value::String(text) => match Shape::of(text)? {
                Shape::Exact => text.parse().ok().map(Self::Exact),
                Shape::Civil => text.parse().ok().map(Self::Civil),
            },
            _ => None,
        }
    }

    fn civil(&self, zone: &TimeZone) -> DateTime {
        match self {
            Self::Exact(timestamp) => zone.to_datetime(*timestamp),
            // Not through a timestamp: a local time that the zone skips would move.
            Self::Civil(datetime) => *datetime,
        }
    }

    fn exact(&self, zone: &TimeZone) -> Option<jiff::Timestamp> {
        match self {
            Self::Exact(timestamp) => Some(*timestamp),
            Self::Civil(datetime) => zone.to_timestamp(*datetime).ok(),
        }
    }
}

/// The format of a time. Checked before jiff parses it, because jiff accepts far more than RFC 3339, and the libraries of
/// other languages accept other formats.
enum Shape {
    /// `2026-11-15T09:30:00.5+01:00` or with `Z`: RFC 3339.
    Exact,
    /// `2026-11-15`, `2026-11-15T09:30`, `2026-11-15T09:30:00.5`, also with a space for the `T`.
    Civil,
}

impl Shape {
    fn of(text: &str) -> Option<Self> {
        let rest = strip(text, "dddd-dd-dd")?;
        if rest.is_empty() {
            return Some(Self::Civil);
        }
        let rest = strip(rest.strip_prefix(['T', 't', ' '])?, "dd:dd")?;
        if rest.is_empty() {
            return Some(Self::Civil);
        }
        let rest = strip(rest, ":dd")?;
        let rest = match rest.strip_prefix('.') {
            Some(fraction) => fraction.strip_prefix(|digit: char| digit.is_ascii_digit())?,
            None => rest,
        };
        let offset = rest.trim_start_matches(|digit: char| digit.is_ascii_digit());
        match offset {
            "" => Some(Self::Civil),
            "Z" | "z" => Some(Self::Exact),
            _ => strip(offset.strip_prefix(['+', '-'])?, "dd:dd")?.is_empty().then_some(Self::Exact),
        }
    }
}

/// The text after a pattern in which `d` stands for a digit.
fn strip<'a>(text: &'a str, pattern: &str) -> Option<&'a str> {
    let (start, rest) = text.split_at_checked(pattern.len())?;
    let fits = |(byte, expected): (u8, u8)| match expected {
        b'd' => byte.is_ascii_digit(),
        _ => byte == expected,
    };
    start.bytes().zip(pattern.bytes()).all(fits).then_some(rest)
}

/// The start of the window that a time falls into, in RFC 3339 with as much of a fraction as it has.
fn start(timestamp: jiff::Timestamp, duration: Duration) -> Option<String> {
    let length = time::millis(duration);
    // Towards the past, also before 1970 and for fractions of a millisecond.
    let millis = i64::try_from(timestamp.as_nanosecond().div_euclid(1_000_000)).ok()?;
    let start = millis.div_euclid(length).checked_mul(length)?;
    let start = jiff::Timestamp::from_millisecond(start).ok()?;
    (TimeZone::UTC.to_datetime(start).year() >= 0).then(|| start.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label_in(every: &str, zone: &str, time: &str) -> Result<String, Error> {
        let definition = WindowDefinition {
            of: "/at".to_owned(),
            every: every.to_owned(),
            zone: Some(zone.to_owned()),
            allow_now: false,
        };
        let intent = Value::parse(format!("{{\"at\":{time}}}").as_bytes()).unwrap();
        Window::new(&definition).unwrap().label(&intent, Timestamp::from_millis(0))
    }

    fn label(every: &str, zone: &str, time: &str) -> String {
        label_in(every, zone, &format!("\"{time}\"")).unwrap()
    }

    #[test]
    fn a_time_falls_into_the_zone_s_own_day() {
        assert_eq!(label("day", "UTC", "2026-11-15T23:30:00Z"), "2026-11-15");
        assert_eq!(label("day", "Europe/Berlin", "2026-11-15T23:30:00Z"), "2026-11-16");
        assert_eq!(label("day", "America/New_York", "2026-11-15T04:59:59.999z"), "2026-11-14");
        assert_eq!(label("day", "UTC", "2026-11-15T00:30:00+01:00"), "2026-11-14");
        assert_eq!(label("month", "Asia/Tokyo", "2026-10-31T15:00:00Z"), "2026-11");
    }

    #[test]
    fn a_civil_time_is_read_in_the_zone() {
        for time in ["2026-11-15", "2026-11-15T23:59", "2026-11-15 23:59:59", "2026-11-15t23:59:59.123456789"] {
            assert_eq!(label("day", "Pacific/Auckland", time), "2026-11-15");
        }
        assert_eq!(label("6h", "Europe/Berlin", "2026-11-15T00:30"), "2026-11-14T18:00:00Z");
    }

    #[test]
    fn a_day_that_the_zone_skipped_is_still_that_day() {
        assert_eq!(label("day", "Pacific/Apia", "2011-12-30T12:00"), "2011-12-30");
    }

    #[test]
    fn weeks_follow_iso_8601_across_the_year() {
        for (date, week) in [
            ("2026-11-15", "2026-W46"),
            ("2026-11-16", "2026-W47"),
            ("2027-01-01", "2026-W53"),
            ("2027-01-03", "2026-W53"),
            ("2027-01-04", "2027-W01"),
            ("2024-12-29", "2024-W52"),
            ("2024-12-30", "2025-W01"),
            ("2023-01-01", "2022-W52"),
        ] {
            assert_eq!(label("week", "UTC", date), week, "{date}");
        }
    }

    #[test]
    fn windows_of_a_duration_are_named_by_their_start() {
        assert_eq!(label("15m", "UTC", "2026-11-15T12:44:59.999Z"), "2026-11-15T12:30:00Z");
        assert_eq!(label("1500ms", "UTC", "1970-01-01T00:00:02Z"), "1970-01-01T00:00:01.5Z");
        assert_eq!(label("1h", "UTC", "1969-12-31T23:59:59.9999999Z"), "1969-12-31T23:00:00Z");
        assert_eq!(label("90m", "Asia/Kolkata", "1970-01-01T05:30:00"), "1970-01-01T00:00:00Z");
    }

    #[test]
    fn whole_epoch_seconds_are_read() {
        assert_eq!(label_in("day", "UTC", "1794744000").unwrap(), "2026-11-15");
        assert_eq!(label_in("day", "UTC", "-1").unwrap(), "1969-12-31");
        assert_eq!(label_in("day", "UTC", "1794744000.0").unwrap(), "2026-11-15");
    }

    #[test]
    fn a_value_that_is_not_a_time_is_refused_and_not_shown() {
        for time in [
            "\"tomorrow\"",
            "\"\"",
            "\"2026-13-01\"",
            "\"2026-02-30\"",
            "\"20261115\"",
            "\"2026-11-15T\"",
            "\"2026-11-15T09\"",
            "\"2026-11-15T09:30Z\"",
            "\"2026-11-15T09:30:00+0100\"",
            "\"2026-11-15T25:00\"",
            "\"2026-11-15T09:30:00.Z\"",
            "\"2026-11-15T09:30:00Z[UTC]\"",
            "\"2026-W46\"",
            "\"+002026-11-15\"",
            "\" 2026-11-15\"",
            "\"2026-11-15é\"",
            "\"1794744000\"",
            "1794744000.5",
            "1794744000000",
            "99999999999999999999",
            "-99999999999",
            "null",
            "true",
            "[]",
            "{}",
        ] {
            let error = label_in("day", "UTC", time).unwrap_err();
            assert_eq!(error, Error::BadTime { pointer: "/at".to_owned() }, "{time}");
        }
    }

    #[test]
    fn the_calendar_begins_with_the_first_week_of_the_year_0() {
        assert_eq!(label("day", "UTC", "0000-01-03"), "0000-01-03");
        assert_eq!(label("week", "UTC", "0000-01-03"), "0000-W01");
        // The first two days are in the last week of the year before.
        for time in ["\"0000-01-02\"", "\"0000-01-01\"", "\"0000-01-01T00:30:00+01:00\"", "-62167219201"] {
            for every in ["day", "week", "month"] {
                assert!(label_in(every, "UTC", time).is_err(), "{every} of {time}");
            }
        }
    }

    #[test]
    fn an_intent_without_the_field_is_refused() {
        let definition =
            WindowDefinition { of: "/at".to_owned(), every: "day".to_owned(), ..WindowDefinition::default() };
        let window = Window::new(&definition).unwrap();
        let error = window.label(&Value::Null, Timestamp::from_millis(0)).unwrap_err();
        assert_eq!(error, Error::Missing { role: Role::Window, pointer: "/at".to_owned() });
    }

    #[test]
    fn a_clock_beyond_the_calendar_is_refused_and_does_not_panic() {
        let definition = WindowDefinition { of: NOW.to_owned(), every: "1ms".to_owned(), zone: None, allow_now: true };
        let window = Window::new(&definition).unwrap();
        assert!(window.is_of_now());
        for millis in [i64::MIN, i64::MAX] {
            assert!(window.label(&Value::Null, Timestamp::from_millis(millis)).is_err());
        }
    }
}
