//! Starts, stops and kills the workers of a cycle.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use onceward::plant;

use super::journal::{Event, JournalReader};
use super::judge::Judge;
use super::plan::{Fate, RunPlan};
use super::scenario::{self, StartWhen};
use super::{Fault, Options};
use crate::rng::Rng;

/// A worker that takes this long hangs: it has a few calls to make.
const HANGS: Duration = Duration::from_secs(60);

/// A last round may have thousands of calls to make.
const LAST_HANGS: Duration = Duration::from_secs(1200);

/// The number of the cycle in a scenario.
const SCENARIO_CYCLE: u64 = 999_999;

/// How often the parent polls its workers.
const TICK: Duration = Duration::from_micros(500);

/// The workers of a run.
#[derive(Debug)]
pub struct Processes {
    program: PathBuf,
    folder: PathBuf,
    options: Options,
    /// The URL of the ledger, if it is on a server.
    store: Option<String>,
    plan: RunPlan,
    /// Workers that were started.
    pub started: u64,
    /// Workers that died by kill -9, their own or the parent's.
    pub killed: u64,
    /// Workers that were stopped for a while.
    pub stopped: u64,
}

struct WorkerProcess {
    child: Child,
    fate: Fate,
    worker: u64,
    is_stopped: bool,
    is_over: bool,
}

impl Processes {
    /// No worker has started yet.
    pub fn new(options: &Options, folder: &Path, store: Option<&str>) -> Self {
        let program = std::env::current_exe().expect("the path of this program is known");
        let plan = RunPlan::of(options.seed, store);
        let (folder, options, store) = (folder.to_owned(), options.clone(), store.map(str::to_owned));
        Self { program, folder, options, store, plan, started: 0, killed: 0, stopped: 0 }
    }

    /// Runs a cycle until every worker is done or dead. Returns what went wrong with the workers themselves. `since` is
    /// where in the journal the generations of its intents begin.
    pub fn play(&mut self, cycle: u64, since: u64) -> Vec<String> {
        let workers = self.options.workers;
        let mut running: Vec<WorkerProcess> = (0..workers)
            .map(|worker| {
                let fate = self.plan.worker(cycle, worker, workers).fate;
                self.start(cycle, worker, fate, &["--since", &since.to_string()])
            })
            .collect();
        self.direct(&mut running, HANGS)
    }

    /// Plays the scenario of a fault: the second worker begins when the first has come far enough.
    pub fn play_scenario(&mut self, fault: Fault, reader: &mut JournalReader, judge: &mut Judge) -> Vec<String> {
        let fate = scenario::worker_plan(self.plan, fault, 0).fate;
        let mut running = vec![self.start(SCENARIO_CYCLE, 0, fate, &["--scenario"])];
        let mut violations = Vec::new();
        let started = Instant::now();
        match scenario::start_when(fault) {
            None => {}
            Some(StartWhen::Ended) => violations.extend(self.direct(&mut running, HANGS)),
            Some(StartWhen::Began) => loop {
                let lines = reader.read_new().expect("the journal can be read");
                lines.iter().for_each(|line| judge.add(line));
                if lines.iter().any(|line| matches!(line.event, Event::Try { .. })) || started.elapsed() > HANGS {
                    break;
                }
                std::thread::sleep(TICK);
            },
        }
        if scenario::start_when(fault).is_some() {
            running.push(self.start(SCENARIO_CYCLE, 1, Fate::Live, &["--scenario"]));
        }
        violations.extend(self.direct(&mut running, HANGS));
        violations
    }

    /// Runs the end: one worker that is not disturbed.
    pub fn finish(&mut self, cycle: u64) -> Vec<String> {
        let process = self.start(cycle, 0, Fate::Live, &["--last"]);
        self.direct(&mut [process], LAST_HANGS)
    }

    /// Has several workers make one ledger at once, and kills some of them meanwhile: all but one, or all.
    pub fn make_new_ledger(&mut self, cycle: u64, folder: &Path, store: Option<&str>, kills_all: bool) -> Vec<String> {
        let mut rng = Rng::of(&[self.options.seed, 5, cycle]);
        let longest = u64::try_from(self.plan.times.creation.as_micros()).unwrap_or(u64::MAX);
        let mut running: Vec<WorkerProcess> = (0..self.options.workers)
            .map(|worker| {
                let moment = Duration::from_micros(rng.below(longest));
                let fate = if worker == 0 && !kills_all { Fate::Live } else { Fate::After(moment) };
                self.spawn(folder, store, worker, fate, |command| {
                    command.arg("--new-ledger");
                })
            })
            .collect();
        self.direct(&mut running, HANGS)
    }

    fn start(&mut self, cycle: u64, worker: u64, fate: Fate, casting: &[&str]) -> WorkerProcess {
        let (folder, store, options) = (self.folder.clone(), self.store.clone(), self.options.clone());
        self.spawn(&folder, store.as_deref(), worker, fate, |command| {
            let numbers =
                [("--seed", options.seed), ("--cycle", cycle), ("--worker", worker), ("--workers", options.workers)];
            for (name, number) in numbers {
                command.arg(name).arg(number.to_string());
            }
            if let Fate::AtStep(step, times) = fate {
                command.arg("--die").arg(format!("{}:{times}", step.name()));
            }
            if let Some((name, _)) = Fault::ALL.iter().find(|(_, fault)| Some(*fault) == options.fault) {
                command.arg("--fault").arg(name);
            }
            command.args(casting);
        })
    }

    /// Starts a process on a ledger. A bug that is planted here is planted in every worker.
    fn spawn(
        &mut self,
        folder: &Path,
        store: Option<&str>,
        worker: u64,
        fate: Fate,
        options: impl FnOnce(&mut Command),
    ) -> WorkerProcess {
        self.started += 1;
        let mut command = Command::new(&self.program);
        command.arg("worker").arg("--folder").arg(folder).stdin(Stdio::null());
        if let Some(store) = store {
            command.arg("--store").arg(store);
        }
        options(&mut command);
        if let Some(plant) = plant::current() {
            command.arg("--plant").arg(plant.name());
        }
        let child = command.spawn().expect("the harness can start itself");
        WorkerProcess { child, fate, worker, is_stopped: false, is_over: false }
    }

    fn direct(&mut self, running: &mut [WorkerProcess], hangs: Duration) -> Vec<String> {
        let started = Instant::now();
        let mut violations = Vec::new();
        while running.iter().any(|process| !process.is_over) {
            for process in running.iter_mut().filter(|process| !process.is_over) {
                let age = started.elapsed();
                match process.child.try_wait().expect("a child can be waited for") {
                    Some(status) => {
                        process.is_over = true;
                        match (status.signal(), status.code()) {
                            (Some(9), _) => self.killed += 1,
                            (None, Some(0)) => {}
                            _ => violations.push(format!("worker {} ended with {status}", process.worker)),
                        }
                    }
                    None if age > hangs => {
                        violations.push(format!("worker {} hangs", process.worker));
                        let _ = process.child.kill();
                    }
                    None => self.stopped += u64::from(process.act(age)),
                }
            }
            std::thread::sleep(TICK);
        }
        violations
    }
}

impl WorkerProcess {
    /// Kills or stops the worker as its plan says. True when it was stopped just now.
    fn act(&mut self, age: Duration) -> bool {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap_or(0));
        match self.fate {
            Fate::After(moment) if age >= moment => {
                let _ = self.child.kill();
                false
            }
            Fate::Stop(moment, length) if age >= moment + length && self.is_stopped => {
                self.is_stopped = false;
                self.fate = Fate::Live;
                let _ = kill(pid, Signal::SIGCONT);
                false
            }
            Fate::Stop(moment, _) if age >= moment && !self.is_stopped => {
                self.is_stopped = true;
                let _ = kill(pid, Signal::SIGSTOP);
                true
            }
            _ => false,
        }
    }
}
