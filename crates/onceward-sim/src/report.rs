//! What a harness prints: rows of a summary, and now and then a line of progress.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often a progress line is printed.
const PROGRESS: Duration = Duration::from_secs(2);

/// One row of a summary: a name and a number.
pub fn row(name: &str, number: u64) {
    println!("{name:<46}{number:>12}");
}

/// Prints how far a run has come.
#[derive(Debug)]
pub struct Progress {
    started: Instant,
    printed: Mutex<Instant>,
}

impl Progress {
    pub fn start() -> Self {
        let now = Instant::now();
        Self { started: now, printed: Mutex::new(now) }
    }

    /// Since the start.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Prints a line, unless one was printed a moment ago. `what` is what is counted, such as `kill`.
    pub fn print(&self, what: &str, number: u64, of: u64, line: impl FnOnce() -> String) {
        let mut printed = self.printed.lock().unwrap_or_else(PoisonError::into_inner);
        if printed.elapsed() > PROGRESS {
            *printed = Instant::now();
            println!("{what} {number} of {of}, {} s: {}", self.started.elapsed().as_secs(), line());
        }
    }
}
