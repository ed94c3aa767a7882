//! `onceward list`: lists intents, newest first.

use onceward::clock::{Clock, SystemClock};
use onceward::core::name::Operation;
use onceward::core::record::{Seen, Standing, Status};
use onceward::pull::LEASES;
use onceward::store::{Cursor, Filter, MAX_PAGE_SIZE};
use serde_json::json;

use super::opening::{open_reachable, report};
use super::{Global, block_on};
use onceward_runtime::config::Length;
use onceward_runtime::exit::Fault;
use onceward_runtime::output;
use onceward_server::view::{IntentView, KeyDisplay, age, ahead, before, shortened, status_named, table};

/// Width limit of a key or an error: three such columns fit on a common screen.
const MAX_WIDTH: usize = 48;

/// List intents, newest first
///
/// Shows all tenants unless --tenant names one. Entries of the outbox that need a person are `in_doubt` or `dead`. If a named store cannot be reached, lists the others and exits with 69.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  onceward list --state in_doubt,dead\n  onceward list --operation charge --older-than 1h --json"
)]
pub(super) struct List {
    /// Only these states: queued, running, open, in_doubt, done, tombstone, dead
    #[arg(long, value_name = "STATES", value_delimiter = ',', value_parser = status_named)]
    state: Vec<Status>,
    /// Only this operation
    #[arg(long, value_name = "NAME")]
    operation: Option<String>,
    /// Only the intent to whose effect the provider gave this id
    #[arg(long, value_name = "ID")]
    reference: Option<String>,
    /// Only intents recorded longer ago than this
    #[arg(long, value_name = "DURATION")]
    older_than: Option<Length>,
    /// Only intents recorded within this time
    #[arg(long, value_name = "DURATION")]
    newer_than: Option<Length>,
    /// Maximum number of intents
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=MAX_PAGE_SIZE as u64))]
    limit: u64,
    /// Continue after an earlier list
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<Cursor>,
    /// Show keys that look like e-mail addresses, phone numbers or card numbers, instead of a digest
    #[arg(long)]
    show_keys: bool,
    /// Print one JSON object with `intents` and `next`
    #[arg(long)]
    json: bool,
}

impl List {
    pub(super) fn execute(self, global: &Global) -> Result<u8, Fault> {
        let settings = global.settings()?;
        let now = SystemClock.now();
        let filter = Filter {
            status: self.state.clone(),
            tenant: global.tenant()?,
            operation: self.operation.as_deref().map(Operation::new).transpose().map_err(Fault::usage)?,
            reference: self.reference.clone(),
            created_before: self.older_than.map(|length| before(now, length.0)),
            created_since: self.newer_than.map(|length| before(now, length.0)),
        };
        let limit = usize::try_from(self.limit).unwrap_or(MAX_PAGE_SIZE);
        let keys = KeyDisplay::shown_if(self.show_keys);
        block_on(async {
            let ledger = open_reachable(&settings).await?;
            let (page, failed) = ledger.list_reachable(&filter, self.cursor, limit).await.any()?;
            ledger.close().await;
            let shown: Vec<_> = page
                .listed
                .iter()
                .filter_map(|listed| Some((&listed.seen, IntentView::listed(listed, keys)?)))
                // What the server keeps for itself is shown only on request.
                .filter(|(_, view)| self.operation.is_some() || view.operation.as_deref() != Some(LEASES))
                .collect();
            if self.json {
                let intents: Vec<_> = shown.iter().map(|(_, view)| view).collect();
                output::json(&json!({ "intents": intents, "next": page.next }));
            } else {
                output::out(&as_table(&shown, page.next));
            }
            Ok(report(&failed, "listed"))
        })
    }
}

fn as_table(shown: &[(&Seen, IntentView)], next: Option<Cursor>) -> String {
    if shown.is_empty() && next.is_none() {
        return "no intents".to_owned();
    }
    let titles = ["STATE", "TENANT", "OPERATION", "KEY", "ATTEMPTS", "RECORDED", "NOTE"];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    for (seen, view) in shown {
        let name =
            |name: &Option<String>| name.as_deref().map_or_else(|| "-".to_owned(), |name| shortened(name, MAX_WIDTH));
        rows.push(vec![
            view.state.to_owned(),
            name(&view.tenant),
            name(&view.operation),
            name(&view.key),
            view.attempts.to_string(),
            age(seen.record.created_at, seen.now),
            note(seen, view),
        ]);
    }
    let mut text = table(&rows);
    if let Some(next) = next {
        text += &format!("\n\nThere are more: add --cursor {next}");
    }
    text
}

/// Which run it is, if it is a new run of another intent, and how it stands.
fn note(seen: &Seen, view: &IntentView) -> String {
    let rerun = view.entry.as_ref().and_then(|entry| entry.rerun.as_ref());
    let rerun = rerun.map(|rerun| format!("run {} of {}", rerun.run, shortened(&rerun.of, MAX_WIDTH)));
    let standing = Some(standing(seen, view)).filter(|standing| !standing.is_empty());
    rerun.into_iter().chain(standing).collect::<Vec<_>>().join(": ")
}

fn standing(seen: &Seen, view: &IntentView) -> String {
    match seen.standing() {
        Some(Standing::InDoubt { since }) => {
            let since = age(since, seen.now);
            let retried = view.entry.as_ref().and_then(|entry| entry.due_at.as_ref()).is_some();
            let next = match view.entry.is_some() {
                true if retried => ", is tried again",
                true => ", waits for a person",
                false => "",
            };
            format!("in doubt: {since}{next}")
        }
        Some(Standing::Done) => view
            .outcome
            .as_ref()
            .map(|outcome| format!("{}{} bytes", outcome.ended(), outcome.size))
            .unwrap_or_default(),
        Some(Standing::Queued { due }) if due > seen.now => match view.last_error.as_deref() {
            Some(error) => format!("tried again {}: {}", ahead(due, seen.now), shortened(error, MAX_WIDTH)),
            None => format!("due {}", ahead(due, seen.now)),
        },
        Some(Standing::Queued { .. }) if view.last_error.is_none() => "due now".to_owned(),
        _ => view.last_error.as_deref().map(|error| shortened(error, MAX_WIDTH)).unwrap_or_default(),
    }
}
