//! Any names and any intent: a derived key is a valid key, the same intent has the same key however it is written, and
//! moving a character from one part of an identity to the next changes it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use onceward_core::hash::Digest;
use onceward_core::json::Value;
use onceward_core::key::derive;
use onceward_core::name::{Identity, Key, MAX_CHARACTERS, Operation, Session, Tenant};
use onceward_core::record::downstream_key;

// Lines: tenant, operation, key, session, sink; the rest is the intent. No name contains a line break.
fuzz_target!(|text: &str| {
    names(text);
    let mut lines = text.splitn(6, '\n');
    let mut line = || lines.next().unwrap_or_default();
    let (tenant, operation, key, session, sink, intent) = (line(), line(), line(), line(), line(), line());
    names(key);
    let (Ok(session), Ok(operation)) = (Session::new(session), Operation::new(operation)) else { return };
    if let Ok(intent) = Value::parse(intent.as_bytes()) {
        derived(&session, &operation, &intent);
    }
    let (Ok(tenant), Ok(key)) = (Tenant::new(tenant), Key::new(key)) else { return };
    identity(&Identity { tenant, operation, key }, sink, u32::try_from(intent.len()).unwrap_or_default());
});

/// A name follows the rules and survives JSON unchanged.
fn names(text: &str) {
    let is_name = !text.is_empty() && text.chars().count() <= MAX_CHARACTERS && !text.chars().any(char::is_control);
    assert_eq!(Key::new(text).is_ok(), is_name);
    assert_eq!(Session::new(text).is_ok(), is_name || text.is_empty());
    let json = serde_json::to_string(text).expect("a text can be written");
    assert_eq!(serde_json::from_str::<Key>(&json).ok(), Key::new(text).ok());
    if let Ok(key) = text.parse::<Key>() {
        assert_eq!(serde_json::to_string(&key).expect("a key can be written"), json);
        let shown = format!("{key:?}");
        // Its debug text is `Key(` and eight hex digits for every key.
        assert_eq!(shown.len(), "Key()".len() + 8);
    }
    if let Some(digest) = Digest::from_hex(text) {
        assert_eq!(digest.to_hex(), text.to_ascii_lowercase());
    }
}

fn derived(session: &Session, operation: &Operation, intent: &Value) {
    let one = derive(session, operation, intent);
    let hex = one.key.as_str().strip_prefix("idem_v1_").expect("the scheme comes first");
    assert_eq!(hex, &one.digest.to_hex()[..32]);
    assert_eq!(Key::new(one.key.as_str()).as_ref(), Ok(&one.key));
    let spelled = serde_json::to_string_pretty(intent).expect("a value can be written");
    let intent = Value::parse(spelled.as_bytes()).expect("what was written is read");
    assert_eq!(derive(session, operation, &intent), one, "another spelling, another key");
    let wrapped = Value::Array(vec![intent]);
    assert_ne!(derive(session, operation, &wrapped), one, "another intent, the same key");
    if let Ok(joined) = Session::new(format!("{}{}", session.as_str(), operation.as_str())) {
        assert_ne!(derive(&joined, operation, &wrapped).digest, one.digest);
    }
}

/// A character that moves from one name to the next makes another intent and another downstream key.
fn identity(identity: &Identity, sink: &str, generation: u32) {
    let downstream = downstream_key(identity, sink, generation);
    assert!(Key::new(&downstream).is_ok());
    assert_ne!(downstream_key(identity, sink, generation.wrapping_add(1)), downstream);
    assert_ne!(downstream_key(identity, &format!("{sink}x"), generation), downstream);
    let mut tenant = identity.tenant.as_str().chars();
    let Some(last) = tenant.next_back() else { return };
    let moved = (Tenant::new(tenant.as_str()), Operation::new(format!("{last}{}", identity.operation.as_str())));
    if let (Ok(tenant), Ok(operation)) = moved {
        let other = Identity { tenant, operation, key: identity.key.clone() };
        assert_ne!(other.digest(), identity.digest());
        assert_ne!(downstream_key(&other, sink, generation), downstream);
    }
}
