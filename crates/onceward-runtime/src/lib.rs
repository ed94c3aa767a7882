//! The runtime of the binary `onceward`, shared by all of its surfaces. Internal: other programs use the library `onceward`.
//!
//! # Layout
//!
//! - `config`: `onceward.toml`, its sections and errors, and the settings that file, flags and environment make together.
//! - `exit`: exit codes. `output`: the only way to the terminal. `stderr_writer`: a non-blocking writer for stderr.
//! - `stores`: opens the stores of a configuration as one ledger.
//! - `process`: starting child processes, passing signals on, exit codes.
//! - `providers`: what is publicly known about providers. `raw_json`: values in JSON of other programs.
//! - `net`: listeners, TLS, threads, host checks, tokens and the signal to stop.
//! - `proxy`: routes, tenants and upstream connections, for the HTTP gateway and for MCP over HTTP.
//! - `egress`: requests to URLs that come from a configuration or a template, to permitted addresses only.

#![allow(missing_docs, reason = "internal to the binary; the library `onceward` is the documented API")]

#[cfg(not(unix))]
compile_error!(
    "onceward-runtime needs Unix: the commands, the servers and the Python package do not run on Windows yet. Use the library \
     crate `onceward` alone, or WSL. See docs/internals/platforms.md."
);

pub mod config;
pub mod egress;
pub mod exit;
pub mod net;
pub mod output;
pub mod process;
pub mod providers;
pub mod proxy;
pub mod raw_json;
pub mod stderr_writer;
pub mod stores;
