//! The statements over rows: the conditional writes, and the looks.

use rusqlite::types::ToSql;
use rusqlite::{Connection, OptionalExtension, Statement, params, params_from_iter};

use onceward_core::hash::Digest;
use onceward_core::name::Tenant;
use onceward_core::record::{Fence, Record, Seen, State, Status};
use onceward_core::time::Timestamp;

use super::Shared;
use super::fault::is_unreadable;
use super::row::{self, COLUMNS, Columns, halves, read, signed, unreadable};
use crate::store::{Counts, Cursor, Entry, Event, Filter, LARGEST_PAGE, Listed, Page, What};

/// The statements, written once from the list of columns.
struct Statements {
    insert: String,
    insert_within: String,
    replace: String,
    rename: String,
    get: String,
    list: String,
    claims: String,
}

static STATEMENTS: std::sync::LazyLock<Statements> = std::sync::LazyLock::new(|| {
    let names = COLUMNS.join(", ");
    // For lists: neither payloads nor the contents of outcomes are read, however large they are.
    let light = COLUMNS.map(|name| match name {
        "payload" => "CASE WHEN payload IS NULL THEN NULL ELSE x'' END",
        "headers" => "NULL",
        "body" => "CASE WHEN body IS NULL THEN NULL ELSE x'' END",
        name => name,
    });
    let marks: Vec<String> = (1..=COLUMNS.len()).map(|number| format!("?{number}")).collect();
    // The id is the first, and stays: setting it to itself would write its index anew, a page of log for each write.
    let others = COLUMNS.iter().zip(&marks).skip(1);
    let sets: Vec<String> = others.map(|(name, mark)| format!("{name} = {mark}")).collect();
    // The tenant changes only when a tombstone is made or taken: an update that leaves it out runs no trigger.
    let kept: Vec<&str> = sets.iter().map(String::as_str).filter(|set| !set.starts_with("tenant =")).collect();
    let (rest, fence, most) = (COLUMNS.len(), COLUMNS.len() + 1, COLUMNS.len() + 1);
    let values = marks.join(", ");
    let (version, time) = (fence + 1, fence + 2);
    let unchanged = format!(
        "id = ?1 AND id_rest = ?{rest} AND fence IS ?{fence} AND version = ?{version} \
         AND (?{time} IS NULL OR until = ?{time})"
    );
    Statements {
        insert: format!("INSERT INTO intent ({names}) VALUES ({values}) ON CONFLICT (id) DO NOTHING"),
        // The second column is the tenant. A row without one is not counted.
        insert_within: format!(
            "INSERT INTO intent ({names}) SELECT {values} \
             WHERE ?2 IS NULL OR coalesce((SELECT records FROM tenant WHERE name = ?2), 0) < ?{most} \
             ON CONFLICT (id) DO NOTHING"
        ),
        replace: format!("UPDATE intent SET {} WHERE {unchanged} AND tenant IS ?2", kept.join(", ")),
        rename: format!("UPDATE intent SET {} WHERE {unchanged}", sets.join(", ")),
        get: format!("SELECT {names} FROM intent WHERE id = ?1 AND id_rest = ?2"),
        list: format!("SELECT {}, length(body) FROM intent WHERE row < ?", light.join(", ")),
        claims: format!(
            "SELECT {} FROM intent WHERE state IN ('claimed', 'sent', 'overdue') AND state NOT IN ('done', 'tombstone')",
            light.join(", ")
        ),
    }
});

/// What the writer does all the time, prepared once.
pub(super) struct Writes<'c> {
    connection: &'c Connection,
    begin: Statement<'c>,
    commit: Statement<'c>,
    insert: Statement<'c>,
    insert_within: Statement<'c>,
    replace: Statement<'c>,
    rename: Statement<'c>,
    get: Statement<'c>,
    raise: Statement<'c>,
    version: Statement<'c>,
}

impl<'c> Writes<'c> {
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
            raise: connection.prepare("UPDATE ledger SET mark = mark + 1 RETURNING mark")?,
            version: connection.prepare("PRAGMA user_version")?,
        })
    }

    /// Begins a transaction that nobody else writes in.
    pub(super) fn begin(&mut self) -> rusqlite::Result<()> {
        self.begin.execute([]).map(drop)
    }

    /// Ends it; everything in it is on the disk when this returns.
    pub(super) fn commit(&mut self) -> rusqlite::Result<()> {
        self.commit.execute([]).map(drop)
    }

    /// Takes back whatever the engine has not taken back by itself.
    pub(super) fn undo(&self) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "a failed batch could not be taken back; the next one will fail too");
        }
    }

    /// The version of the schema, which another process may have raised.
    pub(super) fn version(&mut self) -> rusqlite::Result<i64> {
        self.version.query_row([], |row| row.get(0))
    }

    /// Raises the number that the mark beside the ledger follows.
    pub(super) fn raise(&mut self) -> rusqlite::Result<u64> {
        // To the end of the statement: it writes before it answers, and must be over before the commit.
        let raised: Vec<i64> = self.raise.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        raised.first().map(|number| number.unsigned_abs()).ok_or(rusqlite::Error::QueryReturnedNoRows)
    }

    /// Looks at a record, as of `now`.
    pub(super) fn look(&mut self, shared: &Shared, id: Digest, now: Timestamp) -> rusqlite::Result<Option<Seen>> {
        look(&mut self.get, shared, id, now)
    }

    /// Writes a new row; false when there is one already, or when its tenant has `most` rows.
    pub(super) fn insert(&mut self, record: &Record, most: Option<u64>) -> rusqlite::Result<bool> {
        let columns = Columns::of(record)?;
        let values = columns.values();
        let written = match most {
            None => self.insert.execute(values.as_slice())?,
            Some(most) => {
                // No table has more rows than this.
                let most = i64::try_from(most).unwrap_or(i64::MAX);
                let last: [&dyn ToSql; 1] = [&most];
                self.insert_within.execute(params_from_iter(values.into_iter().chain(last)))?
            }
        };
        Ok(written == 1)
    }

    /// Writes the next version of a row; false when it is another by now than the one that was seen.
    pub(super) fn replace(&mut self, record: &Record, last: Last) -> rusqlite::Result<bool> {
        let columns = Columns::of(record)?;
        let fence = last.fence.map(Fence::to_bytes);
        let version = signed(last.version)?;
        let time = last.time.map(Timestamp::as_millis);
        let guard: [&dyn ToSql; 3] = [&fence, &version, &time];
        let values = || params_from_iter(columns.values().into_iter().chain(guard));
        let mut written = self.replace.execute(values())?;
        if written == 0 {
            // A conflict, or a row whose tenant comes or goes.
            written = self.rename.execute(values())?;
        }
        Ok(written == 1)
    }
}

/// What a row must still say to be written over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Last {
    pub(super) fence: Option<Fence>,
    pub(super) version: u64,
    pub(super) time: Option<Timestamp>,
}

impl Last {
    /// The row as it was seen.
    pub(super) fn of(record: &Record) -> Self {
        Self { fence: record.fence(), version: record.version, time: record.time().copied() }
    }
}

pub(super) fn remove(connection: &Connection, id: Digest) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM intent WHERE id = ?1 AND id_rest = ?2")?.execute(halves(&id))?;
    connection.prepare_cached("DELETE FROM audit WHERE id = ?1")?.execute([id.as_bytes()])?;
    Ok(())
}

/// Writes a row and removes it again, which takes as much room in the log as a claim does and leaves nothing. Its id is all
/// zeros: no digest is.
pub(super) fn check(connection: &Connection) -> rusqlite::Result<()> {
    let insert = "INSERT INTO intent (id, id_rest, fingerprint, version, state) \
                  VALUES (zeroblob(16), zeroblob(16), zeroblob(32), 1, 'claimed')";
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

fn seen(shared: &Shared, record: Record, now: Timestamp) -> Seen {
    let owner = match &record.state {
        State::Leased(lease) => lease.owner,
        _ => None,
    };
    let owner_gone = owner.is_some_and(|owner| shared.owners.gone(owner));
    Seen { record, now, owner_gone }
}

/// Leaves out what cannot be read, where one such record would hide all others. The log says which it is, by
/// its digest: names may be secret.
pub(super) fn readable<A>(id: Option<Digest>, found: rusqlite::Result<A>) -> rusqlite::Result<Option<A>> {
    match found {
        Err(error) if is_unreadable(&error) => {
            let id = id.map_or_else(|| "unknown".to_owned(), |id| id.short());
            tracing::warn!(id, "left out a record that cannot be read");
            Ok(None)
        }
        found => found.map(Some),
    }
}

/// The ids of what has expired, the longest first, found by the indexes of expiry: finished work, and what did not
/// happen.
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
    Ok(Expired { more: ids.len() == limit, ids: ids.into_iter().flatten().collect() })
}

/// The first that have expired, as far as their ids can be read.
pub(super) struct Expired {
    pub(super) ids: Vec<Digest>,
    /// There may be others.
    pub(super) more: bool,
}

/// A page of records, the newest first. Standing depends on time and on living owners, so statuses that a
/// lapse can change are checked on the record itself.
pub(super) fn list(
    connection: &Connection,
    shared: &Shared,
    filter: &Filter,
    after: Option<Cursor>,
    limit: usize,
) -> rusqlite::Result<Page> {
    let now = shared.clock.now();
    let mut sql = STATEMENTS.list.clone();
    let (end, latest) = place(connection, filter, after)?;
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
    if let Some(time) = filter.created_before {
        and(" AND created_at < ?", Box::new(time.as_millis()));
    }
    if let Some(time) = filter.created_since {
        and(" AND created_at >= ?", Box::new(time.as_millis()));
    }
    sql.push_str(&among_states(&filter.status));
    sql.push_str(" ORDER BY row DESC");
    let mut statement = connection.prepare(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let mut page = Page::default();
    while let Some(row) = rows.next()? {
        let Some(record) = readable(row::whose(row).ok(), read(row))? else { continue };
        let seen = seen(shared, record, now);
        let Some(standing) = seen.standing() else { continue };
        if filter.status.is_empty() || filter.status.contains(&standing.status()) {
            page.next = Some(Cursor::at(&seen.record));
            let size: Option<i64> = row.get(COLUMNS.len())?;
            page.listed.push(Listed { seen, body_size: size.map(i64::unsigned_abs) });
            if page.listed.len() == limit {
                return Ok(page);
            }
        }
    }
    page.next = None;
    Ok(page)
}

/// Before which row a page begins; and where the record of the cursor is gone or another tenant's, from which time on.
fn place(
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

/// Narrows a list to the states that may stand as wanted, so that the index of unsettled ones can be used.
fn among_states(wanted: &[Status]) -> String {
    if wanted.is_empty() {
        return String::new();
    }
    let mut states: Vec<&str> = wanted.iter().flat_map(|status| states_of(*status).iter().copied()).collect();
    states.sort_unstable();
    states.dedup();
    let settled = |state: &&str| ["done", "tombstone"].contains(state);
    let index = if states.iter().any(settled) { "" } else { " AND state NOT IN ('done', 'tombstone')" };
    format!(" AND state IN ('{}'){index}", states.join("', '"))
}

/// The states in which an intent may stand like this.
fn states_of(status: Status) -> &'static [&'static str] {
    match status {
        Status::Queued => &["queued"],
        Status::Running => &["claimed", "sent"],
        Status::Open => &["open", "claimed"],
        Status::InDoubt => &["in_doubt", "claimed", "sent", "overdue"],
        Status::Done => &["done"],
        Status::Tombstone => &["tombstone", "done"],
        Status::Dead => &["dead"],
    }
}

/// How many intents stand how. Unsettled ones are counted by their index; claims one by one, because only a look
/// at each tells whether its owner is alive.
pub(super) fn counts(connection: &Connection, shared: &Shared, tenant: Option<&Tenant>) -> rusqlite::Result<Counts> {
    let now = shared.clock.now();
    let whose = tenant.map(Tenant::as_str);
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
    let mut rows = statement.query(params![whose, now.as_millis()])?;
    while let Some(row) = rows.next()? {
        // Not even a text, if somebody else wrote it.
        let name = row.get_ref(0)?.as_str().unwrap_or_default();
        let count = row.get(1)?;
        match Status::ALL.into_iter().find(|status| status.as_str() == name) {
            Some(status) => add(status, count),
            None => tracing::warn!(count, "left out records in a state that this build does not know"),
        }
    }
    let settled = "SELECT count(*) FILTER (WHERE state = 'done' AND (until IS NULL OR until > ?1)),
         count(*) FILTER (WHERE (state = 'tombstone' AND until > ?1)
                             OR (state = 'done' AND until <= ?1 AND forget_at > ?1))
         FROM intent WHERE state IN ('done', 'tombstone') AND (?2 IS NULL OR tenant = ?2)";
    let (done, tombstones) = connection
        .prepare_cached(settled)?
        .query_row(params![now.as_millis(), whose], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))?;
    add(Status::Done, done);
    add(Status::Tombstone, tombstones);
    let mut statement = connection.prepare_cached(&STATEMENTS.claims)?;
    for record in statement.query_map([], |row| readable(row::whose(row).ok(), read(row)))? {
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

pub(super) fn append(connection: &Connection, id: Digest, now: Timestamp, event: &Event) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT INTO audit (id, at, what, by, note, token) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
        .execute(params![id.as_bytes(), now.as_millis(), event.what.as_str(), event.by, event.note, event.token])?;
    Ok(())
}

pub(super) fn trail(connection: &Connection, id: Digest) -> rusqlite::Result<Vec<Entry>> {
    connection
        .prepare_cached("SELECT at, what, by, note, token FROM audit WHERE id = ?1 ORDER BY row LIMIT ?2")?
        .query_map(params![id.as_bytes(), i64::try_from(LARGEST_PAGE).unwrap_or(i64::MAX)], |row| {
            let name: String = row.get(1)?;
            let what = What::from_name(&name).ok_or_else(|| unreadable(1, format!("no such event: {name}")))?;
            let event = Event { what, by: row.get(2)?, note: row.get(3)?, token: row.get(4)? };
            Ok(Entry { at: Timestamp::from_millis(row.get(0)?), event })
        })?
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However much there is, a sweep looks at what has expired and at nothing else.
    #[test]
    fn what_has_expired_is_found_by_the_indexes_in_their_order() {
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
