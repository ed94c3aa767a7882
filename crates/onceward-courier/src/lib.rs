//! The sinks of the courier: the places to which it delivers the entries of the outbox. Internal: other programs write a sink of
//! their own with [`onceward::courier::Sink`].
//!
//! # Layout
//!
//! - [`open`]: the sink that a table `[sink.NAME]` describes.
//! - `routes`: the courier of a configuration.
//! - `http`: requests to an API.
//! - `command`: a program for each attempt.
//! - `smtp`: mails.
//! - `sql`: statements in the database of the ledger.
//! - `template`: texts with values of the payload, escaped for their place. They reach no file, variable or network.

#![allow(missing_docs, reason = "internal to the binary; the library `onceward` is the documented API")]

mod command;
mod http;
mod open;
mod routes;
mod smtp;
mod sql;
mod template;

pub use self::command::CommandSink;
pub use self::http::HttpSink;
pub use self::smtp::SmtpSink;
pub use open::{Opened, Surroundings, open};
pub use routes::courier;
