//! Quotas. The records of a tenant are in all shards, and each shard counts its own in the script that writes them. A caller
//! first reserves a place in one shard, then adds the counts up: whatever it does not see in the counts is ahead of it in the
//! queue of reservations.

use std::time::Duration;

use futures_util::future::try_join_all;
use redis::cmd;
use tokio::time::{Instant, sleep};

use onceward_core::record::Draft;

use super::codec::{WriteId, tenant_tag};
use super::reply::integer;
use super::scripts::SCRIPTS;
use super::{Redis, random};
use crate::store::transfer::WriteKind;
use crate::store::{Error, Inserted};

/// How long a reservation holds. A caller that ends without giving its place back blocks the last places of its tenant for this
/// long; an insert that is later than this is refused.
const RESERVATION: Duration = Duration::from_secs(5);

/// The first wait for callers that are ahead in the queue: about the time of an insert. It doubles from one to the next: callers
/// that ask must not take the server's time from those whose turn it is.
const FIRST_TURN: Duration = Duration::from_millis(3);

/// Short beside the time limit of a call.
const LONGEST_TURN: Duration = Duration::from_millis(100);

/// An insert that failed.
struct FailedInsert {
    error: Error,
    /// The server may still get it.
    may_arrive: bool,
}

impl From<Error> for FailedInsert {
    fn from(error: Error) -> Self {
        Self { error, may_arrive: false }
    }
}

impl Redis {
    pub(super) async fn insert_within(&self, draft: Draft, max_records: u64) -> Result<Inserted, Error> {
        let Some(identity) = &draft.identity else {
            return self.insert_before(draft, &random()?, None).await?.ok_or_else(super::reply::unexpected);
        };
        let tenant = tenant_tag(Some(identity.tenant.as_str()));
        if let (Some(seen), _) = self.read_record(draft.id).await? {
            return Ok(Inserted::Exists(Box::new(seen)));
        }
        let write_id = random()?;
        let inserted = match self.insert_in_turn(draft, &tenant, &write_id, max_records).await {
            // Its place is taken until it is too late for it to arrive.
            Err(FailedInsert { error, may_arrive: true }) => return Err(error),
            Err(FailedInsert { error, .. }) => Err(error),
            Ok(inserted) => Ok(inserted),
        };
        if let Err(error) = self.give_back(&tenant, &write_id).await {
            tracing::debug!(%error, "a reservation could not be given back; it ends by itself");
        }
        inserted
    }

    async fn insert_in_turn(
        &self,
        draft: Draft,
        tenant: &[u8; 16],
        write_id: &WriteId,
        max_records: u64,
    ) -> Result<Inserted, FailedInsert> {
        let deadline = Instant::now() + self.link.address.timeout;
        let mut count = 0;
        let mut is_first = true;
        let mut turn = FIRST_TURN;
        loop {
            let (ahead, reserved_at) = self.reserve(tenant, write_id).await?;
            // A count asks every shard. While too many are ahead, only their number can change the answer.
            if std::mem::take(&mut is_first) || may_insert(count, ahead, max_records) {
                // After the reservation: an insert that is over has given its place back, and is counted.
                count = self.count_of(tenant).await?;
            }
            if count >= max_records {
                return Ok(match self.read_record(draft.id).await?.0 {
                    Some(seen) => Inserted::Exists(Box::new(seen)),
                    None => Inserted::Full,
                });
            }
            if may_insert(count, ahead, max_records) {
                let last = reserved_at.saturating_add(RESERVATION.as_millis() as i64);
                let inserted = self.insert_before(draft.clone(), write_id, Some(last)).await;
                let inserted = inserted.map_err(|error| {
                    let may_arrive = matches!(error, Error::Unreachable(_) | Error::Unanswered(_));
                    FailedInsert { error, may_arrive }
                });
                if let Some(inserted) = inserted? {
                    return Ok(inserted);
                }
            }
            if Instant::now() >= deadline {
                return Err(self.link.unreachable("too many callers wait for the last places of a tenant").into());
            }
            sleep(turn).await;
            turn = (turn * 2).min(LONGEST_TURN);
        }
    }

    /// Reserves a place, or asks for it again. Returns how many are ahead, and when it was reserved.
    async fn reserve(&self, tenant: &[u8; 16], write_id: &WriteId) -> Result<(u64, i64), Error> {
        let shard = self.keys.of_tenant(tenant);
        let key = shard.reservations(tenant);
        let reply = self.link.run(&SCRIPTS.reserve, |command| {
            self.arguments(command, [&*shard.epoch, &key]);
            command.arg(Self::kind_argument(WriteKind::NewRecord)).arg(write_id).arg(RESERVATION.as_millis() as u64);
        });
        let mut reply = self.reply(reply.await?)?;
        Ok((reply.number()?, i64::try_from(reply.number()?).unwrap_or(i64::MAX)))
    }

    async fn give_back(&self, tenant: &[u8; 16], write_id: &WriteId) -> Result<(), Error> {
        let shard = self.keys.of_tenant(tenant);
        let key = shard.reservations(tenant);
        let reply = self.link.run(&SCRIPTS.unreserve, |command| {
            self.arguments(command, [&*shard.epoch, &key]);
            command.arg(Self::kind_argument(WriteKind::Other)).arg(write_id);
        });
        self.reply(reply.await?).map(drop)
    }

    /// The number of records of a tenant.
    async fn count_of(&self, tenant: &[u8; 16]) -> Result<u64, Error> {
        let counts = self
            .keys
            .shards
            .iter()
            .map(|shard| async move { self.link.query(cmd("HGET").arg(&shard.tenants).arg(tenant)).await });
        let counts = try_join_all(counts).await?;
        let counts = counts.iter().filter_map(integer).map(|count| u64::try_from(count).unwrap_or_default());
        Ok(counts.sum())
    }
}

/// Whether there is room for a record, even if everyone ahead in the queue inserts one.
fn may_insert(count: u64, ahead: u64, max_records: u64) -> bool {
    count.saturating_add(ahead) < max_records
}
