//! What identifies a call: the key, and what the server compares whenever the key comes again. The same core code as
//! for a ledger in a file.

use std::time::Duration;

use onceward::Invalid;
use onceward::clock::{Clock, SystemClock};
use onceward_core::hash::Digest;
use onceward_core::identify::{Content, Request, identify};
use onceward_core::json::{self, Value};
use onceward_core::name::{Identity, Key, Operation, Session, Tenant};
use onceward_core::recipe::{Applied, Recipe};
use serde_json::value::RawValue;

/// A call, ready for the server.
pub(super) struct RemoteCall {
    /// The tenant is that of the token, which the server knows: here it is always `default`.
    pub(super) identity: Identity,
    /// The full digest of a derived key.
    pub(super) key_digest: Option<Digest>,
    /// What the server compares.
    pub(super) intent: Option<Box<RawValue>>,
    /// How long the outcome must be kept at least.
    pub(super) minimum_retention: Duration,
}

/// Derives the key and reduces the intent to what must agree.
pub(super) fn identified(
    operation: &str,
    session: Option<&str>,
    key: Option<&str>,
    intent: Option<&Value>,
    recipe: Option<&Recipe>,
) -> Result<RemoteCall, Invalid> {
    let operation = Operation::new(operation)?;
    let session = Session::new(session.unwrap_or_default())?;
    let key = key.map(Key::new).transpose()?;
    let now = SystemClock.now();
    let (content, compared) = match (intent, recipe) {
        (None, _) => (Content::Empty, None),
        (Some(intent), None) => (Content::Intent(intent), Some(intent.clone())),
        (Some(intent), Some(recipe)) => {
            let applied = recipe.apply(&session, &operation, intent, now)?;
            (Content::Recipe { recipe, intent, now, head: None }, compared(applied, key.is_some())?)
        }
    };
    let identified = identify(Request { session: &session, operation: &operation, key, content })?;
    Ok(RemoteCall {
        identity: Identity { tenant: Tenant::default(), operation, key: identified.key },
        key_digest: identified.key_digest,
        intent: compared.map(|value| RawValue::from_string(value.canonical())).transpose().map_err(unwritable)?,
        minimum_retention: identified.minimum_retention.unwrap_or_default(),
    })
}

/// The fields that must agree. Where the caller has a key of its own, the key fields are among them: its key does not
/// contain them.
fn compared(applied: Applied, has_own_key: bool) -> Result<Option<Value>, Invalid> {
    if !has_own_key && applied.matched.is_empty() {
        return Ok(None);
    }
    let mut members: Vec<_> =
        applied.matched.into_iter().filter_map(|(pointer, value)| Some((pointer, value?))).collect();
    if has_own_key && let Value::Object(key_fields) = applied.intent {
        members.extend(key_fields);
    }
    // Match fields that are all absent are compared too: as an empty object.
    Value::object(members).map(Some).map_err(|name| unwritable(format_args!("two fields are called {name}")))
}

fn unwritable(error: impl std::fmt::Display) -> Invalid {
    Invalid::Json(json::Error::Unserialisable { message: error.to_string() })
}
