//! Records as rows, and the queries over them.

use std::time::Duration;

use bytes::Bytes;
use rusqlite::types::{ToSql, Type};
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};
use serde::de::DeserializeOwned;

use onceward_core::fingerprint::Fingerprint;
use onceward_core::hash::Digest;
use onceward_core::name::{Identity, Key, Operation, Tenant};
use onceward_core::outcome::{Body, Outcome, Verdict};
use onceward_core::policy::{Effect, InDoubt, Terms};
use onceward_core::record::{Fence, Lease, Owner, Phase, Record, Seen, State, Status};
use onceward_core::time::Timestamp;

use super::Shared;
use crate::store::{Counts, Cursor, Entry, Event, Filter, LARGEST_PAGE, Page, What};

const COLUMNS: [&str; 34] = [
    "id",
    "tenant",
    "operation",
    "key",
    "key_digest",
    "fingerprint",
    "version",
    "state",
    "fence",
    "owner",
    "until",
    "forget_at",
    "finished_at",
    "effect",
    "in_doubt",
    "retention",
    "tombstone",
    "honours_key_for",
    "max_attempts",
    "attempts",
    "generation",
    "payload",
    "created_at",
    "updated_at",
    "first_sent_at",
    "doubt_since",
    "last_error",
    "verdict",
    "status",
    "content_type",
    "headers",
    "body",
    "body_size",
    "outcome",
];

/// The statements, written once from the list of columns.
struct Statements {
    insert: String,
    replace: String,
    get: String,
    list: String,
}

static STATEMENTS: std::sync::LazyLock<Statements> = std::sync::LazyLock::new(|| {
    let names = COLUMNS.join(", ");
    let marks: Vec<String> = (1..=COLUMNS.len()).map(|number| format!("?{number}")).collect();
    let sets: Vec<String> = COLUMNS.iter().zip(&marks).map(|(name, mark)| format!("{name} = {mark}")).collect();
    let (fence, version) = (COLUMNS.len() + 1, COLUMNS.len() + 2);
    Statements {
        insert: format!("INSERT INTO intent ({names}) VALUES ({}) ON CONFLICT (id) DO NOTHING", marks.join(", ")),
        replace: format!(
            "UPDATE intent SET {} WHERE id = ?1 AND fence IS ?{fence} AND version = ?{version}",
            sets.join(", ")
        ),
        get: format!("SELECT {names} FROM intent WHERE id = ?1"),
        list: format!("SELECT {names}, row FROM intent WHERE row < ?"),
    }
});

/// Writes a new row; false when there is one already.
pub(super) fn insert(connection: &Connection, record: &Record) -> rusqlite::Result<bool> {
    let columns = Columns::of(record)?;
    let written = connection.prepare_cached(&STATEMENTS.insert)?.execute(params_from_iter(columns.values()))?;
    Ok(written == 1)
}

/// Writes the next version of a row; false when fence or version is another by now.
pub(super) fn replace(
    connection: &Connection,
    record: &Record,
    fence: Option<Fence>,
    version: u64,
) -> rusqlite::Result<bool> {
    let columns = Columns::of(record)?;
    let fence = fence.map(Fence::to_bytes);
    let version = signed(version)?;
    let guard: [&dyn ToSql; 2] = [&fence, &version];
    let values = columns.values().into_iter().chain(guard);
    let written = connection.prepare_cached(&STATEMENTS.replace)?.execute(params_from_iter(values))?;
    Ok(written == 1)
}

pub(super) fn remove(connection: &Connection, id: Digest) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM intent WHERE id = ?1")?.execute([id.as_bytes()])?;
    connection.prepare_cached("DELETE FROM audit WHERE id = ?1")?.execute([id.as_bytes()])?;
    Ok(())
}

pub(super) fn get(connection: &Connection, shared: &Shared, id: Digest) -> rusqlite::Result<Option<Seen>> {
    look(connection, shared, id, shared.clock.now())
}

/// Looks at a record, as of `now`.
pub(super) fn look(
    connection: &Connection,
    shared: &Shared,
    id: Digest,
    now: Timestamp,
) -> rusqlite::Result<Option<Seen>> {
    let mut statement = connection.prepare_cached(&STATEMENTS.get)?;
    let record = statement.query_row([id.as_bytes()], read).optional()?;
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

/// The ids of what has expired, the longest first, found by the index of expiry.
pub(super) fn expired(connection: &Connection, now: Timestamp, limit: usize) -> rusqlite::Result<Vec<Digest>> {
    connection
        .prepare_cached(
            "SELECT id FROM intent WHERE state IN ('done', 'tombstone') AND until IS NOT NULL AND until <= ?1
             ORDER BY until LIMIT ?2",
        )?
        .query_map(params![now.as_millis(), i64::try_from(limit).unwrap_or(i64::MAX)], |row| digest(row, 0))?
        .collect()
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
    let mut values: Vec<Box<dyn ToSql>> = vec![Box::new(after.map_or(i64::MAX, |cursor| cursor.0))];
    let mut and = |clause: &str, value: Box<dyn ToSql>| {
        sql.push_str(clause);
        values.push(value);
    };
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
        let seen = seen(shared, read(row)?, now);
        let Some(standing) = seen.standing() else { continue };
        if filter.status.is_empty() || filter.status.contains(&standing.status()) {
            page.seen.push(seen);
            page.next = Some(Cursor(row.get(COLUMNS.len())?));
            if page.seen.len() == limit {
                return Ok(page);
            }
        }
    }
    page.next = None;
    Ok(page)
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
        Status::InDoubt => &["in_doubt", "claimed", "sent"],
        Status::Done => &["done"],
        Status::Tombstone => &["tombstone", "done"],
        Status::Dead => &["dead"],
    }
}

pub(super) fn counts(connection: &Connection, shared: &Shared) -> rusqlite::Result<Counts> {
    let now = shared.clock.now();
    let mut counts = Counts::default();
    let mut add = |status: Status, count: i64| {
        if count > 0 {
            *counts.0.entry(status).or_default() += count.unsigned_abs();
        }
    };
    let number = |sql: &str| connection.prepare_cached(sql)?.query_row([now.as_millis()], |row| row.get::<_, i64>(0));
    for (status, name) in
        [(Status::Queued, "queued"), (Status::Open, "open"), (Status::InDoubt, "in_doubt"), (Status::Dead, "dead")]
    {
        add(
            status,
            number(&format!(
                "SELECT count(*) + 0 * ?1 FROM intent WHERE state = '{name}' AND state NOT IN ('done', 'tombstone')"
            ))?,
        );
    }
    add(Status::Done, number("SELECT count(*) FROM intent WHERE state = 'done' AND (until IS NULL OR until > ?1)")?);
    add(
        Status::Tombstone,
        number(
            "SELECT count(*) FROM intent WHERE state IN ('done', 'tombstone') AND until IS NOT NULL
             AND coalesce(forget_at, until) > ?1 AND (state = 'tombstone' OR until <= ?1)",
        )?,
    );
    // Claims are few, and only a look at each tells whether its owner is alive.
    let sql = format!(
        "SELECT {} FROM intent WHERE state IN ('claimed', 'sent') AND state NOT IN ('done', 'tombstone')",
        COLUMNS.join(", ")
    );
    let mut statement = connection.prepare_cached(&sql)?;
    for record in statement.query_map([], read)? {
        if let Some(standing) = seen(shared, record?, now).standing() {
            add(standing.status(), 1);
        }
    }
    Ok(counts)
}

pub(super) fn append(connection: &Connection, id: Digest, now: Timestamp, event: &Event) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT INTO audit (id, at, what, by, note) VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![id.as_bytes(), now.as_millis(), event.what.as_str(), event.by, event.note])?;
    Ok(())
}

pub(super) fn trail(connection: &Connection, id: Digest) -> rusqlite::Result<Vec<Entry>> {
    connection
        .prepare_cached("SELECT at, what, by, note FROM audit WHERE id = ?1 ORDER BY row LIMIT ?2")?
        .query_map(params![id.as_bytes(), i64::try_from(LARGEST_PAGE).unwrap_or(i64::MAX)], |row| {
            let name: String = row.get(1)?;
            let what = What::from_name(&name).ok_or_else(|| unreadable(1, format!("no such event: {name}")))?;
            let event = Event { what, by: row.get(2)?, note: row.get(3)? };
            Ok(Entry { at: Timestamp::from_millis(row.get(0)?), event })
        })?
        .collect()
}

/// The values of one row, in the order of [`COLUMNS`].
struct Columns<'a> {
    record: &'a Record,
    fingerprint: Digest,
    version: i64,
    state: &'static str,
    fence: Option<[u8; 16]>,
    owner: Option<i64>,
    until: Option<i64>,
    forget_at: Option<i64>,
    finished_at: Option<i64>,
    terms: Option<TermColumns>,
    attempts: Option<u32>,
    generation: Option<u32>,
    times: [Option<i64>; 4],
    names: [Option<&'a str>; 3],
    key_digest: Option<&'a [u8; 32]>,
    payload: Option<&'a [u8]>,
    outcome: OutcomeColumns<'a>,
}

struct TermColumns {
    effect: &'static str,
    in_doubt: &'static str,
    retention: Option<i64>,
    tombstone: i64,
    honours_key_for: i64,
    max_attempts: Option<u32>,
}

#[derive(Default)]
struct OutcomeColumns<'a> {
    verdict: Option<&'static str>,
    status: Option<i32>,
    content_type: Option<&'a str>,
    headers: Option<String>,
    body: Option<&'a [u8]>,
    body_size: Option<i64>,
    digest: Option<Digest>,
}

impl<'a> Columns<'a> {
    fn of(record: &'a Record) -> rusqlite::Result<Self> {
        let (state, until, forget_at, finished_at) = match &record.state {
            State::Queued { due } => ("queued", Some(*due), None, None),
            State::Leased(lease) => match lease.phase {
                Phase::Claimed => ("claimed", Some(lease.until), None, None),
                Phase::Sent => ("sent", Some(lease.until), None, None),
            },
            State::Open { not_before } => ("open", Some(*not_before), None, None),
            State::InDoubt { .. } => ("in_doubt", None, None, None),
            State::Done { finished_at, expires_at, forget_at, .. } => {
                ("done", *expires_at, *forget_at, Some(*finished_at))
            }
            State::Tombstone { forget_at, .. } => ("tombstone", Some(*forget_at), None, None),
            State::Dead => ("dead", None, None, None),
        };
        let owner = match &record.state {
            State::Leased(lease) => lease.owner,
            _ => None,
        };
        // A tombstone keeps digests and one time: under 128 bytes.
        let live = !matches!(record.state, State::Tombstone { .. });
        let identity = record.identity.as_ref();
        let time = |time: Timestamp| live.then_some(time.as_millis());
        Ok(Self {
            record,
            fingerprint: record.fingerprint.digest(),
            version: signed(record.version)?,
            state,
            fence: record.fence().map(Fence::to_bytes),
            owner: owner.map(|owner| signed(owner.0)).transpose()?,
            until: until.map(Timestamp::as_millis),
            forget_at: forget_at.map(Timestamp::as_millis),
            finished_at: finished_at.map(Timestamp::as_millis),
            terms: live.then(|| TermColumns::of(&record.terms)),
            attempts: live.then_some(record.attempts),
            generation: live.then_some(record.generation),
            times: [
                time(record.created_at),
                time(record.updated_at),
                record.first_sent_at.and_then(time),
                record.doubt_since.and_then(time),
            ],
            names: [
                identity.map(|identity| identity.tenant.as_str()),
                identity.map(|identity| identity.operation.as_str()),
                identity.map(|identity| identity.key.as_str()),
            ],
            key_digest: record.key_digest.as_ref().filter(|_| live).map(Digest::as_bytes),
            payload: record.payload.as_deref(),
            outcome: OutcomeColumns::of(&record.state)?,
        })
    }

    fn values(&self) -> [&dyn ToSql; COLUMNS.len()] {
        const NULL: &Option<i64> = &None;
        let record = self.record;
        let [tenant, operation, key] = &self.names;
        let [created_at, updated_at, first_sent_at, doubt_since] = &self.times;
        let terms: [&dyn ToSql; 6] = match &self.terms {
            None => [NULL; 6],
            Some(terms) => [
                &terms.effect,
                &terms.in_doubt,
                &terms.retention,
                &terms.tombstone,
                &terms.honours_key_for,
                &terms.max_attempts,
            ],
        };
        let [effect, in_doubt, retention, tombstone, honours_key_for, max_attempts] = terms;
        let outcome = &self.outcome;
        let digest: &dyn ToSql = match &outcome.digest {
            Some(digest) => digest.as_bytes(),
            None => NULL,
        };
        [
            record.id.as_bytes(),
            tenant,
            operation,
            key,
            &self.key_digest,
            self.fingerprint.as_bytes(),
            &self.version,
            &self.state,
            &self.fence,
            &self.owner,
            &self.until,
            &self.forget_at,
            &self.finished_at,
            effect,
            in_doubt,
            retention,
            tombstone,
            honours_key_for,
            max_attempts,
            &self.attempts,
            &self.generation,
            &self.payload,
            created_at,
            updated_at,
            first_sent_at,
            doubt_since,
            &record.last_error,
            &outcome.verdict,
            &outcome.status,
            &outcome.content_type,
            &outcome.headers,
            &outcome.body,
            &outcome.body_size,
            digest,
        ]
    }
}

impl TermColumns {
    fn of(terms: &Terms) -> Self {
        Self {
            effect: match terms.effect {
                Effect::External => "external",
                Effect::Transactional => "transactional",
            },
            in_doubt: match terms.in_doubt {
                InDoubt::Hold => "hold",
                InDoubt::Retry => "retry",
                InDoubt::Probe => "probe",
            },
            retention: terms.retention.map(millis),
            tombstone: millis(terms.tombstone),
            honours_key_for: millis(terms.honours_key_for),
            max_attempts: terms.max_attempts,
        }
    }
}

impl<'a> OutcomeColumns<'a> {
    fn of(state: &'a State) -> rusqlite::Result<Self> {
        let outcome = match state {
            State::Done { outcome, .. } => outcome,
            State::Tombstone { outcome, .. } => return Ok(Self { digest: Some(*outcome), ..Self::default() }),
            _ => return Ok(Self::default()),
        };
        let headers = match outcome.headers.is_empty() {
            true => None,
            false => Some(serde_json::to_string(&outcome.headers).map_err(|error| unwritable(error.into()))?),
        };
        let (body, body_size, digest) = match &outcome.body {
            Body::Kept(bytes) => (Some(bytes.as_ref()), None, None),
            Body::TooLarge { size, digest } => (None, Some(signed(*size)?), Some(*digest)),
        };
        Ok(Self {
            verdict: Some(match outcome.verdict {
                Verdict::Success => "success",
                Verdict::Failure => "failure",
            }),
            status: Some(outcome.status),
            content_type: Some(&outcome.content_type),
            headers,
            body,
            body_size,
            digest,
        })
    }
}

/// Reads a row whose columns are those of [`COLUMNS`].
fn read(row: &Row<'_>) -> rusqlite::Result<Record> {
    let state: String = row.get(7)?;
    let time = |index: usize| Ok::<_, rusqlite::Error>(Timestamp::from_millis(row.get(index)?));
    let maybe = |index: usize| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(index)?.map(Timestamp::from_millis));
    let fingerprint = Fingerprint::from_digest(digest(row, 5)?);
    let version = row.get::<_, i64>(6)?.unsigned_abs();
    let is_tombstone = state == "tombstone";
    let state = match state.as_str() {
        "queued" => State::Queued { due: time(10)? },
        "claimed" => State::Leased(lease(row, Phase::Claimed)?),
        "sent" => State::Leased(lease(row, Phase::Sent)?),
        "open" => State::Open { not_before: time(10)? },
        "in_doubt" => State::InDoubt { fence: fence(row)? },
        "done" => State::Done {
            outcome: outcome(row)?,
            fence: fence(row)?,
            finished_at: time(12)?,
            expires_at: maybe(10)?,
            forget_at: maybe(11)?,
        },
        "tombstone" => State::Tombstone { outcome: digest(row, 33)?, forget_at: time(10)? },
        "dead" => State::Dead,
        other => return Err(unreadable(7, format!("no such state: {other}"))),
    };
    let payload: Option<Vec<u8>> = row.get(21)?;
    Ok(Record {
        id: digest(row, 0)?,
        identity: identity(row)?,
        key_digest: row.get::<_, Option<[u8; 32]>>(4)?.map(Digest::from_bytes),
        fingerprint,
        version,
        state,
        terms: if is_tombstone { gone() } else { terms(row)? },
        attempts: row.get::<_, Option<u32>>(19)?.unwrap_or_default(),
        generation: row.get::<_, Option<u32>>(20)?.unwrap_or_default(),
        payload: payload.map(Bytes::from),
        created_at: maybe(22)?.unwrap_or(Timestamp::from_millis(0)),
        updated_at: maybe(23)?.unwrap_or(Timestamp::from_millis(0)),
        first_sent_at: maybe(24)?,
        doubt_since: maybe(25)?,
        last_error: row.get(26)?,
    })
}

fn identity(row: &Row<'_>) -> rusqlite::Result<Option<Identity>> {
    let Some(tenant) = row.get::<_, Option<String>>(1)? else { return Ok(None) };
    let (operation, key): (String, String) = (row.get(2)?, row.get(3)?);
    Ok(Some(Identity {
        tenant: Tenant::new(tenant.as_str()).map_err(|error| unreadable(1, error.to_string()))?,
        operation: Operation::new(operation.as_str()).map_err(|error| unreadable(2, error.to_string()))?,
        key: Key::new(key.as_str()).map_err(|error| unreadable(3, error.to_string()))?,
    }))
}

fn terms(row: &Row<'_>) -> rusqlite::Result<Terms> {
    let duration = |millis: i64| Duration::from_millis(millis.max(0).unsigned_abs());
    Ok(Terms {
        effect: named(row, 13)?,
        in_doubt: named(row, 14)?,
        retention: row.get::<_, Option<i64>>(15)?.map(duration),
        tombstone: duration(row.get(16)?),
        honours_key_for: duration(row.get(17)?),
        max_attempts: row.get(18)?,
    })
}

/// Nothing governs a tombstone any more: its one time says when it goes.
fn gone() -> Terms {
    Terms {
        effect: Effect::External,
        in_doubt: InDoubt::Hold,
        retention: None,
        tombstone: Duration::ZERO,
        honours_key_for: Duration::ZERO,
        max_attempts: None,
    }
}

fn outcome(row: &Row<'_>) -> rusqlite::Result<Outcome> {
    let headers: Option<String> = row.get(30)?;
    let body = match row.get::<_, Option<i64>>(32)? {
        Some(size) => Body::TooLarge { size: size.max(0).unsigned_abs(), digest: digest(row, 33)? },
        None => Body::Kept(Bytes::from(row.get::<_, Vec<u8>>(31)?)),
    };
    Ok(Outcome {
        verdict: named(row, 27)?,
        status: row.get(28)?,
        content_type: row.get(29)?,
        headers: match headers {
            None => Vec::new(),
            Some(text) => serde_json::from_str(&text).map_err(|error| unreadable(30, error.to_string()))?,
        },
        body,
    })
}

fn lease(row: &Row<'_>, phase: Phase) -> rusqlite::Result<Lease> {
    let owner: Option<i64> = row.get(9)?;
    Ok(Lease {
        phase,
        fence: fence(row)?,
        until: Timestamp::from_millis(row.get(10)?),
        owner: owner.map(|owner| Owner(owner.unsigned_abs())),
    })
}

fn fence(row: &Row<'_>) -> rusqlite::Result<Fence> {
    Ok(Fence::from_bytes(row.get(8)?))
}

fn digest(row: &Row<'_>, index: usize) -> rusqlite::Result<Digest> {
    Ok(Digest::from_bytes(row.get(index)?))
}

/// A value of an enum that is kept by its name.
fn named<T: DeserializeOwned>(row: &Row<'_>, index: usize) -> rusqlite::Result<T> {
    let name: String = row.get(index)?;
    let value = serde_json::Value::String(name);
    serde_json::from_value(value).map_err(|error| unreadable(index, error.to_string()))
}

fn unreadable(index: usize, reason: String) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(index, Type::Text, reason.into())
}

fn unwritable(error: Box<dyn std::error::Error + Send + Sync>) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(error)
}

fn signed(number: u64) -> rusqlite::Result<i64> {
    i64::try_from(number).map_err(|error| unwritable(error.into()))
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
