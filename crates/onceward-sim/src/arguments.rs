//! Parses the command line, without a library: it is a few commands and numbers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use onceward::step::Step;

use onceward::plant::Plant;

use crate::clock::Clocks;
use crate::crash::{self, Fault, WorkerOptions};
use crate::interleave::{self, Schedules};
use crate::kills::effects::Effects;
use crate::model::Bounds;
use crate::seeded::{self, Harness};
use crate::vfs::{FilePart, IgnoredSyncs};
use crate::walk::Walks;
use crate::{disk, fairness, gateway, kills, mcp, model, outbox, plants, power, run, store_load};

/// The help text.
pub const USAGE: &str = "usage: onceward-sim COMMAND [OPTIONS]

checks in one process, from a seed
  walk         Make random calls and compare them with an oracle   [--runs 400] [--seed 1] [--store URL]
  clock        Let clocks jump while the ledger works              [--runs 2000] [--seed 1]
  interleave   Let callers overtake each other                     [--schedules 100000] [--seed 1] [--fault NAME]
  model        Try every order of events                           [--begins 4] [--ticks 8] [--fault NAME]
  vectors      Run the vectors of the specification
  conformance  Run the suite that every store passes               [--enough N] [--store URL]

checks on a simulated disk
  power        Cut the power, over and over                        [--cycles 50] [--seed 1]
                                                                   [--no-sync | --no-log-sync | --no-file-sync]
  disk         Fail every operation once                           [--seed 1] [--every N] [--only TEXT]

checks with real processes
  crash        Kill workers at every step                          [--cycles 300] [--seed 1] [--workers 3] [--keep]
                                                                   [--enough 20] [--fault NAME] [--store URL]
  judge        Judge the journal of a kept crash run again         --folder FOLDER --seed S
  gateway      Kill HTTP gateways under load                       [--kills 50] [--seed 1] [--honours-key]
                                                                   [--gateways 1] [--store URL] [--binary PATH]
  mcp          Kill MCP gateways under load                        [--kills 50] [--seed 1]
                                                                   [--over stdio|http|several] [--binary PATH]
  api          Kill the API under load                             [--kills 50] [--seed 1] [--binary PATH]
  outbox       Kill couriers and processes that queue entries      [--kills 50] [--seed 1] [--couriers 4] [--enqueuers 10]
                                                                   [--store URL]
  run          Kill `onceward run` and its commands                [--kills 50] [--seed 1] [--binary PATH]
  scenarios    Play short scenarios on every surface               [--binary PATH]
  fairness     Measure the shares of processes on one ledger       [--processes 2] [--callers 64] [--seconds 5]
                                                                   [--folder F] [--least 50] [--longest 30] [--stop]

planted bugs
  plants       Run every planted bug against every check           [--only NAME] [--quick] [--every] [--json] [--table]

Every check takes --plant NAME, which breaks the product on purpose.";

/// What the command line asks for.
#[derive(Debug)]
pub enum Command {
    Crash(crash::Options),
    /// Judges the journal of a kept run, with the seed of that run.
    Judge(PathBuf, u64),
    Model(Bounds, Option<model::Fault>),
    /// On a server, if one is given.
    Walk(seeded::Options, Option<String>),
    Clock(seeded::Options),
    Vectors,
    /// Runs the suite until this many cases have failed, on a server if one is given.
    Conformance(u64, Option<String>),
    Plants(plants::Options),
    Interleave(seeded::Options, Option<interleave::Fault>),
    Power(power::Options),
    Gateway(gateway::Options),
    Mcp(kills::Options, Vec<mcp::Transport>),
    Scenarios(kills::Options),
    /// The MCP server of the scenarios, with its file of effects. Started by the harness.
    ScenarioServer(Effects),
    Api(kills::Options),
    Run(kills::Options),
    Outbox(outbox::Options),
    /// A courier, which the harness starts and kills.
    OutboxCourier(outbox::ProcessOptions),
    /// A process that queues entries, which the harness starts and kills.
    OutboxEnqueuer(outbox::ProcessOptions),
    /// A command with an effect, which the harness starts through the product.
    Effect(run::EffectOptions),
    /// An MCP server with effects, which the harness starts through the product.
    EffectServer(mcp::ServerOptions),
    /// The product's own command line, for a process that the harness starts and kills.
    Onceward(Vec<std::ffi::OsString>),
    Disk(disk::Options),
    Fairness(fairness::Options),
    /// One process of a fairness run. Started by the harness.
    FairnessWorker(fairness::WorkerOptions),
    /// Makes the schema of a store. For `tests/stores/faults.py`, as are the next two.
    StoreMigrate(String),
    /// Prints what a store has about the keys on standard input.
    StoreState(String),
    /// One process under load.
    StoreWorker(store_load::WorkerOptions),
    /// One worker of a crash run. Started by the harness.
    Worker(WorkerOptions, WorkerRole),
}

/// What a worker of a crash run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerRole {
    /// Follows the plan of its cycle, beside others.
    Cycle {
        /// How many there are.
        workers: u64,
    },
    /// Opens a new ledger.
    NewLedger,
    /// Finishes what is left.
    Last,
    /// Plays the scenario of a fault.
    Scenario,
}

/// Reads the command line.
pub fn parse(arguments: &[String]) -> Result<Command, String> {
    let (command, rest) = arguments.split_first().ok_or("missing command")?;
    if command == "onceward" {
        return Ok(Command::Onceward(arguments.iter().map(Into::into).collect()));
    }
    let mut options = Options::parse(rest)?;
    let parsed = match command.as_str() {
        "crash" => Command::Crash(options.crash()?),
        "judge" => Command::Judge(options.folder()?, options.number("--seed", 1)?),
        "power" => Command::Power(power::Options {
            cycles: options.number("--cycles", 50)?,
            seed: options.number("--seed", 1)?,
            ignored_syncs: options.ignored_syncs(),
        }),
        "disk" => Command::Disk(disk::Options {
            seed: options.number("--seed", 1)?,
            every: options.number("--every", 1)?,
            only: options.text("--only").unwrap_or_default(),
        }),
        "model" => Command::Model(
            Bounds {
                begins: options.small("--begins", Bounds::LARGE.begins)?,
                ticks: options.small("--ticks", Bounds::LARGE.ticks)?,
            },
            options.named("--fault", &model::Fault::all())?,
        ),
        "walk" => Command::Walk(options.seeded::<Walks>(400)?, options.text("--store")),
        "clock" => Command::Clock(options.seeded::<Clocks>(2000)?),
        "interleave" => {
            let fault = options.named("--fault", &interleave::Fault::ALL)?;
            Command::Interleave(options.seeded::<Schedules>(100_000)?, fault)
        }
        "gateway" => Command::Gateway(gateway::Options {
            common: options.kills()?,
            memory: options.flag("--honours-key").then_some(gateway::MEMORY),
            gateways: usize::from(options.small("--gateways", 1)?.max(1)),
            store: options.text("--store"),
        }),
        "mcp" => Command::Mcp(options.kills()?, options.transports()?),
        "scenarios" => Command::Scenarios(options.kills()?),
        "scenario-server" => Command::ScenarioServer(Effects::at(&options.path("--effects")?)),
        "api" => Command::Api(options.kills()?),
        "run" => Command::Run(options.kills()?),
        "outbox" => Command::Outbox(outbox::Options {
            kills: options.number("--kills", 50)?,
            seed: options.number("--seed", 1)?,
            couriers: options.number("--couriers", 4)?.clamp(1, 16),
            enqueuers: options.number("--enqueuers", 10)?.clamp(1, 16),
            store: options.text("--store"),
        }),
        "outbox-courier" => Command::OutboxCourier(options.outbox_process()?),
        "outbox-enqueuer" => Command::OutboxEnqueuer(options.outbox_process()?),
        "effect" => Command::Effect(run::EffectOptions {
            effects: options.path("--effects")?,
            seed: options.number("--seed", 1)?,
            key: options.text("--key").ok_or("missing --key")?,
        }),
        "effect-server" => Command::EffectServer(mcp::ServerOptions {
            effects: options.path("--effects")?,
            seed: options.number("--seed", 1)?,
            pid_file: options.text("--pid-file").map(PathBuf::from),
        }),
        "fairness" => Command::Fairness(fairness::Options {
            processes: options.number("--processes", 2)?.clamp(1, 16),
            seconds: options.number("--seconds", 5)?.clamp(1, 600),
            callers: options.number("--callers", 64)?.clamp(1, 1024),
            folder: options.text("--folder").map(PathBuf::from),
            least: options.number("--least", 50)?,
            longest: options.number("--longest", 30)?,
            stops: options.flag("--stop"),
        }),
        "fairness-worker" => Command::FairnessWorker(fairness::WorkerOptions {
            folder: options.folder()?,
            number: options.number("--number", 0)?,
            start: options.number("--start", 0)?,
            callers: options.number("--callers", 1)?,
            seconds: options.number("--seconds", 1)?,
            pairs: options.number("--pairs", 0)?,
            stop: options.number("--stop", 0)?,
        }),
        "store-migrate" => Command::StoreMigrate(options.required("--store")?),
        "store-state" => Command::StoreState(options.required("--store")?),
        "store-worker" => Command::StoreWorker(store_load::WorkerOptions {
            store: options.required("--store")?,
            journal: options.path("--journal")?,
            effects: options.path("--effects")?,
            number: options.number("--number", 0)?,
            seed: options.number("--seed", 1)?,
            callers: options.number("--callers", 8)?.clamp(1, 1024),
            time: options.millis("--time", 1000)?,
            lease: options.millis("--lease", 500)?,
            late: options.number("--late", 0)?,
            width: options.number("--width", 8)?.max(1),
            turn: options.millis("--turn", 250)?,
            origin: options.number("--origin", 0)?,
        }),
        "vectors" => Command::Vectors,
        "conformance" => Command::Conformance(options.number("--enough", u64::MAX)?, options.text("--store")),
        "plants" => Command::Plants(plants::Options {
            only: options.text("--only").map(|name| plant_called(&name)).transpose()?,
            quick: options.flag("--quick"),
            every: options.flag("--every"),
            json: options.flag("--json"),
            table: options.flag("--table"),
        }),
        "worker" => Command::Worker(
            WorkerOptions {
                folder: options.folder()?,
                store: options.text("--store"),
                seed: options.number("--seed", 1)?,
                cycle: options.number("--cycle", 0)?,
                worker: options.number("--worker", 0)?,
                die: options.step()?,
                since: options.number("--since", 0)?,
                fault: options.named("--fault", &Fault::ALL)?,
            },
            match (
                options.flag("--last"),
                options.flag("--new-ledger"),
                options.flag("--scenario"),
                options.number("--workers", 3)?,
            ) {
                (true, _, _, _) => WorkerRole::Last,
                (_, true, _, _) => WorkerRole::NewLedger,
                (_, _, true, _) => WorkerRole::Scenario,
                (_, _, _, workers) => WorkerRole::Cycle { workers },
            },
        ),
        other => return Err(format!("unknown command `{other}`")),
    };
    match options.0.into_keys().next() {
        Some(unknown) => Err(format!("unknown option `{unknown}` for `{command}`")),
        None => Ok(parsed),
    }
}

/// Takes `--plant NAME` out of the command line: every command may have it.
pub fn plant(arguments: &mut Vec<String>) -> Result<Option<Plant>, String> {
    let Some(place) = arguments.iter().position(|argument| argument == "--plant") else { return Ok(None) };
    let taken: Vec<String> = arguments.drain(place..arguments.len().min(place + 2)).collect();
    let name = taken.get(1).ok_or("--plant needs the name of a bug")?;
    plant_called(name).map(Some)
}

fn plant_called(name: &str) -> Result<Plant, String> {
    let plant = Plant::ALL.iter().copied().find(|plant| plant.name() == name);
    plant.ok_or(format!("unknown bug `{name}`"))
}

/// Options by name; flags have an empty value.
struct Options(BTreeMap<String, String>);

impl Options {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut options = BTreeMap::new();
        let mut rest = arguments.iter().peekable();
        while let Some(name) = rest.next() {
            if !name.starts_with("--") {
                return Err(format!("`{name}` is not an option; options begin with --"));
            }
            let value = rest.next_if(|value| !value.starts_with("--")).cloned().unwrap_or_default();
            options.insert(name.clone(), value);
        }
        Ok(Self(options))
    }

    fn flag(&mut self, name: &str) -> bool {
        self.0.remove(name).is_some()
    }

    fn text(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    fn folder(&mut self) -> Result<PathBuf, String> {
        self.path("--folder")
    }

    fn path(&mut self, name: &str) -> Result<PathBuf, String> {
        self.required(name).map(PathBuf::from)
    }

    fn required(&mut self, name: &str) -> Result<String, String> {
        self.text(name).ok_or(format!("missing {name}"))
    }

    fn millis(&mut self, name: &str, default: u64) -> Result<Duration, String> {
        self.number(name, default).map(Duration::from_millis)
    }

    fn kills(&mut self) -> Result<kills::Options, String> {
        let (kills, seed) = (self.number("--kills", 50)?, self.number("--seed", 1)?);
        // Some processes start in other folders.
        let binary = self.text("--binary").map(std::path::absolute).transpose().map_err(|error| error.to_string())?;
        Ok(kills::Options { kills, seed, binary })
    }

    fn crash(&mut self) -> Result<crash::Options, String> {
        let options = crash::Options {
            cycles: self.number("--cycles", 300)?,
            seed: self.number("--seed", 1)?,
            workers: self.number("--workers", 3)?.clamp(1, 16),
            keep: self.flag("--keep"),
            store: self.text("--store"),
            fault: self.named("--fault", &Fault::ALL)?,
            enough: self.number("--enough", 20)?.max(1),
        };
        match options.fault {
            Some(fault) if fault.changes_the_file() && options.store.is_some() => {
                Err("this fault changes the file of a ledger; with `--store` use `--fault rogue` or `--fault release`"
                    .to_owned())
            }
            _ => Ok(options),
        }
    }

    fn outbox_process(&mut self) -> Result<outbox::ProcessOptions, String> {
        let port = self.number("--port", 0)?;
        Ok(outbox::ProcessOptions {
            folder: self.folder()?,
            ledger: self.text("--ledger").ok_or("missing --ledger")?,
            port: u16::try_from(port).map_err(|_| format!("`--port {port}`: not a port"))?,
            seed: self.number("--seed", 1)?,
            number: self.number("--number", 0)?,
            name: self.text("--name"),
            origin: self.number("--origin", 0)?,
            die: self.step()?,
        })
    }

    fn transports(&mut self) -> Result<Vec<mcp::Transport>, String> {
        let all = || mcp::Transport::ALL.map(|(_, over)| over).into();
        Ok(self.named("--over", &mcp::Transport::ALL)?.map_or_else(all, |over| vec![over]))
    }

    fn number(&mut self, name: &str, default: u64) -> Result<u64, String> {
        match self.text(name) {
            None => Ok(default),
            Some(text) => text.parse().map_err(|_| format!("`{name} {text}`: not a whole number")),
        }
    }

    fn small(&mut self, name: &str, default: u8) -> Result<u8, String> {
        let number = self.number(name, u64::from(default))?;
        u8::try_from(number).ok().filter(|number| *number <= 12).ok_or(format!("`{name}` is at most 12"))
    }

    fn seeded<H: Harness>(&mut self, runs: u64) -> Result<seeded::Options, String> {
        Ok(seeded::Options { runs: self.number(H::RUNS_OPTION, runs)?, seed: self.number("--seed", 1)? })
    }

    /// One of the values that have names.
    fn named<T: Copy>(&mut self, option: &str, all: &[(&str, T)]) -> Result<Option<T>, String> {
        let Some(name) = self.text(option) else { return Ok(None) };
        let names: Vec<&str> = all.iter().map(|(known, _)| *known).collect();
        let found = all.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| Some(*value)).ok_or(format!("`{option} {name}`: unknown; use {}", names.join(", ")))
    }

    fn ignored_syncs(&mut self) -> IgnoredSyncs {
        match (self.flag("--no-sync"), self.flag("--no-log-sync"), self.flag("--no-file-sync")) {
            (true, _, _) => IgnoredSyncs::All,
            (_, true, _) => IgnoredSyncs::Of(FilePart::Log),
            (_, _, true) => IgnoredSyncs::Of(FilePart::Main),
            _ => IgnoredSyncs::None,
        }
    }

    fn step(&mut self) -> Result<Option<(Step, u32)>, String> {
        let Some(text) = self.text("--die") else { return Ok(None) };
        let parsed = text.split_once(':').and_then(|(name, times)| {
            let step = Step::OF_CALLS.into_iter().chain(Step::OF_ENTRIES).find(|step| step.name() == name)?;
            Some((step, times.parse().ok()?))
        });
        parsed.map(Some).ok_or(format!("`--die {text}`: write STEP:TIMES"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<Command, String> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_crash_run_has_defaults() {
        let Ok(Command::Crash(options)) = of("crash --seed 9 --keep") else { panic!("not a crash run") };
        assert_eq!((options.cycles, options.seed, options.workers, options.keep), (300, 9, 3, true));
    }

    #[test]
    fn unknown_arguments_are_refused() {
        for line in [
            "",
            "burn",
            "crash 7",
            "crash --cycles many",
            "crash --sed 1",
            "crash --fault weeds",
            "crash --fault lose --store redis://localhost",
            "plants --only weeds",
        ] {
            assert!(of(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_bug_can_be_planted_under_any_command() {
        let mut options: Vec<String> =
            ["crash", "--plant", "insert-overwrites", "--seed", "2"].map(str::to_owned).into();
        assert_eq!(plant(&mut options), Ok(Some(Plant::InsertOverwrites)));
        assert_eq!(options, ["crash", "--seed", "2"]);
        assert_eq!(plant(&mut options), Ok(None));
        for wrong in [vec!["crash", "--plant"], vec!["crash", "--plant", "weeds"]] {
            assert!(plant(&mut wrong.into_iter().map(str::to_owned).collect()).is_err());
        }
    }

    #[test]
    fn a_worker_knows_where_to_die() {
        let Ok(Command::Worker(options, role)) = of("worker --folder x --die Renewed:2") else { panic!("no worker") };
        assert_eq!((options.die, role), (Some((Step::Renewed, 2)), WorkerRole::Cycle { workers: 3 }));
    }
}
