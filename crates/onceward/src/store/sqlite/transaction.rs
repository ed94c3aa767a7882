//! One transaction of the writer: checks each job against the seal, writes it, and holds its reply back until the commit.

use std::ops::ControlFlow;

use rusqlite::Connection;

use crate::plant::{Plant, planted};
use onceward_core::decide::{Command, Write, decide};
use onceward_core::hash::Digest;
use onceward_core::record::{Draft, Seen};
use onceward_core::time::Timestamp;

use super::query::{Expected, WriteStatements};
use super::sqlite_error::{is_single_failure, store_error};
use super::write_job::{PendingReply, Reply, WriteJob, refuse};
use super::{Shared, query, transfer};
use crate::store::transfer::{Seal, SealSet, WriteKind};
use crate::store::{Error, Inserted, Purged, Replace, Replaced};

/// How many unreadable expired records a purge skips at the most. They stay, because their content is unknown.
const MAX_UNREADABLE: usize = 1000;

/// An open transaction, at one point in time.
pub(super) struct Transaction<'a, 'c> {
    pub(super) connection: &'a Connection,
    pub(super) statements: &'a mut WriteStatements<'c>,
    pub(super) shared: &'a Shared,
    pub(super) now: Timestamp,
    /// The seal, as this transaction has read or written it.
    pub(super) seal: Seal,
}

impl Transaction<'_, '_> {
    /// Does a job, unless the seal refuses it.
    pub(super) fn apply(&mut self, job: WriteJob, replies: &mut Vec<PendingReply>) -> ControlFlow<Error> {
        match self.refusal(&job) {
            Some(error) => refuse(job, &error),
            None => return self.write(job, replies),
        }
        ControlFlow::Continue(())
    }

    /// The error for a job that the seal refuses. An insert into a ledger that is being drained may still find its record.
    fn refusal(&self, job: &WriteJob) -> Option<Error> {
        let kind = match job {
            WriteJob::Replace(replace, _) => WriteKind::of(replace),
            WriteJob::Check(_) => WriteKind::NewClaim,
            WriteJob::Insert(..) | WriteJob::Purge(..) | WriteJob::Append(..) => WriteKind::Other,
            WriteJob::ClaimOperations(..) | WriteJob::ReleaseOperations(..) => return None,
            WriteJob::SetSeal(..) | WriteJob::Import(..) | WriteJob::RestartLog(_) => return None,
        };
        // The usual case makes no name.
        if self.seal == Seal::Open || planted(Plant::SealNotChecked) {
            None
        } else {
            self.seal.refusal(&self.shared.name(), kind)
        }
    }

    fn write(&mut self, job: WriteJob, replies: &mut Vec<PendingReply>) -> ControlFlow<Error> {
        match job {
            WriteJob::Insert(draft, _, reply) if matches!(self.seal, Seal::Draining(_)) => {
                let found = self.seen(draft.id).map(|seen| seen.map(|seen| Inserted::Exists(Box::new(seen))));
                match (found, self.seal.refusal(&self.shared.name(), WriteKind::NewRecord)) {
                    (Ok(None), Some(error)) => {
                        let _ = reply.send(Err(error));
                        ControlFlow::Continue(())
                    }
                    (found, _) => {
                        let found = found.and_then(|found| found.ok_or(rusqlite::Error::QueryReturnedNoRows));
                        self.hold_reply(found, reply, replies, PendingReply::Inserted)
                    }
                }
            }
            WriteJob::Insert(draft, max_records, reply) => {
                let inserted = self.insert(*draft, max_records);
                self.hold_reply(inserted, reply, replies, PendingReply::Inserted)
            }
            WriteJob::Replace(replace, reply) => {
                let replaced = match replace.event {
                    Some(_) => self.atomically(|transaction| transaction.replace(*replace)),
                    None => self.replace(*replace),
                };
                self.hold_reply(replaced, reply, replies, PendingReply::Replaced)
            }
            WriteJob::Purge(limit, reply) => {
                let purged = self.purge(limit);
                self.hold_reply(purged, reply, replies, PendingReply::Purged)
            }
            WriteJob::Append(id, event, reply) => {
                let appended = query::append(self.connection, id, self.now, &event);
                self.hold_reply(appended, reply, replies, PendingReply::Appended)
            }
            WriteJob::Check(reply) => {
                let checked = query::check(self.connection);
                self.hold_reply(checked, reply, replies, PendingReply::Checked)
            }
            WriteJob::ClaimOperations(names, reply) => {
                let claimed = query::claim_operations(self.connection, &names);
                self.hold_reply(claimed, reply, replies, PendingReply::Claimed)
            }
            WriteJob::ReleaseOperations(names, reply) => {
                let released = query::release_operations(self.connection, &names);
                self.hold_reply(released, reply, replies, PendingReply::Claimed)
            }
            WriteJob::SetSeal(change, reply) => {
                let set = transfer::set_seal(self.connection, &self.seal, &change);
                if matches!(set, Ok(SealSet::Written)) {
                    // Later writes of this transaction see it too.
                    self.seal = change.next;
                }
                self.hold_reply(set, reply, replies, PendingReply::SealSet)
            }
            WriteJob::Import(job, reply) => {
                let imported = self.atomically(|transaction| {
                    transfer::import(transaction.connection, transaction.shared, &transaction.seal, &job)
                });
                let imported = imported.map(|(imported, seal)| {
                    self.seal = seal.unwrap_or_else(|| self.seal.clone());
                    imported
                });
                self.hold_reply(imported, reply, replies, PendingReply::Imported)
            }
            WriteJob::RestartLog(_) => ControlFlow::Continue(()),
        }
    }

    /// Holds a reply back until the commit. A single failed statement (for example, one that is too big) only fails its own
    /// job; if SQLite rolled everything back, the batch is over.
    fn hold_reply<A>(
        &self,
        result: rusqlite::Result<A>,
        reply: Reply<A>,
        replies: &mut Vec<PendingReply>,
        pending: fn(A, Reply<A>) -> PendingReply,
    ) -> ControlFlow<Error> {
        match result {
            Ok(value) if planted(Plant::AnswersBeforeSync) => {
                let _ = reply.send(Ok(value));
                ControlFlow::Continue(())
            }
            Ok(value) => {
                replies.push(pending(value, reply));
                ControlFlow::Continue(())
            }
            Err(error) => {
                let error = store_error(&self.shared.path, &error);
                let _ = reply.send(Err(error.clone()));
                if self.connection.is_autocommit() || !is_single_failure(&error) {
                    return ControlFlow::Break(error);
                }
                ControlFlow::Continue(())
            }
        }
    }

    fn insert(&mut self, draft: Draft, max_records: Option<u64>) -> rusqlite::Result<Inserted> {
        let record = draft.stamp(self.now);
        if planted(Plant::InsertOverwrites) {
            query::remove(self.connection, record.id)?;
        }
        if self.statements.insert(&record, max_records)? {
            return Ok(Inserted::Created { now: self.now });
        }
        match self.seen(record.id)? {
            Some(seen) => Ok(Inserted::Exists(Box::new(seen))),
            None if max_records.is_some() => Ok(Inserted::Full),
            None => Err(rusqlite::Error::QueryReturnedNoRows),
        }
    }

    fn replace(&mut self, mut replace: Replace) -> rusqlite::Result<Replaced> {
        if planted(Plant::VersionNotCompared) {
            replace.version = self.seen(replace.draft.id)?.map_or(0, |seen| seen.record.version);
        }
        if planted(Plant::StoreFenceNotCompared) {
            replace.fence = self.seen(replace.draft.id)?.and_then(|seen| seen.record.fence());
        }
        if planted(Plant::TimeNotCompared) {
            replace.time = None;
        }
        let record = replace.draft.stamp(self.now);
        let expected = Expected { fence: replace.fence, version: replace.version, time: replace.time };
        if !self.statements.replace(&record, expected)? {
            return Ok(Replaced::Conflict(self.seen(record.id)?.map(Box::new)));
        }
        if let Some(event) = &replace.event {
            query::append(self.connection, record.id, self.now, event)?;
        }
        Ok(Replaced::Written { now: self.now })
    }

    /// Runs several statements as one: if one of them fails, the earlier ones are undone, and the rest of the batch stays.
    fn atomically<A>(&mut self, write: impl FnOnce(&mut Self) -> rusqlite::Result<A>) -> rusqlite::Result<A> {
        self.connection.execute_batch("SAVEPOINT job")?;
        let written = write(self);
        if written.is_ok() {
            self.connection.execute_batch("RELEASE job")?;
        } else if !self.connection.is_autocommit() {
            self.connection.execute_batch("ROLLBACK TO job; RELEASE job")?;
        }
        written
    }

    fn purge(&mut self, limit: usize) -> rusqlite::Result<Purged> {
        let mut purged = Purged::default();
        let mut window = limit;
        loop {
            let expired = query::expired(self.connection, self.now, window)?;
            for id in expired.ids {
                if purged.total() == limit {
                    break;
                }
                self.expire(id, &mut purged)?;
            }
            if purged.total() == limit || !expired.has_more || window > limit + MAX_UNREADABLE {
                return Ok(purged);
            }
            // Unreadable records fill the window: look further.
            window = window.saturating_mul(4);
        }
    }

    fn expire(&mut self, id: Digest, purged: &mut Purged) -> rusqlite::Result<()> {
        let Some(seen) = query::readable(Some(id), self.seen(id))?.flatten() else { return Ok(()) };
        match decide(Some(&seen), &Command::Expire).write {
            Write::Replace(draft) if !planted(Plant::PurgeDropsTombstones) => {
                match self.statements.replace(&draft.stamp(self.now), Expected::of(&seen.record)) {
                    // The next version does not fit into a row. The record stays, and the purge continues with the others.
                    Err(rusqlite::Error::ToSqlConversionFailure(_)) => {}
                    written => purged.tombstones += usize::from(written?),
                }
            }
            Write::Remove | Write::Replace(_) => {
                query::remove(self.connection, id)?;
                purged.removed += 1;
            }
            Write::None | Write::Insert(_) => {}
        }
        Ok(())
    }

    fn seen(&mut self, id: Digest) -> rusqlite::Result<Option<Seen>> {
        self.statements.look(self.shared, id, self.now)
    }
}
