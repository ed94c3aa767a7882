//! The sweeper: expires records, and removes what processes and connections that are gone have left.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use onceward_core::decide::{Command, Write, decide};
use onceward_core::record::{Record, Seen};

use super::row::{ExpectedRow, Job};
use super::write_job::seen;
use super::{Postgres, query, random_id};
use crate::plant::{Plant, planted};
use crate::step::{Step, reached};
use crate::store::{Error, Purged, Replace, Replaced, Store};

/// The most records that one statement expires: their outcomes are read, and may be large.
const PURGE_BATCH: usize = 32;

/// How often each process tidies up what others have left.
const TIDY_EVERY: Duration = Duration::from_secs(3600);

impl Postgres {
    /// Expires records, the longest expired first.
    pub(super) async fn sweep(&self, limit: usize) -> Result<Purged, Error> {
        let (mut purged, mut unreadable) = (Purged::default(), 0);
        while purged.total() < limit {
            let step = PURGE_BATCH.min(limit - purged.total());
            let given = self.shared.given_time();
            let values = vec![query::time_value(given), query::number_value(step), query::number_value(unreadable)];
            let rows = self.scans.run(query::EXPIRED, values, false).await?;
            let before = purged.total();
            let mut removed = Vec::new();
            let records = query::readable(&rows);
            let left_out = rows.len() - records.len();
            unreadable += left_out;
            for (now, record) in records {
                self.expire(&seen(record, given.unwrap_or(now)), &mut purged, &mut removed).await?;
            }
            if !removed.is_empty() {
                purged.removed += self.remove(&removed).await?;
            }
            if purged.total() > before {
                reached(Step::PurgeCommitted);
            }
            // None that can be expired, or none that other processes do not expire already.
            let is_stuck = purged.total() == before && (left_out == 0 || unreadable > query::MAX_UNREADABLE);
            if rows.len() < step || is_stuck {
                break;
            }
        }
        Ok(purged)
    }

    /// Expires one record: writes its tombstone, or puts it on the list of those to remove.
    async fn expire(&self, seen: &Seen, purged: &mut Purged, removed: &mut Vec<Record>) -> Result<(), Error> {
        match decide(Some(seen), &Command::Expire).write {
            Write::Replace(draft) if !planted(Plant::PurgeDropsTombstones) => {
                let replaced = self.replace(Replace::of(&seen.record, draft)).await?;
                purged.tombstones += usize::from(matches!(replaced, Replaced::Written { .. }));
            }
            Write::Remove | Write::Replace(_) => removed.push(seen.record.clone()),
            Write::None | Write::Insert(_) => {}
        }
        Ok(())
    }

    /// Removes what processes and connections that are gone have left, now and then.
    pub(super) async fn tidy(&self) {
        let is_due = {
            let mut tidied = self.shared.tidied.lock().unwrap_or_else(PoisonError::into_inner);
            let is_due = tidied.is_none_or(|at| at.elapsed() >= TIDY_EVERY);
            if is_due {
                *tidied = Some(Instant::now());
            }
            is_due
        };
        for statement in [query::FORGET_MARKS, query::ADD_UP_COUNTS] {
            // It can wait for the next time, and expiry cannot.
            if is_due && let Err(error) = self.scans.run(statement, Vec::new(), true).await {
                tracing::debug!(%error, "could not tidy up");
            }
        }
    }

    async fn remove(&self, records: &[Record]) -> Result<usize, Error> {
        let mut jobs = Vec::with_capacity(records.len());
        for record in records {
            let draft = record.next();
            let write_id = random_id()?;
            jobs.push(
                Job { expected: ExpectedRow::of(record), write_id, max_records: None, event: None, draft: &draft }
                    .encode()?,
            );
        }
        let rows = self.scans.run_jobs(query::REMOVE, jobs).await?;
        let removed: i64 = rows.first().and_then(|row| row.try_get(0).ok()).unwrap_or(0);
        Ok(usize::try_from(removed).unwrap_or(0))
    }
}
