//! How long to wait before the next attempt, and when to stop: exponential backoff with full jitter.
//!
//! With full jitter, the callers that failed together do not come back together: each waits a random time between zero and
//! the ceiling of its attempt.

use std::time::Duration;

use crate::policy::LONGEST_NOT_BEFORE;

/// How retries are spaced, and when they stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The longest wait after the first attempt. Doubles with every further attempt.
    pub base: Duration,
    /// The longest wait after any attempt.
    pub cap: Duration,
    /// How many attempts are made in all, the first one included.
    pub max_attempts: u32,
    /// How long after the first attempt was due the last one may begin; `None` means no limit.
    pub deadline: Option<Duration>,
}

impl Default for Settings {
    /// 100 ms, because most interruptions are that short; 10 s, so that an entry is delivered soon after an outage; 8 attempts,
    /// which together take half a minute at the most; no deadline.
    fn default() -> Self {
        Self { base: Duration::from_millis(100), cap: Duration::from_secs(10), max_attempts: 8, deadline: None }
    }
}

/// An intent whose latest attempt failed in a way that permits another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failed {
    /// How many attempts were made, this one included.
    pub attempts: u32,
    /// The time since the first attempt was due.
    pub age: Duration,
    /// How long the downstream asks to wait.
    pub retry_after: Option<Duration>,
    /// For an intent in doubt: how much longer the downstream will know its key, less the time that an attempt takes. `None`
    /// where every attempt is proven harmless, because nothing then depends on the key.
    pub key_known_for: Option<Duration>,
}

/// What follows a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another attempt, after this long.
    After(Duration),
    /// No further attempt. An intent in doubt stays in doubt; one that is proven not to have happened is dead.
    GiveUp(Limit),
}

/// Why no further attempt is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// All attempts were made.
    Attempts,
    /// The next attempt would begin after the deadline.
    Deadline,
    /// The downstream would no longer know the key, and could do the work twice.
    KeyForgotten,
}

/// The longest wait after an attempt: `base` doubled for each attempt after the first, up to `cap`. Attempts count from 1. In
/// whole milliseconds, rounded up, so that a wait is never silently none.
pub fn ceiling(attempt: u32, settings: &Settings) -> Duration {
    let cap = whole_millis(settings.cap);
    let factor = 1_u64.checked_shl(attempt.saturating_sub(1)).unwrap_or(u64::MAX);
    Duration::from_millis(whole_millis(settings.base).saturating_mul(factor).min(cap))
}

/// A wait between zero and the [`ceiling`] of the attempt, both included, in whole milliseconds. `random` is 64 random bits;
/// equal bits give an equal wait.
pub fn delay(attempt: u32, settings: &Settings, random: u64) -> Duration {
    let choices = u128::from(whole_millis(ceiling(attempt, settings))) + 1;
    // The high half of a product of 64 random bits is uniform to within one part in 2^64 for each choice.
    let millis = (u128::from(random) * choices) >> 64;
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
}

/// The wait after an attempt to which the downstream may have answered with Retry-After. The random part is added to that time,
/// and does not merely give way to it: all callers that were told the same time would otherwise come back together.
pub fn wait(attempt: u32, settings: &Settings, retry_after: Option<Duration>, random: u64) -> Duration {
    let earliest = retry_after.unwrap_or_default();
    earliest.saturating_add(delay(attempt, settings, random)).min(LONGEST_NOT_BEFORE)
}

/// What follows a failed attempt. The jitter never moves an attempt past a limit; a Retry-After that lies past one ends the
/// retries at once.
pub fn next(failed: &Failed, settings: &Settings, random: u64) -> Next {
    if failed.attempts >= settings.max_attempts {
        return Next::GiveUp(Limit::Attempts);
    }
    let mut wait = wait(failed.attempts, settings, failed.retry_after, random);
    let earliest = failed.retry_after.unwrap_or_default().min(LONGEST_NOT_BEFORE);
    let until_deadline = settings.deadline.map(|deadline| deadline.saturating_sub(failed.age));
    for (limit, rest) in [(Limit::KeyForgotten, failed.key_known_for), (Limit::Deadline, until_deadline)] {
        let Some(rest) = rest else { continue };
        // An attempt has to begin before the limit, by the smallest unit of a timestamp.
        match rest.checked_sub(Duration::from_millis(1)) {
            Some(latest) if earliest <= latest => wait = wait.min(latest),
            _ => return Next::GiveUp(limit),
        }
    }
    Next::After(wait)
}

/// Whole milliseconds, rounded up. A longer wait than [`LONGEST_NOT_BEFORE`] is never asked for.
fn whole_millis(duration: Duration) -> u64 {
    let millis = duration.min(LONGEST_NOT_BEFORE).as_nanos().div_ceil(1_000_000);
    u64::try_from(millis).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings = Settings {
        base: Duration::from_millis(100),
        cap: Duration::from_secs(10),
        max_attempts: 8,
        deadline: Some(Duration::from_secs(60)),
    };

    fn failed(attempts: u32) -> Failed {
        Failed { attempts, ..Failed::default() }
    }

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_defaults_are_the_documented_ones() {
        assert_eq!(Settings::default(), Settings { deadline: None, ..SETTINGS });
    }

    #[test]
    fn the_ceiling_doubles_up_to_the_cap_at_any_attempt() {
        let of = |attempt| ceiling(attempt, &SETTINGS).as_millis();
        let documented = [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000];
        assert_eq!([1, 2, 3, 4, 5, 6, 7, 8, 9].map(of), documented);
        assert_eq!([0, 1, 63, 64, 65, 66, u32::MAX].map(of), [100, 100, 10_000, 10_000, 10_000, 10_000, 10_000]);
        let longest = Settings { base: Duration::MAX, cap: Duration::MAX, ..SETTINGS };
        assert_eq!([1, 64, u32::MAX].map(|attempt| ceiling(attempt, &longest)), [LONGEST_NOT_BEFORE; 3]);
        let none = Settings { base: Duration::ZERO, ..SETTINGS };
        assert_eq!(delay(u32::MAX, &none, u64::MAX), Duration::ZERO);
        let short = Settings { base: Duration::from_nanos(1), ..SETTINGS };
        assert_eq!(ceiling(1, &short), Duration::from_millis(1));
    }

    #[test]
    fn both_ends_of_the_range_are_drawn() {
        assert_eq!(delay(3, &SETTINGS, 0), Duration::ZERO);
        assert_eq!(delay(3, &SETTINGS, u64::MAX), Duration::from_millis(400));
        assert_eq!(delay(3, &SETTINGS, u64::MAX / 2), Duration::from_millis(200));
    }

    #[test]
    fn an_attempt_never_begins_before_retry_after() {
        assert_eq!(wait(1, &SETTINGS, Some(seconds(7)), 0), seconds(7));
        assert_eq!(wait(1, &SETTINGS, Some(seconds(7)), u64::MAX), Duration::from_millis(7_100));
        assert_eq!(wait(1, &SETTINGS, Some(Duration::MAX), u64::MAX), LONGEST_NOT_BEFORE);
        assert_eq!(wait(1, &SETTINGS, None, u64::MAX), Duration::from_millis(100));
    }

    #[test]
    fn retries_stop_when_all_attempts_were_made() {
        assert_eq!(next(&failed(7), &SETTINGS, 0), Next::After(Duration::ZERO));
        assert_eq!(next(&failed(8), &SETTINGS, 0), Next::GiveUp(Limit::Attempts));
        assert_eq!(next(&failed(u32::MAX), &SETTINGS, 0), Next::GiveUp(Limit::Attempts));
        let none = Settings { max_attempts: 0, ..SETTINGS };
        assert_eq!(next(&failed(1), &none, 0), Next::GiveUp(Limit::Attempts));
    }

    #[test]
    fn no_attempt_begins_after_the_deadline_or_when_the_key_is_forgotten() {
        let late = |age, retry_after| Failed { age, retry_after, ..failed(7) };
        let clipped = Next::After(Duration::from_millis(999));
        assert_eq!(next(&late(seconds(59), None), &SETTINGS, u64::MAX), clipped);
        assert_eq!(next(&late(seconds(60), None), &SETTINGS, 0), Next::GiveUp(Limit::Deadline));
        assert_eq!(next(&late(seconds(59), Some(seconds(1))), &SETTINGS, 0), Next::GiveUp(Limit::Deadline));
        assert_eq!(next(&late(Duration::MAX, None), &SETTINGS, 0), Next::GiveUp(Limit::Deadline));
        let doubtful = |known, retry_after| Failed { key_known_for: Some(known), retry_after, ..failed(7) };
        assert_eq!(next(&doubtful(seconds(1), None), &SETTINGS, u64::MAX), clipped);
        assert_eq!(next(&doubtful(Duration::ZERO, None), &SETTINGS, 0), Next::GiveUp(Limit::KeyForgotten));
        let asked = doubtful(seconds(30), Some(seconds(30)));
        assert_eq!(next(&asked, &SETTINGS, 0), Next::GiveUp(Limit::KeyForgotten));
    }
}
