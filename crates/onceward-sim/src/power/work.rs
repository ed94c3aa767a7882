//! Callers at work on the ledger, and another process beside them that reads and checkpoints.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onceward::clock::ManualClock;
use onceward::core::decide::{Decision, Resolution};
use onceward::core::policy::Policy;
use onceward::{Begun, CallBuilder, Guard, InDoubt, Ledger, Outcome};
use rusqlite::Connection;

use crate::checkpoint;
use crate::recording_store::LEDGER;
use crate::rng::Rng;
use crate::vfs::Drive;

/// Callers at once: enough that one transaction carries several writes.
const CALLERS: u64 = 6;

/// Intents of one cycle, and how many of them are new: the others have been through cuts before.
const WINDOW: u64 = 40;
const NEW: u64 = 10;

/// How long the outcome of a brief intent is kept: shorter than the machine is sometimes off.
const BRIEF: Duration = Duration::from_secs(90);

/// The intents of a cycle.
pub fn window(cycle: u64) -> std::ops::Range<u64> {
    (cycle + 1) * NEW..(cycle + 1) * NEW + WINDOW
}

/// The call of an intent: three tenants, every policy.
pub fn operation(ledger: &Ledger, intent: u64) -> CallBuilder {
    let key = format!("k{intent}");
    let tenant = ["acme", "bolt", "core"][usize::try_from(intent % 3).unwrap_or(0)];
    let causal = Policy { after_delivery: Some(Duration::ZERO), ..Policy::default() };
    let operation = match intent % 4 {
        _ if intent % 7 == 3 => ledger.operation("set").policy(causal),
        0 => ledger.operation("charge").in_doubt(InDoubt::Hold),
        1 => ledger.operation("mail").in_doubt(InDoubt::Hold).marks_sent(),
        2 => ledger.operation("post").in_doubt(InDoubt::Retry),
        _ => ledger.operation("order").in_doubt(InDoubt::Retry).marks_sent(),
    };
    let operation = if intent.is_multiple_of(5) { operation.retention(BRIEF) } else { operation };
    operation.tenant(tenant).key(&key)
}

/// Works until every caller is done or the power goes. Returns the claims that are still held.
pub async fn run(ledger: &Ledger, drive: &Arc<Drive>, clock: &ManualClock, seed: u64, cycle: u64) -> Vec<Guard> {
    let stop = Arc::new(AtomicBool::new(false));
    let neighbour = {
        let (stop, drive, rng) = (Arc::clone(&stop), Arc::clone(drive), Rng::of(&[seed, 5, cycle]));
        std::thread::spawn(move || drop(live_beside(&drive, &stop, rng)))
    };
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let caller = Caller {
                ledger: ledger.clone(),
                drive: Arc::clone(drive),
                clock: clock.clone(),
                rng: Rng::of(&[seed, 6, cycle, caller]),
                held: Vec::new(),
            };
            tokio::spawn(caller.work(cycle))
        })
        .collect();
    let mut held = Vec::new();
    for caller in callers {
        held.extend(caller.await.expect("no caller panics"));
    }
    stop.store(true, Ordering::SeqCst);
    neighbour.join().expect("the neighbour does not panic");
    held
}

struct Caller {
    ledger: Ledger,
    drive: Arc<Drive>,
    clock: ManualClock,
    rng: Rng,
    held: Vec<Guard>,
}

impl Caller {
    async fn work(mut self, cycle: u64) -> Vec<Guard> {
        let steps = 4 + self.rng.below(20);
        for _ in 0..steps {
            if self.drive.is_dark() {
                break;
            }
            match self.rng.below(24) {
                0 => drop(checkpoint::force(&self.ledger).await),
                1 => self.clock.advance(Duration::from_secs(20)),
                _ => {
                    let intent = window(cycle).start + self.rng.below(WINDOW);
                    self.call(intent).await;
                }
            }
        }
        self.held
    }

    async fn call(&mut self, intent: u64) {
        let operation = operation(&self.ledger, intent);
        match operation.begin().await {
            Ok(Begun::Acquired(guard)) => self.own(intent, guard).await,
            Ok(Begun::Answered(Decision::InDoubt { .. })) if self.rng.one_in(2) => self.settle(intent).await,
            Ok(Begun::Answered(_)) | Err(_) => {}
        }
    }

    async fn own(&mut self, intent: u64, guard: Guard) {
        if intent % 2 == 1 && !self.rng.one_in(4) {
            drop(guard.claim().sent().await);
        }
        let delivery = guard.delivery();
        match self.rng.below(12) {
            0 => self.held.push(guard),
            1 => drop(guard.release(Duration::ZERO, Some("refused")).await),
            2 => drop(guard.doubt(Some("no answer")).await),
            3 => drop(guard.finish(Outcome::failure(self.body(intent))).await),
            _ => drop(guard.finish(Outcome::success(self.body(intent))).await),
        }
        // A held or released intent has no answer, and the ledger says so.
        if self.rng.one_in(2) {
            delivery.arrived();
        }
        if self.rng.one_in(8) {
            delivery.did_not_arrive().await;
        }
    }

    /// An operator says what happened.
    async fn settle(&mut self, intent: u64) {
        let operation = operation(&self.ledger, intent);
        let Ok(call) = operation.call() else { return };
        let Ok(Some(found)) = self.ledger.get(&call.identity).await else { return };
        let resolution = match self.rng.below(3) {
            0 => Resolution::Happened(Outcome::success(self.body(intent))),
            1 => Resolution::DidNotHappen,
            _ => Resolution::Reset,
        };
        let version = found.seen.record.version;
        drop(self.ledger.resolve(&call.identity, version, resolution, Some("harness"), None).await);
    }

    /// Mostly a receipt; sometimes some pages, all different.
    fn body(&mut self, intent: u64) -> Vec<u8> {
        let length = self.rng.weighted(&[(6, 1), (3, 40), (2, 600), (1, 6000)]);
        let mut body = format!("\"{intent}");
        for _ in 0..length {
            body.push_str(&format!("-{:016x}", self.rng.bits()));
        }
        body.push('"');
        body.into_bytes()
    }
}

/// Another process that shares the file: it reads for a while, so that a checkpoint can only be partial, and
/// checkpoints in every mode.
fn live_beside(drive: &Drive, stop: &AtomicBool, mut rng: Rng) -> rusqlite::Result<()> {
    let connection = Connection::open(drive.folder().join(LEDGER))?;
    connection.busy_timeout(Duration::from_millis(20))?;
    while !stop.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_micros(200 * (1 + rng.below(10))));
        let mode = match rng.below(6) {
            0 => "PASSIVE",
            1 => "RESTART",
            2 => "TRUNCATE",
            _ => {
                connection.execute_batch("BEGIN; SELECT count(*) FROM intent")?;
                std::thread::sleep(Duration::from_micros(300 * (1 + rng.below(10))));
                connection.execute_batch("COMMIT")?;
                continue;
            }
        };
        connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |_| Ok(()))?;
    }
    Ok(())
}
