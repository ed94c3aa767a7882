//! A disk that fails: every operation of a short script fails once, and again from then on. The ledger must fail
//! closed, and recover when it is opened again. Because a failed sync may have lost data, each of these runs ends with
//! a power cut.
//!
//! - `script`: the script, always the same.
//! - `trial`: one run with one fault, and what must hold.
//! - `report`: what is printed.

mod report;
mod script;
mod trial;

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rusqlite::ffi;

use crate::vfs::{self, Fault, Kind, Operation};
use trial::{Start, Trial};

/// A run that takes longer hangs, on the slowest machine.
const LONGEST: Duration = Duration::from_secs(60);

/// Trials at once: they wait more than they work.
const WORKERS: usize = 4;

/// A trial that takes this long is printed.
const SLOW: Duration = Duration::from_secs(2);

/// Where the disk stays full, callers retry for a while before they give up; so only one in this many is tried.
const LASTING_FULL: u64 = 5;

/// The run ends after this many violations.
const ENOUGH: usize = 20;

#[derive(Clone, Debug)]
pub struct Options {
    /// The seed of what is lost.
    pub seed: u64,
    /// Every operation that changes the disk fails once. Of operations that only read or lock, and of lasting failures,
    /// one in this many is tried.
    pub every: u64,
    /// Only trials whose name contains this text.
    pub only: String,
}

/// The result of all trials.
#[derive(Debug, Default)]
struct Sum {
    trials: u64,
    fired: u64,
    by_kind: BTreeMap<Kind, u64>,
    refused_to_open: u64,
    poisoned: u64,
    slowest: Duration,
    acknowledged: u64,
    compared: u64,
    violations: Vec<String>,
}

impl Sum {
    fn add(&mut self, other: Self) {
        self.trials += other.trials;
        self.fired += other.fired;
        for (kind, count) in other.by_kind {
            *self.by_kind.entry(kind).or_default() += count;
        }
        self.refused_to_open += other.refused_to_open;
        self.poisoned += other.poisoned;
        self.slowest = self.slowest.max(other.slowest);
        self.acknowledged += other.acknowledged;
        self.compared += other.compared;
        self.violations.extend(other.violations);
    }
}

/// Runs all trials. True if no rule was broken.
pub fn run(options: &Options) -> bool {
    vfs::install();
    let root = vfs::scratch("onceward-disk-");
    let started = Instant::now();
    let mut sum = Sum::default();
    let left = trial::left_by_a_cut(&root.path().join("template"), options.seed);
    for start in [Start::Nothing, Start::Left(Arc::new(left))] {
        let calm = Trial { start: &start, fault: None, seed: options.seed };
        let (counts, calm) = calm.run(&root.path().join("calm"));
        sum.add(calm);
        let mut queue: VecDeque<(u64, Fault)> = (1u64..).zip(faults(&counts, options)).collect();
        queue.retain(|(_, fault)| trial::name(&start, Some(fault)).contains(&options.only));
        let queue = Mutex::new(queue);
        let done = Mutex::new(&mut sum);
        std::thread::scope(|scope| {
            for _ in 0..WORKERS {
                scope.spawn(|| work(options, &start, root.path(), &queue, &done));
            }
        });
    }
    report::print(options, &sum, started.elapsed())
}

/// Tries one fault after another until none is left.
fn work(options: &Options, start: &Start, root: &Path, queue: &Mutex<VecDeque<(u64, Fault)>>, done: &Mutex<&mut Sum>) {
    let dog = Watchdog::start();
    let next = || queue.lock().expect("no trial panics").pop_front();
    while let Some((number, fault)) = next() {
        let name = trial::name(start, Some(&fault));
        dog.watch(&name);
        let begun = Instant::now();
        let trial = Trial { start, fault: Some(fault), seed: options.seed.wrapping_add(number) };
        let (_, mut sum) = trial.run(&root.join(format!("trial-{number}")));
        sum.trials = 1;
        sum.slowest = begun.elapsed();
        if sum.slowest > SLOW {
            report::slow(&name, sum.slowest);
        }
        let mut done = done.lock().expect("no trial panics");
        done.add(sum);
        if done.violations.len() >= ENOUGH {
            queue.lock().expect("no trial panics").clear();
        }
    }
}

/// Every fault that is tried.
fn faults(counts: &BTreeMap<Operation, u64>, options: &Options) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (operation, count) in counts {
        for code in codes(operation.kind) {
            for nth in 1..=*count {
                for lasting in [false, true] {
                    let every = match (lasting, *code) {
                        (true, ffi::SQLITE_FULL) => options.every.max(LASTING_FULL),
                        (false, _) if operation.kind.changes() => 1,
                        _ => options.every.max(1),
                    };
                    if nth % every == every / 2 {
                        faults.push(Fault { operation: *operation, nth, code: *code, lasting });
                    }
                }
            }
        }
    }
    faults
}

/// The error codes of SQLite's own VFS for this operation.
fn codes(kind: Kind) -> &'static [i32] {
    match kind {
        Kind::Open => &[ffi::SQLITE_CANTOPEN],
        Kind::Read => &[ffi::SQLITE_IOERR_READ],
        Kind::Write => &[ffi::SQLITE_FULL, ffi::SQLITE_IOERR_WRITE],
        Kind::Truncate => &[ffi::SQLITE_IOERR_TRUNCATE],
        Kind::Sync => &[ffi::SQLITE_IOERR_FSYNC],
        Kind::Size => &[ffi::SQLITE_IOERR_FSTAT],
        Kind::Delete => &[ffi::SQLITE_IOERR_DELETE],
        Kind::Lock => &[ffi::SQLITE_IOERR_LOCK],
        Kind::Map => &[ffi::SQLITE_IOERR_SHMSIZE, ffi::SQLITE_IOERR_SHMMAP],
        Kind::MapLock => &[ffi::SQLITE_IOERR_SHMLOCK],
    }
}

/// Ends the process when a trial hangs: a thread that waits for ever cannot be stopped otherwise.
struct Watchdog {
    /// The trial that runs, and since when; `None` once the watchdog may end.
    trial: Arc<Mutex<Option<(Instant, String)>>>,
}

impl Watchdog {
    fn start() -> Self {
        let trial = Arc::new(Mutex::new(Some((Instant::now(), String::new()))));
        let watched = Arc::clone(&trial);
        std::thread::spawn(move || {
            // The lock is not held while it sleeps.
            let current = || watched.lock().expect("no thread panics while it holds the lock").clone();
            while let Some((since, name)) = current() {
                if since.elapsed() > LONGEST {
                    println!("VIOLATION {name}: it hangs");
                    std::process::exit(1);
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        Self { trial }
    }

    fn watch(&self, name: &str) {
        *self.trial.lock().expect("no thread panics while it holds the lock") = Some((Instant::now(), name.to_owned()));
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        if let Ok(mut trial) = self.trial.lock() {
            *trial = None;
        }
    }
}
