//! Warnings on stderr about keys and intents that defeat their purpose. They change nothing else.

use onceward::clock::{Clock, SystemClock};
use onceward::core::json::Value;
use onceward::core::key_content;
use onceward::core::recipe::volatile_fields;

use onceward_runtime::output::say;

/// Warns about a key that the user gave.
pub(super) fn about_key(key: &str) {
    if let Some(kind) = key_content::personal_data(key) {
        say(&format!(
            "warning: the key looks like {kind}. It is stored unchanged; lists show a digest of it unless --show-keys is \
             given.\n  Use an id of your own as the key, or derive the key with --intent."
        ));
    }
    if key_content::is_timestamp(key, SystemClock.now()) {
        say(
            "warning: the key looks like a time. If it is the time of the call, a retry has a different key and runs again.\n  \
             Use a value that stays the same on a retry: an id, or the day that the work is for.",
        );
    }
}

/// Warns about an intent without a recipe if some of its fields look volatile.
pub(super) fn about_intent(operation: &str, intent: &Value) {
    let fields = volatile_fields(intent);
    if fields.is_empty() {
        return;
    }
    say(&format!(
        "warning: the intent has a field that changes on every attempt ({}), and {operation} has no recipe: a retry would be \
         another intent and run again.\n  Name the fields that identify the intent in onceward.toml: [operation.{}] key = [\"/…\"]",
        fields.join(", "),
        toml_name(operation),
    ));
}

/// The name as written in a TOML table header.
fn toml_name(name: &str) -> String {
    let is_bare = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    if is_bare { name.to_owned() } else { toml::Value::String(name.to_owned()).to_string() }
}
