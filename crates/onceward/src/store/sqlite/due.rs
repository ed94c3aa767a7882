//! Finds the entries of the outbox that are due, through an index that holds nothing else.

use rusqlite::{Connection, OptionalExtension, params};

use onceward_core::hash::Digest;
use onceward_core::name::Tenant;
use onceward_core::outbox::Priority;
use onceward_core::record::{Seen, State};
use onceward_core::time::Timestamp;

use super::Shared;
use super::query::{STATEMENTS, readable, seen};
use super::row::{read, record_id, unreadable};
use crate::plant::{Plant, planted};
use crate::store::due::{DueEntries, DueQuery, DueReader, collect};

/// The condition of the index `intent_due`, as the schema has it.
pub(super) const IS_ENTRY: &str = "payload IS NOT NULL AND until IS NOT NULL AND state NOT IN ('done', 'tombstone')";

/// How many records that cannot be read a look passes over.
const MAX_UNREADABLE: usize = 16;

/// How many claims a look checks for owners that have ended. There are as many as callers and couriers at work.
const MAX_CLAIMS: usize = 1000;

pub(super) fn due(connection: &Connection, shared: &Shared, queue: &DueQuery) -> rusqlite::Result<DueEntries> {
    let mut index = DueIndex { connection, shared, operation: queue.operation.as_str(), now: shared.clock.now() };
    let (entries, reached) = collect(&mut index, queue)?;
    let mut found = DueEntries { entries, reached };
    if planted(Plant::EntryLostWithCourier) {
        found.entries.retain(|seen| !matches!(seen.record.state, State::Leased(_)));
    }
    if queue.with_abandoned && !planted(Plant::EntryLostWithCourier) {
        let room = queue.limit.saturating_sub(found.entries.len());
        let known: Vec<Digest> = found.entries.iter().map(|seen| seen.record.id).collect();
        let mut abandoned = index.abandoned()?;
        abandoned.retain(|seen| !known.contains(&seen.record.id) && queue.is_for(&seen.record));
        found.entries.extend(abandoned.into_iter().take(room));
    }
    Ok(found)
}

struct DueIndex<'a> {
    connection: &'a Connection,
    shared: &'a Shared,
    operation: &'a str,
    now: Timestamp,
}

impl DueIndex<'_> {
    fn abandoned(&self) -> rusqlite::Result<Vec<Seen>> {
        let mut statement = self.connection.prepare_cached(&STATEMENTS.claimed_entries)?;
        let limit = i64::try_from(MAX_CLAIMS).unwrap_or(i64::MAX);
        let mut rows = statement.query(params![self.operation, limit])?;
        let mut abandoned = Vec::new();
        while let Some(row) = rows.next()? {
            let Some(record) = readable(record_id(row).ok(), read(row))? else { continue };
            let seen = seen(self.shared, record, self.now);
            if seen.owner_gone {
                abandoned.push(seen);
            }
        }
        Ok(abandoned)
    }
}

impl DueReader for DueIndex<'_> {
    type Error = rusqlite::Error;
    type Found = Seen;

    fn next_tenant(&mut self, priority: Priority, after: Option<&Tenant>) -> rusqlite::Result<Option<Tenant>> {
        let after = after.map_or("", Tenant::as_str);
        let mut statement = self.connection.prepare_cached(&STATEMENTS.next_tenant)?;
        let name: Option<String> =
            statement.query_row(params![self.operation, priority.rank(), after], |row| row.get(0)).optional()?;
        name.map(|name| Tenant::new(&name).map_err(|error| unreadable(0, error.to_string()))).transpose()
    }

    fn due(&mut self, priority: Priority, tenant: &Tenant, limit: usize) -> rusqlite::Result<Vec<Seen>> {
        let mut statement = self.connection.prepare_cached(&STATEMENTS.due)?;
        let most = i64::try_from(limit + MAX_UNREADABLE).unwrap_or(i64::MAX);
        let values = params![self.operation, priority.rank(), tenant.as_str(), self.now.as_millis(), most];
        let mut rows = statement.query(values)?;
        let mut entries = Vec::new();
        while entries.len() < limit
            && let Some(row) = rows.next()?
        {
            if let Some(record) = readable(record_id(row).ok(), read(row))? {
                entries.push(seen(self.shared, record, self.now));
            }
        }
        Ok(entries)
    }
}
