//! Dates in HTTP headers, in the three forms of RFC 9110, section 5.6.7.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;

use crate::time::Timestamp;

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

const WEEKDAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// How far in the future a year of two digits may be. RFC 9110 counts a later one as past.
const MOST_YEARS_AHEAD: i16 = 50;

/// Reads `Sun, 06 Nov 1994 08:49:37 GMT`, `Sunday, 06-Nov-94 08:49:37 GMT` or `Sun Nov  6 08:49:37 1994`. The current time
/// tells the century of the second form. The name of the weekday is not compared with the date, which says enough.
pub fn parse(text: &str, now: Timestamp) -> Option<Timestamp> {
    let (year, month, day, time) = match text.split_once(", ") {
        Some((weekday, rest)) if is_short_weekday(weekday) => preferred(rest)?,
        Some((weekday, rest)) if WEEKDAYS.contains(&weekday) => with_short_year(rest, now)?,
        Some(_) => return None,
        None => of_asctime(text)?,
    };
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    let date = Date::new(year, i8::try_from(month).ok()?, day).ok()?;
    // In UTC. An exact time of the calendar library would not include the last day of the year 9999.
    let since_epoch = date.to_datetime(clock_time(time)?).duration_since(EPOCH);
    Some(Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).ok()?))
}

/// Year, name of the month, day, time of day.
type Fields<'a> = (i16, &'a str, i8, &'a str);

/// `06 Nov 1994 08:49:37 GMT`
fn preferred(text: &str) -> Option<Fields<'_>> {
    let mut words = text.strip_suffix(" GMT")?.splitn(4, ' ');
    let (day, month, year) = (words.next()?, words.next()?, words.next()?);
    Some((number(year, 4)?, month, two_digits(day)?, words.next()?))
}

/// `06-Nov-94 08:49:37 GMT`
fn with_short_year(text: &str, now: Timestamp) -> Option<Fields<'_>> {
    let (date, time) = text.strip_suffix(" GMT")?.split_once(' ')?;
    let mut words = date.splitn(3, '-');
    let (day, month, year) = (words.next()?, words.next()?, words.next()?);
    let this_year = TimeZone::UTC.to_datetime(jiff::Timestamp::from_millisecond(now.as_millis()).ok()?).year();
    // The one year with these digits among the next fifty and the last fifty.
    let years_ahead = (number(year, 2)? - this_year).rem_euclid(100);
    let year = this_year + if years_ahead > MOST_YEARS_AHEAD { years_ahead - 100 } else { years_ahead };
    Some((year, month, two_digits(day)?, time))
}

/// `Sun Nov  6 08:49:37 1994`
fn of_asctime(text: &str) -> Option<Fields<'_>> {
    let (weekday, rest) = text.split_once(' ')?;
    let (month, rest) = rest.split_once(' ')?;
    // The day has two characters, of which the first may be a space.
    let (day, rest) = (rest.get(..2)?, rest.get(2..)?.strip_prefix(' ')?);
    let day = day.strip_prefix(' ').map_or_else(|| two_digits(day), |digit| i8::try_from(number(digit, 1)?).ok())?;
    let (time, year) = rest.split_once(' ')?;
    is_short_weekday(weekday).then_some((number(year, 4)?, month, day, time))
}

/// `08:49:37`. A leap second counts as the second before it.
fn clock_time(text: &str) -> Option<Time> {
    let mut words = text.splitn(3, ':').map(two_digits);
    let (hour, minute, second) = (words.next()??, words.next()??, words.next()??);
    Time::new(hour, minute, if second == 60 { 59 } else { second }, 0).ok()
}

fn two_digits(text: &str) -> Option<i8> {
    i8::try_from(number(text, 2)?).ok()
}

/// A number of exactly this many digits.
fn number(text: &str, digits: usize) -> Option<i16> {
    let is_number = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

fn is_short_weekday(text: &str) -> bool {
    text.len() == 3 && WEEKDAYS.iter().any(|weekday| weekday.starts_with(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-19 00:00:00 UTC.
    const NOW: Timestamp = Timestamp::from_millis(1_795_046_400_000);

    fn shown(text: &str) -> Option<String> {
        Some(parse(text, NOW)?.to_string())
    }

    #[test]
    fn all_three_forms_are_read() {
        for text in ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
            assert_eq!(parse(text, NOW), Some(Timestamp::from_millis(784_111_777_000)), "{text}");
        }
        assert_eq!(shown("Sun Nov 16 08:49:37 2026").as_deref(), Some("2026-11-16T08:49:37.000Z"));
    }

    #[test]
    fn a_year_of_two_digits_is_the_nearest_one() {
        let year = |digits: &str, now: Timestamp| {
            let text = format!("Sunday, 06-Nov-{digits} 08:49:37 GMT");
            parse(&text, now).unwrap().to_string()[..4].parse::<u16>().unwrap()
        };
        assert_eq!(["26", "76", "77", "99", "00"].map(|digits| year(digits, NOW)), [2026, 2076, 1977, 1999, 2000]);
        let end_of_century = parse("Thu, 31 Dec 2099 23:59:59 GMT", NOW).unwrap();
        assert_eq!(["99", "00", "50"].map(|digits| year(digits, end_of_century)), [2099, 2100, 2050]);
    }

    #[test]
    fn a_leap_second_is_the_second_before_it() {
        assert_eq!(shown("Sat, 31 Dec 2016 23:59:60 GMT").as_deref(), Some("2016-12-31T23:59:59.000Z"));
    }

    #[test]
    fn what_is_not_a_date_is_refused() {
        for text in [
            "",
            ",",
            ", ",
            "soon",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37 +0000",
            "Sun, 06 Nov 94 08:49:37 GMT",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 06 nov 1994 08:49:37 GMT",
            "Sun,  06 Nov 1994 08:49:37 GMT",
            "Son, 06 Nov 1994 08:49:37 GMT",
            "Sun, 31 Feb 1994 08:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:60:00 GMT",
            "Sun, 06 Nov 1994 08:49:61 GMT",
            "Sun, 06 Nov 1994 08:49 GMT",
            "Sun, 06 Nov 1994 8:49:37 GMT",
            "Sun, 06 Nov -994 08:49:37 GMT",
            "Sunday, 06-Nov-1994 08:49:37 GMT",
            "Sunday, 06 Nov 94 08:49:37 GMT",
            "Sun Nov 6 08:49:37 1994",
            "Sun Nov  6 08:49:37 94",
            "Sun Nov  é 08:49:37 1994",
            "Sun Nov é",
            "1994-11-06T08:49:37Z",
            "٠٦",
        ] {
            assert_eq!(parse(text, NOW), None, "{text}");
        }
    }

    #[test]
    fn a_time_that_no_calendar_has_gives_no_century() {
        let no_time = Timestamp::from_millis(i64::MAX);
        assert_eq!(parse("Sunday, 06-Nov-94 08:49:37 GMT", no_time), None);
        assert!(parse("Sun, 06 Nov 1994 08:49:37 GMT", no_time).is_some());
    }
}
