//! Names of fields that change from one try to the next. Only names: whoever knows better says
//! `allow_volatile`.

use crate::json::Pointer;

/// In lower case and without separators. Short on purpose: every name here is one that clients fill anew
/// when they try again. `message_id` and `correlation_id` are not here, because queues and workflows keep
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
    // Counted up by the one who retries.
    "attempt",
    "attempts",
    "attemptnumber",
    "retry",
    "retries",
    "retrycount",
    // Given out per call; a model that repeats a tool call gets a new one.
    "requestid",
    "traceid",
    "spanid",
    "toolcallid",
    "tooluseid",
];

/// Whether the last segment of a pointer is such a name, in any spelling: `retry_count`, `Retry-Count`,
/// `retryCount`.
pub(super) fn names(pointer: &Pointer) -> bool {
    let Some(last) = pointer.segments().last() else { return false };
    let plain: String =
        last.chars().filter(|character| character.is_alphanumeric()).flat_map(char::to_lowercase).collect();
    NAMES.contains(&plain.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_volatile(pointer: &str) -> bool {
        names(&Pointer::parse(pointer).unwrap())
    }

    #[test]
    fn every_spelling_is_recognised() {
        for pointer in ["/retry_count", "/Retry-Count", "/retryCount", "/a/RETRY COUNT", "/createdAt", "/UUID"] {
            assert!(is_volatile(pointer), "{pointer}");
        }
    }

    #[test]
    fn ordinary_names_are_not() {
        for pointer in ["", "/", "/customer_id", "/timestamps_of_visits", "/date", "/message_id", "/time/zone"] {
            assert!(!is_volatile(pointer), "{pointer}");
        }
    }
}
