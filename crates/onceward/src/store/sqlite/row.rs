//! Converts records to rows and back.

use std::time::Duration;

use bytes::Bytes;
use rusqlite::Row;
use rusqlite::types::{ToSql, Type, ValueRef};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{self, StrDeserializer};

use onceward_core::claim::{Claims, Mark};
use onceward_core::fingerprint::Fingerprint;
use onceward_core::hash::Digest;
use onceward_core::name::{Identity, Key, Operation, Tenant};
use onceward_core::outbox::Entry;
use onceward_core::outcome::{Body, Outcome};
use onceward_core::policy::Terms;
use onceward_core::record::{Fence, Lease, Owner, Phase, Record, State};
use onceward_core::time::Timestamp;

use crate::plant::{Plant, planted};
use crate::store::names;

/// The columns, in the order that [`read`] and [`Columns`] use.
pub(super) const COLUMNS: [&str; 43] = [
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
    "sequence",
    "claims",
    "made_by",
    "after_delivery",
    "delivered_at",
    "entry",
    "priority",
    "reference",
    "id_rest",
];

/// The values of one row, in the order of [`COLUMNS`].
pub(super) struct Columns<'a> {
    record: &'a Record,
    id: [&'a [u8]; 2],
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
    times: [Option<i64>; 5],
    names: [Option<&'a str>; 3],
    key_digest: Option<&'a [u8; 32]>,
    payload: Option<&'a [u8]>,
    entry: Option<String>,
    priority: Option<i16>,
    outcome: OutcomeColumns<'a>,
    sequence: Option<i64>,
    claims: Option<Vec<u8>>,
    made_by: Option<[u8; 16]>,
}

struct TermColumns {
    effect: &'static str,
    in_doubt: &'static str,
    retention: Option<i64>,
    tombstone: i64,
    honours_key_for: i64,
    max_attempts: Option<u32>,
    after_delivery: Option<i64>,
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
    reference: Option<&'a str>,
}

impl<'a> Columns<'a> {
    pub(super) fn of(record: &'a Record) -> rusqlite::Result<Self> {
        let (until, forget_at, finished_at) = match &record.state {
            State::Queued { due } => (Some(*due), None, None),
            State::Leased(lease) => (Some(lease.until), record.untried_until(), None),
            State::Open { not_before } => (Some(*not_before), record.untried_until(), None),
            State::InDoubt { .. } if planted(Plant::RetryTimeNotKept) => (None, None, None),
            State::InDoubt { retry_at, .. } => (*retry_at, None, None),
            State::Dead => (None, None, None),
            State::Done { finished_at, expires_at, forget_at, .. } => (*expires_at, *forget_at, Some(*finished_at)),
            State::Tombstone { forget_at, .. } => (Some(*forget_at), None, None),
        };
        let state = match names::of_state(&record.state) {
            "sent" if planted(Plant::PhaseNotStored) => "claimed",
            name => name,
        };
        let owner = match &record.state {
            State::Leased(lease) => lease.owner,
            _ => None,
        };
        // A tombstone keeps digests, one time, and what the next call needs to know about this one: under 128 bytes.
        let live = !matches!(record.state, State::Tombstone { .. });
        let entry = record.entry.as_ref().filter(|_| live);
        let identity = record.identity.as_ref();
        let time = |time: Timestamp| live.then_some(time.as_millis());
        Ok(Self {
            record,
            id: halves(&record.id),
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
            generation: (live || record.generation > 0).then_some(record.generation),
            times: [
                time(record.created_at),
                time(record.updated_at),
                record.first_sent_at.and_then(time),
                record.doubt_since.and_then(time),
                record.delivered_at.map(Timestamp::as_millis),
            ],
            names: [
                identity.map(|identity| identity.tenant.as_str()),
                identity.map(|identity| identity.operation.as_str()),
                identity.map(|identity| identity.key.as_str()),
            ],
            key_digest: record.key_digest.as_ref().filter(|_| live).map(Digest::as_bytes),
            payload: record.payload.as_deref(),
            entry: entry.map(serde_json::to_string).transpose().map_err(|error| unwritable(error.into()))?,
            priority: entry.map(|entry| entry.priority.rank()).filter(|_| !planted(Plant::EntryNotListed)),
            outcome: OutcomeColumns::of(&record.state)?,
            sequence: record.sequence.map(signed).transpose()?,
            claims: (!record.claims.is_empty()).then(|| record.claims.to_bytes()),
            made_by: record.made_by.map(Mark::to_bytes),
        })
    }

    pub(super) fn values(&self) -> [&dyn ToSql; COLUMNS.len()] {
        const NULL: &Option<i64> = &None;
        let record = self.record;
        let [tenant, operation, key] = &self.names;
        let [created_at, updated_at, first_sent_at, doubt_since, delivered_at] = &self.times;
        let terms: [&dyn ToSql; 7] = match &self.terms {
            None => [NULL; 7],
            Some(terms) => [
                &terms.effect,
                &terms.in_doubt,
                &terms.retention,
                &terms.tombstone,
                &terms.honours_key_for,
                &terms.max_attempts,
                &terms.after_delivery,
            ],
        };
        let [effect, in_doubt, retention, tombstone, honours_key_for, max_attempts, after_delivery] = terms;
        let outcome = &self.outcome;
        let digest: &dyn ToSql = match &outcome.digest {
            Some(digest) => digest.as_bytes(),
            None => NULL,
        };
        [
            &self.id[0],
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
            &self.sequence,
            &self.claims,
            &self.made_by,
            after_delivery,
            delivered_at,
            &self.entry,
            &self.priority,
            &outcome.reference,
            &self.id[1],
        ]
    }
}

impl TermColumns {
    fn of(terms: &Terms) -> Self {
        Self {
            effect: names::of_effect(terms.effect),
            in_doubt: names::of_in_doubt(terms.in_doubt),
            retention: terms.retention.map(millis),
            tombstone: millis(terms.tombstone),
            honours_key_for: millis(terms.honours_key_for),
            max_attempts: terms.max_attempts,
            after_delivery: terms.after_delivery.map(millis),
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
            verdict: Some(names::of_verdict(outcome.verdict)),
            status: Some(outcome.status),
            content_type: Some(&outcome.content_type),
            headers,
            body,
            body_size,
            digest,
            reference: outcome.reference.as_deref(),
        })
    }
}

/// Reads a row whose columns are those of [`COLUMNS`].
pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Record> {
    let name = text(row, 7)?;
    let time = |index: usize| Ok::<_, rusqlite::Error>(Timestamp::from_millis(row.get(index)?));
    let optional_time =
        |index: usize| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(index)?.map(Timestamp::from_millis));
    let fingerprint = Fingerprint::from_digest(digest(row, 5)?);
    let version = unsigned(row, 6)?.ok_or_else(|| unreadable(6, "no version".to_owned()))?;
    let state = match name {
        "queued" => State::Queued { due: time(10)? },
        "claimed" => State::Leased(lease(row, Phase::Claimed)?),
        "sent" => State::Leased(lease(row, Phase::Sent)?),
        "overdue" => State::Leased(lease(row, Phase::Overdue)?),
        "open" => State::Open { not_before: time(10)? },
        "in_doubt" => State::InDoubt { fence: fence(row)?, retry_at: optional_time(10)? },
        "done" => State::Done {
            outcome: outcome(row)?,
            fence: fence(row)?,
            finished_at: time(12)?,
            expires_at: optional_time(10)?,
            forget_at: optional_time(11)?,
        },
        "tombstone" => State::Tombstone { outcome: digest(row, 33)?, forget_at: time(10)? },
        "dead" => State::Dead,
        other => return Err(unreadable(7, format!("unknown state: {other}"))),
    };
    let has_fence = !matches!(state, State::Queued { .. } | State::Open { .. } | State::Tombstone { .. } | State::Dead);
    if !has_fence && row.get_ref(8)? != ValueRef::Null {
        // No conditional write could ever match this record.
        return Err(unreadable(8, "a fence without a claim".to_owned()));
    }
    let payload: Option<Vec<u8>> = row.get(21)?;
    Ok(Record {
        id: record_id(row)?,
        identity: identity(row)?,
        key_digest: row.get::<_, Option<[u8; 32]>>(4)?.map(Digest::from_bytes),
        fingerprint,
        version,
        state,
        terms: if name == "tombstone" { Terms::of_tombstone() } else { terms(row)? },
        attempts: row.get::<_, Option<u32>>(19)?.unwrap_or_default(),
        generation: row.get::<_, Option<u32>>(20)?.unwrap_or_default(),
        payload: payload.map(Bytes::from),
        entry: entry(row)?,
        created_at: optional_time(22)?.unwrap_or(Timestamp::from_millis(0)),
        updated_at: optional_time(23)?.unwrap_or(Timestamp::from_millis(0)),
        first_sent_at: optional_time(24)?,
        doubt_since: optional_time(25)?,
        delivered_at: optional_time(38)?,
        last_error: row.get(26)?,
        sequence: unsigned(row, 34)?,
        claims: claims(row)?,
        made_by: row.get::<_, Option<[u8; 16]>>(36)?.map(Mark::from_bytes),
    })
}

fn identity(row: &Row<'_>) -> rusqlite::Result<Option<Identity>> {
    if row.get_ref(1)? == ValueRef::Null {
        return Ok(None);
    }
    Ok(Some(Identity {
        tenant: Tenant::new(text(row, 1)?).map_err(|error| unreadable(1, error.to_string()))?,
        operation: Operation::new(text(row, 2)?).map_err(|error| unreadable(2, error.to_string()))?,
        key: Key::new(text(row, 3)?).map_err(|error| unreadable(3, error.to_string()))?,
    }))
}

fn entry(row: &Row<'_>) -> rusqlite::Result<Option<Box<Entry>>> {
    match row.get_ref(39)? {
        ValueRef::Null => Ok(None),
        _ => serde_json::from_str(text(row, 39)?).map(Some).map_err(|error| unreadable(39, error.to_string())),
    }
}

fn claims(row: &Row<'_>) -> rusqlite::Result<Claims> {
    match row.get_ref(35)? {
        ValueRef::Null => Ok(Claims::default()),
        value => {
            let bytes = value.as_blob().map_err(|error| unreadable(35, error.to_string()))?;
            Claims::from_bytes(bytes).ok_or_else(|| unreadable(35, "not a list of claim ids".to_owned()))
        }
    }
}

fn terms(row: &Row<'_>) -> rusqlite::Result<Terms> {
    let duration = |index: usize| Ok::<_, rusqlite::Error>(unsigned(row, index)?.map(Duration::from_millis));
    let required = |index: usize| duration(index)?.ok_or_else(|| unreadable(index, "no duration".to_owned()));
    Ok(Terms {
        effect: enum_value(row, 13)?,
        in_doubt: enum_value(row, 14)?,
        retention: duration(15)?,
        tombstone: required(16)?,
        honours_key_for: required(17)?,
        max_attempts: row.get(18)?,
        after_delivery: duration(37)?,
    })
}

fn outcome(row: &Row<'_>) -> rusqlite::Result<Outcome> {
    let headers: Option<String> = row.get(30)?;
    let body = match unsigned(row, 32)? {
        Some(size) => Body::TooLarge { size, digest: digest(row, 33)? },
        None => Body::Kept(Bytes::from(row.get::<_, Vec<u8>>(31)?)),
    };
    Ok(Outcome {
        verdict: enum_value(row, 27)?,
        status: row.get(28)?,
        content_type: row.get(29)?,
        headers: match headers {
            None => Vec::new(),
            Some(text) => serde_json::from_str(&text).map_err(|error| unreadable(30, error.to_string()))?,
        },
        body,
        reference: row.get(41)?,
    })
}

fn lease(row: &Row<'_>, phase: Phase) -> rusqlite::Result<Lease> {
    Ok(Lease {
        phase,
        fence: fence(row)?,
        until: Timestamp::from_millis(row.get(10)?),
        owner: unsigned(row, 9)?.map(Owner),
    })
}

fn fence(row: &Row<'_>) -> rusqlite::Result<Fence> {
    Ok(Fence::from_bytes(row.get(8)?))
}

/// An id from the columns of its two halves.
pub(super) fn id(row: &Row<'_>, first: usize, rest: usize) -> rusqlite::Result<Digest> {
    let (first, rest): ([u8; 16], [u8; 16]) = (row.get(first)?, row.get(rest)?);
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&first);
    bytes[16..].copy_from_slice(&rest);
    Ok(Digest::from_bytes(bytes))
}

/// The id of a record, where the columns are those of [`COLUMNS`].
pub(super) fn record_id(row: &Row<'_>) -> rusqlite::Result<Digest> {
    id(row, 0, COLUMNS.len() - 1)
}

/// The halves of an id: the first is indexed, the second is compared. An index of halves is half as large. Should two ids ever
/// have the same first half, the second record is refused with an error.
pub(super) fn halves(id: &Digest) -> [&[u8]; 2] {
    let (first, rest) = id.as_bytes().split_at(16);
    [first, rest]
}

fn digest(row: &Row<'_>, index: usize) -> rusqlite::Result<Digest> {
    Ok(Digest::from_bytes(row.get(index)?))
}

/// A number that is never negative: no conditional write could match a record whose number was changed on reading.
fn unsigned(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<u64>> {
    let number: Option<i64> = row.get(index)?;
    let unsigned = |number: i64| u64::try_from(number).map_err(|_| unreadable(index, format!("{number} is negative")));
    number.map(unsigned).transpose()
}

/// An enum value that is stored by its name.
fn enum_value<'a, T: Deserialize<'a>>(row: &'a Row<'_>, index: usize) -> rusqlite::Result<T> {
    let name: StrDeserializer<'a, value::Error> = text(row, index)?.into_deserializer();
    T::deserialize(name).map_err(|error| unreadable(index, error.to_string()))
}

/// A text column, without a copy.
fn text<'a>(row: &'a Row<'_>, index: usize) -> rusqlite::Result<&'a str> {
    row.get_ref(index)?.as_str().map_err(|error| unreadable(index, error.to_string()))
}

pub(super) fn unreadable(index: usize, reason: String) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(index, Type::Text, reason.into())
}

fn unwritable(error: Box<dyn std::error::Error + Send + Sync>) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(error)
}

pub(super) fn signed(number: u64) -> rusqlite::Result<i64> {
    i64::try_from(number).map_err(|error| unwritable(error.into()))
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
