//! Settles doubts as an operator does: lists them with the product's own command, reads the file of effects, and says
//! what happened.

use std::path::Path;

use serde_json::Value;

use super::effects::Effects;
use super::product::Product;

/// The page size of a list.
const PAGE: &str = "200";

/// The number of pages that are read: more than an operator would settle.
const PAGES: usize = 50;

/// An intent that is in doubt.
#[derive(Clone, Debug)]
pub struct Doubt {
    tenant: String,
    operation: String,
    pub key: String,
}

/// The intents in one of these states.
pub async fn listed(product: &Product, store: &Path, state: &str) -> Result<Vec<Doubt>, String> {
    let store = store.to_string_lossy();
    let mut found = Vec::new();
    let mut cursor: Option<String> = None;
    for _ in 0..PAGES {
        let mut arguments = vec!["list", "--store", &store, "--state", state, "--limit", PAGE, "--json"];
        if let Some(cursor) = &cursor {
            arguments.extend(["--cursor", cursor]);
        }
        let output = product.command(&arguments).output().await.map_err(|error| error.to_string())?;
        let history: Value = serde_json::from_slice(&output.stdout).map_err(|error| format!("list: {error}"))?;
        let text = |intent: &Value, name: &str| intent[name].as_str().unwrap_or_default().to_owned();
        found.extend(history["intents"].as_array().into_iter().flatten().map(|intent| Doubt {
            tenant: text(intent, "tenant"),
            operation: text(intent, "operation"),
            key: text(intent, "key"),
        }));
        cursor = match &history["next"] {
            Value::Null => return Ok(found),
            Value::String(next) => Some(next.clone()),
            next => Some(next.to_string()),
        };
    }
    Ok(found)
}

/// Settles one doubt by what really happened. `response` returns how the surface shows a value: the flag, and its text.
/// Returns the value, or `None` when it did not happen.
pub async fn settle(
    product: &Product,
    store: &Path,
    doubt: &Doubt,
    effects: &Effects,
    response: impl Fn(&str) -> (&'static str, String),
) -> Result<Option<String>, String> {
    let store = store.to_string_lossy();
    let value = effects.read().get(&doubt.key).and_then(|values| values.first().cloned());
    let Doubt { tenant, operation, key } = doubt;
    let mut arguments =
        vec!["resolve", "--store", &store, "--tenant", tenant, "--operation", operation, "--key", key, "--by", "sim"];
    let said = value.as_deref().map(response);
    match &said {
        Some((flag, text)) => arguments.extend(["--happened", *flag, text]),
        None => arguments.push("--did-not-happen"),
    }
    let output = product.command(&arguments).output().await.map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(value),
        false => Err(format!("resolve: {} {}", output.status, String::from_utf8_lossy(&output.stderr).trim())),
    }
}
