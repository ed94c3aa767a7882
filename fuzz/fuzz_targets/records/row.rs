//! Rows and records made of bytes. They are often nearly valid, because an entirely wrong row is refused at its first
//! column.

use std::time::Duration;

use bytes::Bytes;
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use onceward::core::claim::Claims;
use onceward::core::fingerprint::Fingerprint;
use onceward::core::hash::{Digest, digest};
use onceward::core::name::Identity;
use onceward::core::outcome::{Body, Outcome, Verdict};
use onceward::core::policy::{Effect, InDoubt, Policy, Terms};
use onceward::core::record::{Fence, Lease, Owner, Phase, Record, State};
use onceward::core::time::Timestamp;
use rusqlite::types::Value;

use crate::identity;

/// The kind of values in a column.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// Half of an id, starting at this byte.
    Id(usize),
    Digest,
    Fence,
    Number,
    Bytes,
    Name,
    Word(&'static [&'static str]),
    Headers,
}

/// Every column of the table, by its name.
pub(crate) const COLUMNS: [(&str, Kind); 43] = [
    ("id", Kind::Id(0)),
    ("tenant", Kind::Name),
    ("operation", Kind::Name),
    ("key", Kind::Name),
    ("key_digest", Kind::Digest),
    ("fingerprint", Kind::Digest),
    ("version", Kind::Number),
    ("state", Kind::Word(&["queued", "claimed", "sent", "open", "in_doubt", "done", "tombstone", "dead", "lost"])),
    ("fence", Kind::Fence),
    ("owner", Kind::Number),
    ("until", Kind::Number),
    ("forget_at", Kind::Number),
    ("finished_at", Kind::Number),
    ("effect", Kind::Word(&["external", "transactional", "magical"])),
    ("in_doubt", Kind::Word(&["hold", "tell", "retry", "probe", "guess"])),
    ("retention", Kind::Number),
    ("tombstone", Kind::Number),
    ("honours_key_for", Kind::Number),
    ("max_attempts", Kind::Number),
    ("attempts", Kind::Number),
    ("generation", Kind::Number),
    ("payload", Kind::Bytes),
    ("created_at", Kind::Number),
    ("updated_at", Kind::Number),
    ("first_sent_at", Kind::Number),
    ("doubt_since", Kind::Number),
    ("last_error", Kind::Name),
    ("verdict", Kind::Word(&["success", "failure", "draw"])),
    ("status", Kind::Number),
    ("content_type", Kind::Name),
    ("headers", Kind::Headers),
    ("body", Kind::Bytes),
    ("body_size", Kind::Number),
    ("outcome", Kind::Digest),
    ("sequence", Kind::Number),
    ("id_rest", Kind::Id(16)),
    ("claims", Kind::Bytes),
    ("made_by", Kind::Fence),
    ("after_delivery", Kind::Number),
    ("delivered_at", Kind::Number),
    ("entry", Kind::Word(&["{}", "{\"priority\":\"high\",\"deliver_within\":1000}", "{\"priority\":\"urgent\"}", "[]"])),
    ("priority", Kind::Number),
    ("reference", Kind::Name),
];

/// The values of a row; a marked blob becomes a text of those bytes.
pub(crate) type Row = Vec<(Value, bool)>;

pub(crate) fn row(given: &mut Unstructured<'_>) -> Result<Row> {
    COLUMNS.iter().map(|(_, kind)| value(given, *kind)).collect()
}

fn value(given: &mut Unstructured<'_>, kind: Kind) -> Result<(Value, bool)> {
    // One value in sixteen is anything that its column can hold.
    let is_wild = given.ratio(1, 16)?;
    Ok(match kind {
        Kind::Id(from) if !is_wild => {
            (Value::Blob(identity().digest().as_bytes().iter().skip(from).take(16).copied().collect()), false)
        }
        Kind::Digest | Kind::Fence | Kind::Bytes if given.ratio(1, 4)? => (Value::Null, false),
        Kind::Digest if !is_wild => (Value::Blob(digest(&[given.arbitrary()?]).as_bytes().to_vec()), false),
        Kind::Fence if !is_wild => (Value::Blob(given.arbitrary::<[u8; 16]>()?.to_vec()), false),
        Kind::Id(_) | Kind::Digest | Kind::Fence | Kind::Bytes => (Value::Blob(some_bytes(given)?), false),
        Kind::Number => (number(given)?, false),
        Kind::Word(words) if !is_wild => (Value::Text((*given.choose(words)?).to_owned()), false),
        Kind::Name if !is_wild => match given.arbitrary::<Option<&str>>()? {
            Some(text) => (Value::Text(text.to_owned()), false),
            None => (Value::Null, false),
        },
        Kind::Headers if !is_wild => match given.choose(&[None, Some("[]"), Some("[[\"a\",\"b\"]]"), Some("{}")])? {
            Some(text) => (Value::Text((*text).to_owned()), false),
            None => (Value::Null, false),
        },
        Kind::Name | Kind::Word(_) | Kind::Headers => (Value::Blob(some_bytes(given)?), true),
    })
}

fn some_bytes(given: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let length = given.int_in_range(0..=40)?;
    Ok(given.bytes(length.min(given.len()))?.to_vec())
}

/// 2026-01-01, the time of the ledger's clock.
const NOW: i64 = 1_767_225_600_000;

fn number(given: &mut Unstructured<'_>) -> Result<Value> {
    let edges = [0, 1, 2, -1, 1000, NOW - 1, NOW, NOW + 1, NOW + 1000, i64::MIN, i64::MAX, i64::from(u32::MAX)];
    Ok(match given.int_in_range(0..=15)? {
        0 | 1 => Value::Null,
        2 => Value::Integer(given.arbitrary()?),
        edge => Value::Integer(edges[usize::from(edge as u8) % edges.len()]),
    })
}

/// A valid record.
pub(crate) fn plain(identity: Identity) -> Record {
    Record {
        id: identity.digest(),
        identity: Some(identity),
        key_digest: None,
        fingerprint: Fingerprint::none(),
        version: 1,
        state: State::Open { not_before: Timestamp::from_millis(NOW) },
        terms: Policy::default().terms(),
        attempts: 1,
        generation: 0,
        payload: None,
        entry: None,
        created_at: Timestamp::from_millis(NOW),
        updated_at: Timestamp::from_millis(NOW),
        first_sent_at: None,
        doubt_since: None,
        delivered_at: None,
        last_error: None,
        sequence: None,
        claims: Claims::default(),
        made_by: None,
    }
}

/// Any record that the types allow.
pub(crate) fn record(given: &mut Unstructured<'_>) -> Result<Record> {
    let time = |given: &mut Unstructured<'_>| Ok(Timestamp::from_millis(given.arbitrary()?));
    let maybe = |given: &mut Unstructured<'_>| Ok(given.arbitrary::<Option<i64>>()?.map(Timestamp::from_millis));
    // Whole milliseconds that a row can hold: a policy cannot produce others.
    let length = |given: &mut Unstructured<'_>| Ok(Duration::from_millis(given.arbitrary::<u64>()? >> 1));
    let fence = Fence::from_bytes(given.arbitrary()?);
    let mut record = plain(identity());
    record.key_digest = given.arbitrary::<Option<[u8; 32]>>()?.map(Digest::from_bytes);
    record.fingerprint = Fingerprint::from_digest(Digest::from_bytes(given.arbitrary()?));
    record.version = given.arbitrary()?;
    record.terms = Terms {
        effect: *given.choose(&[Effect::External, Effect::Transactional])?,
        in_doubt: *given.choose(&[InDoubt::Hold, InDoubt::Tell, InDoubt::Retry, InDoubt::Probe])?,
        retention: if given.arbitrary()? { Some(length(given)?) } else { None },
        tombstone: length(given)?,
        honours_key_for: length(given)?,
        max_attempts: given.arbitrary()?,
        after_delivery: if given.arbitrary()? { Some(length(given)?) } else { None },
    };
    record.attempts = given.arbitrary()?;
    record.generation = given.arbitrary()?;
    record.payload = given.arbitrary::<Option<Vec<u8>>>()?.map(Bytes::from);
    record.created_at = time(given)?;
    record.updated_at = time(given)?;
    record.first_sent_at = maybe(given)?;
    record.doubt_since = maybe(given)?;
    record.last_error = given.arbitrary()?;
    record.sequence = given.arbitrary()?;
    record.state = match given.int_in_range(0..=6)? {
        0 => State::Queued { due: time(given)? },
        1 => State::Leased(Lease {
            phase: *given.choose(&[Phase::Claimed, Phase::Sent])?,
            fence,
            until: time(given)?,
            owner: given.arbitrary::<Option<u64>>()?.map(Owner),
        }),
        2 => State::Open { not_before: time(given)? },
        3 => State::InDoubt { fence, retry_at: maybe(given)? },
        4 => State::Done {
            outcome: outcome(given)?,
            fence,
            finished_at: time(given)?,
            expires_at: maybe(given)?,
            forget_at: maybe(given)?,
        },
        5 => State::Tombstone { outcome: Digest::from_bytes(given.arbitrary()?), forget_at: time(given)? },
        _ => State::Dead,
    };
    Ok(record)
}

fn outcome(given: &mut Unstructured<'_>) -> Result<Outcome> {
    Ok(Outcome {
        verdict: *given.choose(&[Verdict::Success, Verdict::Failure])?,
        status: given.arbitrary()?,
        content_type: given.arbitrary()?,
        headers: given.arbitrary()?,
        body: match given.arbitrary::<Option<u64>>()? {
            Some(size) => Body::TooLarge { size, digest: Digest::from_bytes(given.arbitrary()?) },
            None => Body::Kept(Bytes::from(given.arbitrary::<Vec<u8>>()?)),
        },
        reference: None,
    })
}

/// Whether a row cannot hold a number of the record.
pub(crate) fn has_a_large_number(record: &Record) -> bool {
    let large = |number: u64| i64::try_from(number).is_err();
    let in_state = match &record.state {
        State::Leased(Lease { owner: Some(owner), .. }) => large(owner.0),
        State::Done { outcome: Outcome { body: Body::TooLarge { size, .. }, .. }, .. } => large(*size),
        _ => false,
    };
    in_state || large(record.version) || record.sequence.is_some_and(large)
}
