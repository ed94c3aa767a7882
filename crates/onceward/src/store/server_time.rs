//! The time of a server between its answers: the time in the last answer, carried on by the monotonic clock of this process. Cached
//! outcomes expire by it.
//!
//! It is never behind the server. An answer is counted from when it was asked for, because it may have waited for this process for any
//! time: a process that is stopped between an answer and its reading must not serve outcomes that have expired meanwhile.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use onceward_core::time::Timestamp;

/// After this long without an answer of the server, its time is not known any more.
const KNOWN_FOR: Duration = Duration::from_secs(60);

/// Times are whole milliseconds: the rest of the last one.
const ROUNDING: i64 = 1;

/// What is known about the time of a server.
#[derive(Debug)]
pub(super) struct ServerTime {
    opened: Instant,
    /// The difference between the time of the server and the time since `opened`, in milliseconds.
    difference: AtomicI64,
    /// When that was asked for, in milliseconds since `opened`.
    asked: AtomicI64,
}

impl ServerTime {
    /// A server that has not answered yet.
    pub(super) fn unknown() -> Self {
        Self { opened: Instant::now(), difference: AtomicI64::new(0), asked: AtomicI64::new(i64::MIN) }
    }

    /// Notes the time in an answer to a question of this moment.
    pub(super) fn saw(&self, now: Timestamp, asked: Instant) {
        let asked = millis(asked.saturating_duration_since(self.opened));
        self.difference.store(now.as_millis().saturating_sub(asked).saturating_add(ROUNDING), Ordering::Relaxed);
        self.asked.store(asked, Ordering::Relaxed);
    }

    /// The time, if the server has answered lately.
    pub(super) fn now(&self) -> Option<Timestamp> {
        let elapsed = millis(self.opened.elapsed());
        let is_known = self.asked.load(Ordering::Relaxed).saturating_add(millis(KNOWN_FOR)) > elapsed;
        is_known.then(|| Timestamp::from_millis(self.difference.load(Ordering::Relaxed).saturating_add(elapsed)))
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWERED: Timestamp = Timestamp::from_millis(1_000_000);

    fn after(time: &ServerTime) -> i64 {
        time.now().unwrap().as_millis() - ANSWERED.as_millis()
    }

    #[test]
    fn an_answer_that_was_read_late_does_not_put_the_time_behind_the_server() {
        let time = ServerTime::unknown();
        let asked = Instant::now();
        std::thread::sleep(Duration::from_millis(30));
        // The server may have answered at once.
        time.saw(ANSWERED, asked);
        assert!(after(&time) >= 30, "{}", after(&time));
    }

    #[test]
    fn a_server_that_is_silent_has_no_time() {
        let time = ServerTime::unknown();
        assert_eq!(time.now(), None);
        time.saw(ANSWERED, Instant::now());
        assert!(after(&time) >= 0);
        time.asked.store(-millis(KNOWN_FOR), Ordering::Relaxed);
        assert_eq!(time.now(), None);
    }
}
