//! A store in memory: for tests, and for processes that need no durability.

use std::collections::{BTreeMap, BTreeSet, HashMap, btree_map, hash_map};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use crate::plant::{Plant, planted};
use onceward_core::decide::{Command, Write, decide};
use onceward_core::hash::Digest;
use onceward_core::name::{Operation, Tenant};
use onceward_core::outbox::Priority;
use onceward_core::record::{Draft, Record, Seen, State};
use onceward_core::time::Timestamp;

use super::due::{DueReader, collect};
use super::transfer::{self, Arrival, Exported, MAX_EXPORT_BYTES, Seal, SealSet, Transfer, WriteKind, list_position};
use super::{
    AuditEntry, AuditEvent, Counts, Cursor, DueEntries, DueQuery, Durability, Error, Filter, Inserted, ListedRecord,
    MAX_PAGE_SIZE, MAX_PURGE_SIZE, Page, Purged, Replace, Replaced, Store,
};
use crate::clock::Clock;

/// A store in memory. It is lost when the process ends.
#[derive(Debug)]
pub struct Memory {
    clock: Arc<dyn Clock>,
    tables: Mutex<Tables>,
    /// Names this ledger in copies.
    id: String,
}

#[derive(Debug, Default)]
struct Tables {
    records: HashMap<Digest, (i64, Record)>,
    in_order: BTreeMap<i64, Digest>,
    expiry: BTreeSet<(Timestamp, Digest)>,
    /// The entries of the outbox, by operation, priority and tenant, with their times.
    due: BTreeMap<(Operation, Priority, Tenant), BTreeSet<(Timestamp, Digest)>>,
    trail: HashMap<Digest, Vec<AuditEntry>>,
    /// The number of records of each tenant; tombstones have no tenant.
    tenants: HashMap<Tenant, u64>,
    last: i64,
    seal: Seal,
    operations: BTreeSet<String>,
}

/// Its name in messages.
const NAME: &str = "memory:";

impl Memory {
    /// An empty store.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        // Without random numbers no ledger can make a claim, so this id is then not used either.
        let id = format!("{:016x}{:016x}", getrandom::u64().unwrap_or(0), getrandom::u64().unwrap_or(0));
        Self { clock, tables: Mutex::default(), id }
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
    /// Refuses a write that the seal does not allow.
    fn check_seal(&self, write: WriteKind) -> Result<(), Error> {
        self.seal.refusal(NAME, write).map_or(Ok(()), Err)
    }

    fn put(&mut self, mut record: Record) {
        if planted(Plant::RetryTimeNotKept)
            && let State::InDoubt { retry_at, .. } = &mut record.state
        {
            *retry_at = None;
        }
        let id = record.id;
        let order = match self.remove(id) {
            Some(order) => order,
            None => {
                self.last += 1;
                self.last
            }
        };
        self.put_at(order, record);
    }

    /// Puts a record that is not there at this place of the list.
    fn put_at(&mut self, order: i64, record: Record) {
        let id = record.id;
        self.last = self.last.max(order);
        if let Some(at) = purge_at(&record) {
            self.expiry.insert((at, id));
        }
        if let Some(identity) = &record.identity {
            *self.tenants.entry(identity.tenant.clone()).or_default() += 1;
        }
        if let Some((lane, due)) = lane(&record) {
            self.due.entry(lane).or_default().insert((due, id));
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
        if let Some((lane, due)) = lane(&record)
            && !planted(Plant::EntryStaysListed)
            && let btree_map::Entry::Occupied(mut entries) = self.due.entry(lane)
        {
            entries.get_mut().remove(&(due, id));
            if entries.get().is_empty() {
                entries.remove();
            }
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

/// Where the entry of a record stands in line, if the courier has to look at it.
fn lane(record: &Record) -> Option<((Operation, Priority, Tenant), Timestamp)> {
    if planted(Plant::EntryNotListed) {
        return None;
    }
    let identity = record.identity.as_ref()?;
    let priority = record.entry.as_ref().map(|entry| entry.priority).unwrap_or_default();
    Some(((identity.operation.clone(), priority, identity.tenant.clone()), *record.due()?))
}

/// The due entries of one operation.
struct DueIndex<'a> {
    store: &'a Memory,
    tables: &'a Tables,
    operation: &'a Operation,
}

impl DueReader for DueIndex<'_> {
    type Error = Infallible;
    type Found = Seen;

    fn next_tenant(&mut self, priority: Priority, after: Option<&Tenant>) -> Result<Option<Tenant>, Infallible> {
        let is_here = |lane: &&(Operation, Priority, Tenant)| lane.0 == *self.operation && lane.1 == priority;
        let lanes = self.tables.due.keys().filter(is_here).map(|lane| &lane.2);
        Ok(lanes.filter(|tenant| after.is_none_or(|after| *tenant > after)).min().cloned())
    }

    fn due(&mut self, priority: Priority, tenant: &Tenant, limit: usize) -> Result<Vec<Seen>, Infallible> {
        let now = self.store.clock.now();
        let Some(entries) = self.tables.due.get(&(self.operation.clone(), priority, tenant.clone())) else {
            return Ok(Vec::new());
        };
        let due = entries.iter().take_while(|(at, _)| *at <= now).take(limit);
        let found = due.filter_map(|(_, id)| self.tables.records.get(id));
        Ok(found.map(|(_, record)| self.store.seen(record)).collect())
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
        tables.check_seal(WriteKind::Other)?;
        if let Some((_, record)) = tables.records.get(&draft.id)
            && !planted(Plant::InsertOverwrites)
        {
            return Ok(Inserted::Exists(Box::new(self.seen(record))));
        }
        tables.check_seal(WriteKind::NewRecord)?;
        if max_records.is_some_and(|max_records| tables.is_full(&draft, max_records)) {
            return Ok(Inserted::Full);
        }
        let now = self.clock.now();
        tables.put(draft.stamp(now));
        Ok(Inserted::Created { now })
    }

    async fn replace(&self, replace: Replace) -> Result<Replaced, Error> {
        let mut tables = self.tables();
        tables.check_seal(WriteKind::of(&replace))?;
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

    async fn due(&self, queue: &DueQuery) -> Result<DueEntries, Error> {
        let tables = self.tables();
        let mut index = DueIndex { store: self, tables: &tables, operation: &queue.operation };
        let Ok((mut entries, reached)) = collect(&mut index, queue);
        if planted(Plant::EntryLostWithCourier) {
            entries.retain(|seen| !matches!(seen.record.state, State::Leased(_)));
        }
        Ok(DueEntries { entries, reached })
    }

    async fn purge(&self, limit: usize) -> Result<Purged, Error> {
        let mut tables = self.tables();
        tables.check_seal(WriteKind::Other)?;
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
        let mut tables = self.tables();
        tables.check_seal(WriteKind::Other)?;
        tables.trail.entry(id).or_default().push(AuditEntry { at, event });
        Ok(())
    }

    async fn trail(&self, id: Digest) -> Result<Vec<AuditEntry>, Error> {
        let tables = self.tables();
        let entries = tables.trail.get(&id).map(Vec::as_slice).unwrap_or_default();
        Ok(entries.iter().take(MAX_PAGE_SIZE).cloned().collect())
    }

    async fn check(&self) -> Result<(), Error> {
        self.tables().seal.not_ready(NAME).map_or(Ok(()), Err)
    }

    async fn claim_operations(&self, names: &[Operation]) -> Result<(), Error> {
        self.tables().operations.extend(names.iter().map(ToString::to_string));
        Ok(())
    }

    async fn release_operations(&self, names: &[Operation]) -> Result<(), Error> {
        let mut tables = self.tables();
        for name in names {
            tables.operations.remove(name.as_str());
        }
        Ok(())
    }

    async fn operations(&self) -> Result<Vec<String>, Error> {
        Ok(self.tables().operations.iter().cloned().collect())
    }

    fn transfer(&self) -> Option<&dyn Transfer> {
        Some(self)
    }

    async fn durability(&self) -> Result<Durability, Error> {
        Ok(Durability::Volatile)
    }

    fn now(&self) -> Option<Timestamp> {
        Some(self.clock.now())
    }
}

#[async_trait]
impl Transfer for Memory {
    async fn ledger_id(&self) -> Result<String, Error> {
        Ok(self.id.clone())
    }

    async fn seal(&self) -> Result<Seal, Error> {
        Ok(self.tables().seal.clone())
    }

    async fn set_seal(&self, expected: &Seal, next: &Seal) -> Result<SealSet, Error> {
        let mut tables = self.tables();
        if tables.seal != *expected {
            return Ok(SealSet::Changed(tables.seal.clone()));
        }
        if matches!((expected, next), (Seal::Open, Seal::Receiving(_))) && !tables.records.is_empty() {
            return Ok(SealSet::NotEmpty);
        }
        tables.seal = next.clone();
        Ok(SealSet::Written)
    }

    async fn export(&self, after: Option<Digest>, limit: usize) -> Result<Vec<Exported>, Error> {
        let tables = self.tables();
        let mut ids: Vec<&Digest> = tables.records.keys().filter(|id| after.is_none_or(|after| **id > after)).collect();
        ids.sort_unstable();
        let mut page: Vec<Exported> = Vec::new();
        let mut size = 0;
        for id in ids.into_iter().take(limit.clamp(1, MAX_PAGE_SIZE)) {
            let Some((_, record)) = tables.records.get(id) else { continue };
            let exported = Exported::new(record.clone(), tables.trail.get(id).cloned().unwrap_or_default());
            size += exported.size();
            if size > MAX_EXPORT_BYTES && !page.is_empty() {
                break;
            }
            page.push(exported);
        }
        Ok(page)
    }

    async fn import(&self, arrival: &Arrival, batch: Vec<Exported>) -> Result<(), Error> {
        let mut tables = self.tables();
        let Some(present) = tables.seal.receiving(&arrival.token).cloned() else {
            return Err(transfer::not_receiving(NAME));
        };
        for new in &batch {
            let id = new.record.id;
            let Some((_, record)) = tables.records.get(&id) else { continue };
            let there = Exported::new(record.clone(), tables.trail.get(&id).cloned().unwrap_or_default());
            if there != *new {
                return Err(transfer::differs(NAME, id));
            }
        }
        let after = batch.last().map(|last| last.record.id).max(present.after);
        for Exported { record, trail } in batch {
            let id = record.id;
            if tables.records.contains_key(&id) {
                continue;
            }
            let used = |range| Ok::<_, Error>(tables.in_order.range(range).next_back().map(|(order, _)| *order));
            let order = list_position(record.created_at, used)?;
            tables.put_at(order, record);
            if !trail.is_empty() {
                tables.trail.insert(id, trail);
            }
        }
        tables.seal = Seal::Receiving(Arrival { after, ..present });
        Ok(())
    }
}

fn matches(filter: &Filter, seen: &Seen) -> bool {
    let Some(standing) = seen.standing() else { return false };
    let identity = seen.record.identity.as_ref();
    (filter.status.is_empty() || filter.status.contains(&standing.status()))
        && filter.tenant.as_ref().is_none_or(|tenant| identity.is_some_and(|identity| identity.tenant == *tenant))
        && filter.operation.as_ref().is_none_or(|name| identity.is_some_and(|identity| identity.operation == *name))
        && filter.has_reference_of(&seen.record)
        && filter.created_before.is_none_or(|time| seen.record.created_at < time)
        && filter.created_since.is_none_or(|time| seen.record.created_at >= time)
}
