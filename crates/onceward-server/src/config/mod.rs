//! `onceward.toml`, and the settings that come of it together with flags and environment.
//!
//! - `file`: its names, as they are written. `words`: the words that stand for choices.
//! - `check`: reading it. `error`: what is wrong with it, for people.
//! - `settings`: which file, which store, and what an operation wants.

mod check;
mod error;
mod file;
mod reference;
mod settings;
mod words;

pub(crate) use file::Operation;
pub(crate) use reference::reference;
pub(crate) use settings::{Chosen, Settings};
pub(crate) use words::{InDoubt, Length, OnError, Retention, Size, Tier};
