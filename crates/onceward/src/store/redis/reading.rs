//! Reads: one record, its trail, and counts.

use std::time::Instant;

use futures_util::future::{join_all, try_join_all};
use redis::{Value, cmd};

use onceward_core::hash::Digest;
use onceward_core::name::Tenant;
use onceward_core::record::{Seen, Status};
use onceward_core::time::Timestamp;

use super::codec::{self, Index, LISTED_BYTES, WriteId, tenant_tag};
use super::reply::{self, ScriptReply, bytes};
use super::scripts::SCRIPTS;
use super::{Redis, Shard};
use crate::store::{AuditEntry, Counts, Error, ListedRecord, MAX_PAGE_SIZE};

/// How many ids or records to ask for at once: large enough that round trips do not count, small enough that the server is never
/// busy for long.
const AT_ONCE: usize = 512;

impl Redis {
    /// A record, and the write that made it.
    pub(super) async fn read_record(&self, id: Digest) -> Result<(Option<Seen>, Option<WriteId>), Error> {
        let shard = self.shard(&id);
        let key = shard.record(&id);
        let asked = Instant::now();
        let reply = self.link.run(&SCRIPTS.get, |command| self.arguments(command, [&*shard.epoch, &key])).await?;
        let mut reply = self.timed_reply(reply, asked)?;
        let Some(value) = reply.bytes() else { return Ok((None, None)) };
        let (write_id, _) = codec::write_of(&value).map_err(|reason| self.unreadable(id, &reason))?;
        Ok((Some(self.seen(&value, id, reply.now)?), Some(write_id)))
    }

    /// The first entries of the audit trail of a record.
    pub(super) async fn read_trail(&self, id: Digest) -> Result<Vec<AuditEntry>, Error> {
        self.read_entries(id, MAX_PAGE_SIZE).await
    }

    /// All of them: another store may have had more.
    pub(super) async fn read_whole_trail(&self, id: Digest) -> Result<Vec<AuditEntry>, Error> {
        // No list in Redis is longer.
        self.read_entries(id, u32::MAX as usize).await
    }

    async fn read_entries(&self, id: Digest, most: usize) -> Result<Vec<AuditEntry>, Error> {
        let shard = self.shard(&id);
        let trail = shard.trail(&id);
        let reply = self.link.run(&SCRIPTS.trail, |command| {
            self.arguments(command, [&*shard.epoch, &trail]);
            command.arg(most);
        });
        let entries = self.reply(reply.await?)?.list();
        entries.into_iter().map(|entry| self.entry(id, entry)).collect()
    }

    fn entry(&self, id: Digest, value: Value) -> Result<AuditEntry, Error> {
        let wrong = |reason: String| self.unreadable(id, &codec::Unreadable(reason));
        let entry = bytes(value).unwrap_or_default();
        let cut = || wrong("an entry of its audit trail is cut off".to_owned());
        let at: &[u8; 8] = entry.get(16..).and_then(|rest| rest.first_chunk()).ok_or_else(cut)?;
        let event = serde_json::from_slice(&entry[24..]).map_err(|error| wrong(error.to_string()))?;
        Ok(AuditEntry { at: Timestamp::from_millis(i64::from_be_bytes(*at)), event })
    }

    /// Which operations live here; with a name, only whether this one does. After a flush, that none is here proves nothing.
    pub(super) async fn read_operations(&self, name: &str) -> Result<ScriptReply, Error> {
        let reply = self.link.run(&SCRIPTS.operations, |command| {
            self.arguments(command, [&*self.keys.shards[0].epoch, &self.keys.operations]);
            command.arg(name);
        });
        self.reply(reply.await?)
    }

    /// Records without their contents, in the order of the ids. Those that are gone or cannot be read are left out.
    pub(super) async fn read_listed(&self, ids: &[Digest], now: Timestamp) -> Result<Vec<ListedRecord>, Error> {
        let mut listed = Vec::with_capacity(ids.len());
        for ids in ids.chunks(AT_ONCE) {
            for found in join_all(ids.iter().map(|id| self.read_one_listed(*id, now))).await {
                listed.extend(found?);
            }
        }
        Ok(listed)
    }

    async fn read_one_listed(&self, id: Digest, now: Timestamp) -> Result<Option<ListedRecord>, Error> {
        let key = self.shard(&id).record(&id);
        for end in [LISTED_BYTES as i64 - 1, -1] {
            let value = self.link.query(cmd("GETRANGE").arg(&key).arg(0).arg(end)).await?;
            let value = bytes(value).unwrap_or_default();
            if value.is_empty() {
                return Ok(None);
            }
            match codec::decode_listed(&value, id, now) {
                Ok(None) => {}
                Ok(listed) => return Ok(listed),
                Err(codec::Unreadable(_)) => break,
            }
        }
        tracing::warn!(id = id.short(), "skipped a record that cannot be read");
        Ok(None)
    }

    /// The records of a shard whose effects the downstream gave this id: their positions in the order of recording, and their ids.
    pub(super) async fn referred(
        &self,
        shard: &Shard,
        reference: &str,
    ) -> Result<(Vec<(i64, Digest)>, Timestamp), Error> {
        let (mut all, mut after) = (Vec::new(), Vec::new());
        loop {
            let reply = self.link.run(&SCRIPTS.referred, |command| {
                self.arguments(command, [&*shard.epoch, &shard.references, &shard.order]);
                command.arg(reference).arg(&after).arg(AT_ONCE);
            });
            let mut reply = self.reply(reply.await?)?;
            let (ids, scores) = (reply.list(), reply.list());
            after = reply.bytes().unwrap_or_default();
            let is_last = ids.len() < AT_ONCE;
            for (id, score) in ids.into_iter().zip(scores) {
                all.push((reply::score_of(&score).unwrap_or_default(), reply::id(id)?));
            }
            if is_last {
                return Ok((all, reply.now));
            }
        }
    }

    /// The unsettled records of a shard: their positions in the order of recording, and their ids.
    pub(super) async fn unsettled(&self, shard: &Shard) -> Result<(Vec<(i64, Digest)>, Timestamp), Error> {
        let mut all = Vec::new();
        let mut after: Option<(Vec<u8>, Digest)> = None;
        loop {
            let reply = self.link.run(&SCRIPTS.unsettled, |command| {
                self.arguments(command, [&*shard.epoch, shard.index(Index::Unsettled), &shard.order]);
                command.arg(AT_ONCE);
                match &after {
                    Some((score, id)) => command.arg(score).arg(id.as_bytes()),
                    None => command.arg("").arg(""),
                };
            });
            let mut reply = self.reply(reply.await?)?;
            let (ids, scores, last) = (reply.list(), reply.list(), reply.bytes().unwrap_or_default());
            let is_last = ids.len() < AT_ONCE;
            for (id, score) in ids.into_iter().zip(scores) {
                all.push((reply::score_of(&score).unwrap_or_default(), reply::id(id)?));
            }
            after = all.last().map(|(_, id)| (last, *id));
            if is_last {
                // A record whose time was moved forward meanwhile is there twice.
                all.sort_unstable();
                all.dedup();
                return Ok((all, reply.now));
            }
        }
    }

    /// The number of records in each status. Settled records are counted through the indexes; unsettled ones are read, because
    /// their status depends on the time.
    pub(super) async fn count_records(&self, tenant: Option<&Tenant>) -> Result<Counts, Error> {
        let mut counts = Counts::default();
        for shard in try_join_all(self.keys.shards.iter().map(|shard| self.count_shard(shard, tenant))).await? {
            for (status, count) in shard.0 {
                *counts.0.entry(status).or_default() += count;
            }
        }
        Ok(counts)
    }

    async fn count_shard(&self, shard: &Shard, tenant: Option<&Tenant>) -> Result<Counts, Error> {
        let tag = tenant_tag(tenant.map(Tenant::as_str));
        let (unsettled, _) = self.unsettled(shard).await?;
        let reply = self.link.run(&SCRIPTS.counts, |command| {
            let [_, done, tombstones] = Index::ALL.map(|index| shard.index(index));
            self.arguments(command, [&*shard.epoch, done, tombstones, &shard.tenants]);
            command.arg(&tag);
        });
        let mut reply = self.reply(reply.await?)?;
        let (done, tombstones, of_tenant) = (reply.number()?, reply.number()?, reply.number()?);
        let expired: Vec<Digest> = reply.list().into_iter().map(reply::id).collect::<Result<_, _>>()?;
        let mut ids: Vec<Digest> = unsettled.into_iter().map(|(_, id)| id).collect();
        ids.extend(expired);
        let mut counts = Counts::default();
        let mut read = 0;
        for listed in self.read_listed(&ids, reply.now).await? {
            let owner = listed.seen.record.identity.as_ref().map(|identity| &identity.tenant);
            if tenant.is_some() && owner != tenant {
                continue;
            }
            read += 1;
            if let Some(standing) = listed.seen.standing() {
                *counts.0.entry(standing.status()).or_default() += 1;
            }
        }
        // The records of a tenant that are neither unsettled nor expired are done. Tombstones have no tenant.
        let settled = match tenant {
            None => [(Status::Done, done), (Status::Tombstone, tombstones)],
            Some(_) => [(Status::Done, of_tenant.saturating_sub(read)), (Status::Tombstone, 0)],
        };
        for (status, count) in settled.into_iter().filter(|(_, count)| *count > 0) {
            *counts.0.entry(status).or_default() += count;
        }
        Ok(counts)
    }
}
