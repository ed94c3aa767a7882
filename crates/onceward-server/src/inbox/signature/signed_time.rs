//! The signed time of a delivery. It limits for how long a captured request can be replayed.

use std::time::Duration;

use http::HeaderName;
use onceward::core::time::Timestamp;

use super::Refused;
use super::headers::malformed;

/// Seconds until the year 5138: more digits are another unit.
const MAX_DIGITS: usize = 11;

/// Reads seconds since 1970, and compares them with the time of arrival in both directions.
pub(super) fn check(
    header: &HeaderName,
    text: &str,
    now: Timestamp,
    tolerance: Duration,
) -> Result<Timestamp, Refused> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = text.parse::<i64>().ok().filter(|_| is_number && text.len() <= MAX_DIGITS);
    let seconds = seconds.ok_or_else(|| malformed(header, "the time must be in whole seconds since 1970"))?;
    let at = Timestamp::from_millis(seconds.saturating_mul(1000));
    let (age, ahead) = (at.until(now), now.until(at));
    if age > tolerance {
        return Err(Refused::TooOld { age });
    }
    if ahead > tolerance {
        return Err(Refused::TooNew { ahead });
    }
    Ok(at)
}
