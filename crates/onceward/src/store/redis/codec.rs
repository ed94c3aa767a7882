//! A record as one string value: a fixed head that the scripts compare, the record as JSON without its contents, and the
//! contents as bytes. The times in the JSON may be relative to the time of the write, which the script puts into the head.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use onceward_core::hash::{Digest, digest};
use onceward_core::outbox::Priority;
use onceward_core::outcome::Body;
use onceward_core::record::{Draft, Fence, Record, State};
use onceward_core::time::{Timestamp, When};

use crate::plant::{Plant, planted};
use crate::store::{Error, ListedRecord};

/// The first byte of a value. Another layout gets another one.
const LAYOUT: u8 = b'1';

/// The latest time that the scripts calculate with: their numbers are exact up to 2^53. It is after the year 140000.
pub(super) const LATEST: i64 = 1 << 52;

/// Where the parts of the head begin. The scripts use the same numbers, counted from 1.
const WRITE_ID: usize = 26;
const WRITTEN_AT: usize = 66;
const LENGTH: usize = 84;
const META: usize = 88;

/// How much of a value a list reads at first. Nearly every record without its contents fits.
pub(super) const LISTED_BYTES: usize = 4096;

/// Names one write over all its retries, so that a script recognises its own write.
pub(super) type WriteId = [u8; 16];

/// The part of the index in which a record is: each record is in exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Index {
    Unsettled,
    Done,
    Tombstones,
}

impl Index {
    pub(super) const ALL: [Self; 3] = [Self::Unsettled, Self::Done, Self::Tombstones];

    /// The letter in the head and in the name of the key.
    pub(super) fn letter(self) -> &'static str {
        match self {
            Self::Unsettled => "u",
            Self::Done => "d",
            Self::Tombstones => "t",
        }
    }

    fn of<T>(state: &State<T>) -> Self {
        match state {
            State::Done { .. } => Self::Done,
            State::Tombstone { .. } => Self::Tombstones,
            _ => Self::Unsettled,
        }
    }
}

/// A time that a script calculates when it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WrittenAt {
    Never,
    At(i64),
    /// This long after the write, or after `from` if that is later.
    After {
        from: i64,
        millis: i64,
    },
}

impl WrittenAt {
    fn of(when: When, from: i64) -> Self {
        match when {
            When::At(time) => Self::At(time.as_millis()),
            When::In(wait) => Self::After { from, millis: i64::try_from(wait.as_millis()).unwrap_or(i64::MAX) },
        }
    }

    /// The later of two times, and this long after it.
    fn later(one: When, other: When, and: i64) -> Self {
        match (Self::of(one, 0), Self::of(other, 0)) {
            (Self::At(one), Self::At(other)) => Self::At(one.max(other).saturating_add(and)),
            (Self::After { millis: one, .. }, Self::After { millis: other, .. }) => {
                Self::After { from: 0, millis: one.max(other).saturating_add(and) }
            }
            (Self::At(at), Self::After { millis, .. }) | (Self::After { millis, .. }, Self::At(at)) => {
                Self::After { from: at.saturating_sub(millis), millis: millis.saturating_add(and) }
            }
            (Self::Never, _) | (_, Self::Never) => Self::Never,
        }
    }

    /// The two arguments of a script: nothing, a time, or a time and a duration.
    pub(super) fn arguments(self) -> [String; 2] {
        let number = |number: i64| number.clamp(0, LATEST).to_string();
        match self {
            Self::Never => [String::new(), String::new()],
            Self::At(time) => [number(time), String::new()],
            Self::After { from, millis } => [number(from), number(millis)],
        }
    }
}

/// When a sweep has to look at the record.
fn ends(draft: &Draft) -> WrittenAt {
    let from = match draft.created_at {
        When::At(time) => time.as_millis(),
        When::In(_) => 0,
    };
    let since = match &draft.state {
        // As [`Draft::stamp`] counts.
        State::Done { expires_at, .. } => return expires_at.map_or(WrittenAt::Never, |at| WrittenAt::of(at, from)),
        State::Tombstone { forget_at, .. } => return WrittenAt::of(*forget_at, 0),
        State::Open { not_before } => *not_before,
        State::Leased(lease) => lease.until,
        State::Queued { .. } | State::InDoubt { .. } | State::Dead => return WrittenAt::Never,
    };
    match draft.untried_for() {
        Some(length) => {
            WrittenAt::later(since, draft.updated_at, i64::try_from(length.as_millis()).unwrap_or(i64::MAX))
        }
        None => WrittenAt::Never,
    }
}

/// A record as the arguments of a script.
pub(super) struct Encoded {
    /// Version, fence, write id and tenant.
    pub(super) head: [u8; 57],
    pub(super) index: Index,
    pub(super) ends: WrittenAt,
    /// The time that a conditional write compares.
    pub(super) time: WrittenAt,
    /// The line in which an entry of the outbox stands; `None` for a direct call.
    pub(super) lane: Option<Vec<u8>>,
    /// When the courier looks at it.
    pub(super) due: WrittenAt,
    /// The id that the downstream gave the effect.
    pub(super) reference: Option<String>,
    /// The length of the JSON, the JSON and the contents.
    pub(super) rest: Vec<u8>,
}

/// A record without its contents, and the lengths of those.
#[derive(Serialize, Deserialize)]
struct Meta {
    record: Draft,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    headers: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body: Option<usize>,
}

/// The bytes that a head holds of a fence.
fn fence_bytes(fence: Option<Fence>) -> [u8; 17] {
    let mut bytes = [0; 17];
    if let Some(fence) = fence {
        bytes[0] = 1;
        bytes[1..].copy_from_slice(&fence.to_bytes());
    }
    bytes
}

/// Version and fence, as a head holds them.
pub(super) fn guard(version: u64, fence: Option<Fence>) -> [u8; 25] {
    let mut bytes = [0; 25];
    bytes[..8].copy_from_slice(&version.to_be_bytes());
    bytes[8..].copy_from_slice(&fence_bytes(fence));
    bytes
}

/// The compared time, as a head holds it.
pub(super) fn guard_time(time: Timestamp) -> [u8; 8] {
    time.as_millis().clamp(0, LATEST).to_be_bytes()
}

/// The name under which a tenant is counted; zeros for a record without one.
pub(super) fn tenant_tag(tenant: Option<&str>) -> [u8; 16] {
    let mut tag = [0; 16];
    if let Some(tenant) = tenant {
        tag.copy_from_slice(&digest(tenant.as_bytes()).as_bytes()[..16]);
    }
    tag
}

/// The beginning of the members of the index of entries: operation, priority and tenant. The time and the id follow. No name
/// contains a zero byte, so that the members of a tenant stand together, in the order of their times.
pub(super) fn lane_of(operation: &str, priority: Priority, tenant: &str) -> Vec<u8> {
    let mut lane = lane_prefix(operation, priority);
    lane.extend_from_slice(tenant.as_bytes());
    lane.push(0);
    lane
}

/// The part of it that all tenants have in common: 17 bytes.
pub(super) fn lane_prefix(operation: &str, priority: Priority) -> Vec<u8> {
    let mut prefix = digest(operation.as_bytes()).as_bytes()[..16].to_vec();
    prefix.extend_from_slice(priority.rank().to_string().as_bytes());
    prefix
}

/// What was an entry once stays one until it is a tombstone.
fn lane(draft: &Draft) -> Option<Vec<u8>> {
    let identity = draft.identity.as_ref().filter(|_| draft.payload.is_some() || draft.entry.is_some())?;
    let priority = draft.entry.as_ref().map(|entry| entry.priority).unwrap_or_default();
    Some(lane_of(identity.operation.as_str(), priority, identity.tenant.as_str()))
}

pub(super) fn encode(mut draft: Draft, write_id: &WriteId) -> Result<Encoded, Error> {
    let mut head = [0; 57];
    head[..25].copy_from_slice(&guard(draft.version, draft.fence()));
    head[25..41].copy_from_slice(write_id);
    head[41..].copy_from_slice(&tenant_tag(draft.identity.as_ref().map(|identity| identity.tenant.as_str())));
    if planted(Plant::RetryTimeNotKept)
        && let State::InDoubt { retry_at, .. } = &mut draft.state
    {
        *retry_at = None;
    }
    let (index, ends) = (Index::of(&draft.state), ends(&draft));
    let time = draft.time().map_or(WrittenAt::Never, |when| WrittenAt::of(*when, 0));
    let (lane, due) = (lane(&draft), draft.due().map_or(WrittenAt::Never, |when| WrittenAt::of(*when, 0)));
    let reference = match &draft.state {
        State::Done { outcome, .. } => outcome.reference.clone(),
        _ => None,
    };
    let payload = draft.payload.take();
    let (mut headers, mut body) = (Vec::new(), None);
    if let State::Done { outcome, .. } = &mut draft.state {
        headers = std::mem::take(&mut outcome.headers);
        if let Body::Kept(bytes) = &mut outcome.body {
            body = Some(std::mem::take(bytes));
        }
    }
    let headers = match headers.is_empty() {
        true => None,
        false => Some(serde_json::to_vec(&headers).map_err(unwritable)?),
    };
    let meta = Meta {
        record: draft,
        payload: payload.as_ref().map(Bytes::len),
        headers: headers.as_ref().map(Vec::len),
        body: body.as_ref().map(Bytes::len),
    };
    let contents = [payload.as_deref(), headers.as_deref(), body.as_deref()].map(Option::unwrap_or_default);
    // A small record has about 600 bytes of JSON.
    let mut rest = Vec::with_capacity(1024 + contents.iter().map(|part| part.len()).sum::<usize>());
    rest.extend([0; 4]);
    serde_json::to_writer(&mut rest, &meta).map_err(unwritable)?;
    let length = u32::try_from(rest.len() - 4).map_err(|error| Error::Other(error.to_string()))?;
    rest[..4].copy_from_slice(&length.to_be_bytes());
    contents.iter().for_each(|part| rest.extend_from_slice(part));
    Ok(Encoded { head, index, ends, time, lane, due, reference, rest })
}

fn unwritable(error: serde_json::Error) -> Error {
    Error::Other(format!("a record cannot be written: {error}"))
}

/// A value that cannot be read. The others can.
#[derive(Debug)]
pub(super) struct Unreadable(pub(super) String);

/// The write that made a value, and when.
pub(super) fn write_of(value: &[u8]) -> Result<(WriteId, Timestamp), Unreadable> {
    let short = || Unreadable("it is too short".to_owned());
    let write_id = value.get(WRITE_ID..).and_then(|rest| rest.first_chunk()).ok_or_else(short)?;
    let written_at: &[u8; 8] = value.get(WRITTEN_AT..).and_then(|rest| rest.first_chunk()).ok_or_else(short)?;
    Ok((*write_id, Timestamp::from_millis(i64::from_be_bytes(*written_at))))
}

fn meta(value: &[u8]) -> Result<Option<(Meta, &[u8])>, Unreadable> {
    if value.first() != Some(&LAYOUT) {
        return Err(Unreadable("it has a layout that this build does not know".to_owned()));
    }
    let length: &[u8; 4] = value
        .get(LENGTH..)
        .and_then(|rest| rest.first_chunk())
        .ok_or_else(|| Unreadable("it is too short".to_owned()))?;
    let end = META + u32::from_be_bytes(*length) as usize;
    let Some(json) = value.get(META..end) else { return Ok(None) };
    let meta: Meta = serde_json::from_slice(json).map_err(|error| Unreadable(error.to_string()))?;
    Ok(Some((meta, &value[end..])))
}

/// Reads a whole value.
pub(super) fn decode(value: &[u8], id: Digest) -> Result<Record, Unreadable> {
    let cut = || Unreadable("it is cut off".to_owned());
    let (mut meta, mut contents) = meta(value)?.ok_or_else(cut)?;
    let mut take = |length: usize| {
        let (part, rest) = contents.split_at_checked(length).ok_or_else(cut)?;
        contents = rest;
        Ok(part)
    };
    meta.record.payload = meta.payload.map(&mut take).transpose()?.map(Bytes::copy_from_slice);
    let headers = meta.headers.map(&mut take).transpose()?;
    let body = meta.body.map(&mut take).transpose()?;
    if let State::Done { outcome, .. } = &mut meta.record.state {
        if let Some(headers) = headers {
            outcome.headers = serde_json::from_slice(headers).map_err(|error| Unreadable(error.to_string()))?;
        }
        if let Some(body) = body {
            outcome.body = Body::Kept(Bytes::copy_from_slice(body));
        }
    }
    stamped(meta.record, value, id)
}

/// Reads the beginning of a value, for a list. `None` if it must be longer.
pub(super) fn decode_listed(value: &[u8], id: Digest, now: Timestamp) -> Result<Option<ListedRecord>, Unreadable> {
    let Some((mut meta, _)) = meta(value)? else { return Ok(None) };
    meta.record.payload = meta.payload.map(|_| Bytes::new());
    let mut listed = ListedRecord::of(&stamped(meta.record, value, id)?, now);
    listed.body_size = meta.body.map(|size| size as u64);
    Ok(Some(listed))
}

fn stamped(draft: Draft, value: &[u8], id: Digest) -> Result<Record, Unreadable> {
    if draft.id != id {
        return Err(Unreadable("it is the record of another id".to_owned()));
    }
    let (_, written_at) = write_of(value)?;
    Ok(draft.stamp(written_at))
}
