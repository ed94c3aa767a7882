//! The SQL statements: conditional writes and reads.

use rusqlite::types::ToSql;
use rusqlite::{Connection, OptionalExtension, Statement, params, params_from_iter};

use onceward_core::hash::Digest;
use onceward_core::name::Tenant;
use onceward_core::record::{Fence, Record, Seen, State, Status};
use onceward_core::time::Timestamp;

use super::Shared;
use super::due::IS_ENTRY;
use super::row::{self, COLUMNS, Columns, halves, read, signed, unreadable};
use super::sqlite_error::is_unreadable;
use crate::plant::{Plant, planted};
use crate::store::{
    AuditEntry, AuditEvent, Counts, Cursor, EventKind, Filter, ListedRecord, MAX_PAGE_SIZE, Page, names,
};

/// The texts of the statements, built once from the list of columns.
pub(super) struct StatementTexts {
    pub(super) due: String,
    pub(super) next_tenant: String,
    pub(super) claimed_entries: String,
    insert: String,
    insert_within: String,
    replace: String,
    rename: String,
    get: String,
    list: String,
    claims: String,
    pub(super) export: String,
    pub(super) import: String,
}

pub(super) static STATEMENTS: std::sync::LazyLock<StatementTexts> = std::sync::LazyLock::new(|| {
    let names = COLUMNS.join(", ");
    // For lists: payloads, headers and bodies are not read, because they may be large.
    let without_contents = COLUMNS.map(|name| match name {
        "payload" => "CASE WHEN payload IS NULL THEN NULL ELSE x'' END",
        "headers" => "NULL",
        "body" => "CASE WHEN body IS NULL THEN NULL ELSE x'' END",
        name => name,
    });
    let placeholders: Vec<String> = (1..=COLUMNS.len()).map(|number| format!("?{number}")).collect();
    // The id comes first and is not set: setting it to itself would rewrite its index, a page of log for each write.
    let others = COLUMNS.iter().zip(&placeholders).skip(1);
    let sets: Vec<String> = others.map(|(name, placeholder)| format!("{name} = {placeholder}")).collect();
    // The tenant changes only when a record becomes a tombstone or a tombstone is reused. An update without it runs no trigger.
    let sets_without_tenant: Vec<&str> =
        sets.iter().map(String::as_str).filter(|set| !set.starts_with("tenant =")).collect();
    let (rest, fence, max_records) = (COLUMNS.len(), COLUMNS.len() + 1, COLUMNS.len() + 1);
    let values = placeholders.join(", ");
    let (version, time) = (fence + 1, fence + 2);
    let unchanged = format!(
        "id = ?1 AND id_rest = ?{rest} AND fence IS ?{fence} AND version = ?{version} \
         AND (?{time} IS NULL OR until = ?{time})"
    );
    StatementTexts {
        due: format!(
            "SELECT {names} FROM intent INDEXED BY intent_due WHERE {IS_ENTRY} \
             AND operation = ?1 AND priority = ?2 AND tenant = ?3 AND until <= ?4 ORDER BY until LIMIT ?5"
        ),
        next_tenant: format!(
            "SELECT tenant FROM intent INDEXED BY intent_due WHERE {IS_ENTRY} \
             AND operation = ?1 AND priority = ?2 AND tenant > ?3 ORDER BY tenant LIMIT 1"
        ),
        claimed_entries: format!(
            "SELECT {names} FROM intent INDEXED BY intent_unsettled \
             WHERE state IN ('claimed', 'sent', 'overdue') AND state NOT IN ('done', 'tombstone') \
             AND payload IS NOT NULL AND operation = ?1 LIMIT ?2"
        ),
        insert: format!("INSERT INTO intent ({names}) VALUES ({values}) ON CONFLICT (id) DO NOTHING"),
        // The second column is the tenant. A row without a tenant is not counted.
        insert_within: format!(
            "INSERT INTO intent ({names}) SELECT {values} \
             WHERE ?2 IS NULL OR coalesce((SELECT records FROM tenant WHERE name = ?2), 0) < ?{max_records} \
             ON CONFLICT (id) DO NOTHING"
        ),
        replace: format!("UPDATE intent SET {} WHERE {unchanged} AND tenant IS ?2", sets_without_tenant.join(", ")),
        rename: format!("UPDATE intent SET {} WHERE {unchanged}", sets.join(", ")),
        get: format!("SELECT {names} FROM intent WHERE id = ?1 AND id_rest = ?2"),
        list: format!("SELECT {}, length(body) FROM intent WHERE row < ?", without_contents.join(", ")),
        claims: format!(
            "SELECT {} FROM intent WHERE state IN ('claimed', 'sent', 'overdue') AND state NOT IN ('done', 'tombstone')",
            without_contents.join(", ")
        ),
        export: format!("SELECT {names} FROM intent WHERE id > ?1 ORDER BY id LIMIT ?2"),
        // The row comes last, as one more value.
        import: format!("INSERT INTO intent ({names}, row) VALUES ({values}, ?{})", COLUMNS.len() + 1),
    }
});

/// Makes the texts now. A process that forks while another thread makes them would leave them unfinished in its child.
pub(super) fn make_statements() {
    std::sync::LazyLock::force(&STATEMENTS);
}

/// The statements that the writer uses for every batch, prepared once.
pub(super) struct WriteStatements<'c> {
    connection: &'c Connection,
    begin: Statement<'c>,
    commit: Statement<'c>,
    insert: Statement<'c>,
    insert_within: Statement<'c>,
    replace: Statement<'c>,
    rename: Statement<'c>,
    get: Statement<'c>,
    raise_mark: Statement<'c>,
    version: Statement<'c>,
    seal: Statement<'c>,
}

impl<'c> WriteStatements<'c> {
    pub(super) fn prepare(connection: &'c Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            connection,
            begin: connection.prepare("BEGIN IMMEDIATE")?,
            commit: connection.prepare("COMMIT")?,
            insert: connection.prepare(&STATEMENTS.insert)?,
            insert_within: connection.prepare(&STATEMENTS.insert_within)?,
            replace: connection.prepare(&STATEMENTS.replace)?,
            rename: connection.prepare(&STATEMENTS.rename)?,
            get: connection.prepare(&STATEMENTS.get)?,
            raise_mark: connection.prepare("UPDATE ledger SET mark = mark + 1 RETURNING mark")?,
            version: connection.prepare("PRAGMA user_version")?,
            seal: connection.prepare("SELECT seal FROM ledger")?,
        })
    }

    /// Begins a write transaction.
    pub(super) fn begin(&mut self) -> rusqlite::Result<()> {
        self.begin.execute([]).map(drop)
    }

    /// Commits the transaction; everything in it is on disk when this returns.
    pub(super) fn commit(&mut self) -> rusqlite::Result<()> {
        self.commit.execute([]).map(drop)
    }

    /// Rolls the transaction back, unless SQLite has already done so.
    pub(super) fn roll_back(&self) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "a failed batch could not be rolled back; the next one will fail too");
        }
    }

    /// The schema version, which another process may have raised.
    pub(super) fn version(&mut self) -> rusqlite::Result<i64> {
        self.version.query_row([], |row| row.get(0))
    }

    /// The seal, as it is stored.
    pub(super) fn seal(&mut self) -> rusqlite::Result<Option<String>> {
        self.seal.query_row([], |row| row.get(0))
    }

    /// Raises the number of the high-water mark.
    pub(super) fn raise_mark(&mut self) -> rusqlite::Result<u64> {
        // Reads to the end: the statement must be finished before the commit.
        let raised: Vec<i64> = self.raise_mark.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        raised.first().map(|number| number.unsigned_abs()).ok_or(rusqlite::Error::QueryReturnedNoRows)
    }

    /// Reads a record, as of `now`.
    pub(super) fn look(&mut self, shared: &Shared, id: Digest, now: Timestamp) -> rusqlite::Result<Option<Seen>> {
        look(&mut self.get, shared, id, now)
    }

    /// Writes a new row. Returns false if the row exists, or if the tenant has `max_records` rows.
    pub(super) fn insert(&mut self, record: &Record, max_records: Option<u64>) -> rusqlite::Result<bool> {
        let columns = Columns::of(record)?;
        let values = columns.values();
        let written = match max_records {
            None => self.insert.execute(values.as_slice())?,
            Some(max_records) => {
                // No table can have more rows than `i64::MAX`.
                let max_records = i64::try_from(max_records).unwrap_or(i64::MAX);
                let last: [&dyn ToSql; 1] = [&max_records];
                self.insert_within.execute(params_from_iter(values.into_iter().chain(last)))?
            }
        };
        Ok(written == 1)
    }

    /// Writes the next version of a row. Returns false if the row is no longer as expected.
    pub(super) fn replace(&mut self, record: &Record, expected: Expected) -> rusqlite::Result<bool> {
        let columns = Columns::of(record)?;
        let fence = expected.fence.map(Fence::to_bytes);
        let version = signed(expected.version)?;
        let time = expected.time.map(Timestamp::as_millis);
        let guard: [&dyn ToSql; 3] = [&fence, &version, &time];
        let values = || params_from_iter(columns.values().into_iter().chain(guard));
        let mut written = self.replace.execute(values())?;
        if written == 0 {
            // A conflict, or a row whose tenant is set or cleared.
            written = self.rename.execute(values())?;
        }
        Ok(written == 1)
    }
}

/// What a row must still contain to be replaced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    pub(super) fence: Option<Fence>,
    pub(super) version: u64,
    pub(super) time: Option<Timestamp>,
}

impl Expected {
    /// The row as it was read.
    pub(super) fn of(record: &Record) -> Self {
        Self { fence: record.fence(), version: record.version, time: record.time().copied() }
    }
}

pub(super) fn remove(connection: &Connection, id: Digest) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM intent WHERE id = ?1 AND id_rest = ?2")?.execute(halves(&id))?;
    connection.prepare_cached("DELETE FROM audit WHERE id = ?1")?.execute([id.as_bytes()])?;
    Ok(())
}

/// Writes a row and removes it again, which takes as much space in the log as a claim and leaves nothing behind. Its id is all
/// zeros, which no digest is, and its tenant is a name that no tenant can have: the row is counted as a claim's is.
pub(super) fn check(connection: &Connection) -> rusqlite::Result<()> {
    let insert = "INSERT INTO intent (id, id_rest, tenant, fingerprint, version, state, until) \
                  VALUES (zeroblob(16), zeroblob(16), char(1), zeroblob(32), 1, 'claimed', 0)";
    connection.prepare_cached(insert)?.execute([])?;
    connection.prepare_cached("DELETE FROM intent WHERE id = zeroblob(16)")?.execute([]).map(drop)
}

pub(super) fn get(connection: &Connection, shared: &Shared, id: Digest) -> rusqlite::Result<Option<Seen>> {
    let mut statement = connection.prepare_cached(&STATEMENTS.get)?;
    look(&mut statement, shared, id, shared.clock.now())
}

fn look(get: &mut Statement<'_>, shared: &Shared, id: Digest, now: Timestamp) -> rusqlite::Result<Option<Seen>> {
    let record = get.query_row(halves(&id), read).optional()?;
    Ok(record.map(|record| seen(shared, record, now)))
}

pub(super) fn seen(shared: &Shared, record: Record, now: Timestamp) -> Seen {
    let owner = match &record.state {
        State::Leased(lease) => lease.owner,
        _ => None,
    };
    let owner_gone = owner.is_some_and(|owner| shared.owners.is_gone(owner));
    let now = if planted(Plant::StoreTimeStands) { record.updated_at } else { now };
    Seen { record, now, owner_gone }
}

/// `None` for a record that cannot be read, so that it does not hide all others. The log names it by its digest, because names
/// may be secret.
pub(super) fn readable<A>(id: Option<Digest>, found: rusqlite::Result<A>) -> rusqlite::Result<Option<A>> {
    match found {
        Err(error) if is_unreadable(&error) => {
            let id = id.map_or_else(|| "unknown".to_owned(), |id| id.short());
            tracing::warn!(id, "skipped a record that cannot be read");
            Ok(None)
        }
        found => found.map(Some),
    }
}

/// The ids of expired records, in the order of expiry, found through the expiry indexes: finished work, and work that is known
/// not to have happened.
const EXPIRED: &str = "SELECT id, id_rest, until AS expired_at FROM intent
     WHERE state IN ('done', 'tombstone') AND until IS NOT NULL AND until <= ?1
     UNION ALL
     SELECT id, id_rest, forget_at FROM intent
     WHERE state IN ('open', 'claimed') AND forget_at IS NOT NULL AND forget_at <= ?1
     ORDER BY expired_at LIMIT ?2";

pub(super) fn expired(connection: &Connection, now: Timestamp, limit: usize) -> rusqlite::Result<Expired> {
    let ids: Vec<Option<Digest>> = connection
        .prepare_cached(EXPIRED)?
        .query_map(params![now.as_millis(), i64::try_from(limit).unwrap_or(i64::MAX)], |row| {
            readable(None, row::id(row, 0, 1))
        })?
        .collect::<rusqlite::Result<_>>()?;
    Ok(Expired { has_more: ids.len() == limit, ids: ids.into_iter().flatten().collect() })
}

/// The ids of the first expired records that can be read.
pub(super) struct Expired {
    pub(super) ids: Vec<Digest>,
    /// There may be more.
    pub(super) has_more: bool,
}

/// A page of records, the newest first. The status of a record depends on the time and on living owners, so statuses that a
/// lapsed lease can change are checked on the record itself.
pub(super) fn list(
    connection: &Connection,
    shared: &Shared,
    filter: &Filter,
    after: Option<Cursor>,
    limit: usize,
) -> rusqlite::Result<Page> {
    let now = shared.clock.now();
    let mut sql = STATEMENTS.list.clone();
    let (end, latest) = page_start(connection, filter, after)?;
    let mut values: Vec<Box<dyn ToSql>> = vec![Box::new(end)];
    let mut and = |clause: &str, value: Box<dyn ToSql>| {
        sql.push_str(clause);
        values.push(value);
    };
    if let Some(time) = latest {
        and(" AND (created_at IS NULL OR created_at <= ?)", Box::new(time.as_millis()));
    }
    if let Some(tenant) = &filter.tenant {
        and(" AND tenant = ?", Box::new(tenant.as_str().to_owned()));
    }
    if let Some(operation) = &filter.operation {
        and(" AND operation = ?", Box::new(operation.as_str().to_owned()));
    }
    if let Some(reference) = &filter.reference {
        and(" AND reference = ?", Box::new(reference.clone()));
    }
    if let Some(time) = filter.created_before {
        and(" AND created_at < ?", Box::new(time.as_millis()));
    }
    if let Some(time) = filter.created_since {
        and(" AND created_at >= ?", Box::new(time.as_millis()));
    }
    sql.push_str(&names::among_states(&filter.status));
    sql.push_str(" ORDER BY row DESC");
    let mut statement = connection.prepare(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let mut page = Page::default();
    while let Some(row) = rows.next()? {
        let Some(record) = readable(row::record_id(row).ok(), read(row))? else { continue };
        let seen = seen(shared, record, now);
        let Some(standing) = seen.standing() else { continue };
        if filter.status.is_empty() || filter.status.contains(&standing.status()) {
            page.next = Some(Cursor::at(&seen.record));
            let size: Option<i64> = row.get(COLUMNS.len())?;
            page.listed.push(ListedRecord { seen, body_size: size.map(i64::unsigned_abs) });
            if page.listed.len() == limit {
                return Ok(page);
            }
        }
    }
    page.next = None;
    Ok(page)
}

/// The row before which a page begins. If the cursor's record is gone or belongs to another tenant, also the newest time that
/// the page may contain.
fn page_start(
    connection: &Connection,
    filter: &Filter,
    after: Option<Cursor>,
) -> rusqlite::Result<(i64, Option<Timestamp>)> {
    let Some(cursor) = after else { return Ok((i64::MAX, None)) };
    let [first, rest] = halves(&cursor.id);
    let row = connection
        .prepare_cached("SELECT row FROM intent WHERE id = ?1 AND id_rest = ?2 AND (?3 IS NULL OR tenant = ?3)")?
        .query_row(params![first, rest, filter.tenant.as_ref().map(Tenant::as_str)], |row| row.get(0))
        .optional()?;
    Ok(row.map_or((i64::MAX, Some(cursor.at)), |row| (row, None)))
}

/// The number of intents in each status. Unsettled ones are counted through their index; claims are read one by one to check
/// whether their owners are alive.
pub(super) fn counts(connection: &Connection, shared: &Shared, tenant: Option<&Tenant>) -> rusqlite::Result<Counts> {
    let now = shared.clock.now();
    let name = tenant.map(Tenant::as_str);
    let mut counts = Counts::default();
    let mut add = |status: Status, count: i64| {
        if count > 0 {
            *counts.0.entry(status).or_default() += count.unsigned_abs();
        }
    };
    let unsettled = "SELECT state, count(*) FROM intent
         WHERE state NOT IN ('done', 'tombstone') AND state NOT IN ('claimed', 'sent', 'overdue')
           AND (?1 IS NULL OR tenant = ?1) AND NOT (state = 'open' AND forget_at IS NOT NULL AND forget_at <= ?2)
         GROUP BY state";
    let mut statement = connection.prepare_cached(unsettled)?;
    let mut rows = statement.query(params![name, now.as_millis()])?;
    while let Some(row) = rows.next()? {
        // Another program may have written something that is not a text.
        let state = row.get_ref(0)?.as_str().unwrap_or_default();
        let count = row.get(1)?;
        match Status::ALL.into_iter().find(|status| status.as_str() == state) {
            Some(status) => add(status, count),
            None => tracing::warn!(count, "skipped records in a state that this build does not know"),
        }
    }
    let settled = "SELECT count(*) FILTER (WHERE state = 'done' AND (until IS NULL OR until > ?1)),
         count(*) FILTER (WHERE (state = 'tombstone' AND until > ?1)
                             OR (state = 'done' AND until <= ?1 AND forget_at > ?1))
         FROM intent WHERE state IN ('done', 'tombstone') AND (?2 IS NULL OR tenant = ?2)";
    let (done, tombstones) = connection
        .prepare_cached(settled)?
        .query_row(params![now.as_millis(), name], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))?;
    add(Status::Done, done);
    add(Status::Tombstone, tombstones);
    let mut statement = connection.prepare_cached(&STATEMENTS.claims)?;
    for record in statement.query_map([], |row| readable(row::record_id(row).ok(), read(row)))? {
        let Some(record) = record? else { continue };
        if tenant.is_some() && record.identity.as_ref().map(|identity| &identity.tenant) != tenant {
            continue;
        }
        if let Some(standing) = seen(shared, record, now).standing() {
            add(standing.status(), 1);
        }
    }
    Ok(counts)
}

/// Records the operations that live in this ledger.
pub(super) fn claim_operations(connection: &Connection, names: &[String]) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached("INSERT INTO operation (name) VALUES (?1) ON CONFLICT DO NOTHING")?;
    names.iter().try_for_each(|name| insert.execute([name]).map(drop))
}

pub(super) fn release_operations(connection: &Connection, names: &[String]) -> rusqlite::Result<()> {
    let mut delete = connection.prepare_cached("DELETE FROM operation WHERE name = ?1")?;
    names.iter().try_for_each(|name| delete.execute([name]).map(drop))
}

pub(super) fn has_operation(connection: &Connection, name: &str) -> rusqlite::Result<bool> {
    connection.prepare_cached("SELECT 1 FROM operation WHERE name = ?1")?.exists([name])
}

pub(super) fn operations(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    connection.prepare("SELECT name FROM operation ORDER BY name")?.query_map([], |row| row.get(0))?.collect()
}

pub(super) fn append(connection: &Connection, id: Digest, now: Timestamp, event: &AuditEvent) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT INTO audit (id, at, what, by, note, token) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
        .execute(params![id.as_bytes(), now.as_millis(), event.what.as_str(), event.by, event.note, event.token])?;
    Ok(())
}

pub(super) fn trail(connection: &Connection, id: Digest) -> rusqlite::Result<Vec<AuditEntry>> {
    first_entries(connection, id, i64::try_from(MAX_PAGE_SIZE).unwrap_or(i64::MAX))
}

/// The trail of one intent, however long it is.
pub(super) fn whole_trail(connection: &Connection, id: Digest) -> rusqlite::Result<Vec<AuditEntry>> {
    first_entries(connection, id, i64::MAX)
}

fn first_entries(connection: &Connection, id: Digest, limit: i64) -> rusqlite::Result<Vec<AuditEntry>> {
    connection
        .prepare_cached("SELECT at, what, by, note, token FROM audit WHERE id = ?1 ORDER BY row LIMIT ?2")?
        .query_map(params![id.as_bytes(), limit], |row| {
            let name: String = row.get(1)?;
            let what = EventKind::from_name(&name).ok_or_else(|| unreadable(1, format!("unknown event: {name}")))?;
            let event = AuditEvent { what, by: row.get(2)?, note: row.get(3)?, token: row.get(4)? };
            Ok(AuditEntry { at: Timestamp::from_millis(row.get(0)?), event })
        })?
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However large the ledger is, a sweep reads only expired records.
    #[test]
    fn expired_records_are_found_through_the_indexes_in_their_order() {
        let connection = Connection::open_in_memory().expect("there is memory");
        for migration in super::super::schema::MIGRATIONS {
            connection.execute_batch(migration).expect("the schema is sound");
        }
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {EXPIRED}")).expect("a statement");
        let plan: Vec<String> =
            statement.query_map([1, 1], |row| row.get(3)).and_then(Iterator::collect).expect("a plan");
        for index in ["intent_expiry", "intent_untried"] {
            assert!(plan.iter().any(|step| step.contains(&format!("USING INDEX {index}"))), "{plan:?}");
        }
        assert!(plan.iter().all(|step| !step.contains("SCAN") && !step.contains("B-TREE")), "{plan:?}");
    }
}
