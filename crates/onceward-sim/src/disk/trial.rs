//! One run with one fault, and what must hold.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use onceward::clock::ManualClock;
use onceward::store::{Error, Store};
use onceward::{Begun, Ledger};

use super::{Sum, script};
use crate::recording_store::{self, Acknowledged, RecordingStore};
use crate::rng::Rng;
use crate::vfs::{self, Drive, Fault, IgnoredSyncs, Image, Kind, Operation, Role};

/// How long a failure in one thread may take to reach the others.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a trial begins with.
pub enum Start {
    /// An empty folder: the ledger is created.
    Nothing,
    /// What a power cut has left: a log that has to be recovered.
    Left(Arc<(Image, Acknowledged, ManualClock)>),
}

/// One run.
pub struct Trial<'a> {
    /// What it begins with.
    pub start: &'a Start,
    /// What fails.
    pub fault: Option<Fault>,
    /// The seed of what is lost.
    pub seed: u64,
}

/// The name of a trial in the report.
pub fn name(start: &Start, fault: Option<&Fault>) -> String {
    let start = match start {
        Start::Nothing => "new ledger",
        Start::Left(_) => "recovered ledger",
    };
    match fault {
        None => format!("{start}, nothing fails"),
        Some(Fault { operation, nth, code, lasting }) => {
            let lasting = if *lasting { ", and from then on" } else { "" };
            format!("{start}, {operation} number {nth} fails with {code}{lasting}")
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime starts")
}

/// A ledger at work, whose power was cut before it was closed.
pub fn left_by_a_cut(folder: &Path, seed: u64) -> (Image, Acknowledged, ManualClock) {
    let (acknowledged, clock) = (Arc::new(Acknowledged::default()), ManualClock::default());
    let drive = Drive::mount(folder, Image::default(), IgnoredSyncs::None, Rng::of(&[seed]));
    let recording_store = RecordingStore::open(&drive, &acknowledged, &clock).expect("nothing fails");
    runtime().block_on(async {
        let ledger = Ledger::builder().on(recording_store);
        let old = ledger.operation("charge").key("old").run(|_| async { Ok("x".repeat(20_000)) }).await;
        old.expect("nothing fails");
        drive.cut_now();
        ledger.close().await;
    });
    vfs::unplug(drive.folder());
    let (image, _) = drive.left().expect("the power is gone");
    (image, acknowledged.copy(), clock)
}

impl Trial<'_> {
    /// Runs it in a folder. Returns how often each operation was done until the ledger was closed, and the result.
    pub fn run(&self, folder: &Path) -> (BTreeMap<Operation, u64>, Sum) {
        let mut sum = Sum::default();
        let mut faults = Vec::new();
        let (image, acknowledged, clock) = match self.start {
            Start::Nothing => (Image::default(), Acknowledged::default(), ManualClock::default()),
            Start::Left(left) => (left.0.clone(), left.1.copy(), left.2.clone()),
        };
        let acknowledged = Arc::new(acknowledged);
        let drive = Drive::mount(folder, image, IgnoredSyncs::None, Rng::of(&[self.seed, 1]));
        drive.fail(self.fault);
        let mut refused = false;
        match RecordingStore::open(&drive, &acknowledged, &clock) {
            Ok(recording_store) => faults.extend(runtime().block_on(self.work(recording_store))),
            Err(error) if self.fault.is_none() => faults.push(format!("it cannot be opened: {error}")),
            Err(_) => refused = true,
        }
        let counts = drive.counts();
        sum.count(&drive, self.fault, &acknowledged);
        sum.refused_to_open += u64::from(refused);
        // A new file that was refused was truncated by SQLite again, with a sync that keeps nothing.
        let undone = refused && matches!(self.start, Start::Nothing);
        if drive.syncs_after_a_failed_one() > 0 && !undone {
            faults.push("a sync failed, and the same file was synced again as if nothing had happened".to_owned());
        }
        // Opened again on the same machine: what the system has in memory is there. The power goes while it is open, so
        // that closing saves nothing.
        drive.forgive();
        drive.hold_up_the_carrier();
        faults.extend(reopen("opened again", &drive, &acknowledged, &clock, ReopenEnd::PowerCut));
        drive.cut_now();
        vfs::unplug(drive.folder());
        // And after a power cut: what has not reached the disk is gone.
        let (image, _) = drive.left().expect("the power is gone");
        let rng = Rng::of(&[self.seed, 2]);
        let drive = Drive::mount(&folder.join("after"), image, IgnoredSyncs::None, rng);
        faults.extend(reopen("after a power cut", &drive, &acknowledged, &clock, ReopenEnd::Close));
        vfs::unplug(drive.folder());
        std::fs::remove_dir_all(folder).expect("the folder can be removed");
        sum.acknowledged += acknowledged.tally().acknowledged;
        sum.compared += acknowledged.tally().compared;
        for fault in faults {
            let violation = format!("{}: {fault}", name(self.start, self.fault.as_ref()));
            super::report::found(&violation);
            sum.violations.push(violation);
        }
        (counts, sum)
    }

    /// Plays the script, and closes the ledger.
    async fn work(&self, recording_store: Arc<RecordingStore>) -> Vec<String> {
        let (drive, acknowledged) = (Arc::clone(&recording_store.drive), Arc::clone(&recording_store.acknowledged));
        let ledger = Ledger::builder().on(recording_store.clone());
        let (held, mut faults) = script::play(&ledger, &drive).await;
        if drive.has_failed() && self.must_poison() {
            faults.extend(is_refused(&ledger).await.err());
        }
        ledger.close().await;
        drop(held);
        // Late tasks of dropped claims find a closed store.
        recording_store.close().await;
        if acknowledged.tally().after_poison > 0 {
            faults.push("the handle was poisoned, and then acknowledged a write".to_owned());
        }
        faults
    }

    /// Whether the disk is in an unknown state after this fault: a sync or a write of one of the two threads that
    /// change the file has failed, for another reason than a full disk.
    fn must_poison(&self) -> bool {
        self.fault.is_some_and(|Fault { operation, code, .. }| {
            let role = matches!(operation.role, Role::Writer | Role::Carrier);
            let kind = matches!(operation.kind, Kind::Sync | Kind::Write | Kind::Truncate);
            role && kind && code == operation.kind.error()
        })
    }
}

/// Every write is refused, as soon as all threads know.
async fn is_refused(ledger: &Ledger) -> Result<(), String> {
    let started = Instant::now();
    loop {
        let begun = ledger.operation("spare").key("spare").begin().await;
        match begun {
            Err(onceward::Error::Store(Error::Poisoned { .. })) => return Ok(()),
            Ok(Begun::Acquired(_)) if started.elapsed() < PATIENCE => {}
            other if started.elapsed() > PATIENCE => {
                return Err(format!("the disk failed, and the ledger continues: {other:?}"));
            }
            _ => {}
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// How a ledger that was opened again ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReopenEnd {
    PowerCut,
    Close,
}

/// Opens the ledger, compares what it holds, and settles everything that is left.
fn reopen(
    when: &str,
    drive: &Arc<Drive>,
    acknowledged: &Arc<Acknowledged>,
    clock: &ManualClock,
    ending: ReopenEnd,
) -> Vec<String> {
    let recording_store = match RecordingStore::open(drive, acknowledged, clock) {
        Ok(recording_store) => recording_store,
        Err(error) => return vec![format!("{when}: it cannot be opened: {error}")],
    };
    let faults = runtime().block_on(async {
        let mut faults = acknowledged.compare(&recording_store).await;
        faults.extend(recording_store::check_file(drive));
        let ledger = Ledger::builder().on(recording_store);
        faults.extend(script::settle_all(&ledger).await);
        if ending == ReopenEnd::PowerCut {
            drive.cut_now();
        }
        ledger.close().await;
        faults
    });
    faults.into_iter().map(|fault| format!("{when}: {fault}")).collect()
}

impl Sum {
    fn count(&mut self, drive: &Drive, fault: Option<Fault>, acknowledged: &Acknowledged) {
        let Some(fault) = fault else { return };
        if drive.has_failed() {
            self.fired += 1;
            *self.by_kind.entry(fault.operation.kind).or_default() += 1;
        }
        self.poisoned += u64::from(acknowledged.tally().is_poisoned);
    }
}
