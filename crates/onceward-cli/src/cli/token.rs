//! `onceward token`: creates tokens for the HTTP API.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use onceward::core::hash::digest;
use onceward::core::name::Tenant;
use serde_json::json;

use super::Global;
use onceward_runtime::config::Scope;
use onceward_runtime::exit::{Fault, STORE};
use onceward_runtime::output;

/// As many random bits as the stored hash has.
const BYTES: usize = 32;

/// Tells people and secret scanners what it is.
const PREFIX: &str = "onceward_";

/// Create tokens for the HTTP API
#[derive(Debug, clap::Args)]
pub(super) struct Token {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Debug, clap::Subcommand)]
enum TokenCommand {
    New(NewToken),
}

/// Create a token: it is shown once, and only its hash goes into the configuration
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  onceward token new --tenant acme --scopes use,read")]
struct NewToken {
    /// What the token permits
    #[arg(long, value_name = "SCOPES", value_delimiter = ',', default_value = "use")]
    scopes: Vec<Scope>,
    /// Print one JSON object with `token`, `tenant`, `secret` and `scopes`
    #[arg(long)]
    json: bool,
}

impl Token {
    pub(super) fn execute(self, global: &Global) -> Result<u8, Fault> {
        let TokenCommand::New(new) = self.command;
        let tenant = global.tenant()?.unwrap_or_default();
        let mut bits = [0; BYTES];
        getrandom::fill(&mut bits)
            .map_err(|error| Fault::new(STORE, format!("cannot draw random numbers: {error}")))?;
        new.print(&tenant, &format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bits)));
        Ok(0)
    }
}

impl NewToken {
    fn print(mut self, tenant: &Tenant, token: &str) {
        self.scopes.sort_unstable();
        self.scopes.dedup();
        let secret = format!("sha256:{}", digest(token.as_bytes()).to_hex());
        let scopes: Vec<&str> = self.scopes.iter().map(|scope| scope.as_str()).collect();
        if self.json {
            output::json(&json!({ "token": token, "tenant": tenant, "secret": secret, "scopes": scopes }));
            return;
        }
        output::out(&format!(
            "The token, which is not shown again:\n\n  {token}\n\nFor onceward.toml, which only needs its hash:\n\n\
             [[api.token]]\ntenant = {}\nsecret = \"{secret}\"\nscopes = {scopes:?}",
            toml::Value::String(tenant.to_string()),
        ));
    }
}
