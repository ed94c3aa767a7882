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
use std::io::Write;
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
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let cli = match cli::Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => return wrong_usage(&error, &arguments),
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
fn wrong_usage(error: &clap::Error, arguments: &[OsString]) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    // A mistake in a command line may be about a URL with a password.
    let text = error.to_string();
    let hidden = without_urls(&text, arguments);
    if hidden == text {
        let _ = error.print();
    } else {
        let _ = std::io::stderr().lock().write_all(hidden.as_bytes());
    }
    ExitCode::from(exit::USAGE)
}

/// An error message in which the URLs of the command line are shown without their passwords.
fn without_urls(message: &str, arguments: &[OsString]) -> String {
    let mut message = message.to_owned();
    for argument in arguments.iter().map(|argument| argument.to_string_lossy()) {
        let value = argument.split_once('=').filter(|_| argument.starts_with('-')).map(|(_, value)| value);
        for part in [Some(&*argument), value].into_iter().flatten() {
            let shown = onceward::shown_store(part);
            if shown != part {
                // Some messages quote an argument as Rust does.
                let quoted = |text: &str| text.escape_debug().to_string();
                message = message.replace(part, &shown).replace(&quoted(part), &quoted(&shown));
            }
        }
    }
    message
}

/// Logs go to stderr. They name intents by operation and short hash, never by key or arguments.
fn log(default: &str) {
    let level = std::env::var("ONCEWARD_LOG").unwrap_or_default();
    let level = if level.is_empty() { default } else { &level };
    let filter = tracing_subscriber::EnvFilter::builder().parse_lossy(level);
    // A second subscriber can only be a programming mistake, and is not a reason to stop.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(output::Log::default).try_init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_about_the_command_line_shows_no_password() {
        let arguments = ["onceward", "migrate", "redis://:hunter2@h", "--listen=http://u:hunter2@h", "list"];
        let arguments = arguments.map(OsString::from);
        let message = "unexpected argument 'redis://:hunter2@h', invalid value \"http://u:hunter2@h\" for list";
        let hidden = without_urls(message, &arguments);
        assert_eq!(hidden, "unexpected argument 'redis://:…@h', invalid value \"http://…\" for list");
        assert_eq!(without_urls("unexpected argument 'list'", &arguments), "unexpected argument 'list'");
    }
}
