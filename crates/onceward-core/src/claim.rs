//! The requests that a record remembers, so that a request whose answer was lost can be repeated. Only digests are kept. The
//! rules that use them are in `decide::repeat`.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::hash::{Digest, Fields};
use crate::record::Fence;

/// How many ids of earlier claims a record remembers. An older id counts as a new one; by then its request has been under way
/// during 16 other claims. Together they take at most 272 bytes in a record.
pub const MAX_PAST_CLAIMS: usize = 15;

/// The digest of an id that a caller chose for its claim. It names the claim and gives no right to it: the right is the
/// [`Fence`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClaimId(#[serde(with = "as_hex")] [u8; 16]);

impl ClaimId {
    /// Names the layout of the hash, so that a later layout cannot produce an old digest.
    const SCHEME: &'static str = "claim v1";

    /// The digest of `id`, bound to the credential that chose it: another credential with the same id has another digest.
    /// Tenant and intent need not be in it, because the record that keeps it belongs to one intent.
    pub fn new(credential: &[u8], id: &str) -> Self {
        Self(half(Fields::new().field(Self::SCHEME).field(credential).field(id).digest()))
    }

    /// The bytes, for a store.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// The id from the bytes that a store kept.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClaimId({:02x}{:02x}…)", self.0[0], self.0[1])
    }
}

/// The ids of the claims of one record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Claims {
    /// The id of the newest claim, if it was made with one.
    pub current: Option<ClaimId>,
    /// The ids of earlier claims, the oldest first, at most [`MAX_PAST_CLAIMS`].
    pub past: Vec<ClaimId>,
}

impl Claims {
    /// Whether no claim was made with an id.
    pub fn is_empty(&self) -> bool {
        self.current.is_none() && self.past.is_empty()
    }

    /// Whether one of the claims was made with this id.
    pub fn include(&self, id: ClaimId) -> bool {
        self.current == Some(id) || self.past.contains(&id)
    }

    /// Adds a new claim, with this id if it has one.
    pub fn add(&mut self, id: Option<ClaimId>) {
        let Some(last) = std::mem::replace(&mut self.current, id) else { return };
        if self.past.len() >= MAX_PAST_CLAIMS {
            self.past.remove(0);
        }
        self.past.push(last);
    }

    /// All ids, for a store: 16 bytes for each id, zeros for a newest claim without one, then the earlier ones.
    pub fn to_bytes(&self) -> Vec<u8> {
        let current = self.current.map_or([0; 16], ClaimId::to_bytes);
        let past = self.past.iter().flat_map(|id| id.to_bytes());
        current.into_iter().chain(past).collect()
    }

    /// The ids as a store kept them; `None` if that is not what [`Claims::to_bytes`] gives.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (ids, rest) = bytes.as_chunks::<16>();
        let (current, past) = ids.split_first()?;
        if !rest.is_empty() || past.len() > MAX_PAST_CLAIMS {
            return None;
        }
        let current = (*current != [0; 16]).then(|| ClaimId::from_bytes(*current));
        Some(Self { current, past: past.iter().copied().map(ClaimId::from_bytes).collect() })
    }
}

/// Names the request that wrote the newest version of a record, where a repeat of that request must be recognised.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Mark(#[serde(with = "as_hex")] [u8; 16]);

impl Mark {
    const SCHEME: &'static str = "mark v1";

    /// An owner's request of this kind.
    pub fn of_owner(kind: &str, fence: Fence) -> Self {
        Self(half(Fields::new().field(Self::SCHEME).field(kind).field(fence.to_bytes()).digest()))
    }

    /// The withdrawal of an owner that has sent nothing. Without its fence, so that a caller that waits recognises it.
    pub fn of_withdrawal() -> Self {
        Self(half(Fields::new().field(Self::SCHEME).field("withdraw").digest()))
    }

    /// A person's decision on a version of the record; `outcome` is that of an effect that happened.
    pub fn of_person(kind: &str, version: u64, outcome: Option<Digest>) -> Self {
        let fields = Fields::new().field(Self::SCHEME).field(kind).field(version.to_be_bytes());
        Self(half(outcome.iter().fold(fields, |fields, digest| fields.field(digest.as_bytes())).digest()))
    }

    /// The bytes, for a store.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// The mark from the bytes that a store kept.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mark({:02x}{:02x}…)", self.0[0], self.0[1])
    }
}

/// 128 bits: a caller cannot find another input with the same bits.
fn half(digest: Digest) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest.as_bytes()[..16]);
    bytes
}

/// 16 bytes as 32 hex digits.
mod as_hex {
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8; 16], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{:032x}", u128::from_be_bytes(*bytes)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u8; 16], D::Error> {
        let text = String::deserialize(deserializer)?;
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let bits = is_hex.then(|| u128::from_str_radix(&text, 16).ok()).flatten();
        bits.map(u128::to_be_bytes).ok_or_else(|| de::Error::custom("expected 32 hex digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u32) -> ClaimId {
        ClaimId::new(b"token", &number.to_string())
    }

    #[test]
    fn an_id_belongs_to_the_credential_that_chose_it() {
        assert_eq!(ClaimId::new(b"a", "1"), ClaimId::new(b"a", "1"));
        assert_ne!(ClaimId::new(b"a", "1"), ClaimId::new(b"b", "1"));
        assert_ne!(ClaimId::new(b"a", "b1"), ClaimId::new(b"ab", "1"));
    }

    #[test]
    fn the_oldest_ids_are_forgotten_first_and_the_number_is_bounded() {
        let mut claims = Claims::default();
        (0..100).for_each(|number| claims.add(Some(id(number))));
        assert_eq!(claims.past.len(), MAX_PAST_CLAIMS);
        assert!(claims.include(id(99)) && claims.include(id(84)) && !claims.include(id(83)));
        claims.add(None);
        assert_eq!(claims.current, None);
        assert!(claims.include(id(99)));
    }

    #[test]
    fn ids_survive_the_way_into_a_store_and_back() {
        let mut claims = Claims::default();
        for number in 0..40 {
            claims.add((number % 3 > 0).then(|| id(number)));
            assert_eq!(Claims::from_bytes(&claims.to_bytes()), Some(claims.clone()));
        }
        for broken in [&[][..], &[0; 15], &[0; 17], &[1; 16 * 17]] {
            assert_eq!(Claims::from_bytes(broken), None);
        }
    }
}
