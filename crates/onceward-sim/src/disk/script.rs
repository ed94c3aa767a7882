//! The script, always the same: every end that a claim can have, a partial and a full checkpoint, a log that starts
//! over, and reads. Whatever fails, the callers continue and only their answers are checked.

use std::time::{Duration, Instant};

use onceward::core::decide::{Decision, Resolution};
use onceward::store::Filter;
use onceward::{Begun, CallBuilder, Guard, InDoubt, Ledger, Outcome, WriteResult};
use rusqlite::Connection;

use crate::checkpoint;
use crate::recording_store::LEDGER;
use crate::vfs::{Drive, Role};

/// Leases are short, because callers retry for as long when the disk is full.
const MAX_RUNTIME: Duration = Duration::from_millis(60);

/// How long the script waits for the checkpoint thread.
const PATIENCE: Duration = Duration::from_millis(300);

/// The intents of the script.
const KEYS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// The call of an intent.
fn operation(ledger: &Ledger, key: &str) -> CallBuilder {
    let operation = ledger.operation("charge").key(key).tenant("acme").max_runtime(MAX_RUNTIME);
    match key {
        "b" | "f" => operation.marks_sent(),
        "d" => operation.in_doubt(InDoubt::Retry),
        _ => operation,
    }
}

fn outcome(key: &str) -> Outcome {
    Outcome::success(format!("\"{}\"", key.repeat(if key == "b" { 9000 } else { 30 })))
}

/// Plays the script. Returns the claims that are still held, and which answers were wrong.
pub async fn play(ledger: &Ledger, drive: &Drive) -> (Vec<Guard>, Vec<String>) {
    let mut script = Script { ledger, drive, held: Vec::new(), faults: Vec::new() };
    script.finish("a").await;
    script.finish("b").await;
    // A reader is open, so the checkpoint stops here, and the file is not synced.
    let reader = Connection::open(drive.folder().join(LEDGER)).and_then(|reader| {
        reader.execute_batch("BEGIN; SELECT count(*) FROM intent")?;
        Ok(reader)
    });
    script.release("c").await;
    script.doubt("d").await;
    script.checkpoint().await;
    drop(reader);
    script.hold("e").await;
    script.checkpoint().await;
    // The log starts over.
    script.finish("f").await;
    script.finish("c").await;
    script.settle("d").await;
    script.checkpoint().await;
    script.finish("g").await;
    let _ = ledger.list(&Filter::default(), None, 10).await;
    let _ = ledger.counts().await;
    (script.held, script.faults)
}

struct Script<'a> {
    ledger: &'a Ledger,
    drive: &'a Drive,
    held: Vec<Guard>,
    faults: Vec<String>,
}

impl Script<'_> {
    async fn begin(&mut self, key: &str) -> Option<Guard> {
        match operation(self.ledger, key).begin().await {
            Ok(Begun::Acquired(guard)) => Some(guard),
            Ok(Begun::Answered(_)) | Err(_) => None,
        }
    }

    /// Finishes an intent; from then on it is replayed or an error, and never runs again.
    async fn finish(&mut self, key: &str) {
        let Some(guard) = self.begin(key).await else { return };
        if ["b", "f"].contains(&key) && guard.claim().sent().await.is_err() {
            return drop(guard.release(Duration::ZERO, None).await);
        }
        let finished = guard.finish(outcome(key)).await;
        match (finished, operation(self.ledger, key).begin().await) {
            (_, Err(_)) => {}
            (_, Ok(Begun::Answered(Decision::Replay { outcome: replayed, .. }))) if replayed == outcome(key) => {}
            // It could not be recorded, so the outcome is unknown.
            (Err(_), Ok(Begun::Answered(Decision::InFlight { .. } | Decision::InDoubt { .. }))) => {}
            (finished, begun) => self.faults.push(format!("{key} was finished ({finished:?}), and then {begun:?}")),
        }
    }

    async fn release(&mut self, key: &str) {
        if let Some(guard) = self.begin(key).await {
            drop(guard.release(Duration::ZERO, Some("refused")).await);
        }
    }

    async fn doubt(&mut self, key: &str) {
        if let Some(guard) = self.begin(key).await {
            drop(guard.doubt(Some("no answer")).await);
        }
    }

    /// Holds a claim that no other caller may get.
    async fn hold(&mut self, key: &str) {
        let Some(guard) = self.begin(key).await else { return };
        if let Ok(Begun::Acquired(_)) = operation(self.ledger, key).begin().await {
            self.faults.push(format!("{key} was claimed twice"));
        }
        self.held.push(guard);
    }

    async fn settle(&mut self, key: &str) {
        let Ok(call) = operation(self.ledger, key).call() else { return };
        let Ok(Some(found)) = self.ledger.get(&call.identity).await else { return };
        let resolution = Resolution::Happened(outcome(key));
        drop(self.ledger.resolve(&call.identity, found.seen.record.version, resolution, Some("harness"), None).await);
    }

    /// Has the log checkpointed, and waits for it.
    async fn checkpoint(&mut self) {
        let before = self.carried();
        if !checkpoint::force(self.ledger).await {
            return;
        }
        let started = Instant::now();
        let mut last = before;
        while started.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let now = self.carried();
            if now != before && now == last {
                return;
            }
            last = now;
        }
    }

    /// How much the checkpoint thread has done.
    fn carried(&self) -> u64 {
        let counts = self.drive.counts();
        counts.iter().filter(|(operation, _)| operation.role == Role::Carrier).map(|(_, count)| *count).sum()
    }
}

/// Settles everything that the script has left, as an operator would. Returns what cannot be settled.
pub async fn settle_all(ledger: &Ledger) -> Vec<String> {
    let mut faults = Vec::new();
    for key in KEYS {
        if let Err(fault) = settle_one(ledger, key).await {
            faults.push(format!("{key} cannot be settled: {fault}"));
        }
    }
    faults
}

async fn settle_one(ledger: &Ledger, key: &str) -> Result<(), String> {
    let operation = operation(ledger, key);
    let begun = operation.begin().await.map_err(|error| error.to_string())?;
    match begun {
        Begun::Answered(Decision::Replay { outcome: replayed, .. }) if replayed == outcome(key) => return Ok(()),
        Begun::Answered(Decision::InDoubt { .. }) => {
            let call = operation.call().map_err(|error| error.to_string())?;
            let found = ledger.get(&call.identity).await.map_err(|error| error.to_string())?;
            let version = found.ok_or("it is gone")?.seen.record.version;
            let resolution = Resolution::Happened(outcome(key));
            let resolved = ledger.resolve(&call.identity, version, resolution, None, None).await;
            resolved.map_err(|error| error.to_string())?;
        }
        Begun::Acquired(guard) => {
            if ["b", "f"].contains(&key) {
                guard.claim().sent().await.map_err(|error| error.to_string())?;
            }
            let reach = guard.finish(outcome(key)).await.map_err(|error| error.to_string())?;
            if reach != WriteResult::Written {
                return Err("another caller has it".to_owned());
            }
        }
        Begun::Answered(other) => return Err(format!("{other:?}")),
    }
    match operation.begin().await {
        Ok(Begun::Answered(Decision::Replay { outcome: replayed, .. })) if replayed == outcome(key) => Ok(()),
        other => Err(format!("it was settled, and then {other:?}")),
    }
}
