//! Several processes make one ledger at once, and some of them are killed: the ledger is complete. On a file they open it; on a
//! server they migrate it.

use std::path::Path;

use onceward::Ledger;

use super::journal::{Event, JournalReader, Line, now};
use super::run_store::RunStore;
use super::{Run, journal_path};

/// A new ledger is made once in this many cycles.
const EVERY_ON_FILE: u64 = 5;

/// On a server that takes longer: a database is created and dropped.
const EVERY_ON_SERVER: u64 = 12;

impl Run<'_> {
    /// Has a new ledger made in some cycles.
    pub(super) async fn new_ledger_now_and_then(&mut self, cycle: u64) {
        let is_server = self.store.server_url().is_some();
        let every = if is_server { EVERY_ON_SERVER } else { EVERY_ON_FILE };
        if !cycle.is_multiple_of(every) {
            return;
        }
        let folder = self.folder.join(format!("birth-{cycle}"));
        std::fs::create_dir(&folder).expect("the folder can be written");
        // Every second time no process completes it, and one more migration has to. A file is completed by its next opening.
        let kills_all = cycle / every % 2 == 1;
        let store = RunStore::create_empty(&folder, self.options.store.as_deref()).await;
        let violations = self.processes.make_new_ledger(cycle, &folder, store.server_url(), kills_all);
        self.judge.violations.extend(violations);
        self.judge.violations.extend(failures(&folder));
        if let (RunStore::Server(server), true) = (&store, kills_all) {
            let error = server.migrate().await.err();
            self.judge.violations.extend(error.map(|error| format!("a new ledger cannot be completed: {error}")));
        }
        match store.open().await {
            Ok(ledger) => {
                self.judge.violations.extend(try_out(&ledger).await.err());
                ledger.close().await;
            }
            Err(error) => self.judge.violations.push(format!("a new ledger cannot be opened: {error}")),
        }
        self.judge.violations.extend(store.damage());
        std::fs::remove_dir_all(&folder).expect("the folder can be written");
    }
}

/// What the processes that were not killed say.
fn failures(folder: &Path) -> Vec<String> {
    let lines = JournalReader::open(&journal_path(folder)).and_then(|mut reader| reader.read_new()).unwrap_or_default();
    let failure = |line: Line| match line.event {
        Event::Answered { detail, .. } => Some(format!("a new ledger could not be made: {detail}")),
        _ => None,
    };
    lines.into_iter().filter_map(failure).collect()
}

/// A call runs in it, and its repeat gets the outcome. The judge compares times of the journal with times of the ledger, so the ledger
/// must have the clock of this machine.
async fn try_out(ledger: &Ledger) -> Result<(), String> {
    let from = now();
    for expected in [false, true] {
        let call = ledger.operation("first").key("one");
        match call.run(|_| async { Ok("done".to_owned()) }).await {
            Ok(done) if done.value == "done" && done.replayed == expected => {}
            other => return Err(format!("a call on a new ledger was answered {other:?}")),
        }
    }
    let found = ledger.operation("first").key("one").get().await.map_err(|error| error.to_string())?;
    let created = found.map_or(0, |found| found.seen.record.created_at.as_millis());
    match (from..=now()).contains(&created) {
        true => Ok(()),
        false => {
            Err(format!("the clock of the store is not that of this machine: a call of {from} is of {created} there"))
        }
    }
}
