//! `onceward run`: a command, once.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use onceward::core::plant::{Plant, planted};
use onceward::core::policy::LONGEST_MAX_RUNTIME;

use super::which::{How, Which, again};
use super::{Global, block_on};
use crate::config::{InDoubt, Length, OnError, Operation, Retention, Size, Tier};
use crate::exit::Fault;
use crate::run::{Job, StatusFd, guarded};
use crate::view::Keys;

/// A cron job that missed a weekend is still told what happened before it.
const DEFAULT_RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The output of a command is longer than the answer of an API: 1 MiB holds most logs.
const DEFAULT_KEEP_LIMIT: Size = Size(1024 * 1024);

/// Run a command once; repeats get its output and exit code
///
/// The first run streams its output and keeps it. Repeats print the same bytes to stdout and stderr, exit with the same
/// code, and run nothing. The command finds a key in ONCEWARD_KEY that is the same on every attempt: pass it on as
/// idempotency key where the other side takes one. The command line is part of what must agree; stdin is passed through
/// and is not.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes:
  the command's own, or
  64   wrong usage
  65   the same key came with another command or intent
  69   the store cannot be used; nothing ran
  70   the command ran, and the system does not say how it ended: in doubt
  74   a repeat whose output cannot be written
  75   running elsewhere, not to be tried again yet, or over the tenant's quota of records
  76   in doubt: an attempt may have happened
  77   done, but the output is not kept
  78   wrong configuration
  126  the command cannot be run
  127  there is no such command

Examples:
  onceward run --operation digest --key \"$(date +%F)\" -- ./send_digest.sh
  onceward run --operation charge --tier payment --intent '{\"invoice\":42}' -- ./charge.sh 42
  onceward run --operation backup --key \"$(date +%F)\" --conflict-exit-code 0 --quiet -- ./backup.sh")]
pub(super) struct Run {
    #[command(flatten)]
    which: Which,
    /// How much is at stake: sets retention and tombstone, and makes every failed command a doubt
    #[arg(long, value_enum)]
    tier: Option<Tier>,
    /// The longest that it should take; sizes the lease (three times this) and kills nothing [default: 60s]
    #[arg(long, value_name = "DURATION")]
    max_runtime: Option<Length>,
    /// What happens when an attempt may have happened: hold until it is settled, or try again [default: hold]
    #[arg(long, value_name = "WORD", value_parser = in_doubt())]
    in_doubt: Option<InDoubt>,
    /// What a failed command means: nothing happened (retry), it may have happened (doubt), that is the final answer
    /// (keep), or it depends (classify): it may have happened where a tier is declared or the exit code is that of a lost
    /// answer of curl or ssh (16, 18, 23, 28, 47, 52, 55, 56, 61, 92, 95, 255) [default: classify]
    #[arg(long, value_enum, value_name = "WORD")]
    on_error: Option<OnError>,
    /// Exit codes that always mean that it may have happened: a time-out, or a signal as a shell reports it; '' for
    /// none. A command that a signal ended itself is always in doubt
    #[arg(long, value_name = "CODES", default_value = "124,129,130,131,134,137,139,141,143")]
    doubt_exit: Vec<Codes>,
    /// How long to wait for one that is running elsewhere [default: 0s]
    #[arg(long, value_name = "DURATION")]
    wait: Option<Length>,
    /// How long the outcome is kept, or forever [default: 7d, or that of the tier]
    #[arg(long, value_name = "DURATION")]
    retention: Option<Retention>,
    /// Exit with this code instead of 75 while it is running elsewhere; a run elsewhere that failed stays 75
    #[arg(long, value_name = "CODE")]
    conflict_exit_code: Option<u8>,
    /// Write one line of JSON about what happened to this file descriptor
    #[arg(long, value_name = "FD")]
    status_fd: Option<u32>,
    /// Say nothing about repeats, about runs elsewhere that go on, and about keys that look wrong
    #[arg(long)]
    quiet: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Run {
    pub(super) fn execute(self, global: &Global) -> Result<u8, Fault> {
        let settings = global.settings()?;
        let operation = settings.operation(&self.which.operation).overlaid(self.flags());
        let operation = with_defaults(operation);
        check(&operation)?;
        let status = StatusFd::open(self.status_fd)?;
        block_on(async {
            let arguments = self.command.iter().map(|argument| argument.clone().into_vec()).collect();
            let compared = Some(arguments).filter(|_| !planted(Plant::CommandNotCompared));
            let how = How { arguments: compared, ..How::of(&operation)? };
            if !self.quiet {
                self.which.warn(how.recipe.is_some());
            }
            let call = self.which.call(global, how).await?;
            let resolve = again("resolve", &settings, &call.identity, Keys::Masked);
            guarded(&Job {
                call,
                command: self.command,
                doubt_exit: self.doubt_exit.into_iter().flat_map(|codes| codes.0).collect(),
                conflict_exit_code: self.conflict_exit_code,
                quiet: self.quiet,
                status,
                store: settings.store()?.to_owned(),
                records_per_tenant: settings.records_per_tenant(),
                resolve,
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

/// Exit codes with commas between them, or none.
#[derive(Clone, Debug)]
struct Codes(Vec<u8>);

impl FromStr for Codes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.trim().is_empty() {
            return Ok(Self(Vec::new()));
        }
        let code = |text: &str| {
            text.trim()
                .parse()
                .map_err(|_| format!("{text:?} is no exit code; write codes from 0 to 255, as in 124,137"))
        };
        text.split(',').map(code).collect::<Result<_, _>>().map(Self)
    }
}

/// A command cannot ask the other side, so there is no `probe`.
fn in_doubt() -> impl TypedValueParser<Value = InDoubt> {
    let hold = PossibleValue::new("hold").help("Nothing runs until somebody settles it: at most once");
    let retry = PossibleValue::new("retry").help("It is tried again with the same ONCEWARD_KEY: at least once");
    let parser = PossibleValuesParser::new([hold, retry]);
    parser.map(|word| if word == "retry" { InDoubt::Retry } else { InDoubt::Hold })
}

/// What a command means by silence.
fn with_defaults(mut operation: Operation) -> Operation {
    if operation.tier.is_none() && operation.retention.is_none() && operation.dedup.is_none() {
        operation.retention = Some(Retention::For(DEFAULT_RETENTION));
    }
    operation.keep_limit = operation.keep_limit.or(Some(DEFAULT_KEEP_LIMIT));
    operation
}

/// Refuses what a command cannot do, before anything happens that would rely on it.
fn check(operation: &Operation) -> Result<(), Fault> {
    if operation.in_doubt == Some(InDoubt::Probe) {
        return Err(Fault::config(
            "in_doubt = \"probe\" is for effects whose other side can be asked, which `onceward run` cannot do.\n  Use \
             hold (at most once) or retry (at least once, with the same ONCEWARD_KEY).",
        ));
    }
    if operation.policy().effect == onceward::core::policy::Effect::Transactional {
        return Err(Fault::config(
            "effect = \"transactional\" is for code that commits together with the record, which a command cannot do.\n  \
             Use effect = \"external\".",
        ));
    }
    if operation.max_runtime.is_some_and(|length| length.0 > LONGEST_MAX_RUNTIME) {
        return Err(Fault::usage("--max-runtime is at most 24h: a lease is three times as long"));
    }
    Ok(())
}
