//! Derives a key from an intent: the same inputs give the same key, on every machine and in every language.

use crate::hash::{Digest, Fields};
use crate::json::Value;
use crate::name::{Key, Operation, Session};

/// Part of the hash and of the text, so that a later scheme cannot produce an old key.
const SCHEME: &str = "v1";

/// How much of the digest the key shows: 128 bits, so that two intents do not collide by chance.
const HEX_DIGITS: usize = 32;

/// A key that was derived from an intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Derived {
    /// The key: `idem_v1_` and 32 hex digits.
    pub key: Key,
    /// The whole digest. The record keeps it: an equal key with another digest is a collision.
    pub digest: Digest,
}

/// Derives the key of an intent, from nothing but its arguments.
pub fn derive(session: &Session, operation: &Operation, intent: &Value) -> Derived {
    let digest = Fields::new()
        .field(SCHEME)
        .field(session.as_str())
        .field(operation.as_str())
        .field(intent.canonical())
        .digest();
    let mut hex = digest.to_hex();
    hex.truncate(HEX_DIGITS);
    Derived { key: Key::made_here(format!("idem_{SCHEME}_{hex}")), digest }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn derived(session: &str, operation: &str, intent: &str) -> Derived {
        derive(
            &Session::new(session).unwrap(),
            &Operation::new(operation).unwrap(),
            &Value::parse(intent.as_bytes()).unwrap(),
        )
    }

    #[test]
    fn a_key_is_the_prefix_and_the_start_of_its_digest() {
        let derived = derived("", "charge", "{}");
        assert_eq!(derived.key.as_str(), format!("idem_v1_{}", &derived.digest.to_hex()[..32]));
    }

    #[test]
    fn spelling_does_not_change_the_key_and_meaning_does() {
        let key = derived("s", "charge", r#"{"a":1,"b":"x"}"#);
        assert_eq!(key, derived("s", "charge", r#" {"b":"\u0078", "a":1.0} "#));
        assert_ne!(key, derived("s", "charge", r#"{"a":2,"b":"x"}"#));
        assert_ne!(key, derived("", "charge", r#"{"a":1,"b":"x"}"#));
        assert_ne!(key, derived("s", "refund", r#"{"a":1,"b":"x"}"#));
    }

    #[test]
    fn neighbouring_large_integers_make_different_keys() {
        assert_ne!(derived("", "pay", "9007199254740992"), derived("", "pay", "9007199254740993"));
    }

    #[test]
    fn a_character_cannot_move_from_one_field_to_the_next() {
        assert_ne!(derived("a", "bc", "{}"), derived("ab", "c", "{}"));
    }
}
