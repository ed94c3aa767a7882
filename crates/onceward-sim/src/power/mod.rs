//! Power cuts: a ledger works on a disk that forgets what was not synced, and is opened again on what is left, over and
//! over. Everything that it had acknowledged before a cut must be there.
//!
//! - `plan`: where the power is cut, from the seed.
//! - `work`: callers at work on the ledger, and another process beside them.
//! - `restart_check`: what each intent answers after a restart.
//! - `report`: what is printed.
//!
//! A seed repeats the plan; the system decides how the threads interleave.

mod plan;
mod report;
mod restart_check;
mod work;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use onceward::Ledger;
use onceward::clock::ManualClock;

use crate::recording_store::{self, Acknowledged, RecordingStore, Tally};
use crate::rng::Rng;
use crate::vfs::{self, Drive, IgnoredSyncs, Image, Loss, Moment};
use plan::{Phase, Plan};

/// The run ends after this many violations.
const MAX_VIOLATIONS: usize = 20;

/// The side file of every ledger: which processes are alive.
const OWNERS: &str = "ledger.db-owners";

/// The mark of every ledger: how far it had come. It bypasses the simulated disk, so every write of it survives: the
/// hardest case for a mark that must never lead its ledger.
const MARK: &str = "ledger.db-mark";

#[derive(Clone, Debug)]
pub struct Options {
    /// How many power cuts.
    pub cycles: u64,
    /// The seed of the plan.
    pub seed: u64,
    /// The syncs that the disk ignores.
    pub ignored_syncs: IgnoredSyncs,
}

/// The result of all cycles.
#[derive(Debug, Default)]
struct Sum {
    ledgers: u64,
    phases: [u64; Phase::ALL.len()],
    moments: [u64; Moment::ALL.len()],
    biting: u64,
    loss: Loss,
    tally: Tally,
    violations: Vec<String>,
}

impl Sum {
    /// Adds what was counted in one ledger.
    fn add(&mut self, acknowledged: &Acknowledged) {
        let tally = *acknowledged.tally();
        self.ledgers += 1;
        self.tally.acknowledged += tally.acknowledged;
        self.tally.compared += tally.compared;
        self.tally.unanswered += tally.unanswered;
    }
}

/// Runs all cycles. True if no rule was broken.
pub fn run(options: &Options) -> bool {
    vfs::install();
    let root = vfs::scratch("onceward-power-");
    let started = Instant::now();
    let mut progress = report::Progress::new(options);
    let mut sum = Sum::default();
    let mut ledger_life = LedgerLife::new(options, 0);
    for cycle in 0..options.cycles {
        if ledger_life.until <= cycle {
            sum.add(&ledger_life.acknowledged);
            ledger_life = LedgerLife::new(options, cycle);
        }
        ledger_life.cycle(cycle, root.path(), &mut sum);
        progress.print(cycle + 1, &sum);
        if sum.violations.len() >= MAX_VIOLATIONS {
            break;
        }
    }
    sum.add(&ledger_life.acknowledged);
    let ended = report::print(options, &sum, started.elapsed());
    if !ended {
        report::kept(&vfs::keep(&root, "onceward-power-"));
    }
    ended
}

/// One ledger, from its creation on.
struct LedgerLife<'a> {
    options: &'a Options,
    /// The cycle in which it ends.
    until: u64,
    acknowledged: Arc<Acknowledged>,
    clock: ManualClock,
    /// What the last cut has left.
    image: Image,
    /// The side file of the last cycle: after a restart it is the same file, and every lock in it is free.
    owners: Option<PathBuf>,
    /// The mark as it was when the power went.
    mark: Option<Vec<u8>>,
    is_new: bool,
}

impl<'a> LedgerLife<'a> {
    fn new(options: &'a Options, cycle: u64) -> Self {
        // Some ledgers are cut once and never opened again, others survive many cuts.
        let mut rng = Rng::of(&[options.seed, 1, cycle]);
        let length = rng.weighted(&[(2, 2), (2, 6), (2, 20), (1, 60)]);
        Self {
            options,
            until: cycle + length,
            acknowledged: Arc::default(),
            clock: ManualClock::default(),
            image: Image::default(),
            owners: None,
            mark: None,
            is_new: true,
        }
    }

    fn cycle(&mut self, cycle: u64, root: &Path, sum: &mut Sum) {
        let seed = self.options.seed;
        let mut rng = Rng::of(&[seed, 2, cycle]);
        let plan = Plan::of(&mut rng, self.is_new);
        self.is_new = false;
        self.clock.advance(plan.dark_for);
        let folder = root.join(format!("boot-{cycle}"));
        let before = self.image.clone();
        let image = std::mem::take(&mut self.image);
        let drive = Drive::mount(&folder, image, self.options.ignored_syncs, Rng::of(&[seed, 3, cycle]));
        if let Some(owners) = self.owners.take().filter(|_| plan.keeps_owners) {
            std::fs::hard_link(owners, folder.join(OWNERS)).expect("the side file is there");
        }
        if let Some(mark) = &self.mark {
            std::fs::write(folder.join(MARK), mark).expect("the mark can be written");
        }
        let (phase, found) = self.boot(cycle, &plan, &drive);
        self.mark = std::fs::read(folder.join(MARK)).ok();
        drive.cut_now();
        let (image, loss) = drive.left().expect("the power is gone");
        self.image = image;
        vfs::unplug(drive.folder());
        sum.phases[phase as usize] += 1;
        if let Some(moment) = drive.moment_of_cut() {
            sum.moments[moment as usize] += 1;
        }
        sum.biting += u64::from(loss.is_any());
        sum.loss.add(loss);
        if found.is_empty() {
            self.keep_owners(root, &folder);
            return;
        }
        // Opening has changed the files, so the files as they were found are kept beside them.
        for (name, bytes) in before.files {
            std::fs::write(folder.join(format!("before-{name}")), bytes).expect("the folder can be written");
        }
        for violation in found {
            let violation = format!("cycle {cycle}: {violation}");
            report::found(&violation);
            sum.violations.push(violation);
        }
        self.until = cycle + 1;
    }

    fn keep_owners(&mut self, root: &Path, folder: &Path) {
        let kept = root.join("owners");
        let moved = std::fs::rename(folder.join(OWNERS), &kept);
        self.owners = moved.is_ok().then_some(kept);
        std::fs::remove_dir_all(folder).expect("the folder can be removed");
    }

    /// From power on to power off. Returns in which phase the power went, and what was broken.
    fn boot(&self, cycle: u64, plan: &Plan, drive: &Arc<Drive>) -> (Phase, Vec<String>) {
        if plan.phase == Phase::Opening {
            drive.cut_at(plan.moment, plan.nth);
        }
        let recording_store = match RecordingStore::open(drive, &self.acknowledged, &self.clock) {
            Ok(recording_store) => recording_store,
            Err(_) if drive.is_dark() => return (Phase::Opening, Vec::new()),
            Err(error) => return (Phase::Opening, vec![format!("the ledger cannot be opened: {error}")]),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime starts");
        runtime.block_on(async {
            let mut violations = self.acknowledged.compare(&recording_store).await;
            violations.extend(recording_store::check_file(drive));
            let ledger = Ledger::builder().on(recording_store);
            if violations.is_empty() {
                let restart_check = restart_check::RestartCheck {
                    ledger: &ledger,
                    acknowledged: &self.acknowledged,
                    drive,
                    clock: &self.clock,
                };
                violations.extend(restart_check.call(cycle, Rng::of(&[self.options.seed, 4, cycle])).await);
            }
            if !violations.is_empty() || drive.is_dark() {
                ledger.close().await;
                return (Phase::Opening, violations);
            }
            if plan.phase == Phase::Working {
                drive.cut_at(plan.moment, plan.nth);
            }
            let held = work::run(&ledger, drive, &self.clock, self.options.seed, cycle).await;
            let worked = drive.is_dark();
            if plan.phase == Phase::Closing {
                drive.cut_at(plan.moment, plan.nth);
            }
            ledger.close().await;
            let phase = match (worked, drive.is_dark()) {
                (true, _) => Phase::Working,
                (_, true) => Phase::Closing,
                _ => Phase::Closed,
            };
            drive.cut_now();
            // Their owners are gone with the machine: their late writes reach no disk.
            drop(held);
            (phase, violations)
        })
    }
}
