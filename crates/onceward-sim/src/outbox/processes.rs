//! Starts couriers and enqueuers, and kills them.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use onceward::plant;
use onceward::step::Step;
use tokio::process::{Child, Command};

use super::judge::Judge;
use super::{Options, acknowledgements, enqueuer};
use crate::kills::product::{end, this_program};
use crate::rng::Rng;

/// An enqueuer ends within this time once it is told to.
const STOPS_WITHIN: Duration = Duration::from_secs(30);

/// A process dies at its step within this time, if it is reached at all.
const DIES_WITHIN: Duration = Duration::from_secs(30);

/// A courier dies at a step at one of its first visits.
const VISITS: u64 = 12;

/// The processes of a run.
pub struct Processes {
    folder: PathBuf,
    ledger: String,
    port: u16,
    options: Options,
    origin: u64,
    couriers: Vec<Child>,
    enqueuers: Vec<Child>,
    /// Processes that died by kill -9, their own or the harness's.
    pub killed: u64,
    /// Those that killed themselves at a step.
    pub died_at_a_step: u64,
}

impl Processes {
    pub fn new(folder: &Path, ledger: String, port: u16, options: Options) -> Self {
        Self {
            folder: folder.to_owned(),
            ledger,
            port,
            options,
            origin: enqueuer::now(),
            couriers: Vec::new(),
            enqueuers: Vec::new(),
            killed: 0,
            died_at_a_step: 0,
        }
    }

    fn spawn(&self, role: &str, number: u64, name: Option<&str>, die: Option<(Step, u64)>) -> Child {
        let mut command = Command::new(this_program());
        command.arg(role).arg("--folder").arg(&self.folder).arg("--ledger").arg(&self.ledger);
        let numbers = [
            ("--port", u64::from(self.port)),
            ("--seed", self.options.seed),
            ("--number", number),
            ("--origin", self.origin),
        ];
        for (option, value) in numbers {
            command.arg(option).arg(value.to_string());
        }
        if let Some(name) = name {
            command.arg("--name").arg(name);
        }
        if let Some((step, times)) = die {
            command.arg("--die").arg(format!("{}:{times}", step.name()));
        }
        if let Some(plant) = plant::current() {
            command.arg("--plant").arg(plant.name());
        }
        command.stdin(Stdio::null()).kill_on_drop(true).spawn().expect("the harness can start itself")
    }

    /// A courier; with a sink of this name, for entries that couriers have different sinks for.
    pub fn courier(&self, sink: Option<&str>, die: Option<(Step, u64)>) -> Child {
        self.spawn("outbox-courier", 0, sink, die)
    }

    /// A process that queues one entry of each kind.
    pub fn enqueuer_of(&self, key: &str, die: Option<(Step, u64)>) -> Child {
        self.spawn("outbox-enqueuer", 0, Some(key), die)
    }

    /// Kills a process that this harness has started, and waits until it is gone.
    pub async fn kill(&mut self, mut child: Child) {
        self.killed += 1;
        end(&mut child).await;
    }

    /// Waits until a process has killed itself at its step; false if it never does.
    pub async fn has_died(&mut self, child: &mut Child) -> bool {
        let ended = tokio::time::timeout(DIES_WITHIN, child.wait()).await;
        let died = matches!(ended, Ok(Ok(status)) if status.signal() == Some(9));
        end(child).await;
        self.killed += u64::from(died);
        self.died_at_a_step += u64::from(died);
        died
    }

    pub fn start_couriers(&mut self, rng: &mut Rng) {
        for _ in 0..self.options.couriers {
            let courier = self.courier(None, self.death(rng));
            self.couriers.push(courier);
        }
    }

    pub fn start_enqueuers(&mut self) {
        for number in 0..self.options.enqueuers {
            let child = self.spawn("outbox-enqueuer", number, None, None);
            self.enqueuers.push(child);
        }
    }

    /// Every third courier dies at a step.
    fn death(&self, rng: &mut Rng) -> Option<(Step, u64)> {
        let steps =
            Step::OF_ENTRIES.into_iter().chain([Step::StoreUncommitted, Step::StoreCommitted, Step::FinishWritten]);
        let steps: Vec<(u64, Step)> = steps.map(|step| (1, step)).collect();
        let (step, times) = (rng.weighted(&steps), 1 + rng.below(VISITS));
        (self.options.kills > 0 && rng.one_in(3)).then_some((step, times))
    }

    /// Kills a courier, or now and then an enqueuer, and starts another one in its place.
    pub async fn kill_one(&mut self, rng: &mut Rng) {
        if rng.one_in(4) && !self.enqueuers.is_empty() {
            let place = rng.below(self.enqueuers.len() as u64);
            let next = self.spawn("outbox-enqueuer", place, None, None);
            let place = usize::try_from(place).unwrap_or(0);
            let last = std::mem::replace(&mut self.enqueuers[place], next);
            return self.kill(last).await;
        }
        let place = usize::try_from(rng.below(self.couriers.len() as u64)).unwrap_or(0);
        let next = self.courier(None, self.death(rng));
        let last = std::mem::replace(&mut self.couriers[place], next);
        self.kill(last).await;
    }

    /// Starts couriers in the place of those that died at a step. No process ends by itself.
    pub async fn replace_dead(&mut self, rng: &mut Rng, judge: &mut Judge) {
        for place in 0..self.couriers.len() {
            let Some(status) = self.couriers[place].try_wait().expect("a child can be waited for") else { continue };
            match status.signal() {
                Some(9) => {
                    self.killed += 1;
                    self.died_at_a_step += 1;
                }
                _ => judge.violation(format!("a courier ended with {status}")),
            }
            self.couriers[place] = self.courier(None, self.death(rng));
        }
        for enqueuer in &mut self.enqueuers {
            if let Some(status) = enqueuer.try_wait().expect("a child can be waited for") {
                judge.violation(format!("an enqueuer ended with {status}"));
            }
        }
    }

    /// The same with couriers that live, for the end of a run.
    pub async fn keep_couriers(&mut self, judge: &mut Judge) {
        let kills = std::mem::take(&mut self.options.kills);
        self.replace_dead(&mut Rng::of(&[self.options.seed, 8]), judge).await;
        self.options.kills = kills;
    }

    pub async fn stop_enqueuers(&mut self) {
        acknowledgements(&self.folder).calm_down();
        for mut child in self.enqueuers.drain(..) {
            let _ = tokio::time::timeout(STOPS_WITHIN, child.wait()).await;
            end(&mut child).await;
        }
    }

    pub async fn kill_all(&mut self) {
        for mut child in self.couriers.drain(..) {
            end(&mut child).await;
        }
    }
}
