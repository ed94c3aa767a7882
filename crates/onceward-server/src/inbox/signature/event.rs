//! Which event a webhook is: the id that the provider gave it, and the key and fingerprint that follow from it.

use onceward::core::fingerprint::{self, Fingerprint};
use onceward::core::hash::{Digest, digest};
use onceward::core::json::Pointer;
use onceward::core::name::Key;
use onceward::core::time::Timestamp;
use onceward_runtime::raw_json::{Found, find};
use serde_json::value::RawValue;

use super::{Refused, Verified};

/// The provider's id of an event. It follows the rules of keys: 1 to 255 characters, no control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventId(Key);

impl EventId {
    pub(super) fn new(text: &str) -> Result<Self, Refused> {
        Ok(Self(Key::new(text)?))
    }

    /// The id that a signed body must have.
    pub(super) fn in_body(body: &[u8], pointer: &Pointer) -> Result<Self, Refused> {
        match text_in(body, pointer)? {
            Some(id) => Self::new(&id),
            None => Err(Refused::NoEventId { pointer: pointer.to_string() }),
        }
    }

    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

/// A text in a signed body. The rest of it may be JSON that this project would not write.
pub(super) fn text_in(body: &[u8], pointer: &Pointer) -> Result<Option<String>, Refused> {
    match find(body, pointer) {
        Found::Value(value) => Ok(serde_json::from_str(value.get()).ok()),
        Found::Nothing => Ok(None),
        Found::OtherForm => match serde_json::from_slice::<&RawValue>(body) {
            Ok(_) => Ok(None),
            Err(_) => Err(Refused::NotJson),
        },
    }
}

/// An event whose id is signed: the id alone identifies it.
pub(super) fn with_signed_id(id: EventId, at: Option<Timestamp>) -> Verified {
    let fingerprint = of("id", id.as_str().as_bytes());
    Verified { key: id.0.clone(), fingerprint, event_id: Some(id), id_is_signed: true, at, challenge: None }
}

/// An event without a signed id: the digest of its body identifies it. An id beside it may have been changed on the way, so
/// that one genuine body could become many events.
pub(super) fn with_body(body: &[u8], id: Option<EventId>, at: Option<Timestamp>) -> Result<Verified, Refused> {
    let digest: Digest = digest(body);
    Ok(Verified {
        key: Key::new(format!("sha256:{}", digest.to_hex()))?,
        fingerprint: of("body", digest.as_bytes()),
        event_id: id,
        id_is_signed: false,
        at,
        challenge: None,
    })
}

fn of(part: &str, content: &[u8]) -> Fingerprint {
    fingerprint::Builder::new("webhook").part(part, content).build()
}
