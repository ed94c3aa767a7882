//! How long the writer waits for a fuller batch.
//!
//! A caller that has just got its result often sends its next write at once. If a sync is slow, waiting a moment for these
//! callers lets one sync carry twice as many writes. If the last commit did not wait for the disk, the writer does not wait.

use std::time::{Duration, Instant};

/// The next commit waits for this fraction of the time that the last one waited for the disk.
const WAIT_DIVISOR: u32 = 4;

/// The longest wait, however slow the disk is.
const MAX_WAIT: Duration = Duration::from_millis(2);

/// How many jobs to wait for, and until when.
#[derive(Debug)]
pub struct BatchWait {
    pub(super) expected: usize,
    pub(super) until: Instant,
}

impl BatchWait {
    /// No wait.
    pub fn none() -> Self {
        Self { expected: 0, until: Instant::now() }
    }

    /// The wait after a commit that began at `began`. `expected` counts the callers that may come back and those already waiting.
    pub fn after(began: &ThreadTime, expected: usize) -> Self {
        let ended = ThreadTime::now();
        Self { expected, until: ended.time + (ended.idle_since(began) / WAIT_DIVISOR).min(MAX_WAIT) }
    }
}

/// The time, and how much CPU time this thread has used.
#[derive(Debug)]
pub struct ThreadTime {
    time: Instant,
    cpu: Duration,
}

impl ThreadTime {
    /// The current time.
    pub fn now() -> Self {
        Self { time: Instant::now(), cpu: cpu_time() }
    }

    /// How long the thread was idle since `before`.
    fn idle_since(&self, before: &Self) -> Duration {
        (self.time - before.time).saturating_sub(self.cpu.saturating_sub(before.cpu))
    }
}

#[cfg(target_os = "linux")]
fn cpu_time() -> Duration {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// On other systems all of a commit counts as waiting for the sync.
#[cfg(not(target_os = "linux"))]
fn cpu_time() -> Duration {
    Duration::ZERO
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_writer_waits_a_fraction_of_the_time_that_the_last_commit_was_idle() {
        let began = ThreadTime::now();
        std::thread::sleep(Duration::from_millis(4));
        let wait = BatchWait::after(&began, 7);
        assert_eq!(wait.expected, 7);
        assert!(wait.until > Instant::now(), "a quarter of the sleep is left");
        assert!(wait.until <= Instant::now() + MAX_WAIT);
        assert!(BatchWait::none().until <= Instant::now());
    }
}
