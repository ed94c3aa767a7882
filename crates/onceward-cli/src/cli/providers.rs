//! `onceward providers`: what is publicly known about providers. Does not touch a store.

use onceward_runtime::config::suggestion;
use onceward_runtime::exit::Fault;
use onceward_runtime::output;
use onceward_runtime::providers::{self, Provider};

/// Show how providers take idempotency keys, with sources
///
/// For each provider: where it takes a key, how long it remembers it, which answers prove that nothing happened, where its own id
/// is, and how to ask it afterwards. What no public page says is unknown.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  onceward providers stripe")]
pub(super) struct Providers {
    /// Show only this provider, such as stripe
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Print one JSON object with `providers`
    #[arg(long)]
    json: bool,
}

impl Providers {
    pub(super) fn execute(&self) -> Result<u8, Fault> {
        let shown = match &self.name {
            Some(name) => vec![named(name)?],
            None => providers::ALL.to_vec(),
        };
        if self.json {
            output::json(&providers::json(&shown));
        } else {
            output::out(&providers::text(&shown));
        }
        Ok(0)
    }
}

fn named(name: &str) -> Result<&'static Provider, Fault> {
    let known = providers::ALL.iter().map(|provider| provider.name);
    Provider::named(name).ok_or_else(|| {
        Fault::usage(format!("unknown provider `{}`; {}", output::printable(name), suggestion(name, known)))
    })
}
