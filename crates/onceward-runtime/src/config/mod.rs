//! `onceward.toml`: its sections, its checks, and the settings that result from the file, the flags and the environment.
//!
//! - `file`: the top level and `[operation]`; `api`, `gateway`, `mcp`, `sink` and `route`: their sections. `values`: the types
//!   of single values.
//! - `inbox`: webhooks to receive; `signing`: how they are signed.
//! - `secret`: where a secret is stored. `certificate`: the files of a TLS certificate.
//! - `check`: parses and validates the text. `error`: error messages with file and line, `hidden`: without
//!   secrets. `reference`: the reference page.
//! - `settings`: finds the file and merges it with flags and environment.

mod api;
mod certificate;
mod check;
mod error;
mod file;
mod gateway;
mod hidden;
mod inbox;
mod mcp;
mod reference;
mod route;
mod secret;
mod settings;
mod signing;
mod sink;
mod values;

use std::collections::BTreeMap;
use std::path::Path;

use onceward::Policy;
use onceward::core::recipe::Recipe;

pub use api::{ApiSettings, Bearer};
pub use error::suggestion;
pub use file::Operation;
pub use gateway::{EncodedSlashes, KeyMode, Profile, Route};
pub use inbox::{HmacTable, Inbox, InboxSettings, SchemeName, SecretReferences};
pub use mcp::{Deliver, KeyArgument, Mcp, Probe, Repeats, Server, Tool, operation_prefix};
pub use reference::reference;
pub use route::Sink;
pub use secret::{InvalidSecret, Secret};
pub use settings::{ConfigSource, Settings, mcp_sink};
pub use signing::{
    HmacEncoding, HmacHash, HmacHeader, InvalidSigningSecret, SignatureScheme, SignedTime, Signing, SigningSecret,
};
pub use sink::{
    CommandSink, HeaderSource, HttpProbe, HttpSink, PullSink, SinkSettings, SmtpSink, SmtpTls, SqlSink, is_reference,
};
pub use values::{InDoubt, KeyWindow, Length, OnError, Retention, Scope, Size, Tier};

/// Parses the text of a configuration like every command does. Returns the policy and the recipe of each operation, or a
/// message that lists every mistake.
pub fn checked(text: &str) -> Result<BTreeMap<String, (Policy, Option<Recipe>)>, String> {
    let file = check::read(text)
        .map_err(|problems| error::Mistakes::new(Path::new("onceward.toml"), text, problems).to_string())?;
    let operations = file.operation.into_iter().map(|(name, operation)| match operation.recipe() {
        Ok(recipe) => Ok((name, (operation.policy(), recipe))),
        Err(error) => Err(error.to_string()),
    });
    operations.collect()
}
