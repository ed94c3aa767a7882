//! `onceward resolve`: a person says what happened.

use onceward::core::decide::{Refusal, Resolution};
use onceward::core::name::Identity;
use onceward::core::outcome::{JSON, Outcome, Verdict};
use onceward::core::record::Status;
use onceward::{Ledger, Resolved};
use serde_json::json;

use super::which::{Which, text};
use super::{Global, block_on, open};
use crate::exit::{Fault, NO};
use crate::output;
use crate::run::{CONTENT_TYPE, Stream, encode};
use crate::view::{Keys, View};

/// Settle an intent: it happened, with this outcome; it did not; or it did not, and its key is free
///
/// Repeats then get the outcome, or may run it again. Refused (exit code 1) while it is running, when it has changed since
/// --if-version, and when there is nothing to settle. What has been running for too long is put in doubt with --force
/// --why TEXT first, and settled by a second command.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  onceward resolve --operation charge --key invoice-42 --happened --stdout 'receipt 17'
  onceward resolve --operation charge --key invoice-42 --did-not-happen --by alice
  onceward resolve --operation 'POST /v1/charges' --key k7 --happened --status 201 --value '{}'
  onceward resolve --operation charge --key invoice-42 --force --why 'the server hangs since 9:00'")]
pub(super) struct Resolve {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    answer: Answer,
    /// What repeats print to stdout: text or @FILE
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["did_not_happen", "reset", "force", "value"])]
    stdout: Option<String>,
    /// What repeats exit with; another code than 0 is a final failure [default: 0]
    #[arg(long, value_name = "CODE", conflicts_with_all = ["did_not_happen", "reset", "force", "value"])]
    exit_code: Option<u8>,
    /// The value that repeats get from the library, and the body that they get over HTTP, as JSON or @FILE
    #[arg(long, value_name = "JSON", conflicts_with_all = ["did_not_happen", "reset", "force"])]
    value: Option<String>,
    /// The status that repeats get over HTTP; from 400 on it is a final failure [default: 200]
    #[arg(long, value_name = "STATUS", value_parser = clap::value_parser!(u16).range(200..=599),
        conflicts_with_all = ["did_not_happen", "reset", "force", "stdout", "exit_code"])]
    status: Option<u16>,
    /// Who decides
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
    by: Option<String>,
    /// How it is known
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// Why running work is put in doubt; needed with --force, and kept in the audit trail
    #[arg(long, value_name = "TEXT", requires = "force", conflicts_with = "note")]
    why: Option<String>,
    /// Only if the record still has this version, as `get` showed it
    #[arg(long, value_name = "VERSION")]
    if_version: Option<u64>,
    /// Show keys that look like e-mail addresses, phone numbers or card numbers; otherwise a digest is shown
    #[arg(long)]
    show_keys: bool,
    /// One JSON object with `was` and `is`
    #[arg(long)]
    json: bool,
}

/// What happened.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Answer {
    /// It happened
    #[arg(long)]
    happened: bool,
    /// It did not happen; it may be run again
    #[arg(long)]
    did_not_happen: bool,
    /// It did not happen, and the key is free for another command or intent
    #[arg(long)]
    reset: bool,
    /// Put running work in doubt. Its owner may still finish it; until it does, or a second command settles it, nothing else
    /// runs. Needs --why
    #[arg(long, requires = "why")]
    force: bool,
}

impl Resolve {
    pub(super) fn execute(self, global: &Global) -> Result<u8, Fault> {
        let settings = global.settings()?;
        let resolution = self.resolution()?;
        block_on(async {
            let identity = self.which.identity(global, &settings).await?;
            let ledger = open(&settings).await?;
            let code = self.settle(&ledger, &identity, resolution).await?;
            ledger.close().await;
            Ok(code)
        })
    }

    fn resolution(&self) -> Result<Resolution, Fault> {
        if self.answer.did_not_happen {
            return Ok(Resolution::DidNotHappen);
        }
        if self.answer.reset {
            return Ok(Resolution::Reset);
        }
        if self.answer.force {
            return Ok(Resolution::Force);
        }
        if let Some(outcome) = self.answered()? {
            return Ok(Resolution::Happened(outcome));
        }
        let code = self.exit_code.unwrap_or(0);
        let verdict = if code == 0 { Verdict::Success } else { Verdict::Failure };
        let stdout = self.stdout.as_deref().map(text).transpose()?.map(|mut stdout| {
            // A text on the command line has no line break at its end, and a terminal wants one.
            if !self.stdout.as_deref().unwrap_or_default().starts_with('@') {
                stdout.push(b'\n');
            }
            stdout
        });
        let body = encode(stdout.as_deref().map(|bytes| (Stream::Stdout, bytes)));
        Ok(Resolution::Happened(Outcome::of(verdict, CONTENT_TYPE, body).with_status(i32::from(code))))
    }

    /// What is kept for the library or over HTTP. A body of HTTP may be empty, and then it has no type.
    fn answered(&self) -> Result<Option<Outcome>, Fault> {
        if self.value.is_none() && self.status.is_none() {
            return Ok(None);
        }
        let value = self.value.as_deref().map(text).transpose()?;
        if let Some(value) = &value {
            onceward::core::json::Value::parse(value)
                .map_err(|error| Fault::usage(format!("--value is refused: {error}")))?;
        }
        let verdict = if self.status.is_some_and(|status| status >= 400) { Verdict::Failure } else { Verdict::Success };
        let content_type = if value.is_some() { JSON } else { "" };
        let outcome = Outcome::of(verdict, content_type, value.unwrap_or_default());
        Ok(Some(outcome.with_status(i32::from(self.status.unwrap_or(0)))))
    }

    async fn settle(&self, ledger: &Ledger, identity: &Identity, resolution: Resolution) -> Result<u8, Fault> {
        let keys = Keys::shown_if(self.show_keys);
        let was = ledger.get(identity).await?;
        let Some((seen, was)) = was.as_ref().and_then(|was| Some((&was.seen, View::of(&was.seen, keys)?))) else {
            return Ok(refused(identity, Refusal::Absent));
        };
        let version = self.if_version.unwrap_or(seen.record.version);
        let note = self.note.as_deref().or(self.why.as_deref());
        let resolved = ledger.resolve(identity, version, resolution, self.by.as_deref(), note).await?;
        if let Resolved::Refused(refusal) = resolved {
            return Ok(refused(identity, refusal));
        }
        let is = ledger.get(identity).await?.and_then(|is| View::of(&is.seen, keys));
        if self.json {
            output::json(&json!({ "was": was, "is": is }));
        } else {
            let state = is.as_ref().map_or("gone", |is| is.state);
            let next = match state {
                "done" => "repeats get the outcome",
                "in_doubt" => "its owner may still finish it; settle it with --happened or --did-not-happen",
                _ if self.answer.reset => "its key is free for another command or intent",
                _ => "the next run may try it again",
            };
            output::out(&format!("{identity} was {}, and is {state} now: {next}", was.state));
        }
        Ok(0)
    }
}

fn refused(identity: &Identity, refusal: Refusal) -> u8 {
    let why = match refusal {
        Refusal::Absent => {
            format!("there is no {identity}; check --tenant, --operation and --key with `onceward list`")
        }
        Refusal::Running => {
            format!(
                "{identity} is running; it can be settled when it has ended or its process is gone. If it has been running \
                 for too long, --force --why TEXT puts it in doubt first"
            )
        }
        Refusal::Changed => {
            format!("{identity} has changed since you looked at it; look again with `onceward get`, then decide")
        }
        Refusal::NothingToDo(Status::Open) => {
            format!(
                "{identity} is open: nothing is in doubt, and the next run tries it again; --reset frees its key for \
                 another command or intent"
            )
        }
        Refusal::NothingToDo(status) => format!("{identity} is {}: there is nothing to settle", status.as_str()),
    };
    output::say(&format!("refused: {why}."));
    NO
}
