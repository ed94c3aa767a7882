//! Finds a value in JSON from another program: an answer of an API, or a webhook. The bytes of the value stay as they are, and
//! what is not strict JSON, with inexact numbers or duplicate members, can be read as well. Pure.

use std::collections::HashMap;

use onceward::core::json::Pointer;
use serde_json::value::RawValue;

/// What is at the place that a pointer names.
#[derive(Debug)]
pub enum Found<'a> {
    Value(&'a RawValue),
    /// The list, object or `null` that would contain it is there, and it is not in it.
    Nothing,
    /// The answer has another form, or is not JSON.
    OtherForm,
}

/// Looks for the value that a pointer names.
pub fn find<'a>(body: &'a [u8], pointer: &Pointer) -> Found<'a> {
    let Ok(mut value) = serde_json::from_slice::<&RawValue>(body) else { return Found::OtherForm };
    let mut segments = pointer.segments().iter().peekable();
    while let Some(segment) = segments.next() {
        let inner = match value.get().as_bytes().first() {
            Some(b'{') => {
                let members = serde_json::from_str::<HashMap<String, &'a RawValue>>(value.get());
                members.ok().map(|members| members.get(segment).copied())
            }
            Some(b'[') => {
                let elements = serde_json::from_str::<Vec<&'a RawValue>>(value.get());
                elements.ok().map(|elements| elements.get(segment.parse::<usize>().ok()?).copied())
            }
            Some(b'n') => Some(None),
            _ => None,
        };
        value = match inner {
            Some(Some(inner)) => inner,
            Some(None) if segments.peek().is_none() => return Found::Nothing,
            _ => return Found::OtherForm,
        };
    }
    Found::Value(value)
}

/// Whether a value says that there is nothing: `null`, `false`, `0`, or an empty text, list or object.
pub fn is_empty(value: &RawValue) -> bool {
    match serde_json::from_str(value.get()) {
        Ok(serde_json::Value::Null | serde_json::Value::Bool(false)) => true,
        Ok(serde_json::Value::String(text)) => text.is_empty(),
        Ok(serde_json::Value::Number(number)) => number.as_f64() == Some(0.0),
        Ok(serde_json::Value::Array(elements)) => elements.is_empty(),
        Ok(serde_json::Value::Object(members)) => members.is_empty(),
        Ok(serde_json::Value::Bool(true)) | Err(_) => false,
    }
}

/// A text or a number, as an id.
pub fn id(value: &RawValue) -> Option<String> {
    let text = value.get();
    match text.as_bytes().first()? {
        b'"' => serde_json::from_str(text).ok(),
        b'-' | b'0'..=b'9' => Some(text.to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(body: &str, pointer: &str) -> String {
        match find(body.as_bytes(), &Pointer::parse(pointer).unwrap()) {
            Found::Value(value) => value.get().to_owned(),
            Found::Nothing => "nothing".to_owned(),
            Found::OtherForm => "other form".to_owned(),
        }
    }

    #[test]
    fn a_value_keeps_its_bytes() {
        let body = r#"{"data": [ {"id":"ch_1", "amount": 1.10000000000000000001, "amount": 2} ]}"#;
        assert_eq!(found(body, "/data/0"), r#"{"id":"ch_1", "amount": 1.10000000000000000001, "amount": 2}"#);
        assert_eq!(found(body, "/data/0/id"), "\"ch_1\"");
        assert_eq!(found(r#"{"a\u002fb": {"~": 1}}"#, "/a~1b/~0"), "1");
        assert_eq!(found("[1]", ""), "[1]");
    }

    #[test]
    fn only_an_empty_place_is_nothing() {
        for body in [r#"{"data":[]}"#, r#"{"data":null}"#, r#"{"data":{}}"#] {
            assert_eq!(found(body, "/data/0"), "nothing", "{body}");
        }
        for body in [r#"{"error":"busy"}"#, r#"{"data":"[]"}"#, "[", "", "<html>", "null x", r#"{"data":[1}"#] {
            assert_eq!(found(body, "/data/0"), "other form", "{body}");
        }
        assert_eq!(found("null", "/data/0"), "other form");
    }

    #[test]
    fn ids_are_texts_or_numbers() {
        let id = |text: &str| id(serde_json::from_str(text).unwrap());
        assert_eq!(id("\"ch_\\u0031\"").as_deref(), Some("ch_1"));
        assert_eq!(id("12345678901234567890123").as_deref(), Some("12345678901234567890123"));
        assert_eq!((id("null"), id("[1]"), id("true")), (None, None, None));
    }
}
