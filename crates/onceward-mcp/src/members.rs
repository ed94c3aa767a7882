//! A JSON object whose members keep their bytes as they came: order, numbers and spaces included.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::{RawValue, to_raw_value};

/// The members, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct Members(Vec<(String, Box<RawValue>)>);

impl Members {
    /// Parses an object. `None` for anything else, and for one that names a member twice: parsers disagree on its meaning.
    pub(super) fn read(text: &str) -> Option<Self> {
        Self::read_any(text).filter(Self::has_unique_names)
    }

    /// Parses an object, also one that names a member twice.
    pub(super) fn read_any(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Whether no member is named twice.
    pub(super) fn has_unique_names(&self) -> bool {
        let mut names: Vec<&str> = self.0.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        names.windows(2).all(|pair| pair[0] != pair[1])
    }

    /// Every value of a name, also for parsers that take `Method` for `method`.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a RawValue> {
        self.0.iter().filter(move |(other, _)| is_like(other, name)).map(|(_, value)| &**value)
    }

    /// Whether no member has a name that a parser which ignores case takes for one of these.
    pub(super) fn has_no_lookalikes(&self, names: &[&str]) -> bool {
        self.0.iter().all(|(name, _)| names.iter().all(|other| name == other || !is_like(name, other)))
    }

    pub(super) fn get(&self, name: &str) -> Option<&RawValue> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| &**value)
    }

    /// A member that is a string.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.get(name)?.get()).ok()
    }

    /// A member that is an object.
    pub(super) fn object(&self, name: &str) -> Option<Self> {
        Self::read(self.get(name)?.get())
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<Box<RawValue>> {
        let at = self.0.iter().position(|(other, _)| other == name)?;
        Some(self.0.remove(at).1)
    }

    /// A copy with `null` in place of one member, which may be large.
    pub(super) fn without(&self, name: &str) -> Self {
        let null = || RawValue::NULL.to_owned();
        let kept =
            self.0.iter().map(|(other, value)| (other.clone(), if other == name { null() } else { value.clone() }));
        Self(kept.collect())
    }

    /// Replaces the member of that name, or adds one at the end.
    pub(super) fn set(&mut self, name: &str, value: &impl Serialize) {
        let Ok(value) = to_raw_value(value) else { return };
        match self.0.iter_mut().find(|(other, _)| other == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// As JSON.
    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Whether two names are equal without regard to case. Two letters beyond ASCII fold to `s` and `k`.
fn is_like(name: &str, plain: &str) -> bool {
    let folded = name.chars().map(|letter| match letter {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        letter => letter.to_ascii_lowercase(),
    });
    folded.eq(plain.chars())
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;

        impl<'de> Visitor<'de> for Read {
            type Value = Members;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Read)
    }
}

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_that_are_not_changed_keep_their_bytes() {
        let text = r#"{"z":1.00,"a":12345678901234567890123,"b":{ "x" : 1e2 },"c":"\u00e9"}"#;
        let mut members = Members::read(text).unwrap();
        assert_eq!(members.to_json(), text);
        members.set("a", &2);
        members.set("new", &"n");
        members.remove("c");
        assert_eq!(members.to_json(), r#"{"z":1.00,"a":2,"b":{ "x" : 1e2 },"new":"n"}"#);
    }

    #[test]
    fn names_that_differ_only_in_case_are_found() {
        let members = Members::read(r#"{"Name":1,"param\u017f":2,"Other":3}"#).unwrap();
        assert!(
            !members.has_no_lookalikes(&["name"])
                && !members.has_no_lookalikes(&["params"])
                && members.has_no_lookalikes(&["nam", "other_"])
        );
        assert_eq!(members.all("name").count(), 1);
        assert!(Members::read(r#"{"name":1}"#).unwrap().has_no_lookalikes(&["name"]));
    }

    #[test]
    fn an_ambiguous_object_is_not_parsed() {
        for text in ["", "[]", "1", "{", r#"{"a":1,"a":2}"#, r#"{"a":1,"\u0061":2}"#] {
            assert!(Members::read(text).is_none(), "{text}");
        }
    }
}
