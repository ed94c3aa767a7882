//! A write that waits for its batch, and its answer.

use std::time::Instant;

use tokio::sync::oneshot;
use tokio_postgres::Row;

use onceward_core::hash::Digest;
use onceward_core::record::Seen;
use onceward_core::time::Timestamp;

use super::composite::{Unreadable, from_micros};
use super::row::{self, ExpectedRow, has_quota};
use crate::plant::{Plant, planted};
use crate::store::{Error, Inserted, Replaced};

/// A write. It was encoded by its caller, so that the writer only puts batches together.
#[derive(Debug)]
pub(super) struct WriteJob {
    pub(super) id: Digest,
    pub(super) expected: ExpectedRow,
    /// In the binary format of `onceward.job_v1`.
    pub(super) bytes: Vec<u8>,
    pub(super) since: Instant,
    pub(super) reply: WriteReply,
    /// Jobs that ask for the same of the same row. They are not sent: the answer to this job is also theirs, unless it writes the row.
    pub(super) followers: Vec<WriteJob>,
}

/// Where the answer goes. The type of the answer says what kind of write it is. Nothing in return means that the row is there and too
/// large for the answer to a batch, so that the caller reads it by itself.
#[derive(Debug)]
pub(super) enum WriteReply {
    Insert(oneshot::Sender<Result<Option<Inserted>, Error>>),
    Replace(oneshot::Sender<Result<Option<Replaced>, Error>>),
    /// Writes nothing but the mark of this process.
    Check(oneshot::Sender<Result<(), Error>>),
}

/// What the database answered to one job.
#[derive(Clone, Debug)]
pub(super) enum JobResult {
    Inserted(Inserted),
    Replaced(Replaced),
    /// The row is there, and too large to be part of the answer.
    Large,
    /// Another transaction was changing the row, or has just removed it: try again.
    Again,
}

impl WriteJob {
    pub(super) fn new(id: Digest, expected: ExpectedRow, bytes: Vec<u8>, reply: WriteReply) -> Self {
        Self { id, expected, bytes, since: Instant::now(), reply, followers: Vec::new() }
    }

    pub(super) fn is_check(&self) -> bool {
        matches!(self.reply, WriteReply::Check(_))
    }

    /// Whether the answer to one job, unless it writes the row, is the answer to the other one.
    pub(super) fn asks_the_same(&self, other: &Self) -> bool {
        std::mem::discriminant(&self.reply) == std::mem::discriminant(&other.reply)
            && !self.is_check()
            && (self.id, self.expected) == (other.id, other.expected)
            && has_quota(&self.bytes) == has_quota(&other.bytes)
    }

    /// Lets a job that asks for the same wait for the answer to this one.
    pub(super) fn lead(&mut self, mut other: Self) {
        let more = std::mem::take(&mut other.followers);
        self.followers.push(other);
        self.followers.extend(more);
    }

    /// How many callers wait for the answer.
    pub(super) fn callers(&self) -> usize {
        1 + self.followers.len()
    }

    /// The job if it is still worth sending, or the first of its followers that is.
    pub(super) fn unless_abandoned(mut self) -> Option<Self> {
        let is_abandoned = match &self.reply {
            WriteReply::Insert(reply) => reply.is_closed(),
            // An owner's write is worth making although its caller has gone.
            WriteReply::Replace(_) => false,
            WriteReply::Check(reply) => reply.is_closed(),
        };
        if is_abandoned { Self::first_of(std::mem::take(&mut self.followers)) } else { Some(self) }
    }

    /// The first of some jobs that ask for the same, with the others as its followers.
    fn first_of(followers: Vec<Self>) -> Option<Self> {
        let mut jobs = followers.into_iter();
        let mut first = jobs.find_map(Self::unless_abandoned)?;
        first.followers = jobs.collect();
        Some(first)
    }

    /// Sends an error. Callers may have gone away.
    pub(super) fn refuse(self, error: &Error) {
        self.answer_all(&Err(error.clone()));
    }

    /// Sends an answer. Returns the job that has to be tried again, if there is one.
    pub(super) fn answer(mut self, answer: Result<JobResult, Error>) -> Option<Self> {
        match &answer {
            Ok(JobResult::Again) => return Some(self),
            // The others meet the row as it is now.
            Ok(JobResult::Inserted(Inserted::Created { .. }) | JobResult::Replaced(Replaced::Written { .. })) => {
                let followers = std::mem::take(&mut self.followers);
                self.answer_all(&answer);
                return Self::first_of(followers);
            }
            _ => self.answer_all(&answer),
        }
        None
    }

    /// What the job asked for was written. Returns the job that has to be tried again, if there is one.
    pub(super) fn succeed(self, now: Timestamp) -> Option<Self> {
        let written = match &self.reply {
            WriteReply::Insert(_) => JobResult::Inserted(Inserted::Created { now }),
            WriteReply::Replace(_) | WriteReply::Check(_) => JobResult::Replaced(Replaced::Written { now }),
        };
        self.answer(Ok(written))
    }

    /// A transaction of another program holds the key. Nothing was written.
    pub(super) fn undecided(self) {
        let undecided = match &self.reply {
            WriteReply::Insert(_) => JobResult::Inserted(Inserted::Undecided),
            WriteReply::Replace(_) | WriteReply::Check(_) => JobResult::Replaced(Replaced::Undecided),
        };
        self.answer_all(&Ok(undecided));
    }

    fn answer_all(self, answer: &Result<JobResult, Error>) {
        for follower in self.followers {
            follower.reply.send(answer.clone());
        }
        self.reply.send(answer.clone());
    }
}

impl WriteReply {
    fn send(self, answer: Result<JobResult, Error>) {
        match (self, answer) {
            (Self::Insert(reply), Ok(JobResult::Inserted(inserted))) => drop(reply.send(Ok(Some(inserted)))),
            (Self::Replace(reply), Ok(JobResult::Replaced(replaced))) => drop(reply.send(Ok(Some(replaced)))),
            (Self::Insert(reply), Ok(JobResult::Large)) => drop(reply.send(Ok(None))),
            (Self::Replace(reply), Ok(JobResult::Large)) => drop(reply.send(Ok(None))),
            (Self::Check(reply), Ok(_)) => drop(reply.send(Ok(()))),
            (Self::Insert(reply), answer) => drop(reply.send(answer.and_then(another))),
            (Self::Replace(reply), answer) => drop(reply.send(answer.and_then(another))),
            (Self::Check(reply), Err(error)) => drop(reply.send(Err(error))),
        }
    }
}

fn another<A>(_: JobResult) -> Result<Option<A>, Error> {
    Err(Error::Other("the store answered another question".to_owned()))
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
        "large" => JobResult::Large,
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
