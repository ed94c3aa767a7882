//! The hash of the request that came with a key. The same key with another fingerprint is a mismatch, never a replay.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::hash::{Digest, Fields};
use crate::json::Value;

/// Part of every fingerprint, so that a later layout cannot produce an old one.
const SCHEME: &str = "fingerprint v1";

/// The hash of what must agree whenever a key comes again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(Digest);

impl Fingerprint {
    /// The fingerprint with this digest, as read from a store.
    pub const fn from_digest(digest: Digest) -> Self {
        Self(digest)
    }

    /// The digest itself.
    pub const fn digest(&self) -> Digest {
        self.0
    }

    /// For a key without anything to compare.
    pub fn none() -> Self {
        Builder::new("none").build()
    }

    /// Of a record that was reset: the next request sets its own.
    pub fn free() -> Self {
        Builder::new("free").build()
    }

    /// Combines fingerprints, in this order: a command with a recipe has its match fields and its argument vector.
    pub fn combine(parts: &[Self]) -> Self {
        let builder = Builder::new("combined");
        parts.iter().fold(builder, |builder, part| builder.part("fingerprint", part.0.as_bytes())).build()
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({})", self.0.short())
    }
}

/// The fingerprint of a whole intent.
pub fn of_intent(intent: &Value) -> Fingerprint {
    Builder::new("intent").part("intent", intent.canonical()).build()
}

/// The fingerprint of some fields of an intent, in any order: each JSON pointer with its value, if it has one. An absent
/// field differs from a field that is null. An empty list gives [`Fingerprint::none`].
pub fn of_fields<'a>(fields: impl IntoIterator<Item = (&'a str, Option<&'a Value>)>) -> Fingerprint {
    let mut fields: Vec<_> = fields.into_iter().collect();
    if fields.is_empty() {
        return Fingerprint::none();
    }
    fields.sort_by_key(|(pointer, _)| *pointer);
    let builder = Builder::new("fields");
    let add = |builder: Builder, (pointer, value): (&str, Option<&Value>)| match value {
        Some(value) => builder.part(pointer, value.canonical()),
        None => builder.absent(pointer),
    };
    fields.into_iter().fold(builder, add).build()
}

/// The fingerprint of the argument vector of a command, as bytes.
pub fn of_arguments<A: AsRef<[u8]>>(arguments: impl IntoIterator<Item = A>) -> Fingerprint {
    let builder = Builder::new("arguments");
    arguments.into_iter().fold(builder, |builder, argument| builder.part("argument", argument)).build()
}

/// Builds a fingerprint of one kind from named parts. Fingerprints of different kinds differ, and an absent part differs from
/// an empty one.
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder(Fields);

impl Builder {
    /// A fingerprint of this kind, with no parts yet.
    pub fn new(kind: &'static str) -> Self {
        Self(Fields::new().field(SCHEME).field(kind))
    }

    /// Adds a part that is present.
    pub fn part(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        Self(self.0.field(name).field("present").field(content))
    }

    /// Adds a part that is absent.
    pub fn absent(self, name: &str) -> Self {
        Self(self.0.field(name).field("absent").field(""))
    }

    /// The fingerprint.
    pub fn build(self) -> Fingerprint {
        Fingerprint(self.0.digest())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Value {
        Value::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn an_absent_field_a_null_and_an_empty_text_all_differ() {
        let (null, empty) = (value("null"), value("\"\""));
        let all = [None, Some(&null), Some(&empty)].map(|value| of_fields([("/a", value)]));
        assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2]);
    }

    #[test]
    fn the_order_of_match_fields_does_not_count() {
        let (one, two) = (value("1"), value("2"));
        let forward = of_fields([("/a", Some(&one)), ("/b", Some(&two))]);
        assert_eq!(forward, of_fields([("/b", Some(&two)), ("/a", Some(&one))]));
        assert_ne!(forward, of_fields([("/a", Some(&two)), ("/b", Some(&one))]));
    }

    #[test]
    fn an_empty_list_of_match_fields_compares_nothing() {
        assert_eq!(of_fields([]), Fingerprint::none());
    }

    #[test]
    fn fingerprints_of_different_kinds_differ() {
        let all = [
            Fingerprint::none(),
            of_intent(&value("[]")),
            of_fields([("", Some(&value("[]")))]),
            of_arguments(["[]"]),
            of_arguments::<&str>([]),
            Fingerprint::combine(&[]),
            Fingerprint::combine(&[Fingerprint::none()]),
        ];
        for (position, one) in all.iter().enumerate() {
            assert!(all[position + 1..].iter().all(|other| one != other));
        }
    }

    #[test]
    fn arguments_are_compared_one_by_one() {
        assert_ne!(of_arguments(["a b"]), of_arguments(["a", "b"]));
        assert_ne!(of_arguments(["a", ""]), of_arguments(["a"]));
        assert_eq!(of_arguments([vec![0xff_u8]]), of_arguments([&[0xff_u8][..]]));
    }

    #[test]
    fn the_order_of_combined_parts_counts() {
        let (one, two) = (of_arguments(["a"]), of_intent(&value("1")));
        assert_ne!(Fingerprint::combine(&[one, two]), Fingerprint::combine(&[two, one]));
    }

    #[test]
    fn debug_is_short_and_serde_is_the_whole_hex() {
        let none = Fingerprint::none();
        assert_eq!(format!("{none:?}"), format!("Fingerprint({})", none.digest().short()));
        let text = serde_json::to_string(&none).unwrap();
        assert_eq!(text, format!("\"{none}\""));
        assert_eq!(serde_json::from_str::<Fingerprint>(&text).unwrap(), none);
    }
}
