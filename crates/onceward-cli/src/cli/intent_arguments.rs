//! The arguments that identify one intent: an operation, and a key or the input.

use std::fs::File;
use std::io::Read;

use onceward::core::json::{MAX_BYTES, Value};
use onceward::core::name::{Identity, Tenant};
use onceward::core::recipe::Recipe;
use onceward::{Call, Ledger, Policy};

use super::{Global, hints};
use onceward_runtime::config::{Operation, Settings};
use onceward_runtime::exit::Fault;
use onceward_runtime::output::quoted;
use onceward_server::view::KeyDisplay;

/// Identifies an intent.
#[derive(Debug, clap::Args)]
pub(super) struct IntentArguments {
    /// The kind of effect, such as charge_payment
    #[arg(long, value_name = "NAME")]
    pub(super) operation: String,
    #[command(flatten)]
    pub(super) named: KeyOrIntent,
    /// The session that a derived key belongs to; keys of different sessions are always different
    #[arg(long, value_name = "NAME")]
    pub(super) session: Option<String>,
}

/// By key, or by the input.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true)]
pub(super) struct KeyOrIntent {
    /// Your own key: the same key is the same intent
    #[arg(long, value_name = "KEY")]
    pub(super) key: Option<String>,
    /// The input of the work, as JSON or @FILE: the key is derived from it
    ///
    /// A recipe in onceward.toml can name the fields that identify the intent. Together with --key, the input only has to be
    /// the same on every repeat.
    #[arg(long, value_name = "JSON")]
    pub(super) intent: Option<String>,
}

/// The settings of a call.
#[derive(Debug)]
pub(super) struct CallSettings {
    pub(super) policy: Policy,
    pub(super) recipe: Option<Recipe>,
    /// The command line, if it is part of the fingerprint.
    pub(super) arguments: Option<Vec<Vec<u8>>>,
}

impl CallSettings {
    /// The policy and the recipe of an operation.
    pub(super) fn of(operation: &Operation) -> Result<Self, Fault> {
        let recipe = operation.recipe().map_err(Fault::config)?;
        Ok(Self { policy: operation.policy(), recipe, arguments: None })
    }
}

impl IntentArguments {
    /// Builds the call. Checked before any store is touched.
    pub(super) async fn call(&self, global: &Global, settings: CallSettings) -> Result<Call, Fault> {
        // Names are checked and keys derived in the same way on every ledger; this one needs no file.
        let ledger = Ledger::open("memory:").await?;
        let mut operation = ledger.operation(&self.operation).policy(settings.policy);
        if let Some(tenant) = global.tenant()? {
            operation = operation.tenant(tenant.as_str());
        }
        if let Some(session) = &self.session {
            operation = operation.session(session);
        }
        if let Some(key) = &self.named.key {
            operation = operation.key(key);
        }
        if let Some(intent) = &self.named.intent {
            operation = operation.intent_json(&text(intent)?);
        }
        if let Some(recipe) = settings.recipe {
            operation = operation.recipe(recipe);
        }
        if let Some(arguments) = settings.arguments {
            operation = operation.arguments(arguments);
        }
        operation.call().map_err(|error| match error {
            onceward::Invalid::Json(error) => Fault::usage(format!(
                "invalid intent: {error}\n  --intent takes one JSON value, as in --intent '{{\"invoice\":42}}', or @FILE."
            )),
            error => error.into(),
        })
    }

    /// Warns about a key or an input that changes on a retry or that looks like personal data. Called once, after the call was
    /// checked, so everything can be parsed.
    pub(super) fn warn(&self, has_recipe: bool) {
        if let Some(key) = &self.named.key {
            hints::about_key(key);
        }
        let intent = self.named.intent.as_deref().filter(|_| !has_recipe).and_then(|intent| text(intent).ok());
        if let Some(intent) = intent.and_then(|bytes| Value::parse(&bytes).ok()) {
            hints::about_intent(&self.operation, &intent);
        }
    }

    /// Only the identity.
    pub(super) async fn identity(&self, global: &Global, settings: &Settings) -> Result<Identity, Fault> {
        let how = CallSettings::of(&settings.operation(&self.operation))?;
        Ok(self.call(global, how).await?.identity)
    }
}

/// The text itself, or the content of the file after an `@`.
pub(super) fn text(argument: &str) -> Result<Vec<u8>, Fault> {
    let Some(path) = argument.strip_prefix('@') else { return Ok(argument.as_bytes().to_vec()) };
    let mut bytes = Vec::new();
    // One byte over the limit, so that the error is about the size and not about a truncated text.
    let read = File::open(path).and_then(|file| file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes));
    read.map_err(|error| Fault::usage(format!("cannot read {path}: {error}")))?;
    Ok(bytes)
}

/// `onceward VERB` with the arguments that identify this intent, ready to paste into a shell. Without a store, the command uses the
/// default one. A key that looks like personal data is left for the reader to fill in.
pub(super) fn command_line(verb: &str, store: Option<&str>, identity: &Identity, keys: KeyDisplay) -> String {
    let mut line = format!("onceward {verb}");
    let mut add = |flag: &str, value: &str| {
        // A value that starts with a dash would be parsed as a flag.
        let between = if value.starts_with('-') { '=' } else { ' ' };
        line += &format!(" {flag}{between}{}", quoted(value));
    };
    if let Some(store) = store {
        add("--store", store);
    }
    if identity.tenant != Tenant::default() {
        add("--tenant", identity.tenant.as_str());
    }
    add("--operation", identity.operation.as_str());
    match keys.masked(&identity.key) {
        Some(_) => add("--key", "KEY"),
        None => add("--key", identity.key.as_str()),
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_are_quoted_for_the_shell() {
        assert_eq!(quoted("invoice-42"), "invoice-42");
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(quoted(""), "''");
    }
}
