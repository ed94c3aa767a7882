//! Real processes on one ledger file, killed at every named step and at any moment, and a judge that knows only what
//! happened outside.
//!
//! - `plan`: what each worker does and where it dies, from the seed.
//! - `worker`: the process that makes guarded calls.
//! - `journal`: the outside world: effects, and the answers of the ledger.
//! - `history`: the journal, intent by intent.
//! - `judge`: the rules that the journal alone can break.
//! - `audit`: the rules about what the ledger holds after a cycle.
//! - `processes`: starts, stops and kills the workers of a cycle.
//! - `scenario`: a short scenario for each fault, in which nothing is left to chance.
//! - `fault`: faults on purpose, which the judge must find.
//! - `report`: what is printed.

mod audit;
mod fault;
mod history;
mod journal;
mod judge;
mod plan;
mod processes;
mod report;
mod scenario;
mod worker;

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use onceward::Ledger;
use onceward::core::record::Status;
use rusqlite::Connection;

use crate::rng::Rng;
pub use fault::Fault;
use journal::{Event, JournalReader, JournalWriter};
use judge::Judge;
pub use plan::WorkerPlan;
use processes::Processes;
pub use scenario::worker_plan as scenario_plan;
pub use worker::{WorkerOptions, run as work};

/// The whole file is checked once in this many cycles, because it takes longer and longer.
const INTEGRITY_EVERY: u64 = 50;

/// A new ledger is made once in this many cycles.
const NEW_LEDGER_EVERY: u64 = 5;

/// For this many cycles the parent has the ledger open all the time, and then for as many it has not: with it open, the
/// write-ahead log outlives the cycle; without, it is checkpointed and created again.
const RESIDENT_CYCLES: u64 = 16;

/// Intents of earlier cycles that are audited after each cycle.
const SAMPLE: u64 = 6;

/// How often the rest is tried again at the end until everything is settled.
const LAST_ROUNDS: u64 = 4;

/// How often a progress line is printed.
const PROGRESS: Duration = Duration::from_secs(2);

#[derive(Clone, Debug)]
pub struct Options {
    /// How many cycles.
    pub cycles: u64,
    /// The seed of the plan.
    pub seed: u64,
    /// Processes in each cycle.
    pub workers: u64,
    /// Keep the folder.
    pub keep: bool,
    /// A fault on purpose.
    pub fault: Option<Fault>,
    /// The run ends after this many violations.
    pub enough: u64,
}

/// The ledger of a run.
pub fn ledger_path(folder: &Path) -> PathBuf {
    folder.join("ledger.db")
}

/// The journal of a run.
pub fn journal_path(folder: &Path) -> PathBuf {
    folder.join("journal.jsonl")
}

/// The intents for a last round.
pub fn rest(folder: &Path) -> Vec<u64> {
    let list = std::fs::read(rest_path(folder)).expect("the parent wrote the list");
    serde_json::from_slice(&list).expect("the list is numbers")
}

/// The list is too long for an argument.
fn rest_path(folder: &Path) -> PathBuf {
    folder.join("rest.json")
}

/// The key of an intent.
fn key(intent: u64) -> String {
    format!("k{intent}")
}

/// Runs all cycles. True if nothing was broken and every step was hit.
pub fn run(options: &Options) -> bool {
    let folder = tempfile::Builder::new().prefix("onceward-crash-").tempdir().expect("a temporary folder can be made");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime starts");
    let mut run = Run::new(options, folder.path());
    let started = Instant::now();
    runtime.block_on(run.cycles());
    let ended = report::print(options, &run.judge, &run.processes, run.longest_log, started.elapsed());
    if options.keep || !ended {
        report::kept(&folder.keep());
    }
    ended
}

/// Judges the journal of a kept run again. True if it breaks no rule; what the ledger held at the time is no longer
/// known.
pub fn judge_again(folder: &Path, seed: u64) -> bool {
    let mut judge = Judge::new(seed);
    let mut reader = JournalReader::open(&journal_path(folder)).expect("the folder of a run has a journal");
    for line in reader.read_new().expect("the journal can be read") {
        judge.add(&line);
    }
    judge.violations.iter().for_each(|violation| report::found(violation));
    judge.violations.is_empty()
}

struct Run<'a> {
    options: &'a Options,
    folder: &'a Path,
    processes: Processes,
    writer: JournalWriter,
    reader: JournalReader,
    judge: Judge,
    /// The position in the journal at the end of each of the last cycles.
    positions: VecDeque<u64>,
    /// An idle process that shares the file, as a server would.
    resident: Option<Ledger>,
    /// The largest size of the write-ahead log, in bytes.
    longest_log: u64,
    /// Violations that were reported already.
    reported: usize,
    /// Intents that are not known to be done.
    unfinished: BTreeSet<u64>,
}

impl<'a> Run<'a> {
    fn new(options: &'a Options, folder: &'a Path) -> Self {
        let writer = JournalWriter::open(&journal_path(folder)).expect("the journal can be made");
        let reader = JournalReader::open(&journal_path(folder)).expect("the journal can be read");
        let processes = Processes::new(options, folder);
        Self {
            options,
            folder,
            processes,
            writer,
            reader,
            judge: Judge::new(options.seed),
            positions: VecDeque::new(),
            resident: None,
            longest_log: 0,
            reported: 0,
            unfinished: BTreeSet::new(),
        }
    }

    async fn cycles(&mut self) {
        let started = Instant::now();
        let mut told = Instant::now();
        if let Some(fault) = self.options.fault {
            self.scenario(fault).await;
        }
        for cycle in 0..self.options.cycles {
            self.cycle(cycle).await;
            if told.elapsed() > PROGRESS {
                told = Instant::now();
                report::progress(cycle + 1, self.options.cycles, started.elapsed(), &self.judge, &self.processes);
            }
            if self.judge.violations.len() as u64 >= self.options.enough {
                return;
            }
        }
        self.finish().await;
    }

    async fn cycle(&mut self, cycle: u64) {
        self.set_resident(cycle / RESIDENT_CYCLES % 2 == 1).await;
        let since = self.since();
        let violations = self.processes.play(cycle, since);
        self.positions.push_back(self.reader.position());
        let log = std::fs::metadata(self.folder.join("ledger.db-wal")).map_or(0, |log| log.len());
        self.longest_log = self.longest_log.max(log);
        self.judge.violations.extend(violations);
        self.read_journal();
        self.spoil();
        let mut rng = Rng::of(&[self.options.seed, 4, cycle]);
        let earlier = (0..SAMPLE).map(|_| plan::window(rng.below(cycle + 1)).next().unwrap_or(0)).collect::<Vec<_>>();
        let touched = plan::window(cycle).chain(plan::brief()).chain(earlier).collect::<BTreeSet<_>>();
        self.audit(touched, Some(&mut rng)).await;
        if cycle % INTEGRITY_EVERY == INTEGRITY_EVERY - 1 {
            self.check_file(&ledger_path(self.folder));
        }
        if cycle.is_multiple_of(NEW_LEDGER_EVERY) {
            self.new_ledger(cycle).await;
        }
        self.report(&format!("cycle {cycle}"));
    }

    /// Plays the scenario of a fault.
    async fn scenario(&mut self, fault: Fault) {
        let intent = scenario::intent(self.options.seed, fault);
        let violations = self.processes.play_scenario(fault, &mut self.reader, &mut self.judge);
        self.judge.violations.extend(violations);
        self.read_journal();
        self.spoil();
        self.audit(BTreeSet::from([intent]), None).await;
        self.report("scenario");
    }

    fn report(&mut self, when: &str) {
        for violation in self.judge.violations.iter_mut().skip(self.reported) {
            *violation = format!("{when}: {violation}");
            report::found(violation);
        }
        self.reported = self.judge.violations.len();
    }

    async fn set_resident(&mut self, wanted: bool) {
        match (wanted, self.resident.take()) {
            (true, None) => match Ledger::open(ledger_path(self.folder)).await {
                Ok(ledger) => self.resident = Some(ledger),
                Err(error) => self.judge.violations.push(format!("the ledger cannot be opened: {error}")),
            },
            (true, resident) => self.resident = resident,
            (false, Some(ledger)) => ledger.close().await,
            (false, None) => {}
        }
    }

    /// The position of the journal before the first cycle with any of this cycle's intents.
    fn since(&mut self) -> u64 {
        while self.positions.len() > plan::CYCLES_PER_INTENT as usize {
            self.positions.pop_front();
        }
        if self.positions.len() < plan::CYCLES_PER_INTENT as usize { 0 } else { self.positions[0] }
    }

    fn read_journal(&mut self) {
        for line in self.reader.read_new().expect("the journal can be read") {
            self.judge.add(&line);
        }
    }

    /// Audits intents in a ledger that is opened again, and settles some doubts; all of them without rng.
    async fn audit(&mut self, intents: BTreeSet<u64>, mut rng: Option<&mut Rng>) {
        let ledger = match Ledger::open(ledger_path(self.folder)).await {
            Ok(ledger) => ledger,
            Err(error) => {
                self.judge.violations.push(format!("the ledger cannot be opened: {error}"));
                return;
            }
        };
        for intent in intents {
            let seen = match ledger.get(&audit::identity(intent)).await {
                Ok(found) => found.map(|found| {
                    self.judge.compare_trail(intent, &found.trail);
                    found.seen
                }),
                Err(error) => {
                    self.judge.blame(intent, format_args!("it cannot be read: {error}"));
                    continue;
                }
            };
            let status = self.judge.compare(intent, seen.as_ref());
            match (status, seen) {
                (Some(Status::Done | Status::Tombstone), _) => {
                    self.unfinished.remove(&intent);
                    continue;
                }
                (Some(Status::InDoubt), Some(seen)) => {
                    let now = match rng.as_deref_mut() {
                        Some(rng) => self.judge.wants_to_settle(intent, rng),
                        None => true,
                    };
                    if now {
                        self.judge.settle(&ledger, &self.writer, intent, &seen).await;
                    }
                }
                _ => {}
            }
            self.unfinished.insert(intent);
        }
        ledger.close().await;
        self.read_journal();
    }

    /// Everything that is left must end: open intents run, doubts can be settled.
    async fn finish(&mut self) {
        self.set_resident(false).await;
        for round in 0..LAST_ROUNDS {
            let left = std::mem::take(&mut self.unfinished);
            let left: BTreeSet<u64> = left.into_iter().filter(|intent| plan::brief().all(|b| b != *intent)).collect();
            // The last audit shows the result of settling and running.
            if round == LAST_ROUNDS - 1 {
                for intent in left {
                    self.judge.blame(intent, "it never ended, although nothing prevented it");
                }
                break;
            }
            self.audit(left, None).await;
            let left: Vec<u64> = self.unfinished.iter().copied().collect();
            if left.is_empty() {
                break;
            }
            let list = serde_json::to_vec(&left).expect("numbers are plain data");
            std::fs::write(rest_path(self.folder), list).expect("the folder can be written");
            let violations = self.processes.finish(self.options.cycles + round);
            self.judge.violations.extend(violations);
            self.read_journal();
            self.audit(left.into_iter().collect(), None).await;
        }
        let all = self.judge.histories.keys().copied().filter(|intent| plan::brief().all(|b| b != *intent)).collect();
        self.audit(all, None).await;
        self.check_file(&ledger_path(self.folder));
    }

    /// A new ledger that several processes create at once, some of which are killed, is complete.
    async fn new_ledger(&mut self, cycle: u64) {
        let folder = self.folder.join(format!("birth-{cycle}"));
        std::fs::create_dir(&folder).expect("the folder can be written");
        let violations = self.processes.make_new_ledger(cycle, &folder);
        self.judge.violations.extend(violations);
        let lines =
            JournalReader::open(&journal_path(&folder)).and_then(|mut reader| reader.read_new()).unwrap_or_default();
        for line in lines {
            if let Event::Answered { detail, .. } = line.event {
                self.judge.violations.push(format!("a new ledger could not be made: {detail}"));
            }
        }
        match Ledger::open(ledger_path(&folder)).await {
            Ok(ledger) => ledger.close().await,
            Err(error) => self.judge.violations.push(format!("a new ledger cannot be opened: {error}")),
        }
        self.check_file(&ledger_path(&folder));
        std::fs::remove_dir_all(&folder).expect("the folder can be written");
    }

    fn check_file(&mut self, path: &Path) {
        let check = |path: &Path| -> rusqlite::Result<String> {
            let connection = Connection::open(path)?;
            connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))
        };
        match check(path) {
            Ok(verdict) if verdict == "ok" => {}
            Ok(verdict) => self.judge.violations.push(format!("the file is damaged: {verdict}")),
            Err(error) => self.judge.violations.push(format!("the file cannot be checked: {error}")),
        }
    }

    fn spoil(&self) {
        if let Some(fault) = self.options.fault {
            let spoiled = Connection::open(ledger_path(self.folder)).and_then(|connection| fault.spoil(&connection));
            spoiled.expect("the ledger can be spoiled");
        }
    }
}
