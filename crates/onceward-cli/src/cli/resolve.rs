//! `onceward resolve`: a person says what happened.

use onceward::core::decide::{Refusal, Resolution};
use onceward::core::name::Identity;
use onceward::core::outcome::{JSON, Outcome, Verdict};
use onceward::core::record::Status;
use onceward::{Intent, Ledger, Resolved};
use serde_json::json;

use super::intent_arguments::{IntentArguments, text};
use super::opening::open_holding;
use super::{Global, block_on};
use crate::run::{CONTENT_TYPE, Stream, encode};
use onceward_runtime::exit::{Fault, NO};
use onceward_runtime::output;
use onceward_server::view::{IntentView, KeyDisplay};

/// Settle an intent: say whether it happened
///
/// After --happened, repeats get the outcome; after --did-not-happen, the next run tries again; after --reset, the key may be
/// used for another command or intent. Refused (exit code 1) while the work is running, if the record has changed since
/// --if-version, and if there is nothing to settle. To settle work that hangs, first put it in doubt with --force --why TEXT,
/// then settle it with a second command.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  onceward resolve --operation charge --key invoice-42 --happened --stdout 'receipt 17'
  onceward resolve --operation charge --key invoice-42 --did-not-happen --by alice
  onceward resolve --operation 'POST /v1/charges' --key k7 --happened --status 201 --value '{}'
  onceward resolve --operation charge --key invoice-42 --force --why 'the server hangs since 9:00'")]
pub(super) struct Resolve {
    #[command(flatten)]
    intent: IntentArguments,
    #[command(flatten)]
    happened: WhatHappened,
    /// The stdout of repeats: text or @FILE
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["did_not_happen", "reset", "force", "value"])]
    stdout: Option<String>,
    /// The exit code of repeats; any code but 0 is a final failure [default: 0]
    #[arg(long, value_name = "CODE", conflicts_with_all = ["did_not_happen", "reset", "force", "value"])]
    exit_code: Option<u8>,
    /// The value that repeats get from the library, and their response body over HTTP, as JSON or @FILE
    #[arg(long, value_name = "JSON", conflicts_with_all = ["did_not_happen", "reset", "force"])]
    value: Option<String>,
    /// The status that repeats get over HTTP; 400 and above is a final failure [default: 200]
    #[arg(long, value_name = "STATUS", value_parser = clap::value_parser!(u16).range(200..=599),
        conflicts_with_all = ["did_not_happen", "reset", "force", "stdout", "exit_code"])]
    status: Option<u16>,
    /// The person who decides
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
    by: Option<String>,
    /// The evidence
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// Why running work is put in doubt; required with --force, and kept in the audit trail
    #[arg(long, value_name = "TEXT", requires = "force", conflicts_with = "note")]
    why: Option<String>,
    /// Only if the record still has this version, as shown by `get`
    #[arg(long, value_name = "VERSION")]
    if_version: Option<u64>,
    /// Show keys that look like e-mail addresses, phone numbers or card numbers, instead of a digest
    #[arg(long)]
    show_keys: bool,
    /// Print one JSON object with `was` and `is`
    #[arg(long)]
    json: bool,
}

/// What happened.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct WhatHappened {
    /// It happened
    #[arg(long)]
    happened: bool,
    /// It did not happen; the next run may try again
    #[arg(long)]
    did_not_happen: bool,
    /// It did not happen, and the key may be used for another command or intent
    #[arg(long)]
    reset: bool,
    /// Put running work in doubt. Its owner may still finish it; until then, or until a second command settles it, nothing else
    /// runs. Requires --why
    #[arg(long, requires = "why")]
    force: bool,
}

/// How often an intent is looked at: each delivery changes it once, and deliveries of one intent are rare.
const MAX_LOOKS: usize = 5;

impl Resolve {
    pub(super) fn execute(self, global: &Global) -> Result<u8, Fault> {
        let settings = global.settings()?;
        let resolution = self.resolution()?;
        block_on(async {
            let identity = self.intent.identity(global, &settings).await?;
            let (ledger, _) = open_holding(&settings, &identity).await?;
            let code = self.settle(&ledger, &identity, resolution).await?;
            ledger.close().await;
            Ok(code)
        })
    }

    fn resolution(&self) -> Result<Resolution, Fault> {
        if self.happened.did_not_happen {
            return Ok(Resolution::DidNotHappen);
        }
        if self.happened.reset {
            return Ok(Resolution::Reset);
        }
        if self.happened.force {
            return Ok(Resolution::Force);
        }
        if let Some(outcome) = self.value_outcome()? {
            return Ok(Resolution::Happened(outcome));
        }
        let code = self.exit_code.unwrap_or(0);
        let verdict = if code == 0 { Verdict::Success } else { Verdict::Failure };
        let stdout = self.stdout.as_deref().map(text).transpose()?.map(|mut stdout| {
            // A text on the command line has no final line break, and a terminal needs one.
            if !self.stdout.as_deref().unwrap_or_default().starts_with('@') {
                stdout.push(b'\n');
            }
            stdout
        });
        let body = encode(stdout.as_deref().map(|bytes| (Stream::Stdout, bytes)));
        Ok(Resolution::Happened(Outcome::of(verdict, CONTENT_TYPE, body).with_status(i32::from(code))))
    }

    /// The outcome for the library or for HTTP. An HTTP body may be empty; then it has no content type.
    fn value_outcome(&self) -> Result<Option<Outcome>, Fault> {
        if self.value.is_none() && self.status.is_none() {
            return Ok(None);
        }
        let value = self.value.as_deref().map(text).transpose()?;
        if let Some(value) = &value {
            onceward::core::json::Value::parse(value)
                .map_err(|error| Fault::usage(format!("invalid --value: {error}")))?;
        }
        let verdict = if self.status.is_some_and(|status| status >= 400) { Verdict::Failure } else { Verdict::Success };
        let content_type = if value.is_some() { JSON } else { "" };
        let outcome = Outcome::of(verdict, content_type, value.unwrap_or_default());
        Ok(Some(outcome.with_status(i32::from(self.status.unwrap_or(0)))))
    }

    /// Settles the intent as it was seen. A gateway may record a delivery in the meantime, which raises the version and leaves the
    /// attempt as it is: then this looks again, unless the caller named a version.
    async fn resolve(
        &self,
        ledger: &Ledger,
        identity: &Identity,
        resolution: &Resolution,
        mut intent: Intent,
    ) -> Result<Resolved, Fault> {
        let note = self.note.as_deref().or(self.why.as_deref());
        for _ in 0..MAX_LOOKS {
            let version = self.if_version.unwrap_or(intent.seen.record.version);
            let resolved = ledger.resolve(identity, version, resolution.clone(), self.by.as_deref(), note).await?;
            if resolved != Resolved::Refused(Refusal::Changed) || self.if_version.is_some() {
                return Ok(resolved);
            }
            match ledger.get(identity).await? {
                Some(now) if is_same_attempt(&now, &intent) => intent = now,
                _ => break,
            }
        }
        Ok(Resolved::Refused(Refusal::Changed))
    }

    async fn settle(&self, ledger: &Ledger, identity: &Identity, resolution: Resolution) -> Result<u8, Fault> {
        let keys = KeyDisplay::shown_if(self.show_keys);
        let Some(intent) = ledger.get(identity).await? else { return Ok(refused(identity, Refusal::Absent)) };
        let Some(was) = IntentView::of(&intent.seen, keys) else { return Ok(refused(identity, Refusal::Absent)) };
        if let Resolved::Refused(refusal) = self.resolve(ledger, identity, &resolution, intent).await? {
            return Ok(refused(identity, refusal));
        }
        let is = ledger.get(identity).await?.and_then(|is| IntentView::of(&is.seen, keys));
        if self.json {
            output::json(&json!({ "was": was, "is": is }));
        } else {
            let state = is.as_ref().map_or("gone", |is| is.state);
            let not_before = is.as_ref().and_then(|is| is.not_before.as_deref());
            let next = match (state, not_before) {
                ("done", _) => "repeats get the outcome".to_owned(),
                ("in_doubt", _) => {
                    "its owner may still finish it; settle it with --happened or --did-not-happen".to_owned()
                }
                ("queued", None) => "it is tried again, with all its attempts".to_owned(),
                ("queued", Some(time)) => format!("it is tried again from {time}, with all its attempts"),
                _ if self.happened.reset => "its key may be used for another command or intent".to_owned(),
                (_, Some(time)) => {
                    format!("the next run may try again from {time}; until then the owner may still be at work")
                }
                (_, None) => "the next run may try again".to_owned(),
            };
            output::out(&format!("{identity} was {} and is now {state}: {next}", was.state));
        }
        Ok(0)
    }
}

/// Whether two looks at an intent saw the same end of the same attempt.
fn is_same_attempt(one: &Intent, other: &Intent) -> bool {
    let attempt = |intent: &Intent| {
        let record = &intent.seen.record;
        (intent.status(), record.attempts, record.generation, record.fence())
    };
    attempt(one) == attempt(other)
}

fn refused(identity: &Identity, refusal: Refusal) -> u8 {
    let why = match refusal {
        Refusal::Absent => {
            format!("{identity} not found; check --tenant, --operation and --key with `onceward list`")
        }
        Refusal::Running => {
            format!(
                "{identity} is running; it can be settled when it has ended or its process is gone. If it has been running \
                 for too long, put it in doubt first with --force --why TEXT"
            )
        }
        Refusal::Changed | Refusal::NotSent => {
            format!("{identity} has changed since you looked at it; look again with `onceward get`, then decide")
        }
        Refusal::NothingToDo(Status::Open) => {
            format!(
                "{identity} is open: nothing is in doubt, and the next run tries again; --reset frees its key for another \
                 command or intent"
            )
        }
        Refusal::NothingToDo(status) => format!("{identity} is {}: there is nothing to settle", status.as_str()),
    };
    output::say(&format!("refused: {why}."));
    NO
}
