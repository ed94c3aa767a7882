//! Arguments that name one intent: an operation, and a key or the intent itself.

use std::fs::File;
use std::io::Read;

use onceward::core::json::{MAX_BYTES, Value};
use onceward::core::name::{Identity, Tenant};
use onceward::core::recipe::Recipe;
use onceward::{Call, Ledger, Policy};

use super::{Global, hints};
use crate::config::{Operation, Settings};
use crate::exit::Fault;
use crate::output::quoted;
use crate::view::Keys;

/// Which intent.
#[derive(Debug, clap::Args)]
pub(super) struct Which {
    /// The kind of effect, such as charge_payment
    #[arg(long, value_name = "NAME")]
    pub(super) operation: String,
    #[command(flatten)]
    pub(super) named: Named,
    /// The session that a derived key belongs to; keys of different sessions never meet
    #[arg(long, value_name = "NAME")]
    pub(super) session: Option<String>,
}

/// By key or by intent.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true)]
pub(super) struct Named {
    /// A key of your own: the same key is the same intent
    #[arg(long, value_name = "KEY")]
    pub(super) key: Option<String>,
    /// What is wanted, as JSON or @FILE: the key is derived from it
    ///
    /// The recipe in onceward.toml, if there is one, says which fields count. Together with --key, the intent only has
    /// to match.
    #[arg(long, value_name = "JSON")]
    pub(super) intent: Option<String>,
}

/// What is to be done with an intent.
#[derive(Debug)]
pub(super) struct How {
    pub(super) policy: Policy,
    pub(super) recipe: Option<Recipe>,
    /// The command line, where it is to be part of the fingerprint.
    pub(super) arguments: Option<Vec<Vec<u8>>>,
}

impl How {
    /// The policy and the recipe of an operation.
    pub(super) fn of(operation: &Operation) -> Result<Self, Fault> {
        let recipe = operation.recipe().map_err(Fault::config)?;
        Ok(Self { policy: operation.policy(), recipe, arguments: None })
    }
}

impl Which {
    /// The call, checked before any store is touched.
    pub(super) async fn call(&self, global: &Global, how: How) -> Result<Call, Fault> {
        // Names are checked and keys derived alike on every ledger; this one needs no file.
        let ledger = Ledger::open("memory:").await?;
        let mut operation = ledger.operation(&self.operation).policy(how.policy);
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
        if let Some(recipe) = how.recipe {
            operation = operation.recipe(recipe);
        }
        if let Some(arguments) = how.arguments {
            operation = operation.arguments(arguments);
        }
        operation.call().map_err(|error| match error {
            onceward::Invalid::Json(error) => Fault::usage(format!(
                "the intent is refused: {error}\n  --intent takes one JSON value, as in --intent '{{\"invoice\":42}}', or \
                 @FILE."
            )),
            error => error.into(),
        })
    }

    /// Warns about a key or an intent that does not stay the same on a retry, or that names a person. Once: the call has
    /// been checked, so whatever cannot be read has been refused.
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
        let how = How::of(&settings.operation(&self.operation))?;
        Ok(self.call(global, how).await?.identity)
    }
}

/// The text itself, or that of the file after an `@`.
pub(super) fn text(argument: &str) -> Result<Vec<u8>, Fault> {
    let Some(path) = argument.strip_prefix('@') else { return Ok(argument.as_bytes().to_vec()) };
    let mut bytes = Vec::new();
    // One byte more than may be, so that the refusal is about the size and not about a cut text.
    let read = File::open(path).and_then(|file| file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes));
    read.map_err(|error| Fault::usage(format!("{path} cannot be read: {error}")))?;
    Ok(bytes)
}

/// `onceward VERB` with the arguments that name this intent again, ready to be pasted into a shell. A key that looks like
/// personal data is left for the reader to fill in.
pub(super) fn again(verb: &str, settings: &Settings, identity: &Identity, keys: Keys) -> String {
    let mut line = format!("onceward {verb}");
    let mut add = |flag: &str, value: &str| {
        // What begins with a dash would be taken for the next flag.
        let between = if value.starts_with('-') { '=' } else { ' ' };
        line += &format!(" {flag}{between}{}", quoted(value));
    };
    if let Some(store) = settings.store_to_name() {
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
    fn what_a_shell_would_read_otherwise_is_quoted() {
        assert_eq!(quoted("invoice-42"), "invoice-42");
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
        assert_eq!(quoted(""), "''");
    }
}
