//! Notices that the database has lost acknowledged writes: it was restored from a backup, or a replica was promoted that had not
//! received them. Each writer counts its batches in a row of its own, and sends with each batch the last number that was
//! acknowledged, for the database to compare. The memory lasts as long as the process.

use std::time::{Duration, Instant};

use super::OpenStore;
use crate::store::Error;

/// A writer that was idle for longer compares nothing once: the sweeper may have removed its row, which it does after seven days.
const REMEMBERED_FOR: Duration = Duration::from_secs(6 * 86_400);

/// The count of one writer.
#[derive(Debug)]
pub(super) struct HighWaterMark {
    pub(super) process: [u8; 16],
    last: i64,
    acknowledged: i64,
    at: Instant,
}

impl HighWaterMark {
    pub(super) fn new() -> Result<Self, Error> {
        Ok(Self { process: super::random_id()?, last: 0, acknowledged: 0, at: Instant::now() })
    }

    /// The number of the next batch.
    pub(super) fn next(&mut self) -> i64 {
        self.last += 1;
        self.last
    }

    /// The number that the database must have reached.
    pub(super) fn expected(&self) -> i64 {
        if self.at.elapsed() < REMEMBERED_FOR { self.acknowledged } else { 0 }
    }

    pub(super) fn acknowledged(&mut self, number: i64) {
        (self.acknowledged, self.at) = (number, Instant::now());
    }

    /// The database knows only the batches up to `found`. This is reported once; from here on the count goes on.
    pub(super) fn fell_behind(&mut self, found: i64, shared: &OpenStore) {
        shared.lost_writes(self.acknowledged - found);
        self.acknowledged = found;
    }
}
