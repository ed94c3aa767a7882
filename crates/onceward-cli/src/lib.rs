//! The binary `onceward`: commands, `run` and `demo`. A library only so that the harnesses can start it; internal.
//!
//! # Layout
//!
//! - `cli`: the arguments, one file per subcommand. Raw arguments first, resolved settings second.
//! - `run`: a command as a guarded effect: its process, its output, the stored outcome and the report.
//! - `demo`: the product in 15 seconds.

mod cli;
mod demo;
mod run;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use onceward_runtime::{exit, output, stderr_writer};

/// The entry point of the binary.
pub fn main() -> ExitCode {
    main_with(std::env::args_os())
}

/// The entry point with other arguments, the program name first. For the harness, whose own binary plays the part of this one.
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
    stderr_writer::flush();
    ExitCode::from(code)
}

/// Help and version exit with 0; every other clap error is a usage error.
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
    // A second subscriber can only be a programming mistake, and is not a reason to stop.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(output::Log::default).try_init();
}
