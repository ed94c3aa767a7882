//! A deliberate new run of an entry of the outbox that is done: whether there may be one, and which intent it is. Reads and writes
//! nothing: it turns the record of the finished run into the entry to queue.

use std::fmt;

use bytes::Bytes;

use crate::fingerprint::{self, Builder, Fingerprint};
use crate::hash::{Digest, Fields};
use crate::json::Value;
use crate::name::{Identity, Key};
use crate::outbox::{Entry, RerunLink};
use crate::policy::Terms;
use crate::record::{Fence, Record, Seen, Standing, State, Status};

/// Part of the hash, so that a later scheme cannot produce an old key.
const SCHEME: &str = "rerun v1";

/// How much of the digest the key shows: 128 bits, as for derived keys.
const HEX_DIGITS: usize = 32;

/// Who wants a new run, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RerunReason {
    /// Why.
    pub why: String,
    /// The name of the person, as it was given.
    pub by: Option<String>,
    /// The name of the API token that was used.
    pub token: Option<String>,
}

/// A payload that is given again, because a delivered entry keeps none unless told to.
#[derive(Clone, Debug)]
pub struct GivenPayload {
    /// The payload.
    pub bytes: Bytes,
    /// The key digest and the fingerprint of the finished run, had it been queued with this payload; `None` if it could not have
    /// been.
    pub identified: Option<(Option<Digest>, Fingerprint)>,
}

/// The run that follows a finished one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextRun {
    /// Its own identity: the same for every person who has the same finished run done again.
    pub identity: Identity,
    /// The full digest of its key.
    pub key_digest: Digest,
    /// The hash of the payload.
    pub fingerprint: Fingerprint,
    /// What is delivered.
    pub payload: Bytes,
    /// How it is delivered, with the link to the finished run.
    pub entry: Entry,
    /// The number of the run.
    pub run: u32,
    terms_of_last: Terms,
}

impl NextRun {
    /// What governs it: the terms of its operation, and kept at least as long as the run that it follows. Otherwise the same command
    /// could start another run once this one is forgotten.
    pub fn terms(&self, own: Terms) -> Terms {
        let Terms { retention, tombstone, .. } = own.tightened_by(&self.terms_of_last);
        Terms { retention, tombstone, ..own }
    }
}

/// Why there is no new run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RerunRefusal {
    /// The intent does not exist.
    Absent,
    /// It is not done: it is in this state.
    NotDone(Status),
    /// It is done, and its outcome is no longer kept.
    Expired,
    /// It was done by a direct call, so there is nothing to deliver.
    NotAnEntry,
    /// Its payload was erased after delivery, and none was given.
    PayloadErased,
    /// The payload that was given is not the one of the finished run, or not the one of the new run, which is there already.
    OtherPayload,
}

impl RerunRefusal {
    /// The name of the reason in JSON.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::NotDone(_) => "not_done",
            Self::Expired => "expired",
            Self::NotAnEntry => "not_an_entry",
            Self::PayloadErased => "payload_erased",
            Self::OtherPayload => "mismatch",
        }
    }
}

impl fmt::Display for RerunRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absent => "there is no such intent",
            Self::NotDone(Status::Queued) => "it waits for delivery; let it be delivered first",
            Self::NotDone(Status::Running) => "it is being done; wait for its end",
            Self::NotDone(Status::InDoubt) => "it is in doubt: an attempt may have happened; find out, then resolve it",
            Self::NotDone(Status::Dead) => "it is dead: it has not happened; requeue it to have it tried again",
            Self::NotDone(_) => "it has not happened; it can be tried again as it is",
            Self::Expired => "it is done, but its outcome is no longer kept; use a new key of your own for another run",
            Self::NotAnEntry => {
                "it was done by a direct call and not by a courier, so there is nothing to deliver; do it again with a new key \
                 of your own"
            }
            Self::PayloadErased => "its payload was erased after delivery; give the same payload again",
            Self::OtherPayload => "it was queued with another payload; another payload needs a key of its own",
        })
    }
}

/// The run that follows the finished one with this identity. It is decided on the record as it was seen: a run that is done stays
/// done, so a later look could not decide otherwise, except that the outcome is no longer kept.
pub fn next_run(
    identity: &Identity,
    finished: Option<&Seen>,
    given: Option<GivenPayload>,
    reason: RerunReason,
) -> Result<NextRun, RerunRefusal> {
    let found = finished.and_then(|seen| Some((&seen.record, seen.standing()?)));
    let (record, standing) = found.ok_or(RerunRefusal::Absent)?;
    match standing {
        Standing::Done => {}
        Standing::Tombstone => return Err(RerunRefusal::Expired),
        _ => return Err(RerunRefusal::NotDone(standing.status())),
    }
    let (State::Done { fence, .. }, Some(last)) = (&record.state, record.entry.as_deref()) else {
        return Err(RerunRefusal::NotAnEntry);
    };
    let payload = payload(record, given)?;
    let run = last.rerun.as_ref().map_or(1, |link| link.run).saturating_add(1);
    let key_digest = digest(identity, *fence, run);
    let RerunReason { why, by, token } = reason;
    let link = RerunLink { of: identity.key.clone(), run, why, by, token };
    Ok(NextRun {
        identity: Identity { key: key(key_digest), ..identity.clone() },
        key_digest,
        fingerprint: of_payload(&payload),
        payload,
        // The time in which the finished run was to be delivered is over, and the new one may go to any sink.
        entry: Entry { deliver_within: None, destination: None, rerun: Some(Box::new(link)), ..last.clone() },
        run,
        terms_of_last: record.terms,
    })
}

/// The payload to deliver.
fn payload(record: &Record, given: Option<GivenPayload>) -> Result<Bytes, RerunRefusal> {
    match (&record.payload, given) {
        (_, Some(given)) if is_of(record, &given) => Ok(given.bytes),
        (_, Some(_)) => Err(RerunRefusal::OtherPayload),
        (Some(kept), None) => Ok(kept.clone()),
        (None, None) => Err(RerunRefusal::PayloadErased),
    }
}

/// Whether the finished run would have been the same intent with this payload: by its recipe, or because the payload is the same. A
/// transaction in SQL that gave no fingerprint was recorded with one of the bytes.
fn is_of(record: &Record, given: &GivenPayload) -> bool {
    let whole = of_payload(&given.bytes);
    given.identified == Some((record.key_digest, record.fingerprint))
        || [whole, of_bytes(&given.bytes)].contains(&record.fingerprint)
        || record.payload.as_ref().is_some_and(|kept| of_payload(kept) == whole)
}

/// The fingerprint of a rerun: all of its payload.
fn of_payload(payload: &[u8]) -> Fingerprint {
    Value::parse(payload).map_or_else(|_| of_bytes(payload), |value| fingerprint::of_intent(&value))
}

fn of_bytes(payload: &[u8]) -> Fingerprint {
    Builder::new("payload").part("payload", payload).build()
}

/// The fence names the end of the finished run and is never used again, so no caller can choose a key that gives this digest, and
/// a later intent with the old key has another one.
fn digest(identity: &Identity, fence: Fence, run: u32) -> Digest {
    let fields = Fields::new().field(SCHEME).field(identity.digest().as_bytes());
    fields.field(fence.to_bytes()).field(run.to_be_bytes()).digest()
}

fn key(digest: Digest) -> Key {
    let mut hex = digest.to_hex();
    hex.truncate(HEX_DIGITS);
    Key::made_here(format!("rerun_v1_{hex}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::{Operation, Tenant};

    fn identity(tenant: &str, operation: &str, key: &str) -> Identity {
        Identity {
            tenant: Tenant::new(tenant).unwrap(),
            operation: Operation::new(operation).unwrap(),
            key: Key::new(key).unwrap(),
        }
    }

    #[test]
    fn the_key_is_made_as_it_always_was() {
        let digest = digest(&identity("acme", "mail", "user-7"), Fence::from_bits(7), 2);
        // By hand, with Python's hashlib.
        assert_eq!(digest.to_hex(), "ac8539ff0c3d27b9c244b2f4247ca5fe488fc7ae2654f79927c36710414f327e");
        assert_eq!(key(digest).as_str(), format!("rerun_v1_{}", &digest.to_hex()[..32]));
    }

    #[test]
    fn each_finished_run_has_a_key_of_its_own() {
        let old = identity("acme", "mail", "user-7");
        let all = [
            digest(&old, Fence::from_bits(7), 2),
            digest(&old, Fence::from_bits(8), 2),
            digest(&old, Fence::from_bits(7), 3),
            digest(&identity("other", "mail", "user-7"), Fence::from_bits(7), 2),
            digest(&identity("acme", "letter", "user-7"), Fence::from_bits(7), 2),
            digest(&identity("acme", "mail", "user-8"), Fence::from_bits(7), 2),
        ];
        for (position, one) in all.iter().enumerate() {
            assert!(all[position + 1..].iter().all(|other| one != other));
        }
    }

    #[test]
    fn payloads_are_compared_by_their_meaning_and_other_bytes_as_they_are() {
        assert_eq!(of_payload(b"{\"a\":1,\"b\":2}"), of_payload(b"{ \"b\": 2, \"a\": 1 }"));
        assert_ne!(of_payload(b"{\"a\":1}"), of_payload(b"{\"a\":2}"));
        assert_eq!(of_payload(b"no json"), of_bytes(b"no json"));
        assert_ne!(of_payload(b"1"), of_bytes(b"1"));
    }
}
