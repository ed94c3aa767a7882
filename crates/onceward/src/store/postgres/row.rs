//! Converts records to rows and back. The order of the columns is that of `schema_v1.sql`.

use std::time::Duration;

use bytes::Bytes;
use serde::de::IntoDeserializer;
use serde::de::value::{self, StrDeserializer};
use serde::{Deserialize, Serialize};

use onceward_core::claim::{Claims, Mark};
use onceward_core::fingerprint::Fingerprint;
use onceward_core::hash::Digest;
use onceward_core::name::{Identity, Key, Operation, Tenant};
use onceward_core::outbox::{Entry, Priority};
use onceward_core::outcome::{Body, Outcome};
use onceward_core::policy::{Effect, InDoubt, Terms};
use onceward_core::record::{Draft, Fence, Lease, Owner, Phase, Record, State};
use onceward_core::time::{Timestamp, When};

use super::composite::{FieldReader, Fields, Unreadable};
use crate::plant::{Plant, planted};
use crate::store::{AuditEvent, Error, names, without_nul};

/// The columns of `onceward.intent`, for lists, which leave some out.
pub(super) const COLUMNS: [&str; 45] = [
    "id",
    "row",
    "version",
    "write_id",
    "fence",
    "until",
    "purge_at",
    "forget_at",
    "finished_at",
    "created_at",
    "updated_at",
    "first_sent_at",
    "doubt_since",
    "delivered_at",
    "retention_ms",
    "tombstone_ms",
    "honours_key_for_ms",
    "after_delivery_ms",
    "max_attempts",
    "attempts",
    "generation",
    "sequence",
    "owner",
    "body_size",
    "status",
    "priority",
    "state",
    "effect",
    "in_doubt",
    "verdict",
    "tenant",
    "operation",
    "key",
    "content_type",
    "last_error",
    "reference",
    "headers",
    "entry",
    "fingerprint",
    "key_digest",
    "outcome",
    "claims",
    "made_by",
    "payload",
    "body",
];

/// Longer durations count as for ever: the sum with a time would be out of range.
pub(super) const LONGEST: Duration = Duration::from_secs(100_000 * 365 * 86_400);

/// The time that durations over [`LONGEST`] lead to.
const END_OF_TIME: Timestamp = Timestamp::from_millis(i64::MAX);

/// What a row must still contain to be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ExpectedRow {
    pub(super) fence: Option<Fence>,
    pub(super) version: Option<u64>,
    pub(super) time: Option<Timestamp>,
}

impl ExpectedRow {
    /// The row as it was read.
    pub(super) fn of(record: &Record) -> Self {
        Self { fence: record.fence(), version: Some(record.version), time: record.time().copied() }
    }
}

/// A job for the SQL functions, in the binary format of `onceward.job_v1`.
#[derive(Debug)]
pub(super) struct Job<'a> {
    pub(super) expected: ExpectedRow,
    pub(super) write_id: [u8; 16],
    pub(super) max_records: Option<u64>,
    pub(super) event: Option<&'a AuditEvent>,
    pub(super) draft: &'a Draft,
}

/// Whether an encoded job has a quota.
pub(super) fn has_quota(job: &[u8]) -> bool {
    FieldReader::new(job).and_then(|mut fields| fields.int8()).is_ok_and(|most| most.is_some())
}

/// The number under which a key is locked: the first half of the first half of its digest.
pub(super) fn lock_key(id: &Digest) -> i64 {
    if planted(Plant::LockProbeSkipped) {
        // No program locks this one.
        return 0;
    }
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&id.as_bytes()[..8]);
    i64::from_be_bytes(bytes)
}

impl Job<'_> {
    pub(super) fn encode(&self) -> Result<Vec<u8>, Error> {
        let mut fields = Fields::new();
        let draft = self.draft;
        // The first field: `has_quota` looks at it. No table can have more rows than `i64::MAX`.
        fields.int8(self.max_records.map(|most| i64::try_from(most).unwrap_or(i64::MAX)));
        fields.int8(Some(lock_key(&draft.id)));
        fields.int8(self.expected.version.map(signed).transpose()?);
        fields.uuid(self.expected.fence.map(Fence::to_bytes));
        fields.time(self.expected.time);
        fields.text(self.event.map(|event| event.what.as_str()));
        for text in [
            self.event.and_then(|event| event.by.as_deref()),
            self.event.and_then(|event| event.token.as_deref()),
            self.event.and_then(|event| event.note.as_deref()),
        ] {
            fields.text(text.map(without_nul).as_deref());
        }
        let times = Times::of(draft);
        fields.time(absolute(Some(draft.created_at)).filter(|_| matches!(draft.state, State::Done { .. })));
        fields.interval(draft.untried_for().map(|held| held.min(LONGEST)));
        for when in times.0 {
            fields.interval(relative(when));
        }
        self.row(&mut fields, &times)?;
        Ok(fields.finish())
    }

    fn row(&self, fields: &mut Fields, times: &Times) -> Result<(), Error> {
        let draft = self.draft;
        // A tombstone keeps digests, one time, and what the next call needs to know about this one.
        let live = !matches!(draft.state, State::Tombstone { .. });
        fields.bytes(Some(draft.id.as_bytes()));
        fields.int8(Some(signed(draft.version)?));
        fields.uuid(Some(self.write_id));
        fields.uuid(draft.fence().map(Fence::to_bytes));
        for when in times.0 {
            fields.time(absolute(when));
        }
        let terms = live.then_some(draft.terms);
        fields.int8(terms.and_then(|terms| terms.retention).map(millis));
        fields.int8(terms.map(|terms| millis(terms.tombstone)));
        fields.int8(terms.map(|terms| millis(terms.honours_key_for)));
        fields.int8(terms.and_then(|terms| terms.after_delivery).map(millis));
        fields.int8(terms.and_then(|terms| terms.max_attempts).map(i64::from));
        fields.int8(live.then_some(i64::from(draft.attempts)));
        fields.int8((live || draft.generation > 0).then_some(i64::from(draft.generation)));
        fields.int8(draft.sequence.map(signed).transpose()?);
        let owner = match &draft.state {
            State::Leased(lease) => lease.owner,
            _ => None,
        };
        fields.int8(owner.map(|owner| signed(owner.0)).transpose()?);
        self.outcome_numbers(fields)?;
        fields.int2(self.priority());
        let state = match names::of_state(&draft.state) {
            "sent" if planted(Plant::PhaseNotStored) => "claimed",
            name => name,
        };
        fields.text(Some(state));
        fields.text(terms.map(|terms| names::of_effect(terms.effect)));
        fields.text(terms.map(|terms| names::of_in_doubt(terms.in_doubt)));
        self.texts_and_bytes(fields, live)
    }

    /// What the courier has to deliver has a place among the other entries, also if nothing says how to deliver it.
    fn priority(&self) -> Option<i16> {
        if planted(Plant::EntryNotListed) {
            // No courier asks for this one.
            return self.draft.payload.as_ref().map(|_| i16::MAX);
        }
        let entry = self.draft.entry.as_ref().filter(|_| !matches!(self.draft.state, State::Tombstone { .. }));
        let given = entry.map(|entry| entry.priority);
        given.or(self.draft.payload.as_ref().map(|_| Priority::default())).map(Priority::rank)
    }

    fn outcome_numbers(&self, fields: &mut Fields) -> Result<(), Error> {
        let outcome = kept_outcome(self.draft);
        let size = match outcome.map(|outcome| &outcome.body) {
            Some(Body::TooLarge { size, .. }) => Some(signed(*size)?),
            _ => None,
        };
        fields.int8(size);
        fields.int4(outcome.map(|outcome| outcome.status));
        Ok(())
    }

    fn texts_and_bytes(&self, fields: &mut Fields, live: bool) -> Result<(), Error> {
        let draft = self.draft;
        let outcome = kept_outcome(draft);
        let identity = draft.identity.as_ref();
        fields.text(outcome.map(|outcome| names::of_verdict(outcome.verdict)));
        fields.text(identity.map(|identity| identity.tenant.as_str()));
        fields.text(identity.map(|identity| identity.operation.as_str()));
        fields.text(identity.map(|identity| identity.key.as_str()));
        fields.text(outcome.map(|outcome| without_nul(&outcome.content_type)).as_deref());
        fields.text(draft.last_error.as_deref().map(without_nul).as_deref());
        fields.text(outcome.and_then(|outcome| outcome.reference.as_deref()).map(without_nul).as_deref());
        let headers = outcome.map(|outcome| &outcome.headers).filter(|headers| !headers.is_empty());
        fields.json(headers.map(to_json).transpose()?.as_deref());
        fields.json(draft.entry.as_ref().filter(|_| live).map(to_json).transpose()?.as_deref());
        fields.bytes(Some(draft.fingerprint.digest().as_bytes()));
        fields.bytes(draft.key_digest.as_ref().filter(|_| live).map(|digest| digest.as_bytes().as_slice()));
        let digest = match (&draft.state, outcome.map(|outcome| &outcome.body)) {
            (State::Tombstone { outcome, .. }, _) => Some(*outcome),
            (_, Some(Body::TooLarge { digest, .. })) => Some(*digest),
            _ => None,
        };
        fields.bytes(digest.as_ref().map(|digest| digest.as_bytes().as_slice()));
        let claims = (!draft.claims.is_empty()).then(|| draft.claims.to_bytes());
        fields.bytes(claims.as_deref());
        fields.bytes(draft.made_by.map(Mark::to_bytes).as_ref().map(<[u8; 16]>::as_slice));
        fields.bytes(draft.payload.as_deref());
        fields.bytes(match outcome.map(|outcome| &outcome.body) {
            Some(Body::Kept(bytes)) => Some(bytes),
            _ => None,
        });
        Ok(())
    }
}

fn to_json(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|error| Error::Other(error.to_string()))
}

fn kept_outcome(draft: &Draft) -> Option<&Outcome> {
    match &draft.state {
        State::Done { outcome, .. } => Some(outcome),
        _ => None,
    }
}

/// The times of a draft in the order of their columns: until, purge_at, forget_at, finished_at, created_at, updated_at,
/// first_sent_at, doubt_since, delivered_at.
struct Times([Option<When>; 9]);

impl Times {
    fn of(draft: &Draft) -> Self {
        let (until, purge_at, forget_at, finished_at) = match &draft.state {
            State::Queued { due } => (Some(*due), None, None, None),
            State::Leased(lease) => (Some(lease.until), None, None, None),
            State::Open { not_before } => (Some(*not_before), None, None, None),
            State::InDoubt { .. } if planted(Plant::RetryTimeNotKept) => (None, None, None, None),
            State::InDoubt { retry_at, .. } => (*retry_at, None, None, None),
            State::Dead => (None, None, None, None),
            State::Done { finished_at, expires_at, forget_at, .. } => {
                (None, *expires_at, *forget_at, Some(*finished_at))
            }
            State::Tombstone { forget_at, .. } => (None, Some(*forget_at), None, None),
        };
        let live = |when: When| (!matches!(draft.state, State::Tombstone { .. })).then_some(when);
        Self([
            until,
            purge_at,
            forget_at,
            finished_at,
            live(draft.created_at),
            live(draft.updated_at),
            draft.first_sent_at.and_then(live),
            draft.doubt_since.and_then(live),
            draft.delivered_at,
        ])
    }
}

fn absolute(when: Option<When>) -> Option<Timestamp> {
    match when? {
        When::At(time) => Some(time),
        When::In(duration) => (duration > LONGEST).then_some(END_OF_TIME),
    }
}

fn relative(when: Option<When>) -> Option<Duration> {
    match when? {
        When::At(_) => None,
        When::In(duration) => (duration <= LONGEST).then_some(duration),
    }
}

/// The id of a row, also of one that cannot be read.
pub(super) fn read_id(bytes: &[u8]) -> Result<Digest, Unreadable> {
    let id = FieldReader::new(bytes)?.array()?;
    id.map(Digest::from_bytes).ok_or_else(|| Unreadable("a row has no id".to_owned()))
}

/// Reads a row whose columns are those of [`COLUMNS`].
pub(super) fn read(bytes: &[u8]) -> Result<Record, Unreadable> {
    let mut row = FieldReader::new(bytes)?;
    let missing = |what: &str| Unreadable(format!("a row has no {what}"));
    let id = Digest::from_bytes(row.array()?.ok_or_else(|| missing("id"))?);
    let _order = row.int8()?;
    let version = row.unsigned()?.ok_or_else(|| missing("version"))?;
    let _write_id = row.bytes()?;
    let fence = row.array()?.map(Fence::from_bytes);
    let times: [Option<Timestamp>; 9] = [
        row.time()?,
        row.time()?,
        row.time()?,
        row.time()?,
        row.time()?,
        row.time()?,
        row.time()?,
        row.time()?,
        row.time()?,
    ];
    let [until, purge_at, forget_at, finished_at, created_at, updated_at, first_sent_at, doubt_since, delivered_at] =
        times;
    let mut durations = [None; 4];
    for duration in &mut durations {
        *duration = row.unsigned()?.map(Duration::from_millis);
    }
    let [retention, tombstone, honours_key_for, after_delivery] = durations;
    let max_attempts = small(row.int8()?)?;
    let attempts = small(row.int8()?)?.unwrap_or_default();
    let generation = small(row.int8()?)?.unwrap_or_default();
    let sequence = row.unsigned()?;
    let owner = row.unsigned()?.map(Owner);
    let body_size = row.unsigned()?;
    let status = row.int4()?;
    let _priority = row.int2()?;
    let state_name = row.text()?.ok_or_else(|| missing("state"))?;
    let effect = row.text()?.map(named::<Effect>).transpose()?;
    let in_doubt = row.text()?.map(named::<InDoubt>).transpose()?;
    let verdict = row.text()?;
    let names = [row.text()?, row.text()?, row.text()?];
    let content_type = row.text()?;
    let last_error = row.text()?.map(str::to_owned);
    let reference = row.text()?.map(str::to_owned);
    let headers = row.text()?;
    let entry = row.text()?.map(serde_json::from_str::<Box<Entry>>).transpose();
    let entry = entry.map_err(|error| Unreadable(error.to_string()))?;
    let fingerprint = Fingerprint::from_digest(Digest::from_bytes(row.array()?.ok_or_else(|| missing("fingerprint"))?));
    let key_digest = row.array()?.map(Digest::from_bytes);
    let digest = row.array()?.map(Digest::from_bytes);
    let claims = match row.bytes()? {
        None => Claims::default(),
        Some(bytes) => Claims::from_bytes(bytes).ok_or_else(|| Unreadable("not a list of claim ids".to_owned()))?,
    };
    let made_by = row.array()?.map(Mark::from_bytes);
    let payload = row.bytes()?.map(Bytes::copy_from_slice);
    let body = row.bytes()?.map(Bytes::copy_from_slice);

    let until_or = |what: &str| until.ok_or_else(|| missing(what));
    let fence_or = || fence.ok_or_else(|| missing("fence"));
    let lease = |phase| Ok(State::Leased(Lease { phase, fence: fence_or()?, until: until_or("deadline")?, owner }));
    let state = match state_name {
        "queued" => State::Queued { due: until_or("due time")? },
        "claimed" => lease(Phase::Claimed)?,
        "sent" => lease(Phase::Sent)?,
        "overdue" => lease(Phase::Overdue)?,
        "open" => State::Open { not_before: until_or("time")? },
        "in_doubt" => State::InDoubt { fence: fence_or()?, retry_at: until },
        "done" => State::Done {
            outcome: Outcome {
                verdict: named(verdict.ok_or_else(|| missing("verdict"))?)?,
                status: status.ok_or_else(|| missing("status"))?,
                content_type: content_type.ok_or_else(|| missing("content type"))?.to_owned(),
                headers: match headers {
                    None => Vec::new(),
                    Some(text) => serde_json::from_str(text).map_err(|error| Unreadable(error.to_string()))?,
                },
                body: match body_size {
                    Some(size) => Body::TooLarge { size, digest: digest.ok_or_else(|| missing("digest"))? },
                    None => Body::Kept(body.ok_or_else(|| missing("body"))?),
                },
                reference,
            },
            fence: fence_or()?,
            finished_at: finished_at.ok_or_else(|| missing("end"))?,
            expires_at: purge_at,
            forget_at,
        },
        "tombstone" => State::Tombstone {
            outcome: digest.ok_or_else(|| missing("digest"))?,
            forget_at: purge_at.ok_or_else(|| missing("time"))?,
        },
        "dead" => State::Dead,
        other => return Err(Unreadable(format!("unknown state: {other}"))),
    };
    let terms = match state_name {
        "tombstone" => Terms::of_tombstone(),
        _ => Terms {
            effect: effect.ok_or_else(|| missing("effect"))?,
            in_doubt: in_doubt.ok_or_else(|| missing("policy"))?,
            retention,
            tombstone: tombstone.ok_or_else(|| missing("tombstone"))?,
            honours_key_for: honours_key_for.ok_or_else(|| missing("duration"))?,
            max_attempts,
            after_delivery,
        },
    };
    Ok(Record {
        id,
        identity: identity(names)?,
        key_digest,
        fingerprint,
        version,
        state,
        terms,
        attempts,
        generation,
        payload,
        entry,
        created_at: created_at.unwrap_or(Timestamp::from_millis(0)),
        updated_at: updated_at.unwrap_or(Timestamp::from_millis(0)),
        first_sent_at,
        doubt_since,
        delivered_at,
        last_error,
        sequence,
        claims,
        made_by,
    })
}

fn identity(names: [Option<&str>; 3]) -> Result<Option<Identity>, Unreadable> {
    let [Some(tenant), Some(operation), Some(key)] = names else { return Ok(None) };
    let unreadable = |error: &dyn std::fmt::Display| Unreadable(error.to_string());
    Ok(Some(Identity {
        tenant: Tenant::new(tenant).map_err(|error| unreadable(&error))?,
        operation: Operation::new(operation).map_err(|error| unreadable(&error))?,
        key: Key::new(key).map_err(|error| unreadable(&error))?,
    }))
}

fn named<'a, T: Deserialize<'a>>(name: &'a str) -> Result<T, Unreadable> {
    let name: StrDeserializer<'a, value::Error> = name.into_deserializer();
    T::deserialize(name).map_err(|error| Unreadable(error.to_string()))
}

fn small(number: Option<i64>) -> Result<Option<u32>, Unreadable> {
    let small = |number: i64| u32::try_from(number).map_err(|_| Unreadable(format!("{number} is out of range")));
    number.map(small).transpose()
}

fn signed(number: u64) -> Result<i64, Error> {
    i64::try_from(number).map_err(|_| Error::Other(format!("{number} is too large to be stored")))
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
