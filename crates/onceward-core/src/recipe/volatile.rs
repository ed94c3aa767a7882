//! Names of fields that change from one try to the next. Only the name is judged; `allow_volatile` overrides it.

use crate::json::{Pointer, Value};

/// How many fields a warning names.
const MAX_NAMED: usize = 5;

/// In lower case and without separators. Short on purpose: clients fill each of these fields with a new value when they try
/// again. `message_id` and `correlation_id` are not here, because queues and workflows keep
/// them across deliveries; nor is `date`, because a day is a fine identity.
const NAMES: [&str; 23] = [
    // From the clock.
    "timestamp",
    "ts",
    "time",
    "now",
    "createdat",
    "updatedat",
    "sentat",
    "requestedat",
    // From randomness.
    "nonce",
    "uuid",
    "guid",
    "random",
    // Counted up by the client that retries.
    "attempt",
    "attempts",
    "attemptnumber",
    "retry",
    "retries",
    "retrycount",
    // New for each call; a model that repeats a tool call gets a new one.
    "requestid",
    "traceid",
    "spanid",
    "toolcallid",
    "tooluseid",
];

/// Whether the last segment of a pointer is such a name, in any spelling: `retry_count`, `Retry-Count`,
/// `retryCount`.
pub(super) fn names(pointer: &Pointer) -> bool {
    pointer.segments().last().is_some_and(|last| is_volatile(last))
}

fn is_volatile(name: &str) -> bool {
    let plain: String =
        name.chars().filter(|character| character.is_alphanumeric()).flat_map(char::to_lowercase).collect();
    NAMES.contains(&plain.as_str())
}

/// The fields of an intent with such a name, as JSON pointers; only the first few. Without a recipe each of them makes a retry
/// another intent.
pub fn volatile_fields(intent: &Value) -> Vec<String> {
    let mut found = Vec::new();
    collect(intent, &mut String::new(), &mut found);
    found
}

/// Recursion is bounded: the parser limits how deep an intent is.
fn collect(value: &Value, path: &mut String, found: &mut Vec<String>) {
    let mut enter = |name: &str, value: &Value| {
        let length = path.len();
        path.push('/');
        path.push_str(&name.replace('~', "~0").replace('/', "~1"));
        if is_volatile(name) && found.len() < MAX_NAMED {
            found.push(path.clone());
        }
        collect(value, path, found);
        path.truncate(length);
    };
    match value {
        Value::Object(members) => members.iter().for_each(|(name, value)| enter(name, value)),
        Value::Array(items) => items.iter().enumerate().for_each(|(place, item)| enter(&place.to_string(), item)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_volatile_pointer(pointer: &str) -> bool {
        names(&Pointer::parse(pointer).unwrap())
    }

    #[test]
    fn volatile_fields_are_found_at_any_depth_and_the_first_few_are_named() {
        let fields = |text: &str| volatile_fields(&Value::parse(text.as_bytes()).unwrap());
        assert_eq!(fields(r#"{"a":1,"timestamp":3}"#), ["/timestamp"]);
        assert_eq!(
            fields(r#"{"lines":[{"x":1},{"Request-Id":"r"}],"a/b":{"nonce":1}}"#),
            ["/a~1b/nonce", "/lines/1/Request-Id"]
        );
        assert_eq!(fields(r#"{"date":"2026-11-15","timestamps":[1,2]}"#), [""; 0]);
        assert_eq!(fields(&format!("[{}]", vec![r#"{"ts":1}"#; 50].join(","))).len(), MAX_NAMED);
    }

    #[test]
    fn every_spelling_is_recognised() {
        for pointer in ["/retry_count", "/Retry-Count", "/retryCount", "/a/RETRY COUNT", "/createdAt", "/UUID"] {
            assert!(is_volatile_pointer(pointer), "{pointer}");
        }
    }

    #[test]
    fn ordinary_names_are_not_volatile() {
        for pointer in ["", "/", "/customer_id", "/timestamps_of_visits", "/date", "/message_id", "/time/zone"] {
            assert!(!is_volatile_pointer(pointer), "{pointer}");
        }
    }
}
