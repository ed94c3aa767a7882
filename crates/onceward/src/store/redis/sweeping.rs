//! Sweeps: outcomes that have expired become tombstones, and what may be forgotten is removed.

use futures_util::future::try_join_all;

use onceward_core::decide::{Command, Write, decide};
use onceward_core::hash::Digest;

use super::codec::Index;
use super::scripts::SCRIPTS;
use super::{Redis, Shard, reply};
use crate::plant::{Plant, planted};
use crate::step::{Step, reached};
use crate::store::{Error, MAX_PURGE_SIZE, Purged, Replace, Replaced};

/// How many records that cannot be read a sweep passes over before it gives up.
const MAX_UNREADABLE: usize = 100;

/// How many records a sweep changes at the same time, so that it never delays a claim for long.
const AT_ONCE: usize = 32;

enum Swept {
    Nothing,
    Tombstone,
    Removed,
}

impl Redis {
    pub(super) async fn sweep(&self, limit: usize) -> Result<Purged, Error> {
        let limit = limit.min(MAX_PURGE_SIZE);
        let window = limit + MAX_UNREADABLE;
        let found = try_join_all(self.keys.shards.iter().map(|shard| self.due(shard, window))).await?;
        let mut due: Vec<(i64, Digest)> = found.into_iter().flatten().collect();
        due.sort_unstable();
        let mut due = due.into_iter().take(window);
        let mut purged = Purged::default();
        while purged.total() < limit {
            let batch: Vec<_> = due.by_ref().take(AT_ONCE.min(limit - purged.total())).collect();
            if batch.is_empty() {
                break;
            }
            let before = purged.total();
            for swept in try_join_all(batch.into_iter().map(|(_, id)| self.expire(id))).await? {
                match swept {
                    Swept::Nothing => {}
                    Swept::Tombstone => purged.tombstones += 1,
                    Swept::Removed => purged.removed += 1,
                }
            }
            if purged.total() > before {
                reached(Step::PurgeCommitted);
            }
        }
        Ok(purged)
    }

    /// The records of a shard that have expired, with their times.
    async fn due(&self, shard: &Shard, limit: usize) -> Result<Vec<(i64, Digest)>, Error> {
        let [unsettled, done, tombstones] = Index::ALL.map(|index| shard.index(index));
        let reply = self.link.run(&SCRIPTS.due, |command| {
            self.arguments(command, [&*shard.epoch, unsettled, done, tombstones]);
            command.arg(limit);
        });
        let mut reply = self.reply(reply.await?)?;
        let mut due = Vec::new();
        for _ in Index::ALL {
            due.extend(reply::scored_ids(reply.list())?);
        }
        Ok(due)
    }

    async fn expire(&self, id: Digest) -> Result<Swept, Error> {
        let (seen, write_id) = match self.read_record(id).await {
            Ok((Some(seen), write_id)) => (seen, write_id),
            // It has expired by itself.
            Ok((None, _)) => return self.removed(&id, None).await,
            Err(Error::Unreadable { .. }) => {
                tracing::warn!(id = id.short(), "skipped a record that cannot be read");
                return Ok(Swept::Nothing);
            }
            Err(error) => return Err(error),
        };
        match decide(Some(&seen), &Command::Expire).write {
            Write::Replace(draft) if !planted(Plant::PurgeDropsTombstones) => {
                // Losing this write with the primary would be harmless: the sweep would do it again.
                match self.replace_unconfirmed(Replace::of(&seen.record, draft)).await? {
                    Replaced::Written { .. } => Ok(Swept::Tombstone),
                    Replaced::Conflict(_) | Replaced::Undecided => Ok(Swept::Nothing),
                }
            }
            Write::Remove | Write::Replace(_) => self.removed(&id, write_id.as_ref()).await,
            Write::None | Write::Insert(_) => Ok(Swept::Nothing),
        }
    }

    async fn removed(&self, id: &Digest, write_id: Option<&[u8; 16]>) -> Result<Swept, Error> {
        Ok(if self.remove_record(id, write_id).await? { Swept::Removed } else { Swept::Nothing })
    }
}
