//! Starting, stopping and killing the workers of a cycle.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use onceward::core::plant;

use super::journal::{Eye, What};
use super::judge::Judge;
use super::plan::{Fate, Part};
use super::scene::{self, Cue};
use super::{Misdeed, Options};
use crate::dice::Dice;

/// A worker that takes this long hangs: it has a few calls to make.
const HANGS: Duration = Duration::from_secs(60);

/// A last round may have thousands of calls to make.
const LAST_HANGS: Duration = Duration::from_secs(1200);

/// A process has made its ledger after so many microseconds, about.
const LONGEST_BIRTH: u64 = 20_000;

/// Stands for the number of a cycle in a scene.
const SCENE: u64 = 999_999;

/// How often the parent looks at its workers.
const TICK: Duration = Duration::from_micros(500);

/// The workers of a run.
#[derive(Debug)]
pub struct Cast {
    program: PathBuf,
    folder: PathBuf,
    options: Options,
    /// Workers that were started.
    pub started: u64,
    /// Workers that died by kill -9, by their own hand or the parent's.
    pub killed: u64,
    /// Workers that were stopped for a while.
    pub stopped: u64,
}

struct Actor {
    child: Child,
    fate: Fate,
    worker: u64,
    is_stopped: bool,
    is_over: bool,
}

impl Cast {
    /// A cast that has not played yet.
    pub fn new(options: &Options, folder: &Path) -> Self {
        let program = std::env::current_exe().expect("a program knows where it is");
        let folder = folder.to_owned();
        Self { program, folder, options: options.clone(), started: 0, killed: 0, stopped: 0 }
    }

    /// Plays a cycle until every worker is done or dead. Says what went wrong with the workers themselves.
    /// `since` is where in the journal the lives of its intents begin.
    pub fn play(&mut self, cycle: u64, since: u64) -> Vec<String> {
        let workers = self.options.workers;
        let mut actors: Vec<Actor> = (0..workers)
            .map(|worker| {
                let fate = Part::of(self.options.seed, cycle, worker, workers).fate;
                self.start(cycle, worker, fate, &["--since", &since.to_string()])
            })
            .collect();
        self.direct(&mut actors, HANGS)
    }

    /// Plays the scene of a misdeed: the second worker begins when the first has come as far as it has to.
    pub fn stage(&mut self, misdeed: Misdeed, eye: &mut Eye, judge: &mut Judge) -> Vec<String> {
        let fate = scene::part(self.options.seed, misdeed, 0).fate;
        let mut actors = vec![self.start(SCENE, 0, fate, &["--scene"])];
        let mut faults = Vec::new();
        let started = Instant::now();
        match scene::cue(misdeed) {
            None => {}
            Some(Cue::Ended) => faults.extend(self.direct(&mut actors, HANGS)),
            Some(Cue::Began) => loop {
                let lines = eye.look().expect("the journal can be read");
                lines.iter().for_each(|line| judge.hear(line));
                if lines.iter().any(|line| matches!(line.what, What::Try { .. })) || started.elapsed() > HANGS {
                    break;
                }
                std::thread::sleep(TICK);
            },
        }
        if scene::cue(misdeed).is_some() {
            actors.push(self.start(SCENE, 1, Fate::Live, &["--scene"]));
        }
        faults.extend(self.direct(&mut actors, HANGS));
        faults
    }

    /// Plays the end: one worker that nothing happens to.
    pub fn finish(&mut self, cycle: u64) -> Vec<String> {
        let actor = self.start(cycle, 0, Fate::Live, &["--last"]);
        self.direct(&mut [actor], LAST_HANGS)
    }

    /// Has several workers make a new ledger at once, and kills all but one of them on the way.
    pub fn bear(&mut self, cycle: u64, folder: &Path) -> Vec<String> {
        let mut dice = Dice::of(&[self.options.seed, 5, cycle]);
        let mut actors: Vec<Actor> = (0..self.options.workers)
            .map(|worker| {
                let moment = Duration::from_micros(dice.below(LONGEST_BIRTH));
                let fate = if worker == 0 { Fate::Live } else { Fate::After(moment) };
                self.started += 1;
                let mut command = Command::new(&self.program);
                command.arg("worker").arg("--folder").arg(folder).arg("--birth").stdin(Stdio::null());
                self.plant(&mut command);
                let child = command.spawn().expect("the harness can start itself");
                Actor { child, fate, worker, is_stopped: false, is_over: false }
            })
            .collect();
        self.direct(&mut actors, HANGS)
    }

    fn start(&mut self, cycle: u64, worker: u64, fate: Fate, casting: &[&str]) -> Actor {
        self.started += 1;
        let mut command = Command::new(&self.program);
        command.arg("worker").arg("--folder").arg(&self.folder).stdin(Stdio::null());
        let numbers = [
            ("--seed", self.options.seed),
            ("--cycle", cycle),
            ("--worker", worker),
            ("--workers", self.options.workers),
        ];
        for (name, number) in numbers {
            command.arg(name).arg(number.to_string());
        }
        if let Fate::AtStep(step, times) = fate {
            command.arg("--die").arg(format!("{}:{times}", step.name()));
        }
        if let Some((name, _)) = Misdeed::ALL.iter().find(|(_, misdeed)| Some(*misdeed) == self.options.misdeed) {
            command.arg("--misdeed").arg(name);
        }
        self.plant(&mut command);
        command.args(casting);
        let child = command.spawn().expect("the harness can start itself");
        Actor { child, fate, worker, is_stopped: false, is_over: false }
    }

    /// A bug that is planted here is planted in every worker.
    fn plant(&self, command: &mut Command) {
        if let Some(plant) = plant::current() {
            command.arg("--plant").arg(plant.name());
        }
    }

    fn direct(&mut self, actors: &mut [Actor], hangs: Duration) -> Vec<String> {
        let started = Instant::now();
        let mut faults = Vec::new();
        while actors.iter().any(|actor| !actor.is_over) {
            for actor in actors.iter_mut().filter(|actor| !actor.is_over) {
                let age = started.elapsed();
                match actor.child.try_wait().expect("a child can be waited for") {
                    Some(status) => {
                        actor.is_over = true;
                        match (status.signal(), status.code()) {
                            (Some(9), _) => self.killed += 1,
                            (None, Some(0)) => {}
                            _ => faults.push(format!("worker {} ended with {status}", actor.worker)),
                        }
                    }
                    None if age > hangs => {
                        faults.push(format!("worker {} hangs", actor.worker));
                        let _ = actor.child.kill();
                    }
                    None => self.stopped += u64::from(actor.act(age)),
                }
            }
            std::thread::sleep(TICK);
        }
        faults
    }
}

impl Actor {
    /// Does to the worker what its fate says. True when it was stopped just now.
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
