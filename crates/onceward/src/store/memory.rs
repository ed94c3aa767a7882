//! A store in memory: for tests, and for processes that need no durability.

use std::collections::{BTreeMap, BTreeSet, HashMap, hash_map};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use crate::plant::{Plant, planted};
use onceward_core::decide::{Command, Write, decide};
use onceward_core::hash::Digest;
use onceward_core::name::Tenant;
use onceward_core::record::{Draft, Record, Seen, State};
use onceward_core::time::Timestamp;

use super::{
    AuditEntry, AuditEvent, Counts, Cursor, Error, Filter, Inserted, ListedRecord, MAX_PAGE_SIZE, MAX_PURGE_SIZE, Page,
    Purged, Replace, Replaced, Store,
};
use crate::clock::Clock;

/// A store in memory. It is lost when the process ends.
#[derive(Debug)]
pub struct Memory {
    clock: Arc<dyn Clock>,
    tables: Mutex<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    records: HashMap<Digest, (i64, Record)>,
    in_order: BTreeMap<i64, Digest>,
    expiry: BTreeSet<(Timestamp, Digest)>,
    trail: HashMap<Digest, Vec<AuditEntry>>,
    /// The number of records of each tenant; tombstones have no tenant.
    tenants: HashMap<Tenant, u64>,
    last: i64,
}

impl Memory {
    /// An empty store.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, tables: Mutex::default() }
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        // Every change is one infallible call, so a panic elsewhere leaves the tables consistent.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seen(&self, record: &Record) -> Seen {
        let now = if planted(Plant::StoreTimeStands) { record.updated_at } else { self.clock.now() };
        Seen { record: record.clone(), now, owner_gone: false }
    }
}

impl Tables {
    fn put(&mut self, record: Record) {
        let id = record.id;
        let order = match self.remove(id) {
            Some(order) => order,
            None => {
                self.last += 1;
                self.last
            }
        };
        if let Some(at) = purge_at(&record) {
            self.expiry.insert((at, id));
        }
        if let Some(identity) = &record.identity {
            *self.tenants.entry(identity.tenant.clone()).or_default() += 1;
        }
        self.in_order.insert(order, id);
        self.records.insert(id, (order, record));
    }

    /// The position before which a page begins, and the newest time that it may contain.
    fn page_start(&self, filter: &Filter, after: Option<Cursor>) -> (i64, Timestamp) {
        let unbounded = (i64::MAX, Timestamp::from_millis(i64::MAX));
        let Some(cursor) = after else { return unbounded };
        let is_listed = |(_, record): &&(i64, Record)| {
            let owner = record.identity.as_ref().map(|identity| &identity.tenant);
            filter.tenant.is_none() || owner == filter.tenant.as_ref()
        };
        match self.records.get(&cursor.id).filter(is_listed) {
            Some((order, _)) => (*order, unbounded.1),
            None => (unbounded.0, cursor.at),
        }
    }

    fn remove(&mut self, id: Digest) -> Option<i64> {
        let (order, record) = self.records.remove(&id)?;
        self.in_order.remove(&order);
        if let Some(at) = purge_at(&record) {
            self.expiry.remove(&(at, id));
        }
        if let Some(identity) = record.identity
            && let hash_map::Entry::Occupied(mut count) = self.tenants.entry(identity.tenant)
        {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        Some(order)
    }

    /// Whether the tenant of a new record has reached its quota.
    fn is_full(&self, draft: &Draft, max_records: u64) -> bool {
        let count = draft.identity.as_ref().map(|identity| self.tenants.get(&identity.tenant).copied());
        count.is_some_and(|count| count.unwrap_or_default() >= max_records)
    }
}

fn purge_at(record: &Record) -> Option<Timestamp> {
    match &record.state {
        State::Done { expires_at, .. } => *expires_at,
        State::Tombstone { forget_at, .. } => Some(*forget_at),
        _ => record.untried_until(),
    }
}

#[async_trait]
impl Store for Memory {
    async fn insert(&self, draft: Draft, max_records: Option<u64>) -> Result<Inserted, Error> {
        let mut tables = self.tables();
        if let Some((_, record)) = tables.records.get(&draft.id)
            && !planted(Plant::InsertOverwrites)
        {
            return Ok(Inserted::Exists(Box::new(self.seen(record))));
        }
        if max_records.is_some_and(|max_records| tables.is_full(&draft, max_records)) {
            return Ok(Inserted::Full);
        }
        let now = self.clock.now();
        tables.put(draft.stamp(now));
        Ok(Inserted::Created { now })
    }

    async fn replace(&self, replace: Replace) -> Result<Replaced, Error> {
        let mut tables = self.tables();
        let id = replace.draft.id;
        let Some((_, record)) = tables.records.get(&id) else { return Ok(Replaced::Conflict(None)) };
        let other_version = record.version != replace.version && !planted(Plant::VersionNotCompared);
        let other_fence = record.fence() != replace.fence && !planted(Plant::StoreFenceNotCompared);
        let other_time =
            replace.time.is_some_and(|time| record.time() != Some(&time)) && !planted(Plant::TimeNotCompared);
        if other_version || other_fence || other_time {
            return Ok(Replaced::Conflict(Some(Box::new(self.seen(record)))));
        }
        let now = self.clock.now();
        tables.put(replace.draft.stamp(now));
        if let Some(event) = replace.event {
            tables.trail.entry(id).or_default().push(AuditEntry { at: now, event });
        }
        Ok(Replaced::Written { now })
    }

    async fn get(&self, id: Digest) -> Result<Option<Seen>, Error> {
        Ok(self.tables().records.get(&id).map(|(_, record)| self.seen(record)))
    }

    async fn purge(&self, limit: usize) -> Result<Purged, Error> {
        let mut tables = self.tables();
        let now = self.clock.now();
        let due: Vec<Digest> = tables
            .expiry
            .iter()
            .take_while(|(at, _)| *at <= now)
            .take(limit.min(MAX_PURGE_SIZE))
            .map(|(_, id)| *id)
            .collect();
        let mut purged = Purged::default();
        for id in due {
            let Some(seen) = tables.records.get(&id).map(|(_, record)| self.seen(record)) else { continue };
            match decide(Some(&seen), &Command::Expire).write {
                Write::Replace(draft) if !planted(Plant::PurgeDropsTombstones) => {
                    tables.put(draft.stamp(now));
                    purged.tombstones += 1;
                }
                Write::Remove | Write::Replace(_) => {
                    tables.remove(id);
                    tables.trail.remove(&id);
                    purged.removed += 1;
                }
                Write::None | Write::Insert(_) => {}
            }
        }
        Ok(purged)
    }

    async fn list(&self, filter: &Filter, after: Option<Cursor>, limit: usize) -> Result<Page, Error> {
        let tables = self.tables();
        let limit = limit.clamp(1, MAX_PAGE_SIZE);
        let mut page = Page::default();
        let (end, latest) = tables.page_start(filter, after);
        for (_, id) in tables.in_order.range(..end).rev() {
            let Some((_, record)) = tables.records.get(id) else { continue };
            let listed = ListedRecord::of(record, self.clock.now());
            if record.created_at <= latest && matches(filter, &listed.seen) {
                page.listed.push(listed);
                page.next = Some(Cursor::at(record));
                if page.listed.len() == limit {
                    return Ok(page);
                }
            }
        }
        page.next = None;
        Ok(page)
    }

    async fn counts(&self, tenant: Option<&Tenant>) -> Result<Counts, Error> {
        let mut counts = Counts::default();
        for (_, record) in self.tables().records.values() {
            let owner = record.identity.as_ref().map(|identity| &identity.tenant);
            if tenant.is_some() && owner != tenant {
                continue;
            }
            if let Some(standing) = self.seen(record).standing() {
                *counts.0.entry(standing.status()).or_default() += 1;
            }
        }
        Ok(counts)
    }

    async fn append(&self, id: Digest, event: AuditEvent) -> Result<(), Error> {
        let at = self.clock.now();
        self.tables().trail.entry(id).or_default().push(AuditEntry { at, event });
        Ok(())
    }

    async fn trail(&self, id: Digest) -> Result<Vec<AuditEntry>, Error> {
        let tables = self.tables();
        let entries = tables.trail.get(&id).map(Vec::as_slice).unwrap_or_default();
        Ok(entries.iter().take(MAX_PAGE_SIZE).cloned().collect())
    }

    fn now(&self) -> Option<Timestamp> {
        Some(self.clock.now())
    }
}

fn matches(filter: &Filter, seen: &Seen) -> bool {
    let Some(standing) = seen.standing() else { return false };
    let identity = seen.record.identity.as_ref();
    (filter.status.is_empty() || filter.status.contains(&standing.status()))
        && filter.tenant.as_ref().is_none_or(|tenant| identity.is_some_and(|identity| identity.tenant == *tenant))
        && filter.operation.as_ref().is_none_or(|name| identity.is_some_and(|identity| identity.operation == *name))
        && filter.created_before.is_none_or(|time| seen.record.created_at < time)
        && filter.created_since.is_none_or(|time| seen.record.created_at >= time)
}
