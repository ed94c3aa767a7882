//! Puts batches together, and gives each job its answer.
//!
//! A statement writes a row once, so that a batch has one job for each key. Jobs that ask for the same of the same row follow it: a
//! storm of repeats of one key takes one row of a batch, and not a batch for each of them.

use std::collections::HashMap;
use std::time::Duration;

use onceward_core::hash::Digest;
use onceward_core::time::Timestamp;
use tokio_postgres::Row;

use super::write_job::{WriteJob, WriteReply, all_written, read_answer};
use crate::store::Error;

/// The most writes in one transaction: enough that the round trip and the commit cost little, and few enough to reply soon.
pub(super) const MAX_BATCH: usize = 512;

/// The most bytes in one transaction, unless a single write has more: outcomes may have 8 MiB each.
const MAX_BATCH_BYTES: usize = 8 << 20;

/// How long a write waits for other transactions that change the same row.
const PATIENCE_HELD: Duration = Duration::from_secs(2);

/// Where the last job of a key is.
enum LastJob {
    Batch(usize),
    Later(usize),
}

/// Takes the jobs of one batch from those that wait.
pub(super) fn take_batch(waiting: &mut Vec<WriteJob>) -> Vec<WriteJob> {
    let mut places: HashMap<Digest, LastJob> = HashMap::with_capacity(waiting.len());
    let mut bytes = 0;
    let (mut batch, mut later) = (Vec::with_capacity(waiting.len().min(MAX_BATCH)), Vec::new());
    for job in waiting.drain(..) {
        let last = match places.get(&job.id) {
            Some(LastJob::Batch(at)) => batch.get_mut(*at),
            Some(LastJob::Later(at)) => later.get_mut(*at),
            None => None,
        };
        let is_first = last.is_none();
        if let Some(last) = last.filter(|last: &&mut WriteJob| last.asks_the_same(&job)) {
            last.lead(job);
            continue;
        }
        let has_room = batch.is_empty() || bytes + job.bytes.len() <= MAX_BATCH_BYTES;
        // Once a key is left for later, all its later jobs are.
        if (is_first || job.is_check()) && has_room && batch.len() < MAX_BATCH {
            bytes += job.bytes.len();
            places.insert(job.id, LastJob::Batch(batch.len()));
            batch.push(job);
        } else {
            places.insert(job.id, LastJob::Later(later.len()));
            later.push(job);
        }
    }
    *waiting = later;
    // The database answers inserts first, and inserts in this order: two batches with the same keys do not wait for each other in
    // a circle.
    batch.sort_unstable_by_key(|job| match job.reply {
        WriteReply::Insert(_) => (0, job.id),
        WriteReply::Replace(_) => (1, job.id),
        WriteReply::Check(_) => (2, job.id),
    });
    batch
}

/// Replies to each job. Returns those that have to be tried again.
pub(super) fn answer(batch: Vec<WriteJob>, rows: &[Row], given: Option<Timestamp>) -> Vec<WriteJob> {
    if let Some(now) = rows.first().and_then(|row| all_written(row, given)) {
        return batch.into_iter().filter_map(|job| job.succeed(now)).collect();
    }
    let mut rows = rows.iter();
    let mut again = Vec::new();
    for job in batch {
        if job.is_check() {
            let _ = job.succeed(Timestamp::from_millis(0));
            continue;
        }
        let unreadable = |why| Error::Other(format!("a row cannot be read: {why}"));
        let answer = match rows.next() {
            None => Err(Error::Other("the store answered too little".to_owned())),
            Some(row) if row.try_get(0).is_ok_and(|result: &str| result == "undecided") => {
                job.undecided();
                continue;
            }
            Some(row) => read_answer(row, given).map_err(|error| unreadable(error.0)),
        };
        match job.answer(answer) {
            Some(job) if job.since.elapsed() > PATIENCE_HELD => job.undecided(),
            Some(job) => again.push(job),
            None => {}
        }
    }
    again
}

pub(super) fn refuse(batch: Vec<WriteJob>, error: &Error) {
    batch.into_iter().for_each(|job| job.refuse(error));
}

/// The error of a batch that was not acknowledged. One that was sent may still be written, by a connection that stalls.
pub(super) fn unreachable(why: String, was_sent: bool) -> Error {
    if was_sent { Error::Unanswered(why) } else { Error::Unreachable(why) }
}

/// The bug that a lost answer to a commit is taken for a success.
pub(super) fn assume(batch: Vec<WriteJob>) -> Vec<WriteJob> {
    batch.into_iter().filter_map(|job| job.succeed(Timestamp::from_millis(0))).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::sync::oneshot;

    use super::super::row::ExpectedRow;
    use super::*;

    fn insert(key: &str) -> (WriteJob, oneshot::Receiver<Result<Option<crate::store::Inserted>, Error>>) {
        let (sender, answer) = oneshot::channel();
        let id = onceward_core::hash::digest(key.as_bytes());
        (WriteJob::new(id, ExpectedRow::default(), Vec::new(), WriteReply::Insert(sender)), answer)
    }

    fn replace(key: &str, version: u64) -> WriteJob {
        let expected = ExpectedRow { version: Some(version), ..ExpectedRow::default() };
        let id = onceward_core::hash::digest(key.as_bytes());
        WriteJob::new(id, expected, Vec::new(), WriteReply::Replace(oneshot::channel().0))
    }

    #[test]
    fn a_crowd_for_one_key_takes_one_place_and_gets_one_answer() {
        let (mut jobs, mut answers): (Vec<_>, Vec<_>) = (0..1000).map(|_| insert("hot")).unzip();
        jobs.push(insert("other").0);
        let mut batch = take_batch(&mut jobs);
        assert_eq!((batch.len(), jobs.len()), (2, 0));
        batch.retain(|job| job.callers() > 1);
        batch.remove(0).undecided();
        assert!(answers.iter_mut().all(|answer| answer.try_recv().is_ok()));
    }

    #[test]
    fn the_followers_of_a_job_that_wrote_the_row_are_tried_again_together() {
        let (mut jobs, mut answers): (Vec<_>, Vec<_>) = (0..5).map(|_| insert("k")).unzip();
        // Its caller has gone away.
        drop(answers.remove(1));
        let again = take_batch(&mut jobs).remove(0).succeed(Timestamp::from_millis(0)).unwrap();
        assert_eq!(again.callers(), 3);
        again.refuse(&Error::Closed);
        let refused = answers.iter_mut().map(|answer| matches!(answer.try_recv(), Ok(Err(Error::Closed))));
        assert_eq!(refused.filter(|refused| *refused).count(), 3);
    }

    #[test]
    fn a_key_is_written_once_in_a_batch_and_its_jobs_stay_in_order() {
        let mut jobs =
            vec![replace("k", 1), replace("k", 1), replace("k", 2), replace("k", 1), insert("k").0, replace("l", 1)];
        assert_eq!(take_batch(&mut jobs).len(), 2, "k and l");
        let versions: Vec<_> = jobs.iter().map(|job| job.expected.version).collect();
        assert_eq!(versions, [Some(2), Some(1), None]);
        for left in [2, 1, 0] {
            assert_eq!((take_batch(&mut jobs).len(), jobs.len()), (1, left));
        }
    }
}
