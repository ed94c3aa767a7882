//! The jobs of the writer, and the replies that it holds back until the commit.

use bytes::Bytes;
use tokio::sync::oneshot;

use onceward_core::hash::Digest;
use onceward_core::outcome::{Body, Outcome};
use onceward_core::record::{Draft, State};

use super::transfer::{ImportJob, Imported, SealChange};
use crate::store::transfer::{Exported, SealSet};
use crate::store::{AuditEvent, Error, Inserted, Purged, Replace, Replaced};

/// SQLite's default page size. Only used to estimate how much log a body takes.
const PAGE_SIZE: usize = 4096;

pub(super) type Reply<A> = oneshot::Sender<Result<A, Error>>;

#[derive(Debug)]
pub(super) enum WriteJob {
    Insert(Box<Draft>, Option<u64>, Reply<Inserted>),
    Replace(Box<Replace>, Reply<Replaced>),
    Purge(usize, Reply<Purged>),
    Append(Digest, AuditEvent, Reply<()>),
    Check(Reply<()>),
    ClaimOperations(Vec<String>, Reply<()>),
    ReleaseOperations(Vec<String>, Reply<()>),
    SetSeal(Box<SealChange>, Reply<SealSet>),
    Import(Box<ImportJob>, Reply<Imported>),
    /// The checkpoint thread waits until the sender is dropped: two checkpoints at once would obstruct each other.
    RestartLog(#[expect(dead_code, reason = "dropping it is the message")] std::sync::mpsc::Sender<()>),
}

impl WriteJob {
    /// An estimate of the log pages it takes: one for each row, and those that its bytes fill.
    pub(super) fn pages(&self) -> usize {
        match self {
            Self::Insert(draft, ..) => 1 + large_bytes(draft) / PAGE_SIZE,
            Self::Replace(replace, _) => 1 + large_bytes(&replace.draft) / PAGE_SIZE,
            Self::Purge(limit, _) => *limit,
            Self::Append(..) | Self::Check(_) | Self::SetSeal(..) => 1,
            Self::ClaimOperations(..) | Self::ReleaseOperations(..) => 1,
            Self::Import(job, _) => job.batch.iter().map(|each| 1 + Exported::size(each) / PAGE_SIZE).sum(),
            Self::RestartLog(_) => 0,
        }
    }
}

/// The size of the parts of a record that may be large.
fn large_bytes(draft: &Draft) -> usize {
    let payload = draft.payload.as_ref().map_or(0, Bytes::len);
    match &draft.state {
        State::Done { outcome: Outcome { body: Body::Kept(body), .. }, .. } => payload + body.len(),
        _ => payload,
    }
}

/// A reply that is sent only when the transaction is on disk.
pub(super) enum PendingReply {
    Inserted(Inserted, Reply<Inserted>),
    Replaced(Replaced, Reply<Replaced>),
    Purged(Purged, Reply<Purged>),
    Appended((), Reply<()>),
    Checked((), Reply<()>),
    Claimed((), Reply<()>),
    SealSet(SealSet, Reply<SealSet>),
    Imported(Imported, Reply<Imported>),
}

impl PendingReply {
    /// Sends the result if the commit succeeded, and its error otherwise.
    pub(super) fn send(self, commit: &Result<(), Error>) {
        fn send<A>(result: A, reply: Reply<A>, commit: &Result<(), Error>) {
            // The caller may have gone away.
            let _ = reply.send(commit.clone().map(|()| result));
        }
        match self {
            Self::Inserted(result, reply) => send(result, reply, commit),
            Self::Replaced(result, reply) => send(result, reply, commit),
            Self::Purged(result, reply) => send(result, reply, commit),
            Self::Appended(result, reply) | Self::Checked(result, reply) | Self::Claimed(result, reply) => {
                send(result, reply, commit);
            }
            Self::SealSet(result, reply) => send(result, reply, commit),
            Self::Imported(result, reply) => send(result, reply, commit),
        }
    }
}

/// Replies to the caller of a job that was not done.
pub(super) fn refuse(job: WriteJob, error: &Error) {
    let error = error.clone();
    match job {
        WriteJob::Insert(_, _, reply) => drop(reply.send(Err(error))),
        WriteJob::Replace(_, reply) => drop(reply.send(Err(error))),
        WriteJob::Purge(_, reply) => drop(reply.send(Err(error))),
        WriteJob::Append(_, _, reply) | WriteJob::Check(reply) => drop(reply.send(Err(error))),
        WriteJob::ClaimOperations(_, reply) | WriteJob::ReleaseOperations(_, reply) => drop(reply.send(Err(error))),
        WriteJob::SetSeal(_, reply) => drop(reply.send(Err(error))),
        WriteJob::Import(_, reply) => drop(reply.send(Err(error))),
        WriteJob::RestartLog(_) => {}
    }
}
