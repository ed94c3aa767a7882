//! `onceward copy`: moves a whole ledger to another store.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use onceward::copy::{self, CopyError, CopyProgress, Options, Released, Side, Unsealed};
use onceward::{StoreUrl, store};
use serde_json::json;

use super::block_on;
use onceward_runtime::config::Length;
use onceward_runtime::exit::{self, Fault};
use onceward_runtime::output;

/// The pause between two lines of progress where stderr is not a terminal.
const LINE_PAUSE: Duration = Duration::from_secs(5);

/// The width of the progress bar, in characters.
const BAR: u64 = 30;

/// Move a whole ledger to another store
///
/// Seals the source, so that no claim is granted that the copy would miss; waits for intents that are running; copies every
/// record with its audit trail; compares both ledgers; and opens the target. The source stays sealed and says where it went.
///
/// If the command is interrupted, run it again: it goes on where it stopped. The target must be empty. Stop the servers on the
/// source when it is sealed, and start them on the target when the copy is complete.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  onceward copy --from onceward.db --to postgres://onceward:env:PGPASSWORD@db.internal/app
  onceward copy --from onceward.db --to new.db --wait 5m --force-doubt
  onceward copy --from onceward.db --unseal

Exit codes: 0 copied, 1 refused, 69 a store failed, 75 intents are still running.")]
pub(super) struct Copy {
    /// The ledger to move
    #[arg(long, value_name = "URL")]
    from: StoreUrl,
    /// The empty store that it moves to
    #[arg(long, value_name = "URL", required_unless_present = "unseal")]
    to: Option<StoreUrl>,
    /// How long to wait for running intents [default: as long as their leases, at most 1h; 0s with --force-doubt]
    #[arg(long, value_name = "DURATION")]
    wait: Option<Length>,
    /// Put intents in doubt that are still running after the wait
    #[arg(long)]
    force_doubt: bool,
    /// Move to a store that may lose acknowledged claims although the source does not
    #[arg(long)]
    allow_best_effort: bool,
    /// Give up a copy that is not complete: open the source again, and its target if nothing has arrived there
    #[arg(long, conflicts_with_all = ["wait", "force_doubt", "allow_best_effort"])]
    unseal: bool,
    /// With --unseal: also after the copy was completed. If the target was used, work may run twice
    #[arg(long, requires = "unseal")]
    force: bool,
    /// Print one JSON object with `from`, `to`, `records`, `entries`, `digest` and `forced`
    #[arg(long)]
    json: bool,
}

impl Copy {
    pub(super) fn execute(self) -> Result<u8, Fault> {
        block_on(async {
            let from = open(&self.from, true).await?;
            if self.unseal {
                let opened = copy::unseal(&from, self.force).await.map_err(fault);
                from.store.close().await;
                return self.unsealed(&from.name, opened?).await;
            }
            let to = open(&self.to.clone().unwrap_or_else(|| StoreUrl::from("")), false).await?;
            self.check_durability(&from, &to).await?;
            let options = Options { wait: self.wait.map(|length| length.0), force_doubt: self.force_doubt };
            let shown = ShownProgress::default();
            let copied = copy::copy(&from, &to, options, &|progress| shown.show(progress)).await;
            shown.end();
            from.store.close().await;
            to.store.close().await;
            let copied = copied.map_err(fault)?;
            self.report(&from.name, &to.name, &copied);
            Ok(0)
        })
    }

    /// A ledger does not record which of its intents are payments, so any of them may be one.
    async fn check_durability(&self, from: &Side, to: &Side) -> Result<(), Fault> {
        let Some(durability) = copy::weaker(from, to).await.map_err(fault)? else { return Ok(()) };
        let what = format!(
            "{} survives less than {} ({durability}): it may lose acknowledged claims, and their work would run again",
            to.name, from.name
        );
        if !self.allow_best_effort {
            let accept = "If no payments are in it, or you accept that, add --allow-best-effort. Nothing was changed";
            return Err(Fault::new(exit::NO, format!("{what}. {accept}")));
        }
        output::say(&format!("warning: {what}."));
        Ok(())
    }

    fn report(&self, from: &str, to: &str, copied: &copy::Copied) {
        let totals = copied.totals.as_ref();
        if self.json {
            output::json(&json!({
                "from": from,
                "to": to,
                "records": totals.map(onceward::store::transfer::Totals::count),
                "states": totals.map(|totals| &totals.records),
                "entries": totals.map(|totals| totals.entries),
                "digest": totals.map(onceward::store::transfer::Totals::digest_text),
                "forced": copied.forced,
            }));
            return;
        }
        let Some(totals) = totals else {
            return output::out(&format!("{from} was moved to {to} before; {to} is open"));
        };
        let states: Vec<_> = totals.records.iter().map(|(state, count)| format!("{count} {state}")).collect();
        let forced = match copied.forced {
            0 => String::new(),
            count => format!("\n  {count} running intents are in doubt now: see `onceward list --state in_doubt`"),
        };
        output::out(&format!(
            "moved {from} to {to}\n  {} records ({}) and {} audit entries, equal on both sides (digest {}){forced}\n  {from} \
             stays sealed. Use {to} from now on.",
            totals.count(),
            if states.is_empty() { "none".to_owned() } else { states.join(", ") },
            totals.entries,
            &totals.digest_text()[..16],
        ));
    }

    async fn unsealed(&self, from: &str, was: Unsealed) -> Result<u8, Fault> {
        let (done, target) = match &was {
            Unsealed::Nothing => (format!("{from} is not sealed; nothing was changed"), None),
            Unsealed::Target(arrival) => {
                (format!("{from} was only reserved for a copy of {}. It is open and empty.", arrival.from), None)
            }
            Unsealed::Source(departure) => {
                let (text, word) = self.released(departure).await;
                (format!("{from} is open again and does not move to {}. {text}", departure.to), Some(word))
            }
        };
        if self.force && target.is_some() {
            output::say(
                "warning: if the target was used, the two ledgers do not know of each other's work, and it may run twice.",
            );
        }
        match self.json {
            true => output::json(&json!({ "from": from, "unsealed": was != Unsealed::Nothing, "target": target })),
            false => output::out(&done),
        }
        Ok(0)
    }

    /// Releases the target of a copy that was given up: as text, and as a word for programs.
    async fn released(&self, departure: &store::transfer::Departure) -> (String, &'static str) {
        let url = self.to.clone().unwrap_or_else(|| StoreUrl::from(departure.to.as_str()));
        let released = async {
            let to = open(&url, true).await?;
            let released = copy::release(&to, departure).await.map_err(fault);
            to.store.close().await;
            released
        };
        match released.await {
            Ok(Released::Opened) => ("Nothing had been copied there: it can be used again.".to_owned(), "released"),
            Ok(Released::HoldsPart) => ("It holds a part of the copy and stays closed: remove it.".to_owned(), "holds_part"),
            Ok(Released::NotReserved) => ("It was not changed: it is not reserved for this copy.".to_owned(), "unchanged"),
            Err(_) => (
                "It cannot be opened from here. If nothing was copied there, `onceward copy --from TARGET --unseal` with its \
                 whole URL releases it."
                    .to_owned(),
                "out_of_reach",
            ),
        }
    }
}

/// Opens one side of the copy. Its name holds no secret, and leads to the same store from every folder.
async fn open(url: &StoreUrl, must_exist: bool) -> Result<Side, Fault> {
    if url.is_memory() {
        return Err(Fault::usage(
            "memory: lasts only as long as one process; name a file, or a URL such as postgres://…",
        ));
    }
    let Some(path) = url.file() else {
        return Ok(Side { store: url.clone().open().await?, name: url.to_string() });
    };
    if must_exist && !path.exists() {
        return Err(Fault::new(exit::STORE, format!("no ledger at {}; nothing was done", path.display())));
    }
    let name = std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path)).display().to_string();
    Ok(Side { store: url.clone().open().await?, name })
}

fn fault(error: CopyError) -> Fault {
    match error {
        CopyError::Store(error) => error.into(),
        CopyError::Ledger(error) => error.into(),
        error @ CopyError::Running { .. } => Fault::new(exit::IN_FLIGHT, error),
        error @ CopyError::Refused(_) => Fault::new(exit::NO, error),
        error => Fault::new(exit::STORE, error),
    }
}

/// Progress on stderr: one line that changes on a terminal, and a line now and then otherwise.
#[derive(Default)]
struct ShownProgress {
    last: Mutex<Option<Instant>>,
}

impl ShownProgress {
    fn show(&self, progress: CopyProgress) {
        if std::io::stderr().is_terminal() {
            return output::progress(&line(progress, true));
        }
        let mut last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if last.is_none_or(|last| last.elapsed() >= LINE_PAUSE) {
            *last = Some(Instant::now());
            output::say(&line(progress, false));
        }
    }

    fn end(&self) {
        output::progress("");
    }
}

fn line(progress: CopyProgress, bar: bool) -> String {
    match progress {
        CopyProgress::Waiting { running, left } => {
            let plural = if running == 1 { "" } else { "s" };
            format!("waiting up to {} s for {running} running intent{plural}", left.as_secs() + 1)
        }
        CopyProgress::Copying { records, total } => counted("copying", records, total, bar),
        CopyProgress::Verifying { records, total } => counted("verifying", records, total, bar),
    }
}

fn counted(what: &str, records: u64, total: u64, bar: bool) -> String {
    // Records that expire meanwhile are not counted, and are copied all the same.
    let total = total.max(records);
    if !bar || total == 0 {
        return format!("{what}: {records} of {total} records");
    }
    let filled = usize::try_from(records * BAR / total).unwrap_or_default();
    let empty = usize::try_from(BAR).unwrap_or_default() - filled;
    format!("{what:<9} [{}{}] {records} of {total}", "#".repeat(filled), "-".repeat(empty))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_a_bar_on_a_terminal_and_words_elsewhere() {
        let half = CopyProgress::Copying { records: 5, total: 10 };
        assert_eq!(line(half, true), format!("copying   [{}{}] 5 of 10", "#".repeat(15), "-".repeat(15)));
        assert_eq!(line(half, false), "copying: 5 of 10 records");
        assert_eq!(line(CopyProgress::Verifying { records: 0, total: 0 }, true), "verifying: 0 of 0 records");
        assert_eq!(
            line(CopyProgress::Verifying { records: 3, total: 2 }, true),
            format!("verifying [{}] 3 of 3", "#".repeat(30))
        );
    }
}
