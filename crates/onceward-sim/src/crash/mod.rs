//! Real processes on one ledger, killed at every named step and at any moment, and a judge that knows only what happened
//! outside. The ledger is a file, or one of its own on a server whose clock is that of this machine.
//!
//! - `plan`: what each worker does and where it dies, from the seed. `intent_kind`: the policy of each intent.
//! - `times`: how long things take, on a file and on a server. `run_store`: the ledger.
//! - `worker`: the process that makes guarded calls.
//! - `journal`: the outside world: effects, and the answers of the ledger.
//! - `history`: the journal, intent by intent.
//! - `judge`: the rules that the journal alone can break.
//! - `audit`: the rules about what the ledger holds after a cycle.
//! - `new_ledger`: several processes that make one ledger at once.
//! - `processes`: starts, stops and kills the workers of a cycle.
//! - `scenario`: a short scenario for each fault, in which nothing is left to chance.
//! - `fault`: faults on purpose, which the judge must find.
//! - `report`: what is printed.

mod audit;
mod fault;
mod history;
mod intent_kind;
mod journal;
mod judge;
mod new_ledger;
mod plan;
mod processes;
mod report;
mod run_store;
mod scenario;
mod times;
mod worker;

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use onceward::Ledger;
use onceward::core::record::Status;
use onceward::step::Step;
use rusqlite::Connection;

use crate::rng::Rng;
pub use fault::Fault;
use journal::{JournalReader, JournalWriter, now};
use judge::Judge;
use plan::RunPlan;
use processes::Processes;
use run_store::RunStore;
pub use scenario::worker_plan as scenario_plan;
pub use worker::{WorkerOptions, make_ledger, run as work};

/// The whole file is checked once in this many cycles, because it takes longer and longer.
const INTEGRITY_EVERY: u64 = 50;

/// For this many cycles the parent has the ledger open all the time, and then for as many it has not: with it open, the
/// write-ahead log outlives the cycle; without, it is checkpointed and created again.
const RESIDENT_CYCLES: u64 = 16;

/// Intents of earlier cycles that are audited after each cycle.
const SAMPLE: u64 = 6;

/// How often each step that was not hit is tried again: a worker rarely reaches its step too seldom three times in a row.
const FURTHER_ROUNDS: u64 = 2;

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
    /// Keep the folder, and a ledger on a server.
    pub keep: bool,
    /// The server that gets a new ledger; otherwise the ledger is a file.
    pub store: Option<String>,
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

/// Which kind of server a kept run was on, if it was on one.
fn server_path(folder: &Path) -> PathBuf {
    folder.join("server")
}

/// Runs all cycles. True if nothing was broken and every step was hit.
pub fn run(options: &Options) -> bool {
    let folder = tempfile::Builder::new().prefix("onceward-crash-").tempdir().expect("a temporary folder can be made");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    let store = runtime.block_on(RunStore::create(folder.path(), options.store.as_deref()));
    let mut run = Run::new(options, folder.path(), store);
    let started = Instant::now();
    runtime.block_on(run.cycles());
    let played = report::Played { cycles: run.played, time: started.elapsed(), longest_log: run.longest_log };
    let ended = report::print(options, &run.judge, &run.processes, &played);
    let store = run.store;
    if options.keep || !ended {
        if let Some(server) = &options.store {
            // Without the rest, which may contain a password.
            let scheme = server.split_once(':').map_or(server.as_str(), |(scheme, _)| scheme);
            std::fs::write(server_path(folder.path()), scheme).expect("the folder can be written");
        }
        report::kept(&folder.keep(), store, options.keep);
    }
    ended
}

/// Judges the journal of a kept run again. True if it breaks no rule; what the ledger held at the time is no longer
/// known.
pub fn judge_again(folder: &Path, seed: u64) -> bool {
    let server = std::fs::read_to_string(server_path(folder)).ok();
    let mut judge = Judge::new(RunPlan::of(seed, server.as_deref()));
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
    store: RunStore,
    plan: RunPlan,
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
    /// Cycles that are over.
    played: u64,
}

impl<'a> Run<'a> {
    fn new(options: &'a Options, folder: &'a Path, store: RunStore) -> Self {
        let writer = JournalWriter::open(&journal_path(folder)).expect("the journal can be made");
        let reader = JournalReader::open(&journal_path(folder)).expect("the journal can be read");
        let processes = Processes::new(options, folder, store.server_url());
        let plan = RunPlan::of(options.seed, store.server_url());
        Self {
            options,
            folder,
            store,
            plan,
            processes,
            writer,
            reader,
            judge: Judge::new(plan),
            positions: VecDeque::new(),
            resident: None,
            longest_log: 0,
            reported: 0,
            unfinished: BTreeSet::new(),
            played: 0,
        }
    }

    async fn cycles(&mut self) {
        let started = Instant::now();
        let mut told = Instant::now();
        if let Some(fault) = self.options.fault {
            self.scenario(fault).await;
        }
        if self.has_enough() {
            return;
        }
        while self.goes_on() {
            self.cycle(self.played).await;
            self.played += 1;
            if told.elapsed() > PROGRESS {
                told = Instant::now();
                report::progress(self.played, self.options.cycles, started.elapsed(), &self.judge, &self.processes);
            }
            if self.has_enough() {
                return;
            }
        }
        self.finish().await;
    }

    fn has_enough(&self) -> bool {
        self.judge.violations.len() as u64 >= self.options.enough
    }

    /// Whether there is another cycle. A run that is long enough to hit every step goes on until it has.
    fn goes_on(&self) -> bool {
        let (planned, round) = (self.options.cycles, Step::OF_CALLS.len() as u64);
        let more = if planned >= round { FURTHER_ROUNDS * round } else { 0 };
        self.played < planned || (self.played < planned + more && !self.judge.missed_steps().is_empty())
    }

    async fn cycle(&mut self, cycle: u64) {
        self.set_resident(cycle / RESIDENT_CYCLES % 2 == 1).await;
        let since = self.since();
        let violations = self.processes.play(cycle, since);
        self.judge.owners_gone_at = now();
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
            self.judge.violations.extend(self.store.damage());
        }
        self.new_ledger_now_and_then(cycle).await;
        self.report(&format!("cycle {cycle}"));
    }

    /// Plays the scenario of a fault.
    async fn scenario(&mut self, fault: Fault) {
        let intent = scenario::intent(self.plan, fault);
        let violations = self.processes.play_scenario(fault, &mut self.reader, &mut self.judge);
        self.judge.owners_gone_at = now();
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
        // On a server nothing depends on it, and a connection that stays open saves time.
        let wanted = wanted || self.store.server_url().is_some();
        match (wanted, self.resident.take()) {
            (true, None) => match self.store.open().await {
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

    /// Audits intents, in a file that is opened again, and settles some doubts; all of them without rng.
    async fn audit(&mut self, intents: BTreeSet<u64>, mut rng: Option<&mut Rng>) {
        let kept_open = self.resident.clone().filter(|_| self.store.server_url().is_some());
        let opened = match kept_open.clone() {
            Some(ledger) => Ok(ledger),
            None => self.store.open().await,
        };
        let ledger = match opened {
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
        if kept_open.is_none() {
            ledger.close().await;
        }
        self.read_journal();
    }

    /// Everything that is left must end: open intents run, doubts can be settled.
    async fn finish(&mut self) {
        self.set_resident(false).await;
        self.leases_end().await;
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
            let violations = self.processes.finish(self.played + round);
            self.judge.owners_gone_at = now();
            self.judge.violations.extend(violations);
            self.read_journal();
            self.audit(left.into_iter().collect(), None).await;
        }
        let all = self.judge.histories.keys().copied().collect();
        self.audit(all, None).await;
        self.judge.violations.extend(self.store.damage());
    }

    /// Waits until no lease of a killed owner can last any more, where leases outlive their owners.
    async fn leases_end(&self) {
        let lease = (0..=plan::FIRST + plan::NEW_INTENTS).map(|intent| self.plan.kind(intent).lease()).max();
        if self.plan.times.leases_outlive_owners {
            tokio::time::sleep(lease.unwrap_or_default() + self.plan.times.in_flight).await;
        }
    }

    fn spoil(&self) {
        if let (Some(fault), RunStore::File(path)) = (self.options.fault, &self.store) {
            let spoiled = Connection::open(path).and_then(|connection| fault.spoil(&connection));
            spoiled.expect("the ledger can be spoiled");
        }
    }
}
