//! `[api]` and its tokens. The doc comments here become the reference page.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use onceward::core::hash::Digest;
use onceward::core::name::Tenant;
use schemars::JsonSchema;
use serde::Deserialize;

use super::certificate::CertificateFiles;
use super::secret::Secret;
use super::values::{ListenAddress, Scope};
use crate::exit::Fault;
use crate::net::tls::Tls;
use crate::net::tokens::Tokens;

/// The default address of the API.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8787);

/// Token names appear in a table column.
const MAX_NAME_LENGTH: usize = 64;

/// The HTTP API, run by `onceward serve`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct Api {
    /// The address to listen on. Port 0 picks a free port and prints it. A non-loopback address requires tokens.
    #[schemars(extend("x-type" = "IP address and port", "x-default" = "`\"127.0.0.1:8787\"`"))]
    pub listen: Option<ListenAddress>,
    /// Serve TLS with this certificate chain and private key (PEM files).
    #[schemars(extend("x-type" = "table of `chain` and `key`", "x-default" = "no TLS"))]
    pub tls: Option<CertificateFiles>,
    /// One table per token: `[[api.token]]`. Without tokens, every client is the tenant `default` and may do everything.
    #[schemars(extend("x-type" = "tables", "x-default" = "none"))]
    pub token: Vec<Token>,
}

/// A token and what it permits. Create one with `onceward token new`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(super) struct Token {
    /// The tenant whose intents the token gives access to.
    #[schemars(extend("x-type" = "string", "x-default" = "required"))]
    pub tenant: String,
    /// The name of the token in the audit trail. Defaults to the first 8 hex digits of its SHA-256.
    #[schemars(extend("x-type" = "string", "x-default" = "digits of its hash"))]
    pub name: Option<String>,
    /// Where the secret is: `"env:NAME"`, `"file:PATH"`, or only its hash as `"sha256:HEX"`. A relative path starts at the
    /// folder of this file.
    #[schemars(extend("x-type" = "reference to a secret", "x-default" = "required"))]
    pub secret: Secret,
    /// What the token permits: `use` (begin, finish and so on), `read` (get and list), `operate` (resolve).
    #[schemars(extend("x-type" = "list of strings", "x-default" = "required"))]
    pub scopes: Vec<Scope>,
}

/// The resolved settings of the API.
pub struct ApiSettings {
    pub listen: SocketAddr,
    pub tls: Option<Tls>,
    pub tokens: Arc<Tokens>,
    /// The operations whose entries a courier delivers, with the names of their sinks.
    pub sinks: HashMap<String, String>,
}

/// The holder of a token, and what the token permits.
#[derive(Debug)]
pub struct Bearer {
    /// The SHA-256 of the secret.
    pub hash: Digest,
    pub tenant: Tenant,
    pub scopes: Vec<Scope>,
    /// The name of the token in the audit trail.
    pub name: String,
}

impl Api {
    /// Reads the secrets and keeps only their hashes. `listen` overrides the file.
    pub(super) fn settings(self, listen: Option<SocketAddr>, folder: &Path) -> Result<ApiSettings, Fault> {
        let listen = listen.or(self.listen.map(|address| address.0)).unwrap_or(LISTEN);
        let mut tokens: Vec<Bearer> = Vec::new();
        for (number, token) in self.token.into_iter().enumerate() {
            let wrong = |what: String| Fault::config(format!("api.token[{number}].secret: {what}"));
            let hash = token.secret.hashed(folder).map_err(wrong)?;
            if tokens.iter().any(|other| other.hash == hash) {
                return Err(wrong("another token has the same secret, so the two cannot be told apart".to_owned()));
            }
            let tenant = Tenant::new(&token.tenant).map_err(Fault::config)?;
            let name = token.name.unwrap_or_else(|| hash.short());
            tokens.push(Bearer { hash, tenant, scopes: token.scopes, name });
        }
        if tokens.is_empty() && !listen.ip().is_loopback() {
            return Err(Fault::config(format!(
                "{listen} can be reached from other machines, and there are no tokens to identify clients; nothing was started.\n  \
                 Add [[api.token]] to the configuration (`onceward token new` prints one), or listen on 127.0.0.1."
            )));
        }
        let tls = self.tls.map(|files| files.read(folder)).transpose()?;
        Ok(ApiSettings { listen, tls, tokens: Arc::new(Tokens::new(tokens)), sinks: HashMap::new() })
    }
}

impl Token {
    /// Checks that types cannot express: the field, and what is wrong.
    pub(super) fn wrong(&self) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        if let Err(error) = Tenant::new(&self.tenant) {
            wrong.push(("tenant", error.to_string()));
        }
        let is_name = |name: &str| {
            !name.is_empty() && name.chars().count() <= MAX_NAME_LENGTH && !name.contains(char::is_control)
        };
        if !self.name.as_deref().is_none_or(is_name) {
            wrong.push(("name", format!("a name has 1 to {MAX_NAME_LENGTH} characters and no control characters")));
        }
        if self.scopes.is_empty() {
            wrong.push(("scopes", "a token needs at least one scope: use, read, operate".to_owned()));
        }
        wrong
    }
}
