//! Power cuts: a ledger works on a disk that forgets what was not synced, and is opened again on what is left, over and
//! over. What it had acknowledged before a cut must be there.
//!
//! - `plan`: where the power is cut, from the seed.
//! - `work`: callers at work on the ledger, and another process beside them.
//! - `roll`: what each intent answers after a restart.
//! - `report`: what is printed.
//!
//! A seed makes the same plan again; how the threads interleave, the system decides.

mod plan;
mod report;
mod roll;
mod work;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use onceward::Ledger;
use onceward::clock::ManualClock;

use crate::dice::Dice;
use crate::vfs::{self, Drive, Image, Loss, Moment, Swallow};
use crate::witness::{self, Book, Tally, Witness};
use plan::{Phase, Plan};

/// More violations than this say nothing new.
const ENOUGH: usize = 20;

/// Beside every ledger: which processes are alive.
const OWNERS: &str = "ledger.db-owners";

/// Beside every ledger: how far it had come. It goes around the simulated disk, so every write of it survives: the
/// hardest case for a mark that must never lead its ledger.
const MARK: &str = "ledger.db-mark";

/// What is wanted.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many power cuts.
    pub cycles: u64,
    /// The seed of the plan.
    pub seed: u64,
    /// Which syncs the disk swallows.
    pub swallow: Swallow,
}

/// What came of all cycles.
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
    /// Takes over what was counted in one ledger.
    fn add(&mut self, book: &Book) {
        let tally = *book.tally();
        self.ledgers += 1;
        self.tally.acknowledged += tally.acknowledged;
        self.tally.compared += tally.compared;
        self.tally.unanswered += tally.unanswered;
    }
}

/// Runs all cycles. True if nothing was broken.
pub fn run(options: &Options) -> bool {
    vfs::install();
    let root = vfs::scratch("onceward-power-");
    let started = Instant::now();
    let mut progress = report::Progress::new(options);
    let mut sum = Sum::default();
    let mut life = Life::new(options, 0);
    for cycle in 0..options.cycles {
        if life.until <= cycle {
            sum.add(&life.book);
            life = Life::new(options, cycle);
        }
        life.cycle(cycle, root.path(), &mut sum);
        progress.tell(cycle + 1, &sum);
        if sum.violations.len() >= ENOUGH {
            break;
        }
    }
    sum.add(&life.book);
    let ended = report::print(options, &sum, started.elapsed());
    if !ended {
        report::kept(&vfs::keep(&root, "onceward-power-"));
    }
    ended
}

/// One ledger, from its making on.
struct Life<'a> {
    options: &'a Options,
    /// The cycle in which it is over.
    until: u64,
    book: Arc<Book>,
    clock: ManualClock,
    /// What the last cut has left.
    image: Image,
    /// The side file of the last cycle: after a restart it is the same file, and every lock in it is free.
    owners: Option<PathBuf>,
    /// The mark as it was when the power went.
    mark: Option<Vec<u8>>,
    is_new: bool,
}

impl<'a> Life<'a> {
    fn new(options: &'a Options, cycle: u64) -> Self {
        // Some ledgers are cut once and never seen again, others live through a great many cuts.
        let mut dice = Dice::of(&[options.seed, 1, cycle]);
        let length = dice.weighted(&[(2, 2), (2, 6), (2, 20), (1, 60)]);
        Self {
            options,
            until: cycle + length,
            book: Arc::default(),
            clock: ManualClock::default(),
            image: Image::default(),
            owners: None,
            mark: None,
            is_new: true,
        }
    }

    fn cycle(&mut self, cycle: u64, root: &Path, sum: &mut Sum) {
        let seed = self.options.seed;
        let mut dice = Dice::of(&[seed, 2, cycle]);
        let plan = Plan::of(&mut dice, self.is_new);
        self.is_new = false;
        self.clock.advance(plan.dark_for);
        let folder = root.join(format!("boot-{cycle}"));
        let before = self.image.clone();
        let image = std::mem::take(&mut self.image);
        let drive = Drive::mount(&folder, image, self.options.swallow, Dice::of(&[seed, 3, cycle]));
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
        // What was opened has changed since, so what was found is kept beside it.
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

    /// From power on to power off. The answer is when it went, and what was broken.
    fn boot(&self, cycle: u64, plan: &Plan, drive: &Arc<Drive>) -> (Phase, Vec<String>) {
        if plan.phase == Phase::Opening {
            drive.cut_at(plan.moment, plan.nth);
        }
        let witness = match Witness::open(drive, &self.book, &self.clock) {
            Ok(witness) => witness,
            Err(_) if drive.is_dark() => return (Phase::Opening, Vec::new()),
            Err(error) => return (Phase::Opening, vec![format!("the ledger cannot be opened: {error}")]),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime starts");
        runtime.block_on(async {
            let mut faults = self.book.compare(&witness).await;
            faults.extend(witness::check_file(drive));
            let ledger = Ledger::builder().on(witness);
            if faults.is_empty() {
                let roll = roll::Roll { ledger: &ledger, book: &self.book, drive, clock: &self.clock };
                faults.extend(roll.call(cycle, Dice::of(&[self.options.seed, 4, cycle])).await);
            }
            if !faults.is_empty() || drive.is_dark() {
                ledger.close().await;
                return (Phase::Opening, faults);
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
            // Their owners are gone with the machine: what they would still write reaches no disk.
            drop(held);
            (phase, faults)
        })
    }
}
