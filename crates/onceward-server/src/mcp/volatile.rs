//! Arguments that change from one try to the next, as their names say. Without a recipe they make each try another call. Pure;
//! only names are looked at, and only those of a short list are ever shown.

use std::collections::BTreeSet;

use onceward::core::recipe::{Definition, Error, Recipe};
use serde_json::Value;

use super::members::Members;

/// How deep arguments and schemas are looked at.
const DEPTH: u32 = 6;

/// The longest arguments that are looked at below their own names. It is done with every call until something is found.
const LONGEST: usize = 16 * 1024;

/// How many names a warning has.
const MOST: usize = 5;

/// Whether a recipe may name this pointer: not if what it points to changes from one try to the next.
pub(super) fn is_stable(pointer: &str) -> bool {
    named(pointer).is_ok()
}

fn named(pointer: &str) -> Result<Recipe, Error> {
    Recipe::new(Definition {
        key: vec![pointer.to_owned()],
        match_fields: Vec::new(),
        normalise: Vec::new(),
        window: None,
        allow_volatile: false,
    })
}

fn is_volatile(name: &str) -> bool {
    let pointer = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
    matches!(named(&pointer), Err(Error::Volatile { .. }))
}

/// The names of such arguments in a tool's schema.
pub(super) fn in_schema(schema: &Members) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    if let Ok(schema) = serde_json::from_str(&schema.written()) {
        look_at_schema(&schema, DEPTH, &mut found);
    }
    found
}

fn look_at_schema(schema: &Value, depth: u32, found: &mut BTreeSet<String>) {
    if depth == 0 || found.len() >= MOST {
        return;
    }
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        note(name, found);
        look_at_schema(property, depth - 1, found);
    }
    if let Some(items) = schema.get("items") {
        look_at_schema(items, depth - 1, found);
    }
}

/// The names of such arguments in a call.
pub(super) fn in_arguments(arguments: &Members) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let text = arguments.written();
    match serde_json::from_str(&text) {
        Ok(value) if text.len() <= LONGEST => look_at(&value, DEPTH, &mut found),
        _ => arguments.names().for_each(|name| note(name, &mut found)),
    }
    found
}

fn look_at(value: &Value, depth: u32, found: &mut BTreeSet<String>) {
    if depth == 0 || found.len() >= MOST {
        return;
    }
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                note(name, found);
                look_at(member, depth - 1, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| look_at(item, depth - 1, found)),
        _ => {}
    }
}

fn note(name: &str, found: &mut BTreeSet<String>) {
    if found.len() < MOST && is_volatile(name) {
        found.insert(name.to_owned());
    }
}

/// What people are told.
pub(super) fn warning(names: &BTreeSet<String>) -> Option<String> {
    let (noun, verb) = match names.len() {
        0 => return None,
        1 => ("argument", "looks as if it changes"),
        _ => ("arguments", "look as if they change"),
    };
    let names = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    Some(format!(
        "the {noun} {names} {verb} with every try, and then a retry is another call and acts again; configure which arguments \
         make calls the same, with `key`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, look: impl Fn(&Members) -> BTreeSet<String>) -> Vec<String> {
        look(&Members::read(text).unwrap()).into_iter().collect()
    }

    #[test]
    fn names_that_change_are_found_at_any_depth_and_values_are_not() {
        let arguments = r#"{"to":"timestamp","meta":{"requestId":"r","lines":[{"retry_count":1}]},"date":1}"#;
        assert_eq!(found(arguments, in_arguments), ["requestId", "retry_count"]);
        let schema = r#"{"properties":{"to":{},"at":{"properties":{"timestamp":{}}},"lines":{"items":{"properties":{"nonce":{}}}}}}"#;
        assert_eq!(found(schema, in_schema), ["nonce", "timestamp"]);
        assert!(found(r#"{"properties":{"to":{},"message_id":{}}}"#, in_schema).is_empty());
        assert!(warning(&BTreeSet::new()).is_none());
    }

    #[test]
    fn there_are_limits() {
        let deep = format!("{}{{\"ts\":1}}{}", r#"{"a":"#.repeat(20), "}".repeat(20));
        assert!(found(&deep, in_arguments).is_empty());
        let long = format!(r#"{{"x":"{}","ts":1,"deep":{{"nonce":1}}}}"#, "x".repeat(LONGEST));
        assert_eq!(found(&long, in_arguments), ["ts"]);
        let many: Vec<String> =
            ["ts", "TS", "t_s", "time", "now", "nonce", "uuid"].map(|n| format!("\"{n}\":1")).into();
        assert_eq!(found(&format!("{{{}}}", many.join(",")), in_arguments).len(), MOST);
    }
}
