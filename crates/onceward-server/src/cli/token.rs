//! `onceward token`: secrets for the HTTP API.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use onceward::core::hash::digest;
use onceward::core::name::Tenant;
use serde_json::json;

use super::Global;
use crate::config::Scope;
use crate::exit::{Fault, STORE};
use crate::output;

/// As many random bits as the hash that is kept of them.
const BYTES: usize = 32;

/// Tells people and scanners for leaked secrets what it is.
const PREFIX: &str = "onceward_";

/// Make tokens for the HTTP API
#[derive(Debug, clap::Args)]
pub(super) struct Token {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    New(New),
}

/// Make a token: it is shown once, and only its hash goes into the configuration
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  onceward token new --tenant acme --scopes use,read")]
struct New {
    /// What it allows
    #[arg(long, value_name = "SCOPES", value_delimiter = ',', default_value = "use")]
    scopes: Vec<Scope>,
    /// One JSON object with `token`, `tenant`, `secret` and `scopes`
    #[arg(long)]
    json: bool,
}

impl Token {
    pub(super) fn execute(self, global: &Global) -> Result<u8, Fault> {
        let What::New(new) = self.what;
        let tenant = global.tenant()?.unwrap_or_default();
        let mut bits = [0; BYTES];
        getrandom::fill(&mut bits).map_err(|error| Fault::new(STORE, format!("no random numbers: {error}")))?;
        new.print(&tenant, &format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bits)));
        Ok(0)
    }
}

impl New {
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
            "The token, which is not shown again:\n\n  {token}\n\nFor onceward.toml, which needs only its hash:\n\n\
             [[api.token]]\ntenant = {}\nsecret = \"{secret}\"\nscopes = {scopes:?}",
            toml::Value::String(tenant.to_string()),
        ));
    }
}
