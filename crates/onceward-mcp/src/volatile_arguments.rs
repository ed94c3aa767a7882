//! Finds arguments that change from one attempt to the next, judged by their names. Without a recipe, they make each attempt a
//! different call. Pure; reads only names, and reports only names of a short list.

use std::collections::BTreeSet;

use onceward::core::recipe::{Definition, Error, Recipe};
use serde_json::Value;

use super::members::Members;

/// How deep arguments and schemas are searched.
const MAX_DEPTH: u32 = 6;

/// Longer arguments are searched at the top level only: the search runs with every call until it finds something.
const MAX_BYTES: usize = 16 * 1024;

/// The most names in a warning.
const MAX_NAMES: usize = 5;

/// Whether a recipe may name this pointer: not if its value changes from one attempt to the next.
pub(super) fn is_stable(pointer: &str) -> bool {
    recipe_of(pointer).is_ok()
}

fn recipe_of(pointer: &str) -> Result<Recipe, Error> {
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
    matches!(recipe_of(&pointer), Err(Error::Volatile { .. }))
}

/// The names of volatile arguments in a tool's schema.
pub(super) fn in_schema(schema: &Members) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    if let Ok(schema) = serde_json::from_str(&schema.to_json()) {
        search_schema(&schema, MAX_DEPTH, &mut found);
    }
    found
}

fn search_schema(schema: &Value, depth: u32, found: &mut BTreeSet<String>) {
    if depth == 0 || found.len() >= MAX_NAMES {
        return;
    }
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        add_if_volatile(name, found);
        search_schema(property, depth - 1, found);
    }
    if let Some(items) = schema.get("items") {
        search_schema(items, depth - 1, found);
    }
}

/// The names of volatile arguments in a call.
pub(super) fn in_arguments(arguments: &Members) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let text = arguments.to_json();
    match serde_json::from_str(&text) {
        Ok(value) if text.len() <= MAX_BYTES => search_value(&value, MAX_DEPTH, &mut found),
        _ => arguments.names().for_each(|name| add_if_volatile(name, &mut found)),
    }
    found
}

fn search_value(value: &Value, depth: u32, found: &mut BTreeSet<String>) {
    if depth == 0 || found.len() >= MAX_NAMES {
        return;
    }
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                add_if_volatile(name, found);
                search_value(member, depth - 1, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| search_value(item, depth - 1, found)),
        _ => {}
    }
}

fn add_if_volatile(name: &str, found: &mut BTreeSet<String>) {
    if found.len() < MAX_NAMES && is_volatile(name) {
        found.insert(name.to_owned());
    }
}

/// The warning for the user.
pub(super) fn warning(names: &BTreeSet<String>) -> Option<String> {
    let (noun, verb) = match names.len() {
        0 => return None,
        1 => ("argument", "seems to change"),
        _ => ("arguments", "seem to change"),
    };
    let names = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    Some(format!(
        "the {noun} {names} {verb} with every attempt, which makes a retry a different call that acts again; list the arguments \
         that identify a call under `key`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, search: impl Fn(&Members) -> BTreeSet<String>) -> Vec<String> {
        search(&Members::read(text).unwrap()).into_iter().collect()
    }

    #[test]
    fn volatile_names_are_found_at_any_depth_and_values_are_ignored() {
        let arguments = r#"{"to":"timestamp","meta":{"requestId":"r","lines":[{"retry_count":1}]},"date":1}"#;
        assert_eq!(found(arguments, in_arguments), ["requestId", "retry_count"]);
        let schema = r#"{"properties":{"to":{},"at":{"properties":{"timestamp":{}}},"lines":{"items":{"properties":{"nonce":{}}}}}}"#;
        assert_eq!(found(schema, in_schema), ["nonce", "timestamp"]);
        assert!(found(r#"{"properties":{"to":{},"message_id":{}}}"#, in_schema).is_empty());
        assert!(warning(&BTreeSet::new()).is_none());
    }

    #[test]
    fn depth_size_and_number_are_limited() {
        let deep = format!("{}{{\"ts\":1}}{}", r#"{"a":"#.repeat(20), "}".repeat(20));
        assert!(found(&deep, in_arguments).is_empty());
        let long = format!(r#"{{"x":"{}","ts":1,"deep":{{"nonce":1}}}}"#, "x".repeat(MAX_BYTES));
        assert_eq!(found(&long, in_arguments), ["ts"]);
        let many: Vec<String> =
            ["ts", "TS", "t_s", "time", "now", "nonce", "uuid"].map(|n| format!("\"{n}\":1")).into();
        assert_eq!(found(&format!("{{{}}}", many.join(",")), in_arguments).len(), MAX_NAMES);
    }
}
