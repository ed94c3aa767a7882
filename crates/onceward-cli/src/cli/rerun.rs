//! `onceward rerun`: a deliberate new run of an entry of the outbox that is done.

use onceward::core::decide::Decision;
use onceward::core::name::{Identity, Key, Operation};
use onceward::core::record::Status;
use onceward::{RerunRefusal, RerunRequest, Resolver};
use serde_json::json;

use super::enqueue::{payload, state};
use super::intent_arguments::command_line;
use super::opening::open_to_queue;
use super::{Global, block_on};
use onceward_runtime::config::Settings;
use onceward_runtime::exit::{Fault, IN_DOUBT, MISMATCH, NO};
use onceward_runtime::output;
use onceward_server::view::KeyDisplay;

/// The same limit as that of the API.
const LONGEST_WHY: usize = 1000;

/// Have an entry of the outbox that is done delivered once more, on purpose
///
/// The finished run stays as it is. A new run is queued, with a key of its own and a link to the finished one; the downstream gets
/// another key too, so it acts again. Repeating the command gives the same new run. Refused unless the entry is done.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes:
  0    the new run is queued, being delivered, or done
  1    refused: not found, not done, no longer kept, or not an entry of the outbox; or the new run is dead
  64   usage error
  65   another payload than that of the finished run
  69   the store is unusable; nothing was queued
  75   over the tenant's quota of records
  76   in doubt: an attempt may have happened
  78   configuration error

For a third run, name the key of the second one.

Examples:
  onceward rerun --operation welcome_mail --key user-7 --payload '{\"to\":\"ann\"}' --why 'she has deleted it'
  onceward rerun --operation invoice --key 2026-11 --payload @invoice.json --why 'sent to the old address' --by ana")]
pub(super) struct Rerun {
    /// The operation of the entry
    #[arg(long, value_name = "NAME")]
    operation: String,
    /// The key of the entry
    #[arg(long, value_name = "KEY")]
    key: String,
    /// The payload of the entry, as JSON or @FILE, or - for stdin. Needed unless the entry has kept it
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// The session, if the key was derived with one
    #[arg(long, value_name = "NAME", requires = "payload")]
    session: Option<String>,
    /// The reason, for the audit trail
    #[arg(long, value_name = "TEXT")]
    why: String,
    /// The person who decides
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
    by: Option<String>,
    /// Show keys that look like e-mail addresses, phone numbers or card numbers, instead of a digest
    #[arg(long)]
    show_keys: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A new run, for a report.
struct NewRun<'a> {
    result: &'static str,
    of: &'a Identity,
    identity: &'a Identity,
    run: u32,
    state: &'static str,
}

impl Rerun {
    pub(super) fn execute(self, global: &Global) -> Result<u8, Fault> {
        let settings = global.settings()?;
        if self.why.trim().is_empty() || self.why.chars().count() > LONGEST_WHY {
            return Err(Fault::usage(format!("--why takes 1 to {LONGEST_WHY} characters")));
        }
        let identity = Identity {
            tenant: global.tenant()?.unwrap_or_default(),
            operation: Operation::new(&*self.operation).map_err(Fault::usage)?,
            key: Key::new(&*self.key).map_err(Fault::usage)?,
        };
        let payload = self.payload.as_deref().map(payload).transpose()?;
        let who = Resolver { by: self.by.as_deref(), token: None };
        let request = RerunRequest { payload, session: self.session.as_deref(), who, why: &self.why };
        let rerun = block_on(async {
            let ledger = open_to_queue(&settings, &identity.operation).await?;
            let rerun = ledger.rerun(&identity, request).await;
            ledger.close().await;
            Ok(rerun?)
        })?;
        let of = &identity;
        Ok(match &rerun {
            onceward::Rerun::Queued { identity, run } => {
                let new = NewRun { result: "enqueued", of, identity, run: *run, state: "queued" };
                self.report(&settings, &new)
            }
            onceward::Rerun::Existing { identity, run, decision } => {
                let new = NewRun { result: "already_enqueued", of, identity, run: *run, state: state(decision) };
                self.report(&settings, &new);
                match decision {
                    Decision::InDoubt { .. } => IN_DOUBT,
                    Decision::Dead => NO,
                    _ => 0,
                }
            }
            onceward::Rerun::Refused(refusal) => self.refused(&settings, of, *refusal),
        })
    }

    fn report(&self, settings: &Settings, new: &NewRun<'_>) -> u8 {
        let NewRun { result, of, identity, run, state } = *new;
        if self.json {
            output::json(&json!({
                "result": result,
                "operation": identity.operation,
                "key": identity.key,
                "state": state,
                "run": run,
                "of": self.shown(&of.key),
            }));
            return 0;
        }
        let command = |verb| command_line(verb, settings.store_argument().as_deref(), identity, self.keys());
        let key = identity.key.as_str();
        let before = format!("{of} was run again before: run {run}, with the key {key},");
        output::out(&match (result, state) {
            ("enqueued", _) => format!("{of} runs again: run {run} is queued, with the key {key}"),
            (_, "queued") => format!("{before} waits for delivery; nothing was queued"),
            (_, "running") => format!("{before} is being delivered; nothing was queued"),
            (_, "done") => format!(
                "{before} is done; nothing was queued. For one more run, name that key:\n  {} --why TEXT",
                command("rerun")
            ),
            (_, "in_doubt") => format!(
                "{before} is in doubt: an attempt may have happened; nothing was queued. Find out, then settle it:\n  \
                 {resolve} --happened\n  {resolve} --did-not-happen",
                resolve = command("resolve")
            ),
            (_, "dead") => format!(
                "{before} is dead and is not tried again; nothing was queued. To have it tried again:\n  {}",
                command("requeue")
            ),
            _ => format!("{before} is {state}; nothing was queued"),
        });
        0
    }

    fn refused(&self, settings: &Settings, of: &Identity, refusal: RerunRefusal) -> u8 {
        let command = |verb| command_line(verb, settings.store_argument().as_deref(), of, self.keys());
        let advice = match refusal {
            RerunRefusal::Absent => "Check --tenant, --operation and --key with `onceward list`".to_owned(),
            RerunRefusal::NotDone(Status::InDoubt) => {
                let resolve = command("resolve");
                format!("Find out whether it happened, then:\n  {resolve} --happened\n  {resolve} --did-not-happen")
            }
            RerunRefusal::NotDone(Status::Dead) => format!("To have it tried again:\n  {}", command("requeue")),
            RerunRefusal::NotDone(Status::Queued | Status::Running) => {
                format!("To see how it stands:\n  {}", command("get"))
            }
            RerunRefusal::PayloadErased => "Add --payload JSON, @FILE or -".to_owned(),
            RerunRefusal::OtherPayload => {
                "If its key was derived with a session, add --session. The payload is compared as when it was queued, by the \
                 recipe of the operation"
                    .to_owned()
            }
            RerunRefusal::NotAnEntry => {
                "For example: onceward run --operation NAME --key KEY-run-2 -- COMMAND".to_owned()
            }
            RerunRefusal::NotDone(_) | RerunRefusal::Expired => String::new(),
        };
        if self.json {
            let reason = refusal.reason();
            let state = if let RerunRefusal::NotDone(status) = refusal { Some(status.as_str()) } else { None };
            let key = self.shown(&of.key);
            output::json(&json!({
                "result": "refused", "operation": of.operation, "key": key, "reason": reason, "state": state,
            }));
        }
        let next = if advice.is_empty() { String::new() } else { format!("\n  {advice}") };
        output::say(&format!("refused: {of}: {refusal}.{next}"));
        match refusal {
            RerunRefusal::OtherPayload => MISMATCH,
            RerunRefusal::NotDone(Status::InDoubt) => IN_DOUBT,
            _ => NO,
        }
    }

    fn keys(&self) -> KeyDisplay {
        KeyDisplay::shown_if(self.show_keys)
    }

    fn shown(&self, key: &Key) -> String {
        self.keys().masked(key).unwrap_or_else(|| key.as_str().to_owned())
    }
}
