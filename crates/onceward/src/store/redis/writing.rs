//! Inserts and conditional writes, each one script. A write has an id that stays the same over its retries, so a repeated one is
//! recognised and answered like the first.

use std::time::Duration;

use redis::Cmd;

use onceward_core::decide::{Command, Write, decide};
use onceward_core::hash::Digest;
use onceward_core::name::Operation;
use onceward_core::record::{Draft, Seen};

use super::codec::{self, Encoded, Index, WriteId, encode};
use super::reply::{DONE, LATE, LOST, ScriptReply, unexpected};
use super::scripts::SCRIPTS;
use super::server_connection::Written;
use super::{Redis, random};
use crate::plant::{Plant, planted};
use crate::store::transfer::WriteKind;
use crate::store::{AuditEvent, Error, Inserted, MAX_PAGE_SIZE, Replace, Replaced};

/// A tombstone expires by itself this long after its time, if no sweep has removed it. Until then a clock that was set wrong
/// does no harm.
const EXPIRY_MARGIN: Duration = Duration::from_secs(86_400);

/// How many of the last entries of a trail may be the one that is repeated: more than are written to one intent within the time
/// limit of a call.
const REPEATED_ENTRIES: usize = 64;

/// How many names of operations one script gets: Lua unpacks a few thousand values at most.
const OPERATIONS_AT_ONCE: usize = 1000;

/// How long a health check relies on the last one. In a cluster it takes hundreds of commands, and any client may ask for it.
const WRITABLE_KEPT_FOR: Duration = Duration::from_secs(1);

const LOST_RECORD: &str = "the server has lost the record, and only its id is left. Eviction does that, and so does a deleted \
                           key. Its work may have been done, so nothing runs. Restore the data, or use another key if you know \
                           that the work was not done";

impl Redis {
    pub(super) async fn insert_record(&self, draft: Draft, max_records: Option<u64>) -> Result<Inserted, Error> {
        self.condition.check(&self.link).await?;
        let id = draft.id;
        let inserted = match max_records {
            None => self.insert_before(draft, &random()?, None).await.map(|inserted| inserted.ok_or_else(unexpected)),
            Some(max_records) => self.insert_within(draft, max_records).await.map(Ok),
        };
        match inserted {
            // A sealed ledger still shows what it has.
            Err(error @ Error::Sealed { .. }) => {
                let found = self.read_record(id).await?.0;
                found.map(|seen| Inserted::Exists(Box::new(seen))).ok_or(error)
            }
            inserted => inserted?,
        }
    }

    /// Inserts a record; `None` if `last`, a time of the server, is over.
    pub(super) async fn insert_before(
        &self,
        draft: Draft,
        write_id: &WriteId,
        last: Option<i64>,
    ) -> Result<Option<Inserted>, Error> {
        let id = draft.id;
        let encoded = encode(draft, write_id)?;
        let shard = self.shard(&id);
        let key = shard.record(&id);
        let written = self
            .link
            .write(&SCRIPTS.insert, &key, |command| {
                let index = shard.index(encoded.index);
                let tombstones = shard.index(Index::Tombstones);
                let keys = [&*shard.epoch, &key, &shard.order, index, &shard.tenants, tombstones];
                self.arguments(command, keys.into_iter().chain(shard.places()).collect::<Vec<_>>());
                record_arguments(command, Self::kind_argument(WriteKind::NewRecord), &id, write_id, &encoded);
                match last {
                    Some(last) => command.arg(last),
                    None => command.arg(""),
                };
            })
            .await?;
        let replicas = written.replicas;
        let mut reply = self.timed_reply(written.reply, written.asked)?;
        match reply.code {
            DONE if self.is_short(replicas) => {
                // Nothing has run under this claim, and no caller has seen it as its own.
                if let Err(error) = self.remove_record(&id, Some(write_id)).await {
                    tracing::warn!(id = id.short(), %error, "a claim that too few replicas have could not be removed");
                }
                Err(self.short(replicas, "the claim was released, and nothing ran"))
            }
            DONE => Ok(Some(Inserted::Created { now: reply.now })),
            LATE => Ok(None),
            LOST => {
                let reason = format!("{}: {LOST_RECORD}", id.short());
                Err(Error::Unreadable { path: self.link.name.clone().into(), reason })
            }
            _ => Ok(Some(Inserted::Exists(Box::new(self.found(&mut reply, id)?.ok_or_else(unexpected)?)))),
        }
    }

    pub(super) async fn replace_record(&self, replace: Replace) -> Result<Replaced, Error> {
        let write_id = random()?;
        let kind = WriteKind::of(&replace);
        // What an owner writes is about work that has run: it must not be lost, whatever the settings are.
        if kind == WriteKind::NewClaim {
            self.condition.check(&self.link).await?;
        }
        let waits_for_replicas = self.link.address.replicas > 0;
        let claim = (waits_for_replicas && kind == WriteKind::NewClaim).then(|| replace.draft.clone());
        let mut last = None;
        // A write that too few replicas have is repeated: it is recognised, and waits for them again.
        for _ in 0..MAX_CONFIRMATIONS {
            let (written, id) = self.replace_once(&replace, &write_id, kind).await?;
            let replicas = written.replicas;
            let mut reply = self.timed_reply(written.reply, written.asked)?;
            let is_written = reply.code == DONE;
            // An owner may recognise its own earlier write in what is there, and takes that for success. So it has to be on
            // replicas as well. A new claim only learns that the work is another caller's.
            let counts = is_written || kind != WriteKind::NewClaim;
            if !(counts && self.is_short(replicas)) {
                return Ok(match is_written {
                    true => Replaced::Written { now: reply.now },
                    false => Replaced::Conflict(self.found(&mut reply, id)?.map(Box::new)),
                });
            }
            last = replicas;
            if let Some(claim) = claim {
                self.release(Seen { record: claim.stamp(reply.now), now: reply.now, owner_gone: false }).await;
                return Err(self.short(last, "the claim was released, and nothing ran"));
            }
        }
        Err(self.short(last, "the write may be lost with the primary"))
    }

    /// A write that may be lost with the primary.
    pub(super) async fn replace_unconfirmed(&self, replace: Replace) -> Result<Replaced, Error> {
        let (written, id) = self.replace_once(&replace, &random()?, WriteKind::Other).await?;
        let mut reply = self.reply(written.reply)?;
        match reply.code {
            DONE => Ok(Replaced::Written { now: reply.now }),
            _ => Ok(Replaced::Conflict(self.found(&mut reply, id)?.map(Box::new))),
        }
    }

    async fn replace_once(
        &self,
        replace: &Replace,
        write_id: &WriteId,
        kind: WriteKind,
    ) -> Result<(Written, Digest), Error> {
        let id = replace.draft.id;
        let encoded = encode(replace.draft.clone(), write_id)?;
        let event = replace.event.as_ref().map(event_text).transpose()?.unwrap_or_default();
        let shard = self.shard(&id);
        let (key, trail) = (shard.record(&id), shard.trail(&id));
        let [unsettled, done, tombstones] = Index::ALL.map(|index| shard.index(index));
        let written = self.link.write(&SCRIPTS.replace, &key, |command| {
            let keys = [&*shard.epoch, &key, unsettled, done, tombstones, &shard.tenants, &trail];
            self.arguments(command, keys.into_iter().chain(shard.places()).collect::<Vec<_>>());
            record_arguments(command, Self::kind_argument(kind), &id, write_id, &encoded);
            command.arg(&codec::guard(replace.version, replace.fence));
            match replace.time {
                Some(time) => command.arg(&codec::guard_time(time)),
                None => command.arg(""),
            };
            let must_be_on_replicas = self.link.address.replicas > 0 && kind != WriteKind::NewClaim;
            command.arg(&event).arg(MAX_PAGE_SIZE).arg(if must_be_on_replicas { "1" } else { "" });
        });
        Ok((written.await?, id))
    }

    /// Gives a claim back that too few replicas have. If that fails, it lapses.
    async fn release(&self, seen: Seen) {
        let Some(fence) = seen.record.fence() else { return };
        let release = Command::Release { fence, not_before: Duration::ZERO, error: None };
        let Write::Replace(draft) = decide(Some(&seen), &release).write else { return };
        let replace = Replace::of(&seen.record, draft);
        let released = async { self.replace_once(&replace, &random()?, WriteKind::Other).await };
        if let Err(error) = released.await {
            tracing::warn!(id = seen.record.id.short(), %error, "a claim that too few replicas have could not be released");
        }
    }

    pub(super) async fn append_event(&self, id: Digest, event: &AuditEvent) -> Result<(), Error> {
        let (write_id, event) = (random()?, event_text(event)?);
        let shard = self.shard(&id);
        let (key, trail) = (shard.record(&id), shard.trail(&id));
        for _ in 0..MAX_CONFIRMATIONS {
            let written = self.link.write(&SCRIPTS.append, &key, |command| {
                self.arguments(command, [&*shard.epoch, &key, &trail]);
                command.arg(Self::kind_argument(WriteKind::Other)).arg(&write_id).arg(&event);
                command.arg(MAX_PAGE_SIZE).arg(REPEATED_ENTRIES);
            });
            let written = written.await?;
            self.reply(written.reply)?;
            if !self.is_short(written.replicas) {
                return Ok(());
            }
        }
        Err(self.short(None, "the entry may be lost with the primary"))
    }

    pub(super) async fn write_operations(&self, names: &[Operation]) -> Result<(), Error> {
        let mut replicas = None;
        for names in names.chunks(OPERATIONS_AT_ONCE) {
            let written = self.link.write(&SCRIPTS.claim_operations, &self.keys.operations, |command| {
                command.arg(2).arg(&self.keys.shards[0].epoch).arg(&self.keys.operations).arg(&self.epoch);
                for name in names {
                    command.arg(name.as_str());
                }
            });
            let written = written.await?;
            self.seal_code(written.reply)?;
            replicas = written.replicas;
        }
        match self.is_short(replicas) {
            false => Ok(()),
            true => Err(self.short(replicas, "which operations live in this store may be lost with the primary")),
        }
    }

    /// Removes a record, if `write_id` made it; `None` removes what is left of one that has expired by itself.
    pub(super) async fn remove_record(&self, id: &Digest, write_id: Option<&WriteId>) -> Result<bool, Error> {
        let shard = self.shard(id);
        let (key, trail) = (shard.record(id), shard.trail(id));
        let [unsettled, done, tombstones] = Index::ALL.map(|index| shard.index(index));
        let reply = self.link.run(&SCRIPTS.remove, |command| {
            let keys = [&*shard.epoch, &key, &shard.order, unsettled, done, tombstones, &shard.tenants, &trail];
            self.arguments(command, keys.into_iter().chain(shard.places()).collect::<Vec<_>>());
            command.arg(Self::kind_argument(WriteKind::Other)).arg(id.as_bytes());
            command.arg(write_id.map(<[u8; 16]>::as_slice).unwrap_or_default());
        });
        Ok(self.reply(reply.await?)?.code == DONE)
    }

    /// Writes a key that no record has: on one shard, or in a cluster on every one, because each may be on another node.
    pub(super) async fn check_writable(&self) -> Result<(), Error> {
        self.condition.check(&self.link).await?;
        self.writable.get(|()| WRITABLE_KEPT_FOR, || self.write_checks()).await
    }

    async fn write_checks(&self) -> Result<(), Error> {
        let check = async |shard: &super::Shard| {
            let key = shard.check();
            let written = self.link.write(&SCRIPTS.check, &key, |command| {
                self.arguments(command, [&*shard.epoch, &key]);
                command.arg(Self::kind_argument(WriteKind::NewClaim));
            });
            let written = written.await?;
            self.reply(written.reply)?;
            match self.is_short(written.replicas) {
                false => Ok(()),
                true => Err(self.short(written.replicas, "claims would be released")),
            }
        };
        let shards = match self.link.address.topology {
            super::address::Topology::Cluster => &self.keys.shards[..],
            _ => &self.keys.shards[..1],
        };
        futures_util::future::try_join_all(shards.iter().map(check)).await.map(drop)
    }

    fn found(&self, reply: &mut ScriptReply, id: Digest) -> Result<Option<Seen>, Error> {
        let now = reply.now;
        reply.bytes().map(|value| self.seen(&value, id, now)).transpose()
    }

    pub(super) fn is_short(&self, replicas: Option<u32>) -> bool {
        !planted(Plant::ReplicasNotCounted) && replicas.is_some_and(|replicas| replicas < self.link.address.replicas)
    }

    pub(super) fn short(&self, replicas: Option<u32>, so: &str) -> Error {
        let (found, wanted) = (replicas.unwrap_or_default(), self.link.address.replicas);
        let reason = format!("{found} of {wanted} replicas confirmed it in time: {so}");
        Error::Unconfirmed { store: self.link.name.clone(), reason }
    }
}

/// How often a write waits for its replicas.
pub(super) const MAX_CONFIRMATIONS: usize = 3;

/// The arguments about the record that inserts, conditional writes and imports share. `kind` is what may allow the write: its
/// kind, or the token of a copy.
pub(super) fn record_arguments(command: &mut Cmd, kind: &str, id: &Digest, write_id: &WriteId, encoded: &Encoded) {
    let [compared, and_compared] = encoded.time.arguments();
    let [ends, and_ends] = encoded.ends.arguments();
    command.arg(kind).arg(id.as_bytes()).arg(write_id).arg(&encoded.head);
    command.arg(encoded.index.letter()).arg(compared).arg(and_compared).arg(ends).arg(and_ends);
    command.arg(&encoded.rest).arg(EXPIRY_MARGIN.as_millis() as u64);
    let [due, and_due] = encoded.due.arguments();
    command.arg(encoded.lane.as_deref().unwrap_or_default()).arg(due).arg(and_due);
    command.arg(encoded.reference.as_deref().unwrap_or_default());
}

fn event_text(event: &AuditEvent) -> Result<String, Error> {
    serde_json::to_string(event).map_err(|error| Error::Other(error.to_string()))
}
