//! SHA-256 of bytes and of length-prefixed fields, and HMAC.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest with these bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The digest as 64 lower-case hex digits.
    pub fn to_hex(&self) -> String {
        hex(&self.0)
    }

    /// Reads 64 hex digits of either case; anything else is `None`.
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits: &[u8; 64] = text.as_bytes().try_into().ok()?;
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = hex_digit(pair[0])? * 16 + hex_digit(pair[1])?;
        }
        Some(Self(bytes))
    }

    /// The first 8 hex digits, for logs: enough to find a record, and too few to be mistaken for a whole digest.
    pub fn short(&self) -> String {
        hex(&self.0[..4])
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({})", self.short())
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_hex())
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::from_hex(&text).ok_or_else(|| de::Error::custom("a digest is 64 hex digits"))
    }
}

/// The SHA-256 of some bytes.
pub fn digest(bytes: &[u8]) -> Digest {
    Digest(Sha256::digest(bytes).into())
}

/// The HMAC-SHA-256 (RFC 2104) of a message. Only a holder of the key can make or verify it.
pub fn hmac(key: &[u8], message: &[u8]) -> Digest {
    const BLOCK: usize = 64;
    let mut block = [0; BLOCK];
    match block.get_mut(..key.len()) {
        Some(start) => start.copy_from_slice(key),
        None => block[..32].copy_from_slice(digest(key).as_bytes()),
    }
    let inner = Sha256::new().chain_update(block.map(|byte| byte ^ 0x36)).chain_update(message).finalize();
    Digest(Sha256::new().chain_update(block.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize().into())
}

/// Computes the SHA-256 of bytes that arrive in pieces.
#[derive(Clone, Default)]
pub struct Hasher(Sha256);

impl Hasher {
    /// Adds a piece.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all pieces.
    pub fn digest(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hasher(..)")
    }
}

/// Hashes a list of fields, each prefixed with its length as 8 big-endian bytes.
///
/// Prefixes and not separators, because a value could contain the separator.
#[derive(Clone, Default)]
pub struct Fields(Sha256);

impl Fields {
    /// No fields yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one field.
    #[must_use]
    pub fn field(mut self, bytes: impl AsRef<[u8]>) -> Self {
        let bytes = bytes.as_ref();
        self.0.update((bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
        self
    }

    /// The digest of all fields so far.
    pub fn digest(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fields(..)")
    }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn a_digest_is_sha_256() {
        assert_eq!(digest(b"abc").to_hex(), OF_ABC);
        assert_eq!(digest(b"abc").short(), "ba7816bf");
    }

    #[test]
    fn a_digest_round_trips_as_hex_and_other_texts_are_refused() {
        assert_eq!(Digest::from_hex(OF_ABC), Some(digest(b"abc")));
        assert_eq!(Digest::from_hex(&OF_ABC.to_uppercase()), Some(digest(b"abc")));
        assert_eq!(Digest::from_hex(&OF_ABC[1..]), None);
        assert_eq!(Digest::from_hex(&OF_ABC.replace('b', "g")), None);
        assert_eq!(Digest::from_hex(&OF_ABC.replace("ba", "ä")), None);
    }

    #[test]
    fn fields_are_hashed_with_their_length_in_front() {
        let by_hand = digest(b"\0\0\0\0\0\0\0\x02ab\0\0\0\0\0\0\0\0");
        assert_eq!(Fields::new().field("ab").field("").digest(), by_hand);
    }

    #[test]
    fn fields_that_concatenate_to_the_same_text_differ() {
        let one = Fields::new().field("ab").field("c").digest();
        let other = Fields::new().field("a").field("bc").digest();
        assert_ne!(one, other);
    }

    #[test]
    fn debug_shows_the_short_form_and_serde_the_whole_digest() {
        let digest = digest(b"abc");
        assert_eq!(format!("{digest:?}"), "Digest(ba7816bf)");
        let text = serde_json::to_string(&digest).unwrap();
        assert_eq!(text, format!("\"{OF_ABC}\""));
        assert_eq!(serde_json::from_str::<Digest>(&text).unwrap(), digest);
        assert!(serde_json::from_str::<Digest>("\"ba78\"").is_err());
    }

    #[test]
    fn hmac_agrees_with_rfc_4231() {
        let cases: [(&[u8], &[u8], &str); 3] = [
            (&[0x0b; 20], b"Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
            (
                b"Jefe",
                b"what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                &[0xaa; 131],
                b"Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
        ];
        for (key, message, expected) in cases {
            assert_eq!(hmac(key, message).to_hex(), expected);
        }
    }
}
