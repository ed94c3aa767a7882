//! A write that waits for its batch, and its answer.

use std::time::Instant;

use tokio::sync::oneshot;
use tokio_postgres::Row;

use onceward_core::hash::Digest;
use onceward_core::record::Seen;
use onceward_core::time::Timestamp;

use super::composite::{Unreadable, from_micros};
use super::row;
use crate::plant::{Plant, planted};
use crate::store::{Error, Inserted, Replaced};

/// A write. It was encoded by its caller, so that the writer only puts batches together.
#[derive(Debug)]
pub(super) struct WriteJob {
    pub(super) id: Digest,
    /// In the binary format of `onceward.job_v1`.
    pub(super) bytes: Vec<u8>,
    pub(super) since: Instant,
    pub(super) reply: WriteReply,
}

/// Where the answer goes. The type of the answer says what kind of write it is.
#[derive(Debug)]
pub(super) enum WriteReply {
    Insert(oneshot::Sender<Result<Inserted, Error>>),
    Replace(oneshot::Sender<Result<Replaced, Error>>),
    /// Writes nothing but the mark of this process.
    Check(oneshot::Sender<Result<(), Error>>),
}

/// What the database answered to one job.
#[derive(Debug)]
pub(super) enum JobResult {
    Inserted(Inserted),
    Replaced(Replaced),
    /// Another transaction was changing the row, or has just removed it: try again.
    Again,
}

impl WriteJob {
    /// Sends an error. The caller may have gone away.
    pub(super) fn refuse(self, error: Error) {
        match self.reply {
            WriteReply::Insert(reply) => drop(reply.send(Err(error))),
            WriteReply::Replace(reply) => drop(reply.send(Err(error))),
            WriteReply::Check(reply) => drop(reply.send(Err(error))),
        }
    }

    /// Sends an answer. Returns the job if it has to be tried again.
    pub(super) fn answer(self, answer: Result<JobResult, Error>) -> Option<Self> {
        match (answer, self.reply) {
            (Ok(JobResult::Inserted(inserted)), WriteReply::Insert(reply)) => drop(reply.send(Ok(inserted))),
            (Ok(JobResult::Replaced(replaced)), WriteReply::Replace(reply)) => drop(reply.send(Ok(replaced))),
            (Ok(JobResult::Again), reply) => return Some(Self { reply, ..self }),
            (Ok(_), reply) => {
                let error = Error::Other("the store answered another question".to_owned());
                Self { reply, ..self }.refuse(error);
            }
            (Err(error), reply) => Self { reply, ..self }.refuse(error),
        }
        None
    }

    /// What the job asked for was written.
    pub(super) fn succeed(self, now: Timestamp) {
        match self.reply {
            WriteReply::Insert(reply) => drop(reply.send(Ok(Inserted::Created { now }))),
            WriteReply::Replace(reply) => drop(reply.send(Ok(Replaced::Written { now }))),
            WriteReply::Check(reply) => drop(reply.send(Ok(()))),
        }
    }

    /// A transaction of another program holds the key. Nothing was written.
    pub(super) fn undecided(self) {
        match self.reply {
            WriteReply::Insert(reply) => drop(reply.send(Ok(Inserted::Undecided))),
            WriteReply::Replace(reply) => drop(reply.send(Ok(Replaced::Undecided))),
            WriteReply::Check(reply) => drop(reply.send(Ok(()))),
        }
    }
}

/// The store's time, if this is the answer that all jobs were written.
pub(super) fn all_written(row: &Row, given: Option<Timestamp>) -> Option<Timestamp> {
    let is_all = row.try_get(0).is_ok_and(|result: &str| result == "all");
    let now = row.try_get::<_, Micros>(1).ok().filter(|_| is_all)?;
    Some(given.unwrap_or(now.0))
}

/// Reads the answer of `onceward.write_v1` to one job: its result, the store's time, and the row that is there.
pub(super) fn read_answer(row: &Row, given: Option<Timestamp>) -> Result<JobResult, Unreadable> {
    let unreadable = |error: tokio_postgres::Error| Unreadable(error.to_string());
    let result: &str = row.try_get(0).map_err(unreadable)?;
    let now = given.unwrap_or(row.try_get::<_, Micros>(1).map_err(unreadable)?.0);
    let found: Option<&[u8]> = row.try_get(2).map_err(unreadable)?;
    let seen = || Ok(found.map(row::read).transpose()?.map(|record| Box::new(seen(record, now))));
    Ok(match result {
        "created" => JobResult::Inserted(Inserted::Created { now }),
        "exists" => JobResult::Inserted(Inserted::Exists(seen()?.ok_or(Unreadable("a row is missing".to_owned()))?)),
        "full" => JobResult::Inserted(Inserted::Full),
        "written" => JobResult::Replaced(Replaced::Written { now }),
        "conflict" => JobResult::Replaced(Replaced::Conflict(seen()?)),
        "again" | "skipped" => JobResult::Again,
        other => return Err(Unreadable(format!("unknown answer `{other}`"))),
    })
}

/// A record with the time of the answer. Nothing is known about processes on other machines.
pub(super) fn seen(record: onceward_core::record::Record, now: Timestamp) -> Seen {
    let now = if planted(Plant::StoreTimeStands) { record.updated_at } else { now };
    Seen { record, now, owner_gone: false }
}

/// A time in an answer.
pub(super) struct Micros(pub(super) Timestamp);

impl<'a> tokio_postgres::types::FromSql<'a> for Micros {
    fn from_sql(
        _: &tokio_postgres::types::Type,
        raw: &'a [u8],
    ) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(from_micros(i64::from_be_bytes(raw.try_into()?))))
    }

    fn accepts(kind: &tokio_postgres::types::Type) -> bool {
        *kind == tokio_postgres::types::Type::TIMESTAMPTZ
    }
}
