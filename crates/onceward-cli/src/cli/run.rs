//! `onceward run`: runs a command once.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use onceward::core::policy::LONGEST_MAX_RUNTIME;
use onceward::plant::{Plant, planted};

use super::intent_arguments::{CallSettings, IntentArguments, command_line};
use super::{Global, block_on};
use crate::run::{Job, StatusFd, guarded};
use onceward_runtime::config::{InDoubt, Length, OnError, Operation, Retention, Size, Tier};
use onceward_runtime::exit::Fault;
use onceward_server::view::KeyDisplay;

/// A cron job that missed a weekend still gets the outcome from before.
const DEFAULT_RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The output of a command is longer than an API response: 1 MiB holds most logs.
const DEFAULT_KEEP_LIMIT: Size = Size(1024 * 1024);

/// Run a command once; repeats get its output and exit code
///
/// The first run streams and keeps its output. A repeat prints the same bytes to stdout and stderr, exits with the same code,
/// and does not run the command. ONCEWARD_KEY holds a key that is the same on every attempt: pass it to services that
/// accept an idempotency key. A repeat must have the same command line; stdin is passed through and not compared.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes:
  the command's own, or
  64   usage error
  65   the same key with another command or intent
  69   the store is unusable; nothing ran
  70   the command ran, and the system does not report how it ended: in doubt
  74   the output of a replay could not be written
  75   running elsewhere, not to be retried yet, or over the tenant's quota of records
  76   in doubt: an attempt may have happened
  77   done, but the output was not kept
  78   configuration error
  126  the command cannot be run
  127  command not found

Examples:
  onceward run --operation digest --key \"$(date +%F)\" -- ./send_digest.sh
  onceward run --operation charge --tier payment --intent '{\"invoice\":42}' -- ./charge.sh 42
  onceward run --operation backup --key \"$(date +%F)\" --conflict-exit-code 0 --quiet -- ./backup.sh")]
pub(super) struct Run {
    #[command(flatten)]
    intent: IntentArguments,
    /// How much is at stake: sets retention and tombstone, and every failed command is in doubt
    #[arg(long, value_enum)]
    tier: Option<Tier>,
    /// Longest expected run time. The lease is three times as long. Does not kill the command [default: 60s]
    #[arg(long, value_name = "DURATION")]
    max_runtime: Option<Length>,
    /// What to do if an attempt may have happened: hold until it is settled, or retry [default: hold]
    #[arg(long, value_name = "WORD", value_parser = in_doubt())]
    in_doubt: Option<InDoubt>,
    /// What a failed command means: nothing happened (retry), it may have happened (doubt), it is the final outcome (keep), or
    /// it depends (classify): in doubt if a tier is set or the exit code is one of curl or ssh for a lost response (16, 18, 23,
    /// 28, 47, 52, 55, 56, 61, 92, 95, 255) [default: classify]
    #[arg(long, value_enum, value_name = "WORD")]
    on_error: Option<OnError>,
    /// Exit codes that always mean that it may have happened: a time-out, or a signal as a shell reports it; '' for none. A
    /// command that was killed by a signal is always in doubt
    #[arg(long, value_name = "CODES", default_value = "124,129,130,131,134,137,139,141,143")]
    doubt_exit: Vec<ExitCodes>,
    /// How long to wait for a run elsewhere [default: 0s]
    #[arg(long, value_name = "DURATION")]
    wait: Option<Length>,
    /// How long to keep the outcome, or forever [default: 7d, or as the tier says]
    #[arg(long, value_name = "DURATION")]
    retention: Option<Retention>,
    /// Exit with this code instead of 75 if it is running elsewhere; a run elsewhere that failed stays 75
    #[arg(long, value_name = "CODE")]
    conflict_exit_code: Option<u8>,
    /// Write one line of JSON about the result to this file descriptor
    #[arg(long, value_name = "FD")]
    status_fd: Option<u32>,
    /// Do not report replays, runs elsewhere that go on, and keys that look wrong
    #[arg(long)]
    quiet: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Run {
    pub(super) fn execute(self, global: &Global) -> Result<u8, Fault> {
        let settings = global.settings()?;
        let operation = settings.operation(&self.intent.operation).overlaid(self.flags());
        let operation = with_defaults(operation);
        check(&operation)?;
        let status = StatusFd::open(self.status_fd)?;
        block_on(async {
            let arguments = self.command.iter().map(|argument| argument.clone().into_vec()).collect();
            let compared = Some(arguments).filter(|_| !planted(Plant::CommandNotCompared));
            let call_settings = CallSettings { arguments: compared, ..CallSettings::of(&operation)? };
            if !self.quiet {
                self.intent.warn(call_settings.recipe.is_some());
            }
            let call = self.intent.call(global, call_settings).await?;
            let operation = call.identity.operation.as_str();
            let (store, other_stores) = (settings.store_of(operation)?.clone(), settings.other_stores(operation));
            let own_store = settings.store_argument();
            let resolve = |store: Option<&str>| command_line("resolve", store, &call.identity, KeyDisplay::Masked);
            let (resolve, resolve_elsewhere) = (resolve(own_store.as_deref()), resolve(None));
            guarded(&Job {
                call,
                command: self.command,
                doubt_exit: self.doubt_exit.into_iter().flat_map(|codes| codes.0).collect(),
                conflict_exit_code: self.conflict_exit_code,
                quiet: self.quiet,
                status,
                store,
                other_stores,
                records_per_tenant: settings.records_per_tenant(),
                resolve,
                resolve_elsewhere,
            })
            .await
        })
    }

    fn flags(&self) -> Operation {
        Operation {
            tier: self.tier,
            max_runtime: self.max_runtime,
            in_doubt: self.in_doubt,
            on_error: self.on_error,
            wait: self.wait,
            retention: self.retention,
            ..Operation::default()
        }
    }
}

/// A comma-separated list of exit codes, or nothing.
#[derive(Clone, Debug)]
struct ExitCodes(Vec<u8>);

impl FromStr for ExitCodes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.trim().is_empty() {
            return Ok(Self(Vec::new()));
        }
        let code = |text: &str| {
            text.trim()
                .parse()
                .map_err(|_| format!("invalid exit code {text:?}; write codes from 0 to 255, as in 124,137"))
        };
        text.split(',').map(code).collect::<Result<_, _>>().map(Self)
    }
}

/// There is no `probe`: `onceward run` cannot ask the downstream.
fn in_doubt() -> impl TypedValueParser<Value = InDoubt> {
    let hold = PossibleValue::new("hold").help("Run nothing until the doubt is settled: at most once");
    let retry = PossibleValue::new("retry").help("Retry with the same ONCEWARD_KEY: at least once");
    let parser = PossibleValuesParser::new([hold, retry]);
    parser.map(|word| if word == "retry" { InDoubt::Retry } else { InDoubt::Hold })
}

/// The defaults for commands.
fn with_defaults(mut operation: Operation) -> Operation {
    if operation.tier.is_none() && operation.retention.is_none() && operation.dedup.is_none() {
        operation.retention = Some(Retention::For(DEFAULT_RETENTION));
    }
    operation.keep_limit = operation.keep_limit.or(Some(DEFAULT_KEEP_LIMIT));
    operation
}

/// Refuses settings that do not work for a command, before anything runs.
fn check(operation: &Operation) -> Result<(), Fault> {
    if operation.in_doubt == Some(InDoubt::Probe) {
        return Err(Fault::config(
            "in_doubt = \"probe\" needs a downstream that can be asked, and `onceward run` cannot ask one.\n  Use hold (at \
             most once) or retry (at least once, with the same ONCEWARD_KEY).",
        ));
    }
    if operation.policy().effect == onceward::core::policy::Effect::Transactional {
        return Err(Fault::config(
            "effect = \"transactional\" is for code that commits together with the record, which a command cannot do.\n  Use \
             effect = \"external\". Code that changes a PostgreSQL database can call onceward.claim in its own transaction.",
        ));
    }
    if operation.max_runtime.is_some_and(|length| length.0 > LONGEST_MAX_RUNTIME) {
        return Err(Fault::usage("--max-runtime: the maximum is 24h: a lease is three times as long"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use onceward::core::evidence::EXIT_CODES_OF_SIGNALS;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        run: Run,
    }

    #[test]
    fn exit_codes_of_signals_are_in_doubt_by_default() {
        let parsed = Flags::parse_from(["run", "--operation", "pay", "--key", "a", "--", "true"]);
        let codes: Vec<u8> = parsed.run.doubt_exit.into_iter().flat_map(|codes| codes.0).collect();
        assert_eq!(codes, EXIT_CODES_OF_SIGNALS);
    }
}
