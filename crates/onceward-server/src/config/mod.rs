//! `onceward.toml`, and the settings that come of it together with flags and environment.
//!
//! - `file`: its names, as they are written; `api` and `gateway` have those of theirs. `words`: the words that stand for choices.
//! - `secret`: where a secret is.
//! - `check`: reading it. `error`: what is wrong with it, for people.
//! - `settings`: which file, which store, and what an operation wants.

mod api;
mod certificate;
mod check;
mod error;
mod file;
mod gateway;
mod mcp;
mod reference;
mod secret;
mod settings;
mod words;

use std::collections::BTreeMap;
use std::path::Path;

use onceward::Policy;
use onceward::core::recipe::Recipe;

pub(crate) use api::{ApiSettings, Bearer};
pub(crate) use error::instead;
pub(crate) use file::Operation;
pub(crate) use gateway::{EncodedSlashes, KeyMode, Profile, Route};
pub(crate) use mcp::{KeyArgument, Mcp, Probe, Repeats, Server, Tool};
pub(crate) use reference::reference;
pub(crate) use settings::{Chosen, Settings};
pub(crate) use words::{InDoubt, KeyWindow, Length, OnError, Retention, Scope, Size, Tier};

/// Reads the text of a configuration as every command does: the policy and the recipe of each operation, or everything
/// that is wrong with it.
pub fn checked(text: &str) -> Result<BTreeMap<String, (Policy, Option<Recipe>)>, String> {
    let file = check::read(text)
        .map_err(|problems| error::Mistakes::new(Path::new("onceward.toml"), text, problems).to_string())?;
    let operations = file.operation.into_iter().map(|(name, operation)| match operation.recipe() {
        Ok(recipe) => Ok((name, (operation.policy(), recipe))),
        Err(error) => Err(error.to_string()),
    });
    operations.collect()
}
