//! `onceward key`: derives and explains a key. Does not touch a store.

use onceward::clock::{Clock, SystemClock};
use onceward::core::json::Value;
use onceward::core::name::{Identity, Operation, Session};
use onceward::core::record::downstream_key;
use onceward::core::{key, recipe};
use serde_json::json;

use super::intent_arguments::text;
use super::{Global, hints};
use onceward_runtime::exit::Fault;
use onceward_runtime::output;
use onceward_server::view::table;

/// Derive the key of an intent and explain it
///
/// Uses the recipe of the operation in onceward.toml. Without a recipe, the whole intent identifies it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  onceward key --operation charge --intent '{\"customer\":\"c7\",\"invoice\":42}'")]
pub(super) struct Key {
    /// The kind of effect, such as charge_payment
    #[arg(long, value_name = "NAME")]
    operation: String,
    /// The input of the work, as JSON or @FILE
    #[arg(long, value_name = "JSON")]
    intent: String,
    /// The session that the key belongs to
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A key and how it was derived.
struct KeyExplanation {
    identity: Identity,
    digest: String,
    hashed: String,
    key_fields: Option<Vec<String>>,
    matched: Vec<(String, Option<Value>)>,
    left_out: Vec<String>,
    window: Option<String>,
}

impl Key {
    pub(super) fn execute(self, global: &Global) -> Result<u8, Fault> {
        let settings = global.settings()?;
        let operation = Operation::new(&self.operation).map_err(Fault::usage)?;
        let session = Session::new(self.session.as_deref().unwrap_or_default()).map_err(Fault::usage)?;
        let intent = Value::parse(&text(&self.intent)?).map_err(|error| {
            Fault::usage(format!(
                "invalid intent: {error}\n  --intent takes one JSON value, as in --intent '{{\"invoice\":42}}', or @FILE."
            ))
        })?;
        let recipe = settings.operation(&self.operation).recipe().map_err(Fault::config)?;
        if recipe.is_none() {
            hints::about_intent(&self.operation, &intent);
        }
        let tenant = global.tenant()?.unwrap_or_default();
        let explained = match &recipe {
            None => {
                let derived = key::derive(&session, &operation, &intent);
                KeyExplanation {
                    identity: Identity { tenant, operation, key: derived.key },
                    digest: derived.digest.to_hex(),
                    hashed: intent.canonical(),
                    key_fields: None,
                    matched: Vec::new(),
                    left_out: Vec::new(),
                    window: None,
                }
            }
            Some(recipe) => {
                let applied = recipe
                    .apply(&session, &operation, &intent, SystemClock.now())
                    .map_err(|error| Fault::usage(format!("cannot apply the recipe of {operation}: {error}")))?;
                KeyExplanation {
                    identity: Identity { tenant, operation, key: applied.derived.key },
                    digest: applied.derived.digest.to_hex(),
                    hashed: applied.intent.canonical(),
                    key_fields: Some(recipe.key().iter().map(ToString::to_string).collect()),
                    matched: applied.matched,
                    left_out: applied.left_out,
                    window: applied.window.map(|label| window(recipe, &label)),
                }
            }
        };
        if self.json {
            output::json(&explained.as_json());
        } else {
            output::out(&explained.as_text());
        }
        Ok(0)
    }
}

fn window(recipe: &recipe::Recipe, label: &str) -> String {
    let definition = recipe.definition().window.clone().unwrap_or_default();
    let zone = definition.zone.unwrap_or_else(|| "UTC".to_owned());
    format!("{label} (every {} of {}, {zone})", definition.every, definition.of)
}

impl KeyExplanation {
    fn as_json(&self) -> serde_json::Value {
        let matched: serde_json::Map<_, _> =
            self.matched.iter().map(|(pointer, value)| (pointer.clone(), json!(value))).collect();
        json!({
            "key": self.identity.key.as_str(),
            "digest": self.digest,
            "tenant": self.identity.tenant.as_str(),
            "operation": self.identity.operation.as_str(),
            "in_logs": self.identity.to_string(),
            "downstream_key": downstream_key(&self.identity, "", 0),
            "hashed": self.hashed,
            "identity": self.key_fields,
            "must_match": matched,
            "left_out": self.left_out,
            "window": self.window,
        })
    }

    fn as_text(&self) -> String {
        let list = |items: &[String]| if items.is_empty() { "nothing".to_owned() } else { items.join(", ") };
        let matched: Vec<String> = self
            .matched
            .iter()
            .map(|(pointer, value)| match value {
                Some(value) => format!("{pointer} = {}", value.canonical()),
                None => format!("{pointer} (absent)"),
            })
            .collect();
        let (identity, must_match) = match &self.key_fields {
            Some(fields) => (list(fields), list(&matched)),
            None => ("the whole intent (no recipe)".to_owned(), "the whole intent".to_owned()),
        };
        let rows = [
            ("key", self.identity.key.as_str().to_owned()),
            ("digest", self.digest.clone()),
            ("in logs", self.identity.to_string()),
            ("ONCEWARD_KEY", downstream_key(&self.identity, "", 0)),
            ("hashed", self.hashed.clone()),
            ("identity", identity),
            ("must match", must_match),
            ("left out", list(&self.left_out)),
            ("window", self.window.clone().unwrap_or_else(|| "none".to_owned())),
        ];
        table(&rows.map(|(name, value)| vec![name.to_owned(), value]))
    }
}
