//! What a run prints.

use std::path::Path;
use std::time::{Duration, Instant};

use super::plan::Phase;
use super::{Options, Sum};
use crate::vfs::{FilePart, IgnoredSyncs, Moment};

/// How often a progress line is printed.
const PROGRESS: Duration = Duration::from_secs(2);

/// Prints progress on the error stream.
pub struct Progress {
    all: u64,
    started: Instant,
    told: Instant,
}

impl Progress {
    /// Starts to count.
    pub fn new(options: &Options) -> Self {
        Self { all: options.cycles, started: Instant::now(), told: Instant::now() }
    }

    /// Prints progress now and then.
    pub fn print(&mut self, done: u64, sum: &Sum) {
        if self.told.elapsed() < PROGRESS {
            return;
        }
        self.told = Instant::now();
        eprintln!(
            "cycle {done} of {}, {} s: {} cuts lost something, {} changes lost, {} torn, {} violations",
            self.all,
            self.started.elapsed().as_secs(),
            sum.biting,
            sum.loss.dropped,
            sum.loss.torn,
            sum.violations.len()
        );
    }
}

/// Prints a violation as soon as it is found.
pub fn found(violation: &str) {
    eprintln!("VIOLATION {violation}");
}

/// Prints the summary. True if no rule was broken.
pub fn print(options: &Options, sum: &Sum, age: Duration) -> bool {
    let cuts: u64 = sum.phases.iter().sum();
    let at = |phase: Phase| sum.phases[phase as usize];
    let moment = |moment: Moment| sum.moments[moment as usize];
    let rows = [
        ("power cuts", cuts),
        ("seed", options.seed),
        ("milliseconds per cut", u64::try_from(age.as_millis()).unwrap_or(u64::MAX) / cuts.max(1)),
        ("ledgers", sum.ledgers),
        ("cut while opening or recovering", at(Phase::Opening)),
        ("cut at work", at(Phase::Working)),
        ("cut while closing", at(Phase::Closing)),
        ("cut after closing", at(Phase::Closed)),
        ("... at a write into the file", moment(Moment::FileWrite)),
        ("... at a sync of the file", moment(Moment::FileSync)),
        ("... at a sync of the log", moment(Moment::LogSync)),
        ("... when the log starts over", moment(Moment::LogStart)),
        ("cuts that lost something unsynced", sum.biting),
        ("unsynced changes lost", sum.loss.dropped),
        ("unsynced changes torn", sum.loss.torn),
        ("unsynced changes kept by chance", sum.loss.kept),
        ("names lost or back again", sum.loss.names),
        ("writes acknowledged", sum.tally.acknowledged),
        ("acknowledged records compared", sum.tally.compared),
        ("unanswered writes that were there", sum.tally.unanswered),
        ("violations", sum.violations.len() as u64),
    ];
    for (name, number) in rows {
        println!("{name:<44}{number:>10}");
    }
    for violation in &sum.violations {
        println!("VIOLATION {violation}");
    }
    if !sum.violations.is_empty() {
        println!("again: onceward-sim power --cycles {} --seed {}{}", options.cycles, options.seed, swallowed(options));
    }
    sum.violations.is_empty()
}

fn swallowed(options: &Options) -> &'static str {
    match options.ignored_syncs {
        IgnoredSyncs::None => "",
        IgnoredSyncs::All => " --no-sync",
        IgnoredSyncs::Of(FilePart::Log) => " --no-log-sync",
        IgnoredSyncs::Of(FilePart::Main | FilePart::Journal) => " --no-file-sync",
    }
}

/// Prints where the files are.
pub fn kept(folder: &Path) {
    println!("files are in {}", folder.display());
}
