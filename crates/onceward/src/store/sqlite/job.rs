//! What the writer is asked to do, and the answers that it holds back until the commit.

use bytes::Bytes;
use tokio::sync::oneshot;

use onceward_core::hash::Digest;
use onceward_core::outcome::{Body, Outcome};
use onceward_core::record::{Draft, State};

use crate::store::{Error, Event, Inserted, Purged, Replace, Replaced};

/// SQLite's default; it only serves to guess how much log a body takes.
const PAGE: usize = 4096;

pub(super) type Reply<A> = oneshot::Sender<Result<A, Error>>;

#[derive(Debug)]
pub(super) enum Job {
    Insert(Box<Draft>, Option<u64>, Reply<Inserted>),
    Replace(Box<Replace>, Reply<Replaced>),
    Purge(usize, Reply<Purged>),
    Append(Digest, Event, Reply<()>),
    Check(Reply<()>),
    /// Whoever asks waits for the end of it: two that carry over at once are in each other's way.
    StartLogOver(#[expect(dead_code, reason = "its end is the message")] std::sync::mpsc::Sender<()>),
}

impl Job {
    /// About how many pages of log it takes: one for each row, and those that its bytes fill.
    pub(super) fn pages(&self) -> usize {
        match self {
            Self::Insert(draft, ..) => 1 + bytes(draft) / PAGE,
            Self::Replace(replace, _) => 1 + bytes(&replace.draft) / PAGE,
            Self::Purge(limit, _) => *limit,
            Self::Append(..) | Self::Check(_) => 1,
            Self::StartLogOver(_) => 0,
        }
    }
}

/// What may be large in a record.
fn bytes(draft: &Draft) -> usize {
    let payload = draft.payload.as_ref().map_or(0, Bytes::len);
    match &draft.state {
        State::Done { outcome: Outcome { body: Body::Kept(body), .. }, .. } => payload + body.len(),
        _ => payload,
    }
}

/// An answer that is given only when the transaction is on the disk.
pub(super) enum Answer {
    Inserted(Inserted, Reply<Inserted>),
    Replaced(Replaced, Reply<Replaced>),
    Purged(Purged, Reply<Purged>),
    Appended((), Reply<()>),
    Checked((), Reply<()>),
}

impl Answer {
    pub(super) fn give(self, ended: &Result<(), Error>) {
        fn give<A>(answer: A, reply: Reply<A>, ended: &Result<(), Error>) {
            // Whoever asked may have gone away.
            let _ = reply.send(ended.clone().map(|()| answer));
        }
        match self {
            Self::Inserted(answer, reply) => give(answer, reply, ended),
            Self::Replaced(answer, reply) => give(answer, reply, ended),
            Self::Purged(answer, reply) => give(answer, reply, ended),
            Self::Appended(answer, reply) | Self::Checked(answer, reply) => give(answer, reply, ended),
        }
    }
}

/// Tells whoever asked that nothing came of it.
pub(super) fn refuse(job: Job, error: &Error) {
    let error = error.clone();
    match job {
        Job::Insert(_, _, reply) => drop(reply.send(Err(error))),
        Job::Replace(_, reply) => drop(reply.send(Err(error))),
        Job::Purge(_, reply) => drop(reply.send(Err(error))),
        Job::Append(_, _, reply) | Job::Check(reply) => drop(reply.send(Err(error))),
        Job::StartLogOver(_) => {}
    }
}
