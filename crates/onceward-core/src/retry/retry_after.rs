//! The header Retry-After of RFC 9110, section 10.2.3: how long the downstream asks to wait, in seconds or until a date.

use std::time::Duration;

use super::http_date;
use crate::policy::LONGEST_NOT_BEFORE;
use crate::time::Timestamp;

/// Reads the header; at most [`LONGEST_NOT_BEFORE`]. `None` if it holds neither whole seconds nor a date, because a value that
/// says nothing must not prove that a server refused before the work.
///
/// A date is compared with the response's own `Date` header, so that it does not matter how well the clocks agree; without one
/// that can be read, with the current time. A date in the past means now.
pub fn parse(value: &str, date: Option<&str>, now: Timestamp) -> Option<Duration> {
    let value = trimmed(value);
    let asked = if value.bytes().all(|byte| byte.is_ascii_digit()) {
        if value.is_empty() {
            return None;
        }
        // Digits only, so the only possible error is an overflow.
        value.parse().map_or(LONGEST_NOT_BEFORE, Duration::from_secs)
    } else {
        let until = http_date::parse(value, now)?;
        let sent = date.and_then(|date| http_date::parse(trimmed(date), now)).unwrap_or(now);
        sent.until(until)
    };
    Some(asked.min(LONGEST_NOT_BEFORE))
}

/// Without the white space that HTTP permits around a value.
fn trimmed(value: &str) -> &str {
    value.trim_matches([' ', '\t'])
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

    /// A minute before [`DATE`].
    const NOW: Timestamp = Timestamp::from_millis(784_111_717_000);

    fn seconds(value: &str, date: Option<&str>) -> Option<u64> {
        parse(value, date, NOW).map(|asked| asked.as_secs())
    }

    #[test]
    fn seconds_are_read_up_to_the_longest_wait() {
        for (value, expected) in [("0", 0), ("120", 120), (" 7\t", 7), ("0007", 7)] {
            assert_eq!(seconds(value, None), Some(expected), "{value}");
        }
        for value in ["604801", "18446744073709551615", "18446744073709551616", "9".repeat(4096).as_str()] {
            assert_eq!(parse(value, None, NOW), Some(LONGEST_NOT_BEFORE), "{value}");
        }
    }

    #[test]
    fn a_date_counts_from_the_date_of_the_response() {
        assert_eq!(seconds(DATE, Some("Sun, 06 Nov 1994 08:49:30 GMT")), Some(7));
        assert_eq!(seconds(DATE, Some("Sun Nov  6 08:49:30 1994")), Some(7));
        assert_eq!(seconds(DATE, Some("Sun, 06 Nov 1994 08:50:00 GMT")), Some(0));
        assert_eq!(parse(DATE, Some("Mon, 01 Jan 1900 00:00:00 GMT"), NOW), Some(LONGEST_NOT_BEFORE));
    }

    #[test]
    fn without_a_readable_date_header_a_date_counts_from_now() {
        assert_eq!(seconds(DATE, None), Some(60));
        assert_eq!(seconds(DATE, Some("yesterday")), Some(60));
        assert_eq!(parse(DATE, None, NOW.after(Duration::from_secs(61))), Some(Duration::ZERO));
    }

    #[test]
    fn what_cannot_be_read_is_ignored() {
        for value in ["", " ", "soon", "-1", "+1", "1.5", "1 2", "1s", "0x10", "٣"] {
            assert_eq!(seconds(value, None), None, "{value:?}");
        }
    }
}
