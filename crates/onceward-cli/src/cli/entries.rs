//! `onceward requeue` and `onceward cancel`: decisions of people about entries of the outbox, one or many at once.

use futures_util::stream::{self, StreamExt};
use onceward::clock::{Clock, SystemClock};
use onceward::core::decide::Refusal;
use onceward::core::name::{Identity, Key, Operation, Tenant};
use onceward::core::record::{Seen, Status};
use onceward::store::Filter;
use onceward::{Error, Ledger, Resolved, Resolver};
use serde_json::json;

use super::opening::{open_holding, open_reachable, report};
use super::{Global, block_on};
use onceward_runtime::config::Length;
use onceward_runtime::exit::{Fault, NO};
use onceward_runtime::output;
use onceward_server::view::{KeyDisplay, before, status_named};

/// How many entries one page of a list has, and at most how many pages one command takes: a hundred thousand entries.
const PAGE: usize = 500;
const MAX_PAGES: usize = 200;

/// How many entries are changed at once: the store groups them into few commits.
const AT_ONCE: usize = 64;

/// Try dead entries of the outbox again
///
/// With all their attempts, and without the time limit that they had. One by --operation and --key, or all that the filters select.
/// An entry in doubt may have been delivered: settle it with `onceward resolve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes:
  0    done
  1    an entry was refused, or none was found

Examples:
  onceward requeue --operation welcome_mail --key user-7
  onceward requeue --operation welcome_mail --state dead --dry-run
  onceward requeue --state dead --older-than 1h --yes --note 'the provider is back'")]
pub(super) struct Requeue {
    #[command(flatten)]
    entries: Entries,
    /// Send a new key to the downstream: it may have recorded the failed request under the old one
    #[arg(long)]
    fresh_key: bool,
}

/// Cancel entries of the outbox that wait for delivery
///
/// They are dead from then on, and can be requeued. One by --operation and --key, or all that the filters select. Refused while an
/// entry is being delivered, and in doubt.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes:
  0    done
  1    an entry was refused, or none was found

Examples:
  onceward cancel --operation newsletter --key ann-2026-11
  onceward cancel --operation newsletter --state queued --dry-run
  onceward cancel --operation newsletter --state queued --yes --note 'wrong subject'")]
pub(super) struct Cancel {
    #[command(flatten)]
    entries: Entries,
}

/// Which entries, and who decides.
#[derive(Debug, clap::Args)]
struct Entries {
    /// The operation of the entry; without --key, of all entries to select
    #[arg(long, value_name = "NAME", required_unless_present_any = ["state", "older_than"])]
    operation: Option<String>,
    /// The key of one entry
    #[arg(long, value_name = "KEY", requires = "operation", conflicts_with_all = ["state", "older_than", "dry_run", "yes"])]
    key: Option<String>,
    /// Select all entries in this state: dead for requeue, queued for cancel
    #[arg(long, value_name = "STATE", value_parser = status_named)]
    state: Option<Status>,
    /// Select entries that were recorded longer ago than this
    #[arg(long, value_name = "DURATION")]
    older_than: Option<Length>,
    /// Only print what would be done
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// Do it for all selected entries
    #[arg(long)]
    yes: bool,
    /// Only if the record still has this version, as shown by `get`
    #[arg(long, value_name = "VERSION", requires = "key")]
    if_version: Option<u64>,
    /// The person who decides
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true)]
    by: Option<String>,
    /// The reason
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// Show keys that look like e-mail addresses, phone numbers or card numbers, instead of a digest
    #[arg(long)]
    show_keys: bool,
    /// Print one line of JSON for each entry
    #[arg(long)]
    json: bool,
}

/// What is done with the entries.
#[derive(Clone, Copy, Debug)]
enum What {
    Requeue { fresh_key: bool },
    Cancel,
}

impl What {
    /// The state of the entries that it applies to.
    fn state(self) -> Status {
        match self {
            Self::Requeue { .. } => Status::Dead,
            Self::Cancel => Status::Queued,
        }
    }

    fn verb(self) -> &'static str {
        match self {
            Self::Requeue { .. } => "requeue",
            Self::Cancel => "cancel",
        }
    }

    fn done(self) -> &'static str {
        match self {
            Self::Requeue { .. } => "requeued",
            Self::Cancel => "cancelled",
        }
    }
}

impl Requeue {
    pub(super) fn execute(self, global: &Global) -> Result<u8, Fault> {
        self.entries.execute(global, What::Requeue { fresh_key: self.fresh_key })
    }
}

impl Cancel {
    pub(super) fn execute(self, global: &Global) -> Result<u8, Fault> {
        self.entries.execute(global, What::Cancel)
    }
}

/// What became of the entries.
#[derive(Default)]
struct Tally {
    done: u64,
    refused: u64,
}

impl Entries {
    fn execute(self, global: &Global, what: What) -> Result<u8, Fault> {
        let settings = global.settings()?;
        let tenant = global.tenant()?;
        let operation = self.operation.as_deref().map(Operation::new).transpose().map_err(Fault::usage)?;
        if let (Some(operation), Some(key)) = (&operation, &self.key) {
            let (tenant, key) = (tenant.unwrap_or_default(), Key::new(key).map_err(Fault::usage)?);
            let identity = Identity { tenant, operation: operation.clone(), key };
            return block_on(async {
                let (ledger, _) = open_holding(&settings, &identity).await?;
                let code = self.one(&ledger, &identity, what).await;
                ledger.close().await;
                code
            });
        }
        if self.state.is_some_and(|state| state != what.state()) {
            let (verb, state) = (what.verb(), what.state().as_str());
            return Err(Fault::usage(format!("--state: {verb} is for entries that are {state}")));
        }
        let filter = Filter {
            status: vec![what.state()],
            tenant,
            operation,
            reference: None,
            created_before: self.older_than.map(|length| before(SystemClock.now(), length.0)),
            created_since: None,
        };
        block_on(async {
            let ledger = open_reachable(&settings).await?;
            let code = self.many(&ledger, &filter, what).await;
            ledger.close().await;
            code
        })
    }

    async fn one(&self, ledger: &Ledger, identity: &Identity, what: What) -> Result<u8, Fault> {
        let found = ledger.get(identity).await?;
        let Some(version) = self.if_version.or(found.map(|found| found.seen.record.version)) else {
            self.print(identity, Err(Refusal::Absent), what);
            return Ok(NO);
        };
        let resolved = self.decide(ledger, identity, version, what).await?;
        self.print(identity, resolved, what);
        Ok(if resolved.is_ok() { 0 } else { NO })
    }

    async fn decide(
        &self,
        ledger: &Ledger,
        identity: &Identity,
        version: u64,
        what: What,
    ) -> Result<Result<(), Refusal>, Error> {
        let who = Resolver { by: self.by.as_deref(), token: None };
        let resolved = match what {
            What::Requeue { fresh_key } => {
                ledger.requeue(identity, version, fresh_key, who, self.note.as_deref()).await?
            }
            What::Cancel => ledger.cancel(identity, version, who, self.note.as_deref()).await?,
        };
        Ok(match resolved {
            Resolved::Settled => Ok(()),
            Resolved::Refused(refusal) => Err(refusal),
        })
    }

    /// Page by page, each from where the last one ended: an entry that is changed meanwhile is not met twice.
    async fn many(&self, ledger: &Ledger, filter: &Filter, what: What) -> Result<u8, Fault> {
        let (mut after, mut tally) = (None, Tally::default());
        let (mut failed, mut is_cut) = (Vec::new(), false);
        for page_number in 0..MAX_PAGES {
            let (page, unreachable) = ledger.list_reachable(filter, after, PAGE).await.any()?;
            failed = unreachable;
            let selected: Vec<(Identity, u64)> =
                page.listed.iter().filter_map(|listed| selected(&listed.seen)).collect();
            if self.yes {
                self.change(ledger, selected, what, &mut tally).await?;
            } else {
                for (identity, _) in &selected {
                    tally.done += 1;
                    // Without --dry-run, only the number is of interest.
                    if self.dry_run {
                        self.print_planned(identity, what);
                    }
                }
            }
            after = page.next;
            if after.is_none() {
                break;
            }
            is_cut = page_number + 1 == MAX_PAGES;
        }
        let code = report(&failed, "searched");
        self.sum_up(&tally, is_cut, what)?;
        Ok(if code == 0 && (tally.refused > 0 || tally.done == 0) { NO } else { code })
    }

    async fn change(
        &self,
        ledger: &Ledger,
        selected: Vec<(Identity, u64)>,
        what: What,
        tally: &mut Tally,
    ) -> Result<(), Fault> {
        let decided = stream::iter(selected).map(async |(identity, version)| {
            let decided = self.decide(ledger, &identity, version, what).await;
            (identity, decided)
        });
        let mut decided = std::pin::pin!(decided.buffered(AT_ONCE));
        while let Some((identity, decided)) = decided.next().await {
            let decided = decided.map_err(|error| {
                let fault = Fault::from(error);
                let done = tally.done;
                Fault::new(fault.code, format!("{}\n  {done} entries were {} before that.", fault.message, what.done()))
            })?;
            match decided {
                Ok(()) => tally.done += 1,
                Err(_) => tally.refused += 1,
            }
            self.print(&identity, decided, what);
        }
        Ok(())
    }

    fn sum_up(&self, tally: &Tally, is_cut: bool, what: What) -> Result<(), Fault> {
        let more = if is_cut { " There are more: run it again." } else { "" };
        let Tally { done, refused } = tally;
        if self.yes {
            let others = if *refused > 0 { format!(", {refused} refused") } else { String::new() };
            output::say(&format!("{done} entries {}{others}.{more}", what.done()));
            return Ok(());
        }
        let state = what.state().as_str();
        if *done == 0 {
            output::say(&format!("no entry that is {state} was found."));
            return Ok(());
        }
        if self.dry_run {
            output::say(&format!("{done} entries would be {}; nothing was changed.{more}", what.done()));
            return Ok(());
        }
        Err(Fault::usage(format!(
            "{done} entries would be {}; nothing was changed.\n  Add --yes to do it, or --dry-run to see them.",
            what.done()
        )))
    }

    fn print_planned(&self, identity: &Identity, what: What) {
        match self.json {
            true => output::out(&self.line(identity, &format!("would_{}", what.verb()), None)),
            false => output::out(&format!("would {} {}", what.verb(), in_tenant(identity))),
        }
    }

    fn print(&self, identity: &Identity, decided: Result<(), Refusal>, what: What) {
        match (self.json, decided) {
            (true, Ok(())) => output::out(&self.line(identity, what.done(), None)),
            (true, Err(refusal)) => output::out(&self.line(identity, "refused", Some(&why(refusal, what)))),
            (false, Ok(())) => output::out(&format!("{} {}", what.done(), in_tenant(identity))),
            (false, Err(refusal)) => output::say(&format!("refused: {} {}.", in_tenant(identity), why(refusal, what))),
        }
    }

    fn line(&self, identity: &Identity, result: &str, reason: Option<&str>) -> String {
        let masked = KeyDisplay::shown_if(self.show_keys).masked(&identity.key);
        let key = masked.unwrap_or_else(|| identity.key.as_str().to_owned());
        let (tenant, operation) = (identity.tenant.as_str(), identity.operation.as_str());
        let mut line = json!({ "result": result, "tenant": tenant, "operation": operation, "key": key });
        if let Some(reason) = reason {
            line["reason"] = json!(reason);
        }
        line.to_string()
    }
}

/// The version at which it was listed: if it has changed since, it is refused.
fn selected(seen: &Seen) -> Option<(Identity, u64)> {
    Some((seen.record.identity.clone()?, seen.record.version))
}

fn in_tenant(identity: &Identity) -> String {
    match identity.tenant == Tenant::default() {
        true => identity.to_string(),
        false => format!("{identity} of {}", identity.tenant),
    }
}

fn why(refusal: Refusal, what: What) -> String {
    match (refusal, what) {
        (Refusal::Absent, _) => "was not found; check --tenant, --operation and --key with `onceward list`".to_owned(),
        (Refusal::Running, _) => "is being delivered".to_owned(),
        (Refusal::Changed | Refusal::NotSent, _) => {
            "has changed since it was read; look again with `onceward get`".to_owned()
        }
        (Refusal::NothingToDo(Status::InDoubt), _) => {
            "is in doubt: an attempt may have happened; find out, then use `onceward resolve`".to_owned()
        }
        (Refusal::NothingToDo(Status::Queued), What::Requeue { .. }) => "waits for delivery already".to_owned(),
        (Refusal::NothingToDo(Status::Dead), What::Cancel) => "is dead already".to_owned(),
        (Refusal::NothingToDo(status), _) => {
            format!("is {}: there is nothing to {}", status.as_str(), what.verb())
        }
    }
}
