//! All of the binary `onceward`: run a command once, look at the ledger, settle doubts. A library only so that fuzzing
//! can reach the configuration; nothing here is a promise to anybody else.
//!
//! # Layout
//!
//! - `cli`: the arguments, one file a subcommand. Raw arguments first, resolved settings second.
//! - `config`: `onceward.toml`: its names, its errors, and the settings that come of file and flags.
//! - `run`: a command as a guarded effect: its process, its output, what is kept of it, what is said.
//! - `serve`: everything that is configured. `api`: the HTTP API. `listener`, `lanes`, `first_words`, `tls`, `tokens`, `stop`:
//!   what every listener needs.
//! - `gateway`: a reverse proxy that makes any API safe to retry.
//! - `mcp`: a gateway before MCP servers.
//! - `process`: what every process that we start needs.
//! - `bench`: how fast a ledger is on this machine.
//! - `demo`: the product in 15 seconds.
//! - `view`: an intent as people and programs are shown it.
//! - `exit`: exit codes. `output`: the only way to the terminal. `aside`: what is said while nobody may wait.

mod api;
mod aside;
mod bench;
mod cli;
mod config;
mod demo;
mod exit;
mod first_words;
mod gateway;
mod hosts;
mod lanes;
mod listener;
mod mcp;
mod output;
mod process;
mod run;
mod serve;
mod stop;
mod tls;
mod tokens;
mod view;

#[doc(hidden)]
pub use config::checked;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

/// What the binary does.
pub fn main() -> ExitCode {
    main_with(std::env::args_os())
}

/// The same with other arguments than those of the process, the name first. For the harness, whose own binary stands in.
#[doc(hidden)]
pub fn main_with(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match cli::Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => return wrong_usage(&error),
    };
    log(cli.default_log());
    let code = cli.dispatch().unwrap_or_else(|fault| {
        output::say(&fault.message);
        fault.code
    });
    aside::end();
    ExitCode::from(code)
}

/// Help and version are answers; everything else that clap reports is a mistake on the command line.
fn wrong_usage(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
        _ => ExitCode::from(exit::USAGE),
    }
}

/// Logs go to stderr. They name intents by operation and short hash, never by key or arguments.
fn log(default: &str) {
    let level = std::env::var("ONCEWARD_LOG").unwrap_or_default();
    let level = if level.is_empty() { default } else { &level };
    let filter = tracing_subscriber::EnvFilter::builder().parse_lossy(level);
    // A second subscriber can only be a mistake of ours, and no reason to do nothing.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(output::Log::default).try_init();
}
