//! Timestamps. Core never reads a clock: stores return their time with every result.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A clock may be set back by this much. What a record says to have happened further in the future was written by a clock that
/// ran ahead.
pub(crate) const MAX_SET_BACK: Duration = Duration::from_secs(60);

/// Milliseconds since the Unix epoch, on the clock of the store that returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// A timestamp from milliseconds since the Unix epoch.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// This time plus a duration. Saturates instead of overflowing.
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(millis(duration)))
    }

    /// The duration from this time until `later`; zero if `later` is earlier.
    pub fn until(self, later: Self) -> Duration {
        Duration::from_millis(u64::try_from(later.0.saturating_sub(self.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(timestamp) => write!(f, "{timestamp:.3}"),
            Err(_) => write!(f, "{} ms", self.0),
        }
    }
}

/// A duration in whole milliseconds. Saturates instead of overflowing.
pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// A time in a record that is to be written: a known time, or a duration from the moment of the write on the store's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// A known time.
    At(Timestamp),
    /// This long after the write.
    In(#[serde(with = "crate::duration::as_millis")] Duration),
}

impl When {
    /// The moment of the write.
    pub const NOW: Self = Self::In(Duration::ZERO);

    /// The timestamp, for a write at `now`.
    pub fn stamp(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(timestamp) => timestamp,
            Self::In(duration) => now.after(duration),
        }
    }
}

impl From<Timestamp> for When {
    fn from(timestamp: Timestamp) -> Self {
        Self::At(timestamp)
    }
}
