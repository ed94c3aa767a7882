//! Two times are the same intent exactly if they are in the same window: at changes to and from daylight saving time, at the ends
//! of months and years, and in ISO weeks. Calendar and zones are computed here a second time from their rules, without the library
//! that the code under test uses.

use onceward_core::json::Value;
use onceward_core::key::Derived;
use onceward_core::name::{Operation, Session};
use onceward_core::recipe::{Definition, Recipe, WindowDefinition};
use onceward_core::time::Timestamp;
use proptest::prelude::*;

use crate::properties::config;

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

/// Days since 1970 of a date in the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years from March, so that the leap day is the last of a year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1 - 719_468
}

/// Year, month and day of a number of days since 1970, found by search.
fn date(days_since: i64) -> (i64, i64, i64) {
    let mut year = 1970 + days_since.div_euclid(366);
    while days(year + 1, 1, 1) <= days_since {
        year += 1;
    }
    let month = (1..=12).rev().find(|month| days(year, *month, 1) <= days_since).unwrap();
    (year, month, days_since - days(year, month, 1) + 1)
}

/// The Sunday on or after a date.
fn sunday_from(days_since: i64) -> i64 {
    // 1970-01-01 was a Thursday.
    days_since + (3 - days_since).rem_euclid(7)
}

/// A zone with the rules that have applied since 2007.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Zone {
    Utc,
    Berlin,
    NewYork,
    Kolkata,
}

impl Zone {
    fn name(self) -> &'static str {
        match self {
            Self::Utc => "UTC",
            Self::Berlin => "Europe/Berlin",
            Self::NewYork => "America/New_York",
            Self::Kolkata => "Asia/Kolkata",
        }
    }

    /// When summer time begins and ends in a year, in UTC.
    fn summer(self, year: i64) -> Option<(i64, i64)> {
        match self {
            Self::Berlin => {
                let at = |month| sunday_from(days(year, month, 25)) * DAY + HOUR;
                Some((at(3), at(10)))
            }
            Self::NewYork => {
                let begins = sunday_from(days(year, 3, 8)) * DAY + 7 * HOUR;
                Some((begins, sunday_from(days(year, 11, 1)) * DAY + 6 * HOUR))
            }
            Self::Utc | Self::Kolkata => None,
        }
    }

    /// Seconds ahead of UTC at a time.
    fn offset(self, time: i64) -> i64 {
        let standard = match self {
            Self::Utc => 0,
            Self::Berlin => HOUR,
            Self::NewYork => -5 * HOUR,
            Self::Kolkata => 5 * HOUR + HOUR / 2,
        };
        let year = date((time + standard).div_euclid(DAY)).0;
        let is_summer = self.summer(year).is_some_and(|(begins, ends)| (begins..ends).contains(&time));
        standard + if is_summer { HOUR } else { 0 }
    }
}

/// The number of the window that a time falls into.
fn window(every: &str, zone: Zone, time: i64) -> i64 {
    let day = (time + zone.offset(time)).div_euclid(DAY);
    let (year, month, _) = date(day);
    match every {
        "day" => day,
        // Weeks begin on Monday, and the Monday before 1970-01-01 was three days earlier.
        "week" => (day + 3).div_euclid(7),
        "month" => year * 12 + month,
        "6h" => time.div_euclid(6 * HOUR),
        "90m" => time.div_euclid(90 * 60),
        other => panic!("unknown window: {other}"),
    }
}

/// A time in one of its spellings: with an offset, as a number, or as local time of the zone.
fn written(zone: Zone, time: i64, spelling: u8) -> String {
    let wall = |offset: i64| {
        let local = time + offset;
        let ((year, month, day), second) = (date(local.div_euclid(DAY)), local.rem_euclid(DAY));
        let (hour, minute, second) = (second / HOUR, second / 60 % 60, second % 60);
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
    };
    match spelling {
        0 => time.to_string(),
        1 => format!("\"{}Z\"", wall(0)),
        2 => format!("\"{}.999999-03:30\"", wall(-7 * HOUR / 2)),
        3 => format!("\"{}+14:00\"", wall(14 * HOUR)),
        _ => format!("\"{}\"", wall(zone.offset(time))),
    }
}

/// Two times that are close to each other and to a change in the calendar.
fn times() -> impl Strategy<Value = (Zone, i64, i64)> {
    let zone = prop::sample::select(vec![Zone::Utc, Zone::Berlin, Zone::NewYork, Zone::Kolkata]);
    let near = |span: i64| prop_oneof![-2..=2_i64, -2 * HOUR..=2 * HOUR, -span..=span];
    (zone, 2007..2037_i64, 0..16_usize, near(3 * DAY), near(40 * DAY)).prop_map(|(zone, year, place, one, other)| {
        let around = match (place, zone.summer(year)) {
            (0..=3, Some((begins, _))) => begins,
            (4..=7, Some((_, ends))) => ends,
            (8..=9, Some((begins, _))) => begins.div_euclid(DAY) * DAY - zone.offset(begins - DAY),
            (10, Some((_, ends))) => ends.div_euclid(DAY) * DAY + DAY - zone.offset(ends + DAY),
            (0..=13, _) => days(year, 1, 1) * DAY - zone.offset(days(year, 1, 1) * DAY),
            _ => days(year, 3, 1) * DAY - zone.offset(days(year, 3, 1) * DAY),
        };
        (zone, around + one, around + one + other)
    })
}

fn derived(every: &str, zone: Zone, time: &str) -> Derived {
    let window = WindowDefinition {
        of: "/at".to_owned(),
        every: every.to_owned(),
        zone: Some(zone.name().to_owned()),
        allow_now: false,
    };
    let definition = Definition { key: vec!["/user".to_owned()], window: Some(window), ..Definition::default() };
    let intent = Value::parse(format!("{{\"user\":1,\"at\":{time}}}").as_bytes()).unwrap();
    let (session, operation) = (Session::default(), Operation::new("digest").unwrap());
    let applied = Recipe::new(definition).unwrap().apply(&session, &operation, &intent, Timestamp::from_millis(0));
    applied.unwrap_or_else(|error| panic!("{time}: {error}")).derived
}

proptest! {
    #![proptest_config(config(1000))]

    #[test]
    fn times_in_one_window_are_one_intent_and_others_are_not(
        (zone, one, other) in times(),
        every in prop::sample::select(vec!["day", "week", "month", "6h", "90m"]),
        first in 0..4_u8,
        second in 0..4_u8,
    ) {
        let is_same = window(every, zone, one) == window(every, zone, other);
        let keys = [written(zone, one, first), written(zone, other, second)].map(|time| derived(every, zone, &time));
        prop_assert_eq!(keys[0] == keys[1], is_same, "{} {:?} {} {}", every, zone, one, other);
    }

    #[test]
    fn a_local_time_is_the_same_intent_as_the_time_with_its_offset(
        (zone, time, _) in times(),
        every in prop::sample::select(vec!["day", "week", "month"]),
    ) {
        prop_assert_eq!(derived(every, zone, &written(zone, time, 4)), derived(every, zone, &written(zone, time, 0)));
    }

    #[test]
    fn the_calendar_of_this_test_is_correct(day in 0..40_000_i64) {
        let (year, month, day_of_month) = date(day);
        prop_assert_eq!(days(year, month, day_of_month), day);
        prop_assert!((1..=31).contains(&day_of_month));
    }
}
