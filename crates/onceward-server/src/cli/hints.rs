//! Warnings about keys and intents that defeat their purpose, on stderr. They change nothing else.

use onceward::clock::{Clock, SystemClock};
use onceward::core::json::Value;
use onceward::core::looks;
use onceward::core::recipe::volatile_fields;

use crate::output::say;

/// Warns about a key that the caller gave.
pub(super) fn about_key(key: &str) {
    if let Some(kind) = looks::personal(key) {
        say(&format!(
            "warning: the key looks like {kind}. It is stored as it is; lists show a digest of it unless --show-keys is \
             given.\n  Use an id of your own as the key, or derive the key with --intent."
        ));
    }
    if looks::timestamp(key, SystemClock.now()) {
        say(
            "warning: the key looks like a time. If it is the time of the call, a retry has another key and runs again.\n  \
             Use something that stays the same on a retry: an id, or the day for which the work is done.",
        );
    }
}

/// Warns about an intent of which no recipe says what counts.
pub(super) fn about_intent(operation: &str, intent: &Value) {
    let fields = volatile_fields(intent);
    if fields.is_empty() {
        return;
    }
    say(&format!(
        "warning: the intent has a field that changes on every try ({}), and {operation} has no recipe: a retry would be \
         another intent and run again.\n  Name the fields that count in onceward.toml: [operation.{}] key = [\"/…\"]",
        fields.join(", "),
        toml_name(operation),
    ));
}

/// The name as it is written in a table's head.
fn toml_name(name: &str) -> String {
    let is_bare = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    if is_bare { name.to_owned() } else { toml::Value::String(name.to_owned()).to_string() }
}
