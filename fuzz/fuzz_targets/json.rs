//! Any bytes are refused for a reason that other parsers share, or read into a value whose canonical text is its own
//! canonical text and means the same to every parser.

#![no_main]

use libfuzzer_sys::fuzz_target;
use onceward_core::json::Value;

fuzz_target!(|bytes: &[u8]| {
    let theirs = serde_json::from_slice::<serde_json::Value>(bytes);
    let value = match Value::parse(bytes) {
        Ok(value) => value,
        Err(error) => {
            // A strict parser refuses these, although others accept them. It refuses nothing else.
            let stricter = ["duplicate_member", "inexact_number", "too_deep", "too_large"];
            let is_ours = stricter.contains(&error.kind());
            assert!(theirs.is_err() || is_ours, "others read what we refuse: {error}");
            return;
        }
    };
    let text = value.canonical();
    let again = Value::parse(text.as_bytes()).expect("canonical text is JSON");
    assert_eq!(again, value, "the canonical text means another value");
    assert_eq!(again.canonical(), text, "the canonical text is not its own canonical text");
    // Other parsers have no integers beyond a double, and refuse larger ones.
    match theirs {
        Ok(theirs) => assert!(alike(&value, &theirs), "others read another value than {text}"),
        Err(error) => assert!(error.to_string().contains("out of range"), "others refuse what we read: {error}"),
    }
    let written = serde_json::to_vec(&value).expect("a value can be written");
    assert_eq!(Value::parse(&written).as_ref(), Ok(&value), "serde writes another value");
    let read: Value = serde_json::from_slice(bytes).expect("serde reads what we read");
    assert_eq!(read, value, "serde reads another value");
    every_place_is_found(&value);
});

/// Whether another parser, whose numbers are doubles, reads the same value.
fn alike(ours: &Value, theirs: &serde_json::Value) -> bool {
    match (ours, theirs) {
        (Value::Null, serde_json::Value::Null) => true,
        (Value::Bool(ours), serde_json::Value::Bool(theirs)) => ours == theirs,
        (Value::String(ours), serde_json::Value::String(theirs)) => ours == theirs,
        (Value::Number(ours), serde_json::Value::Number(theirs)) => {
            let ours: f64 = ours.as_str().parse().expect("a number is a number");
            theirs.as_f64().is_some_and(|theirs| is_close(ours, theirs))
        }
        (Value::Array(ours), serde_json::Value::Array(theirs)) => {
            ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(ours, theirs)| alike(ours, theirs))
        }
        (Value::Object(ours), serde_json::Value::Object(theirs)) => {
            ours.len() == theirs.len()
                && ours.iter().all(|(name, ours)| theirs.get(name).is_some_and(|theirs| alike(ours, theirs)))
        }
        _ => false,
    }
}

/// The other parser is fast and not exact: its doubles may be off by a few units in the last place.
fn is_close(one: f64, other: f64) -> bool {
    one == other || one.is_sign_negative() == other.is_sign_negative() && one.to_bits().abs_diff(other.to_bits()) <= 4
}

/// A pointer made of the names on the way leads to each member and each element.
fn every_place_is_found(value: &Value) {
    let places: Vec<(String, &Value)> = match value {
        Value::Object(members) => members.iter().map(|(name, member)| (name.clone(), member)).collect(),
        Value::Array(elements) => elements.iter().enumerate().map(|(at, element)| (at.to_string(), element)).collect(),
        _ => return,
    };
    for (name, inner) in places {
        let pointer = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
        assert_eq!(value.pointer(&pointer), Some(inner), "{pointer} leads elsewhere");
        every_place_is_found(inner);
    }
}
