//! A wall clock that can be wrong, and that can jump during a call.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use onceward::clock::Clock;
use onceward::core::time::Timestamp;

/// A clock: the true time, and its offset.
#[derive(Clone, Debug)]
pub struct JumpingClock(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    truth: Arc<AtomicI64>,
    off: AtomicI64,
    /// The number of readings until it jumps; none when it is zero or less.
    fuse: AtomicI64,
    then: AtomicI64,
    earliest: AtomicI64,
    latest: AtomicI64,
}

/// The times that a reader of the clock may have seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readings {
    pub earliest: i64,
    pub latest: i64,
}

impl JumpingClock {
    /// A clock that is right.
    pub fn over(truth: &Arc<AtomicI64>) -> Self {
        Self(Arc::new(Inner {
            truth: Arc::clone(truth),
            off: AtomicI64::new(0),
            fuse: AtomicI64::new(0),
            then: AtomicI64::new(0),
            earliest: AtomicI64::new(i64::MAX),
            latest: AtomicI64::new(i64::MIN),
        }))
    }

    /// Jumps now.
    pub fn jump(&self, off: i64) {
        self.0.fuse.store(0, Ordering::SeqCst);
        self.0.off.store(off, Ordering::SeqCst);
    }

    /// Jumps after this many readings, at whatever step that is.
    pub fn jump_after(&self, readings: i64, off: i64) {
        self.0.then.store(off, Ordering::SeqCst);
        self.0.fuse.store(readings, Ordering::SeqCst);
    }

    /// Forgets the readings so far.
    pub fn watch(&self) {
        self.0.earliest.store(i64::MAX, Ordering::SeqCst);
        self.0.latest.store(i64::MIN, Ordering::SeqCst);
    }

    /// The readings since then; the present time, if there were none.
    pub fn readings(&self) -> Readings {
        let (earliest, latest) = (self.0.earliest.load(Ordering::SeqCst), self.0.latest.load(Ordering::SeqCst));
        if earliest <= latest {
            return Readings { earliest, latest };
        }
        let now = self.0.truth.load(Ordering::SeqCst) + self.0.off.load(Ordering::SeqCst);
        Readings { earliest: now, latest: now }
    }
}

impl Clock for JumpingClock {
    fn now(&self) -> Timestamp {
        let inner = &self.0;
        if inner.fuse.fetch_sub(1, Ordering::SeqCst) == 1 {
            inner.off.store(inner.then.load(Ordering::SeqCst), Ordering::SeqCst);
        }
        let now = inner.truth.load(Ordering::SeqCst) + inner.off.load(Ordering::SeqCst);
        inner.earliest.fetch_min(now, Ordering::SeqCst);
        inner.latest.fetch_max(now, Ordering::SeqCst);
        Timestamp::from_millis(now)
    }
}
