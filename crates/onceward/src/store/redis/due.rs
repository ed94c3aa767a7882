//! The entries of the outbox that are due. Each shard tells its own, through an index that holds nothing else; they are put
//! together here as `store::due` says, and only those that the courier gets are read.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::Bound;

use futures_util::future::{join_all, try_join_all};
use redis::Value;

use onceward_core::hash::Digest;
use onceward_core::name::Tenant;
use onceward_core::outbox::Priority;
use onceward_core::record::Seen;

use super::codec::lane_prefix;
use super::keys::SHARDS;
use super::reply::{bytes, unexpected};
use super::scripts::SCRIPTS;
use super::{Redis, Shard};
use crate::store::due::{DueReader, collect};
use crate::store::{DueEntries, DueQuery, Error};

/// How many tenants a shard looks at in each priority, so that it is never busy for long. The next look goes on behind them.
const MAX_TENANTS: usize = 64;

/// How many entries a shard tells at least, if the courier asks for as many: with few entries, all of them.
const LEAST_OF_SHARD: usize = 16;

/// How often a look is repeated without the entries that are lost or cannot be read. None of them may hold up its neighbours.
const MAX_LOOKS: usize = 4;

/// When an entry is due, and its id.
type DueEntry = (i64, Digest);

/// The due entries of one priority in all shards.
#[derive(Default)]
struct Line {
    tenants: BTreeMap<Tenant, Vec<DueEntry>>,
    /// The first tenant in turn at which a shard has stopped: what it has behind that one is not known.
    stopped_at: Option<Tenant>,
}

/// All priorities, in their order.
struct Lines([Line; Priority::ALL.len()]);

impl Redis {
    pub(super) async fn due_entries(&self, queue: &DueQuery) -> Result<DueEntries, Error> {
        let mut passed_over = Vec::new();
        let mut found = DueEntries::default();
        if queue.limit == 0 {
            return Ok(found);
        }
        for _ in 0..MAX_LOOKS {
            let known = passed_over.len();
            found = self.look(queue, &mut passed_over).await?;
            if passed_over.len() == known {
                break;
            }
        }
        Ok(found)
    }

    /// One look. Adds the ids of the entries that are lost or cannot be read.
    async fn look(&self, queue: &DueQuery, passed_over: &mut Vec<Digest>) -> Result<DueEntries, Error> {
        let most = (queue.limit.div_ceil(SHARDS) * 2 + LEAST_OF_SHARD).min(queue.limit) + passed_over.len();
        let shards = try_join_all(self.keys.shards.iter().map(|shard| self.waiting(shard, queue, most))).await?;
        let mut lines = Lines::merged(shards, queue.after.as_ref(), passed_over);
        let Ok((entries, reached)) = collect(&mut lines, queue);
        let reached = reached.or_else(|| lines.0.iter_mut().find_map(|line| line.stopped_at.take()));
        let ids = self.that_fit(entries.into_iter().map(|(_, id)| id).collect(), 0).await?;
        let mut found = DueEntries { entries: Vec::with_capacity(ids.len()), reached };
        for (id, read) in ids.iter().zip(join_all(ids.iter().map(|id| self.read_record(*id))).await) {
            match read {
                Ok((Some(seen), _)) => found.entries.extend(Some(seen).filter(is_due)),
                Err(error) if !matches!(error, Error::Unreadable { .. }) => return Err(error),
                Ok((None, _)) | Err(_) => {
                    tracing::warn!(
                        id = id.short(),
                        "passed over an entry of the outbox that is lost or cannot be read"
                    );
                    passed_over.push(*id);
                }
            }
        }
        Ok(found)
    }

    /// The due entries of one shard, by priority.
    async fn waiting(&self, shard: &Shard, queue: &DueQuery, most: usize) -> Result<Vec<Line>, Error> {
        let reply = self.link.run(&SCRIPTS.waiting, |command| {
            self.arguments(command, [&*shard.epoch, &shard.waiting]);
            command.arg(queue.after.as_ref().map_or("", Tenant::as_str)).arg(MAX_TENANTS).arg(most);
            for priority in Priority::ALL {
                command.arg(lane_prefix(queue.operation.as_str(), priority));
            }
            command.arg(queue.tenant.as_ref().map_or("", Tenant::as_str));
        });
        let mut reply = self.reply(reply.await?)?;
        let mut lines = Vec::with_capacity(Priority::ALL.len());
        for _ in Priority::ALL {
            let mut line = Line::default();
            for lane in reply.list() {
                let (tenant, entries) = read_lane(lane).ok_or_else(unexpected)?;
                line.tenants.insert(tenant, entries);
            }
            line.stopped_at = reply.bytes().and_then(tenant_of);
            lines.push(line);
        }
        Ok(lines)
    }
}

/// A courier may have taken it since its shard was asked.
fn is_due(seen: &Seen) -> bool {
    seen.record.due().is_some_and(|due| *due <= seen.now)
}

fn tenant_of(name: Vec<u8>) -> Option<Tenant> {
    Tenant::new(&String::from_utf8(name).ok()?).ok()
}

/// A tenant, and its entries.
fn read_lane(lane: Value) -> Option<(Tenant, Vec<DueEntry>)> {
    let Value::Array(parts) = lane else { return None };
    let mut parts = parts.into_iter().map(bytes);
    let tenant = parts.next().flatten().and_then(tenant_of)?;
    let entries = parts.map(|entry| {
        let entry = entry?;
        let (due, id) = entry.split_first_chunk()?;
        Some((i64::from_be_bytes(*due), Digest::from_bytes(id.try_into().ok()?)))
    });
    Some((tenant, entries.collect::<Option<_>>()?))
}

impl Lines {
    fn merged(shards: Vec<Vec<Line>>, after: Option<&Tenant>, passed_over: &[Digest]) -> Self {
        // Those behind `after` come first.
        let turn = |tenant: &Tenant| (after.is_some_and(|after| tenant <= after), tenant.clone());
        let mut lines = Self(Default::default());
        for (all, line) in shards.into_iter().flat_map(|shard| (0..).zip(shard)) {
            let Some(all): Option<&mut Line> = lines.0.get_mut(all) else { continue };
            for (tenant, entries) in line.tenants {
                let entries = entries.into_iter().filter(|(_, id)| !passed_over.contains(id));
                all.tenants.entry(tenant).or_default().extend(entries);
            }
            all.stopped_at = all.stopped_at.take().into_iter().chain(line.stopped_at).min_by_key(turn);
        }
        for Line { tenants, stopped_at } in &mut lines.0 {
            tenants.retain(|tenant, _| stopped_at.as_ref().is_none_or(|last| turn(tenant) <= turn(last)));
            tenants.values_mut().for_each(|entries| entries.sort_unstable());
        }
        lines
    }

    fn of(&self, priority: Priority) -> &BTreeMap<Tenant, Vec<DueEntry>> {
        let place = Priority::ALL.iter().position(|one| *one == priority).unwrap_or_default();
        &self.0[place].tenants
    }
}

impl DueReader for Lines {
    type Error = Infallible;
    type Found = DueEntry;

    fn next_tenant(&mut self, priority: Priority, after: Option<&Tenant>) -> Result<Option<Tenant>, Infallible> {
        let first = after.map_or(Bound::Unbounded, Bound::Excluded);
        Ok(self.of(priority).range((first, Bound::Unbounded)).next().map(|(tenant, _)| tenant.clone()))
    }

    fn due(&mut self, priority: Priority, tenant: &Tenant, limit: usize) -> Result<Vec<DueEntry>, Infallible> {
        Ok(self.of(priority).get(tenant).into_iter().flatten().take(limit).copied().collect())
    }
}
