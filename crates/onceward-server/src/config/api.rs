//! The names of the API in `onceward.toml`, and what comes of them: an address, and who has which token.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use onceward::core::hash::Digest;
use onceward::core::name::Tenant;
use schemars::JsonSchema;
use serde::Deserialize;

use super::certificate::CertificateFiles;
use super::secret::Secret;
use super::words::{Address, Scope};
use crate::exit::Fault;
use crate::tls::Tls;
use crate::tokens::Tokens;

/// Where the API listens when nobody says where.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8787);

/// Names of tokens are for people, in a column beside others.
const LONGEST_NAME: usize = 64;

/// The HTTP API, which `onceward serve` runs.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Api {
    /// Where it listens. Port 0 takes a free one, which is printed. Anything but loopback needs tokens.
    #[schemars(extend("x-type" = "IP address and port", "x-default" = "`\"127.0.0.1:8787\"`"))]
    pub(crate) listen: Option<Address>,
    /// The certificate chain and the private key with which TLS is served, as PEM files.
    #[schemars(extend("x-type" = "table of `chain` and `key`", "x-default" = "no TLS"))]
    pub(crate) tls: Option<CertificateFiles>,
    /// One table for each token: `[[api.token]]`. Without any, whoever can reach the API is the tenant `default` and may
    /// do everything.
    #[schemars(extend("x-type" = "tables", "x-default" = "none"))]
    pub(crate) token: Vec<Token>,
}

/// Who may do what. `onceward token new` makes one.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct Token {
    /// Whose intents its bearer sees and makes; no others.
    #[schemars(extend("x-type" = "string", "x-default" = "required"))]
    pub(crate) tenant: String,
    /// What the audit trail calls it; the first 8 hex digits of its SHA-256 unless given.
    #[schemars(extend("x-type" = "string", "x-default" = "digits of its hash"))]
    pub(crate) name: Option<String>,
    /// Where the secret is: `"env:NAME"`, `"file:PATH"`, or only its hash as `"sha256:HEX"`. A relative path starts from
    /// the folder of this file.
    #[schemars(extend("x-type" = "place of a secret", "x-default" = "required"))]
    pub(crate) secret: Secret,
    /// What it allows: `use` (begin, finish and the like), `read` (look and list), `operate` (resolve).
    #[schemars(extend("x-type" = "list of words", "x-default" = "required"))]
    pub(crate) scopes: Vec<Scope>,
}

/// What is to be served as the API.
pub(crate) struct ApiSettings {
    pub(crate) listen: SocketAddr,
    pub(crate) tls: Option<Tls>,
    pub(crate) tokens: Arc<Tokens>,
}

/// Who has a token, and what it allows.
#[derive(Debug)]
pub(crate) struct Bearer {
    /// The SHA-256 of the secret.
    pub(crate) hash: Digest,
    pub(crate) tenant: Tenant,
    pub(crate) scopes: Vec<Scope>,
    /// What the audit trail calls it.
    pub(crate) name: String,
}

impl Api {
    /// Looks the secrets up; only their hashes stay. `listen` outranks the file.
    pub(super) fn settings(self, listen: Option<SocketAddr>, folder: &Path) -> Result<ApiSettings, Fault> {
        let listen = listen.or(self.listen.map(|address| address.0)).unwrap_or(LISTEN);
        let mut tokens: Vec<Bearer> = Vec::new();
        for (number, token) in self.token.into_iter().enumerate() {
            let wrong = |what: String| Fault::config(format!("api.token[{number}].secret: {what}"));
            let hash = token.secret.hashed(folder).map_err(wrong)?;
            if tokens.iter().any(|other| other.hash == hash) {
                return Err(wrong("another token has the same secret, so nobody could tell them apart".to_owned()));
            }
            let tenant = Tenant::new(&token.tenant).map_err(Fault::config)?;
            let name = token.name.unwrap_or_else(|| hash.short());
            tokens.push(Bearer { hash, tenant, scopes: token.scopes, name });
        }
        if tokens.is_empty() && !listen.ip().is_loopback() {
            return Err(Fault::config(format!(
                "{listen} can be reached from elsewhere, and nobody would have to say who they are; nothing was started.\n  \
                 Add [[api.token]] to the configuration (`onceward token new` prints one), or listen on 127.0.0.1."
            )));
        }
        let tls = self.tls.map(|files| files.read(folder)).transpose()?;
        Ok(ApiSettings { listen, tls, tokens: Arc::new(Tokens::new(tokens)) })
    }
}

impl Token {
    /// What types cannot say: a field, and what is wrong with it.
    pub(super) fn wrong(&self) -> Vec<(&'static str, String)> {
        let mut wrong = Vec::new();
        if let Err(error) = Tenant::new(&self.tenant) {
            wrong.push(("tenant", error.to_string()));
        }
        let is_name =
            |name: &str| !name.is_empty() && name.chars().count() <= LONGEST_NAME && !name.contains(char::is_control);
        if !self.name.as_deref().is_none_or(is_name) {
            wrong.push(("name", format!("it has 1 to {LONGEST_NAME} characters, and no control characters")));
        }
        if self.scopes.is_empty() {
            wrong.push(("scopes", "a token that allows nothing is of no use: there are use, read, operate".to_owned()));
        }
        wrong
    }
}
