//! The servers of the binary `onceward`. Internal: other programs use the library `onceward`.
//!
//! # Layout
//!
//! - `api`: the HTTP API, claims for remote callers.
//! - `gateway`: a reverse proxy that makes any API safe to retry.
//! - `inbox`: webhooks that providers send to us.
//! - `serve`: starts and stops the configured servers.
//! - `view`: how intents are shown to people and programs.

#![allow(missing_docs, reason = "internal to the binary; the library `onceward` is the documented API")]

pub mod api;
pub mod gateway;
pub mod inbox;
pub mod serve;
pub mod view;
