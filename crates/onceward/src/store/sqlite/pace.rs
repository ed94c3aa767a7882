//! How long the writer waits for callers that come back.
//!
//! A caller that was just answered often has its next write at hand. Where a sync is slow, waiting for it a moment lets
//! one sync carry twice as many; where nothing waits for a disk, nobody waits.

use std::time::{Duration, Instant};

/// The next commit waits for this part of the time that the last one waited for the disk.
const PART: u32 = 4;

/// However slow the disk is, nobody waits longer than this for others.
const LONGEST: Duration = Duration::from_millis(2);

/// For how many jobs to wait, and until when.
#[derive(Debug)]
pub struct Pace {
    pub(super) expected: usize,
    pub(super) until: Instant,
}

impl Pace {
    /// Nobody is expected.
    pub fn idle() -> Self {
        Self { expected: 0, until: Instant::now() }
    }

    /// After a commit that began then. All who were answered may come back, and others wait already.
    pub fn after(began: &Moment, expected: usize) -> Self {
        let ended = Moment::now();
        Self { expected, until: ended.time + (ended.idle_since(began) / PART).min(LONGEST) }
    }
}

/// What time it is, and how much of it this thread has worked.
#[derive(Debug)]
pub struct Moment {
    time: Instant,
    worked: Duration,
}

impl Moment {
    /// This one.
    pub fn now() -> Self {
        Self { time: Instant::now(), worked: worked() }
    }

    /// For how long the thread has waited for something.
    fn idle_since(&self, before: &Self) -> Duration {
        (self.time - before.time).saturating_sub(self.worked.saturating_sub(before.worked))
    }
}

#[cfg(target_os = "linux")]
fn worked() -> Duration {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Elsewhere a sync is taken to be most of a commit.
#[cfg(not(target_os = "linux"))]
fn worked() -> Duration {
    Duration::ZERO
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_that_waited_is_worth_waiting_for_and_one_that_worked_is_not() {
        let began = Moment::now();
        std::thread::sleep(Duration::from_millis(4));
        let pace = Pace::after(&began, 7);
        assert_eq!(pace.expected, 7);
        assert!(pace.until > Instant::now(), "a quarter of what was slept is left");
        assert!(pace.until <= Instant::now() + LONGEST);
        assert!(Pace::idle().until <= Instant::now());
    }
}
