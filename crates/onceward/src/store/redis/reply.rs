//! The replies of the scripts: a code, the time, and what was read.

use std::time::Instant;

use redis::Value;

use onceward_core::hash::Digest;
use onceward_core::record::Seen;
use onceward_core::time::Timestamp;

use super::Redis;
use super::codec::{self, Unreadable};
use crate::plant::{Plant, planted};
use crate::store::Error;

/// A script did what it was asked to do.
pub(super) const DONE: i64 = 1;
/// An insert came after its reservation had ended, and wrote nothing.
pub(super) const LATE: i64 = 2;
/// An insert found that the server has lost the record, and wrote nothing.
pub(super) const LOST: i64 = 4;
/// The epoch or the seal does not allow the script.
const REFUSED: i64 = -1;

/// A reply of a script.
pub(super) struct ScriptReply {
    pub(super) code: i64,
    pub(super) now: Timestamp,
    parts: std::vec::IntoIter<Value>,
}

impl ScriptReply {
    /// The next part as bytes; `None` if there is none.
    pub(super) fn bytes(&mut self) -> Option<Vec<u8>> {
        self.parts.next().and_then(bytes)
    }

    pub(super) fn number(&mut self) -> Result<u64, Error> {
        let number = self.parts.next().and_then(|value| integer(&value)).ok_or_else(unexpected)?;
        u64::try_from(number).map_err(|_| unexpected())
    }

    pub(super) fn list(&mut self) -> Vec<Value> {
        match self.parts.next() {
            Some(Value::Array(values)) => values,
            _ => Vec::new(),
        }
    }
}

pub(super) fn unexpected() -> Error {
    Error::Other("an unexpected reply of the server".to_owned())
}

pub(super) fn bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.into_bytes()),
        _ => None,
    }
}

pub(super) fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok()?.parse().ok(),
        _ => None,
    }
}

pub(super) fn id(value: Value) -> Result<Digest, Error> {
    let bytes: Option<[u8; 32]> = bytes(value).and_then(|bytes| bytes.try_into().ok());
    bytes.map(Digest::from_bytes).ok_or_else(unexpected)
}

/// Pairs of an id and a score.
pub(super) fn scored_ids(values: Vec<Value>) -> Result<Vec<(i64, Digest)>, Error> {
    let mut values = values.into_iter();
    let mut pairs = Vec::with_capacity(values.len() / 2);
    while let (Some(member), Some(score)) = (values.next(), values.next()) {
        pairs.push((score_of(&score)?, id(member)?));
    }
    Ok(pairs)
}

/// A score as a whole number. Scores are milliseconds or microseconds, or endless.
pub(super) fn score_of(value: &Value) -> Result<i64, Error> {
    let score = match value {
        Value::Double(score) => Some(*score),
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()),
        Value::Int(score) => return Ok(*score),
        _ => None,
    };
    // An endless score saturates.
    score.map(|score: f64| score as i64).ok_or_else(unexpected)
}

impl Redis {
    /// Reads a reply to a question of this moment, and notes the time in it.
    pub(super) fn timed_reply(&self, value: Value, asked: Instant) -> Result<ScriptReply, Error> {
        let reply = self.reply(value)?;
        self.server_time.saw(reply.now, asked);
        Ok(reply)
    }

    /// Reads a reply. A refusal becomes its error.
    pub(super) fn reply(&self, value: Value) -> Result<ScriptReply, Error> {
        let Value::Array(parts) = value else { return Err(unexpected()) };
        let mut parts = parts.into_iter();
        let code = parts.next().and_then(|value| integer(&value)).ok_or_else(unexpected)?;
        let second = parts.next();
        if code == REFUSED {
            return Err(self.wrong_epoch(second.and_then(bytes)));
        }
        let now = second.and_then(|value| integer(&value)).map(Timestamp::from_millis).ok_or_else(unexpected)?;
        Ok(ScriptReply { code, now, parts })
    }

    /// The record in a value.
    pub(super) fn seen(&self, value: &[u8], id: Digest, now: Timestamp) -> Result<Seen, Error> {
        let record = codec::decode(value, id).map_err(|reason| self.unreadable(id, &reason))?;
        let now = if planted(Plant::StoreTimeStands) { record.updated_at } else { now };
        Ok(Seen { record, now, owner_gone: false })
    }

    pub(super) fn unreadable(&self, id: Digest, Unreadable(reason): &Unreadable) -> Error {
        Error::Unreadable { path: self.link.name.clone().into(), reason: format!("{} ({reason})", id.short()) }
    }
}
