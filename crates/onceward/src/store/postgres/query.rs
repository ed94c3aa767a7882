//! The statements that read: single records, lists, counts, the audit trail and expired records.

use std::fmt::Write;
use std::sync::LazyLock;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use onceward_core::hash::Digest;
use onceward_core::record::{Record, Status};
use onceward_core::time::Timestamp;

use super::composite::{Binary, time_parameter};
use super::reader::Value;
use super::row::{self, COLUMNS};
use super::write_job::{Micros, seen};
use crate::store::{
    AuditEntry, AuditEvent, Counts, Cursor, Error, EventKind, Filter, ListedRecord, Page, names, without_nul,
};

/// A record by its id. The time is the store's.
pub(super) const GET: &str = "SELECT date_trunc('milliseconds', clock_timestamp()), record_send(intent) \
                              FROM onceward.intent WHERE id = $1";

/// Expired records, the longest expired first, found through their index. Those that cannot be read are passed over by number.
pub(super) const EXPIRED: &str = "SELECT date_trunc('milliseconds', clock_timestamp()), record_send(intent) \
    FROM onceward.intent WHERE purge_at IS NOT NULL \
    AND purge_at <= coalesce($1, date_trunc('milliseconds', clock_timestamp())) ORDER BY purge_at LIMIT $2 OFFSET $3";

/// The most expired records that cannot be read of one purge. The schema admits none, so that more are a damaged table.
pub(super) const MAX_UNREADABLE: usize = 1000;

pub(super) const TRAIL: &str =
    "SELECT at, what, by, token, note FROM onceward.audit WHERE id = $1 ORDER BY row LIMIT $2";

pub(super) const APPEND: &str = "SELECT onceward.append_v1($1, $2, $3, $4, $5, $6, $7)";

/// In the order of the names: two servers that start at once do not wait for each other in a circle.
pub(super) const CLAIM_OPERATIONS: &str = "INSERT INTO onceward.operation (name) \
    SELECT DISTINCT name FROM unnest($1) AS name ORDER BY name ON CONFLICT DO NOTHING";

pub(super) const RELEASE_OPERATIONS: &str = "DELETE FROM onceward.operation WHERE name = ANY ($1)";

pub(super) const HAS_OPERATION: &str = "SELECT 1 FROM onceward.operation WHERE name = $1";

pub(super) const OPERATIONS: &str = "SELECT name FROM onceward.operation ORDER BY name";

pub(super) const REMOVE: &str = "SELECT onceward.remove_v1($1)";

/// Removes the marks of processes that have not written for a week; a writer relies on its own for less. At most a thousand.
pub(super) const FORGET_MARKS: &str = "DELETE FROM onceward.high_water_mark WHERE process IN (\
    SELECT process FROM onceward.high_water_mark WHERE at < clock_timestamp() - interval '7 days' \
    LIMIT 1000 FOR UPDATE SKIP LOCKED)";

/// Adds up the counts of connections that are closed, in rows of their own: no process has the number 0. At most a thousand, in the
/// order of their tenants: two sweepers do not wait for each other in a circle.
pub(super) const ADD_UP_COUNTS: &str = "WITH closed AS (\
    DELETE FROM onceward.tenant_count AS count USING (\
        SELECT tenant, backend FROM onceward.tenant_count AS old WHERE backend <> 0 \
        AND NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = old.backend) LIMIT 1000 FOR UPDATE SKIP LOCKED\
    ) AS old WHERE (count.tenant, count.backend) = (old.tenant, old.backend) RETURNING count.tenant, count.records\
    ) INSERT INTO onceward.tenant_count AS count (tenant, backend, records) \
    SELECT tenant, 0, sum(records) FROM closed GROUP BY tenant ORDER BY tenant \
    ON CONFLICT (tenant, backend) DO UPDATE SET records = count.records + excluded.records";

/// The order number of a record, if the tenant may see it.
pub(super) const ORDER: &str = "SELECT row FROM onceward.intent WHERE id = $1 AND ($2::text IS NULL OR tenant = $2)";

/// The number of records in each state that no time changes.
const COUNT_SETTLED: &str = "SELECT state, count(*) FROM onceward.intent \
    WHERE state NOT IN ('claimed', 'sent', 'overdue', 'done', 'tombstone', 'open') AND ($1::text IS NULL OR tenant = $1) GROUP BY state";

/// The fewest rows that are read at once: of a list by status, few rows may count.
pub(super) const MIN_ROWS: usize = 64;

/// A row without its large parts, and the size of its body.
static LISTED: LazyLock<String> = LazyLock::new(|| {
    let columns = COLUMNS.map(|name| match name {
        "payload" => "CASE WHEN payload IS NULL THEN NULL ELSE ''::bytea END".to_owned(),
        "headers" => "NULL::json".to_owned(),
        "body" => "CASE WHEN body IS NULL THEN NULL ELSE ''::bytea END".to_owned(),
        name => format!("intent.{name}"),
    });
    format!(
        "SELECT date_trunc('milliseconds', clock_timestamp()), record_send(ROW({})), octet_length(body), row \
         FROM onceward.intent WHERE row < $1",
        columns.join(", ")
    )
});

/// The counts that depend on the time: expired outcomes, lapsed leases.
static COUNT_TIMED: LazyLock<String> = LazyLock::new(|| {
    // As `Seen::standing` judges; a test compares the two.
    "SELECT state, until > moment.at AND until <= moment.at + $3 * interval '1 ms' AS alive, doubt_since IS NOT NULL AS doubted, \
     CASE WHEN state = 'done' THEN purge_at IS NOT NULL AND purge_at <= moment.at \
          WHEN state = 'tombstone' THEN purge_at <= moment.at ELSE coalesce(purge_at <= moment.at, false) END AS expired, \
     state = 'done' AND forget_at IS NOT NULL AND forget_at <= moment.at AS forgotten, count(*) \
     FROM onceward.intent, (SELECT coalesce($2, date_trunc('milliseconds', clock_timestamp())) AS at) AS moment \
     WHERE state IN ('claimed', 'sent', 'overdue', 'done', 'tombstone', 'open') AND ($1::text IS NULL OR tenant = $1) \
     GROUP BY 1, 2, 3, 4, 5"
        .to_owned()
});

pub(super) fn id_value(id: Digest) -> Value {
    (Box::new(id.as_bytes().to_vec()), Type::BYTEA)
}

pub(super) fn text_value(text: Option<&str>) -> Value {
    (Box::new(text.map(without_nul)), Type::TEXT)
}

pub(super) fn time_value(time: Option<Timestamp>) -> Value {
    (Box::new(time_parameter(time)), Type::TIMESTAMPTZ)
}

pub(super) fn uuid_value(id: [u8; 16]) -> Value {
    (Box::new(Binary(Some(id))), Type::UUID)
}

pub(super) fn number_value(number: usize) -> Value {
    (Box::new(i64::try_from(number).unwrap_or(i64::MAX)), Type::INT8)
}

/// The record in a row whose columns are the time and the record.
pub(super) fn record(row: &Row) -> Result<(Timestamp, Record), Error> {
    let now: Micros = row.try_get(0).map_err(|error| Error::Other(error.to_string()))?;
    let bytes: &[u8] = row.try_get(1).map_err(|error| Error::Other(error.to_string()))?;
    Ok((now.0, read(bytes)?))
}

/// The record in these bytes. The error names its id, by which an operator finds the row.
pub(super) fn read(bytes: &[u8]) -> Result<Record, Error> {
    row::read(bytes).map_err(|error| {
        let id = row::read_id(bytes).map_or_else(|_| "unknown".to_owned(), |id| id.to_hex());
        Error::Other(format!("the record with the id {id} cannot be read: {}", error.0))
    })
}

/// The records of these rows. Those that cannot be read are reported and left out: they must not hold up the others.
pub(super) fn readable(rows: &[Row]) -> Vec<(Timestamp, Record)> {
    rows.iter().filter_map(|row| record(row).inspect_err(report_unreadable).ok()).collect()
}

/// Reports a record that cannot be read, and returns its id, by which it can be passed over.
pub(super) fn unreadable(bytes: &[u8], error: &Error) -> Option<Vec<u8>> {
    report_unreadable(error);
    row::read_id(bytes).ok().map(|id| id.as_bytes().to_vec())
}

fn report_unreadable(error: &Error) {
    tracing::error!(%error, "left out a record");
}

/// The statement of one page, and its values.
pub(super) fn list(filter: &Filter, end: i64, latest: Option<Timestamp>, rows: usize) -> (String, Vec<Value>) {
    let mut sql = LISTED.clone();
    let mut values: Vec<Value> = vec![(Box::new(end), Type::INT8)];
    let mut and = |clause: &str, value: Value| {
        values.push(value);
        let _ = write!(sql, " AND {}", clause.replace('?', &format!("${}", values.len())));
    };
    if latest.is_some() {
        and("(created_at IS NULL OR created_at <= ?)", time_value(latest));
    }
    if let Some(tenant) = &filter.tenant {
        and("tenant = ?", text_value(Some(tenant.as_str())));
    }
    if let Some(operation) = &filter.operation {
        and("operation = ?", text_value(Some(operation.as_str())));
    }
    if let Some(reference) = &filter.reference {
        // As its index has it.
        and("reference COLLATE \"C\" = ?", text_value(Some(reference)));
    }
    if filter.created_before.is_some() {
        and("created_at < ?", time_value(filter.created_before));
    }
    if filter.created_since.is_some() {
        and("created_at >= ?", time_value(filter.created_since));
    }
    sql.push_str(&names::among_states(&filter.status));
    values.push(number_value(rows));
    let _ = write!(sql, " ORDER BY row DESC LIMIT ${}", values.len());
    (sql, values)
}

/// Puts the rows of a list on a page, and returns the order number of the last row that was read.
pub(super) fn fill(
    page: &mut Page,
    rows: &[Row],
    filter: &Filter,
    given: Option<Timestamp>,
    limit: usize,
) -> Result<Option<i64>, Error> {
    let fault = |error: tokio_postgres::Error| Error::Other(error.to_string());
    let mut last = None;
    for row in rows {
        last = Some(row.try_get(3).map_err(fault)?);
        let (now, record) = match record(row) {
            Ok(found) => found,
            Err(error) => {
                report_unreadable(&error);
                continue;
            }
        };
        let seen = seen(record, given.unwrap_or(now));
        let Some(standing) = seen.standing() else { continue };
        if filter.status.is_empty() || filter.status.contains(&standing.status()) {
            page.next = Some(Cursor::at(&seen.record));
            let size: Option<i32> = row.try_get(2).map_err(fault)?;
            page.listed.push(ListedRecord { seen, body_size: size.map(|size| u64::from(size.unsigned_abs())) });
            if page.listed.len() == limit {
                return Ok(None);
            }
        }
    }
    Ok(last)
}

pub(super) fn count_statements() -> (&'static str, &'static str) {
    (COUNT_SETTLED, &COUNT_TIMED)
}

/// Adds up the counts.
pub(super) fn counts(settled: &[Row], timed: &[Row]) -> Result<Counts, Error> {
    let fault = |error: tokio_postgres::Error| Error::Other(error.to_string());
    let mut counts = Counts::default();
    let mut add = |status: Status, number: i64| *counts.0.entry(status).or_default() += number.unsigned_abs();
    for row in settled {
        let state: &str = row.try_get(0).map_err(fault)?;
        let status = match state {
            "queued" => Status::Queued,
            "in_doubt" => Status::InDoubt,
            _ => Status::Dead,
        };
        add(status, row.try_get(1).map_err(fault)?);
    }
    for row in timed {
        let state: &str = row.try_get(0).map_err(fault)?;
        let alive: Option<bool> = row.try_get(1).map_err(fault)?;
        let [doubted, expired, forgotten]: [bool; 3] =
            [row.try_get(2).map_err(fault)?, row.try_get(3).map_err(fault)?, row.try_get(4).map_err(fault)?];
        let alive = alive.unwrap_or(false);
        let status = match state {
            "open" | "claimed" if expired => continue,
            "open" => Status::Open,
            "overdue" => Status::InDoubt,
            "claimed" | "sent" if alive => Status::Running,
            "claimed" if !doubted => Status::Open,
            "claimed" | "sent" => Status::InDoubt,
            "done" if !expired => Status::Done,
            "done" if forgotten => continue,
            "done" => Status::Tombstone,
            _ if expired => continue,
            _ => Status::Tombstone,
        };
        add(status, row.try_get(5).map_err(fault)?);
    }
    Ok(counts)
}

/// An entry of the audit trail; `None` for a kind that a newer version wrote.
pub(super) fn entry(row: &Row) -> Result<Option<AuditEntry>, Error> {
    let fault = |error: tokio_postgres::Error| Error::Other(error.to_string());
    let at: Micros = row.try_get(0).map_err(fault)?;
    let what: &str = row.try_get(1).map_err(fault)?;
    let Some(what) = EventKind::from_name(what) else { return Ok(None) };
    let text = |index: usize| row.try_get::<_, Option<String>>(index).map_err(fault);
    Ok(Some(AuditEntry { at: at.0, event: AuditEvent { what, by: text(2)?, token: text(3)?, note: text(4)? } }))
}
