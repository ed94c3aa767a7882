//! Strict JSON and its canonical text: RFC 8785, except that integer literals keep their digits at any size.
//!
//! Keys and fingerprints are hashes of this text, so two inputs may have the same text only if they mean the same. Ambiguous
//! input is refused and not repaired: duplicate members (parsers disagree on which one counts), numbers that a double cannot
//! represent, lone surrogates.

mod number;
mod parser;
mod pointer;
mod serialize;

use std::cmp::Ordering;

pub(crate) use number::Decimal;
pub use number::Number;
pub use pointer::{Pointer, PointerError};
use serde::Serialize;

/// The longest text that is parsed: much longer than any real intent, and short enough to keep a few in memory.
pub const MAX_BYTES: usize = 8 * 1024 * 1024;

/// The deepest nesting of arrays and objects: what common parsers allow, and far too little to overflow the stack.
pub const MAX_DEPTH: usize = 128;

/// A JSON value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, in its canonical form.
    Number(Number),
    /// A string, unescaped.
    String(String),
    /// An array.
    Array(Vec<Value>),
    /// An object. [`Value::parse`] and [`Value::object`] sort its members by the UTF-16 code units of their names and refuse
    /// duplicate names.
    Object(Vec<(String, Value)>),
}

/// Why a text or a value is refused. Offsets are in bytes, from 0.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// More than [`MAX_BYTES`].
    #[error("the JSON has {length} bytes; at most {MAX_BYTES} are read")]
    TooLarge {
        /// The number of bytes.
        length: usize,
    },
    /// Not JSON.
    #[error("bad JSON at byte {offset}: expected {expected}")]
    Syntax {
        /// Where.
        offset: usize,
        /// What should be there.
        expected: &'static str,
    },
    /// Something follows the value.
    #[error("bad JSON: the value ends, but more follows at byte {offset}")]
    TrailingData {
        /// Where it begins.
        offset: usize,
    },
    /// An object has two members with the same name.
    #[error("the object member at byte {offset} has the same name as an earlier one; each name may occur once")]
    DuplicateMember {
        /// Where the second one is.
        offset: usize,
    },
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("the JSON is nested deeper than {MAX_DEPTH} levels at byte {offset}")]
    TooDeep {
        /// Where the level begins that is too deep.
        offset: usize,
    },
    /// Not UTF-8.
    #[error("the JSON is not valid UTF-8 at byte {offset}")]
    InvalidUtf8 {
        /// Where.
        offset: usize,
    },
    /// A `\u` escape that is half of a surrogate pair.
    #[error("the escape at byte {offset} is half of a surrogate pair and does not encode a character")]
    LoneSurrogate {
        /// Where.
        offset: usize,
    },
    /// An unescaped control character in a string.
    #[error("the string contains an unescaped control character at byte {offset}")]
    ControlCharacter {
        /// Where.
        offset: usize,
    },
    /// A fraction or exponent whose value a double cannot represent exactly as written.
    #[error(
        "the number at byte {offset} has more digits or a larger exponent than a double can represent; send it as a string"
    )]
    InexactNumber {
        /// Where.
        offset: usize,
    },
    /// A float in a Rust value that is infinite or NaN.
    #[error("a number is infinite or NaN; JSON cannot represent it")]
    NonFinite,
    /// A Rust value that cannot be serialised as JSON, such as a map whose keys are not strings.
    #[error("the value cannot be serialised as JSON: {message}")]
    Unserialisable {
        /// The serialiser's message.
        message: String,
    },
}

impl Error {
    /// A stable name of the kind of error, the same in the vectors and in every language.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "too_large",
            Self::Syntax { .. } => "syntax",
            Self::TrailingData { .. } => "trailing_data",
            Self::DuplicateMember { .. } => "duplicate_member",
            Self::TooDeep { .. } => "too_deep",
            Self::InvalidUtf8 { .. } => "invalid_utf8",
            Self::LoneSurrogate { .. } => "lone_surrogate",
            Self::ControlCharacter { .. } => "control_character",
            Self::InexactNumber { .. } => "inexact_number",
            Self::NonFinite => "non_finite",
            Self::Unserialisable { .. } => "unserialisable",
        }
    }
}

impl Value {
    /// Parses a whole JSON text.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        parser::parse(bytes)
    }

    /// The JSON value of a Rust value, checked as strictly as a parsed text.
    pub fn from_serialize<T: Serialize + ?Sized>(value: &T) -> Result<Self, Error> {
        serialize::check(value)?;
        let text = serde_json::to_vec(value).map_err(|error| Error::Unserialisable { message: error.to_string() })?;
        Self::parse(&text)
    }

    /// An object with these members in canonical order. The error is a duplicate name.
    pub fn object(members: impl IntoIterator<Item = (String, Self)>) -> Result<Self, String> {
        let mut members: Vec<_> = members.into_iter().collect();
        sort(&mut members);
        match members.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(pair[0].0.clone()),
            None => Ok(Self::Object(members)),
        }
    }

    /// The value at an RFC 6901 pointer; `None` if there is none or the pointer is malformed.
    pub fn pointer(&self, pointer: &str) -> Option<&Self> {
        Pointer::parse(pointer).ok()?.find(self)
    }

    /// The canonical text: no spaces, members in UTF-16 order, and one form for each number and string.
    pub fn canonical(&self) -> String {
        let mut text = String::new();
        self.write_canonical(&mut text);
        text
    }

    fn write_canonical(&self, text: &mut String) {
        match self {
            Self::Null => text.push_str("null"),
            Self::Bool(true) => text.push_str("true"),
            Self::Bool(false) => text.push_str("false"),
            Self::Number(number) => text.push_str(number.as_str()),
            Self::String(string) => write_string(string, text),
            Self::Array(elements) => {
                text.push('[');
                for (position, element) in elements.iter().enumerate() {
                    if position > 0 {
                        text.push(',');
                    }
                    element.write_canonical(text);
                }
                text.push(']');
            }
            Self::Object(members) => {
                // The variant is public, so its members may be in any order.
                let mut members: Vec<_> = members.iter().collect();
                members.sort_by(|(one, _), (other, _)| compare_names(one, other));
                text.push('{');
                for (position, (name, value)) in members.into_iter().enumerate() {
                    if position > 0 {
                        text.push(',');
                    }
                    write_string(name, text);
                    text.push(':');
                    value.write_canonical(text);
                }
                text.push('}');
            }
        }
    }
}

/// Sorts members into canonical order.
pub(crate) fn sort(members: &mut [(String, Value)]) {
    members.sort_by(|(one, _), (other, _)| compare_names(one, other));
}

/// RFC 8785 sorts by UTF-16 code units, as ECMAScript does; bytes would sort U+1F600 after U+FB33.
fn compare_names(one: &str, other: &str) -> Ordering {
    one.encode_utf16().cmp(other.encode_utf16())
}

fn write_string(string: &str, text: &mut String) {
    text.push('"');
    for character in string.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\u{8}' => text.push_str("\\b"),
            '\t' => text.push_str("\\t"),
            '\n' => text.push_str("\\n"),
            '\u{c}' => text.push_str("\\f"),
            '\r' => text.push_str("\\r"),
            '\0'..='\u{1f}' => text.push_str(&format!("\\u{:04x}", u32::from(character))),
            _ => text.push(character),
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn canonical(text: &str) -> String {
        Value::parse(text.as_bytes()).unwrap().canonical()
    }

    #[test]
    fn members_are_sorted_by_utf_16_code_units() {
        let text = "{\"\u{fb33}\":1,\"\u{1f600}\":2,\"b\":3,\"a\":4}";
        assert_eq!(canonical(text), "{\"a\":4,\"b\":3,\"\u{1f600}\":2,\"\u{fb33}\":1}");
    }

    #[test]
    fn strings_are_escaped_only_where_needed() {
        assert_eq!(
            canonical(r#""\u0000\u001F\u007f\b\t\n\f\r\"\\\/\u00e9\ud83d\ude00""#),
            "\"\\u0000\\u001f\u{7f}\\b\\t\\n\\f\\r\\\"\\\\/é😀\""
        );
    }

    #[test]
    fn composed_and_decomposed_text_remain_different() {
        assert_ne!(canonical("\"\u{e9}\""), canonical("\"e\u{301}\""));
    }

    #[test]
    fn the_canonical_text_of_a_canonical_text_is_itself() {
        let text = canonical(r#" { "b" : [ 1.50 , -0 , 1e30 ] , "a" : { } } "#);
        assert_eq!(text, r#"{"a":{},"b":[1.5,0,1e+30]}"#);
        assert_eq!(canonical(&text), text);
    }

    #[test]
    fn an_object_from_members_is_sorted_and_refuses_duplicates() {
        let member = |name: &str| (name.to_owned(), Value::Null);
        let object = Value::object([member("b"), member("a")]).unwrap();
        assert_eq!(object, Value::parse(br#"{"a":null,"b":null}"#).unwrap());
        assert_eq!(Value::object([member("b"), member("a"), member("b")]), Err("b".to_owned()));
        assert_eq!(Value::Object(vec![member("b"), member("a")]).canonical(), object.canonical());
    }

    #[test]
    fn rust_values_become_json() {
        let value = Value::from_serialize(&BTreeMap::from([("b", 1.5), ("a", 1e21)])).unwrap();
        assert_eq!(value.canonical(), r#"{"a":1e+21,"b":1.5}"#);
        let value = Value::from_serialize(&(0.1_f32, u128::MAX, Some("x"), ())).unwrap();
        assert_eq!(value.canonical(), r#"[0.1,340282366920938463463374607431768211455,"x",null]"#);
    }

    #[test]
    fn a_non_finite_float_is_refused_at_any_depth() {
        for float in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let hidden = BTreeMap::from([("a", vec![Some((1, float))])]);
            assert_eq!(Value::from_serialize(&hidden), Err(Error::NonFinite));
        }
        assert_eq!(Value::from_serialize(&f32::NAN), Err(Error::NonFinite));
        assert_eq!(Value::from_serialize(&None::<f64>), Ok(Value::Null));
    }

    #[test]
    fn a_non_finite_float_is_refused_in_every_kind_of_type() {
        #[derive(Serialize)]
        struct Newtype(f64);
        #[derive(Serialize)]
        struct Pair(u8, f64);
        #[derive(Serialize)]
        enum Variant {
            One(f64),
            Pair(u8, f64),
            Named { of: f64 },
        }
        struct MapWithKey(f64);
        impl Serialize for MapWithKey {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_map([(self.0, 1)])
            }
        }
        let of = |float| {
            [
                Value::from_serialize(&Newtype(float)),
                Value::from_serialize(&Pair(1, float)),
                Value::from_serialize(&Variant::One(float)),
                Value::from_serialize(&Variant::Pair(1, float)),
                Value::from_serialize(&Variant::Named { of: float }),
                Value::from_serialize(&MapWithKey(float)),
            ]
        };
        let texts = of(1.5).map(|value| value.unwrap().canonical());
        let expected =
            ["1.5", "[1,1.5]", r#"{"One":1.5}"#, r#"{"Pair":[1,1.5]}"#, r#"{"Named":{"of":1.5}}"#, r#"{"1.5":1}"#];
        assert_eq!(texts, expected);
        assert!(of(f64::NAN).iter().all(|value| *value == Err(Error::NonFinite)), "{:?}", of(f64::NAN));
    }

    #[test]
    fn a_value_that_serialises_one_member_twice_is_refused() {
        struct DuplicateMember;
        impl Serialize for DuplicateMember {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_map([("a", 1), ("a", 2)])
            }
        }
        assert!(matches!(Value::from_serialize(&DuplicateMember), Err(Error::DuplicateMember { .. })));
    }

    #[test]
    fn a_map_whose_keys_are_not_strings_is_refused() {
        let error = Value::from_serialize(&BTreeMap::from([(vec![1], 1)])).unwrap_err();
        assert_eq!(error.kind(), "unserialisable");
    }

    #[test]
    fn a_value_nested_too_deep_is_refused_before_it_is_written() {
        let nested = |depth| (1..depth).fold(serde_json::json!([]), |inner, _| serde_json::json!([inner]));
        assert!(Value::from_serialize(&nested(MAX_DEPTH)).is_ok());
        // The offset is 0 because the value was refused before it became a text.
        assert_eq!(Value::from_serialize(&nested(MAX_DEPTH + 1)), Err(Error::TooDeep { offset: 0 }));
    }

    #[test]
    fn serde_keeps_every_digit_and_stays_strict() {
        let text = r#"{"big":123456789012345678901234567890,"list":[1,-2,0.1,1e+21,"x",null,true]}"#;
        let value: Value = serde_json::from_str(text).unwrap();
        assert_eq!(value.canonical(), text);
        let written = serde_json::to_vec(&value).unwrap();
        assert_eq!(Value::parse(&written).unwrap(), value);
        assert!(serde_json::from_str::<Value>(r#"{"a":1,"a":1}"#).is_err());
    }
}
