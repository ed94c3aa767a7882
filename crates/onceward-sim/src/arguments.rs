//! The command line, by hand: a few commands and numbers need no library.

use std::collections::BTreeMap;
use std::path::PathBuf;

use onceward::step::Step;

use onceward::core::plant::Plant;

use crate::crash::{Misdeed, Options, Orders};
use crate::interleave;
use crate::kills::effects::Effects;
use crate::model::Bounds;
use crate::vfs::{Part, Swallow};
use crate::{clock, disk, gateway, kills, mcp, plants, power, run, turns, walk};

/// How the harness is used.
pub const USAGE: &str = "usage: onceward-sim crash [--cycles N] [--seed S] [--workers 3] [--keep]
       onceward-sim judge --folder KEPT --seed S
       onceward-sim power [--cycles N] [--seed S] [--no-sync | --no-log-sync | --no-file-sync]
       onceward-sim disk [--seed S] [--every N] [--only TEXT]
       onceward-sim model [--begins 4] [--ticks 8]
       onceward-sim walk [--runs 400] [--seed S]
       onceward-sim clock [--runs 2000] [--seed S]
       onceward-sim interleave [--schedules 100000] [--seed S]
       onceward-sim gateway [--kills 50] [--seed S] [--honours-key] [--gateways 1] [--binary PATH]
       onceward-sim mcp [--kills 50] [--seed S] [--over stdio|http|several] [--binary PATH]
       onceward-sim api [--kills 50] [--seed S] [--binary PATH]
       onceward-sim run [--kills 50] [--seed S] [--binary PATH]
       onceward-sim scenes [--binary PATH]
       onceward-sim turns [--processes 2] [--callers 64] [--seconds 5] [--folder F] [--least 50] [--longest 30] [--stop]
       onceward-sim vectors
       onceward-sim conformance
       onceward-sim plants [--only NAME] [--quick] [--every] [--json] [--table]
every check takes --plant NAME, which breaks the ledger on purpose";

/// What is wanted.
#[derive(Debug)]
pub enum Wanted {
    /// A crash run.
    Crash(Options),
    /// The judge's opinion on the journal of a run that was kept.
    Judge(PathBuf, u64),
    /// Model checking within these bounds.
    Model(Bounds),
    /// Random calls against an oracle.
    Walk(walk::Options),
    /// Clocks that jump.
    Clock(clock::Options),
    /// The vectors of the specification.
    Vectors,
    /// The suite that every store passes, until so many of its cases are broken.
    Conformance(u64),
    /// Every bug that can be planted, against every check.
    Plants(plants::Options),
    /// Schedules of the real ledger.
    Interleave(interleave::Options),
    /// A run of power cuts.
    Power(power::Options),
    /// The gateway, killed under load.
    Gateway(gateway::Options),
    /// The MCP gateway, killed under load, in these ways.
    Mcp(kills::Options, Vec<mcp::Over>),
    /// Scenes on the real surfaces.
    Scenes(kills::Options),
    /// An MCP server of those scenes, with its file of effects.
    SceneServer(Effects),
    /// The API, killed under load.
    Api(kills::Options),
    /// `onceward run`, killed under load.
    Run(kills::Options),
    /// A command with an effect, which the harness starts through the product.
    Effect(run::Role),
    /// An MCP server with effects, which the harness starts through the product.
    EffectServer(mcp::Role),
    /// The product's own command line, for a process that the harness starts and kills.
    Onceward(Vec<std::ffi::OsString>),
    /// A run of faults of the disk.
    Disk(disk::Options),
    /// Processes that share one ledger.
    Turns(turns::Options),
    /// One of them; the harness starts these itself.
    TurnsPart(turns::Orders),
    /// One worker of a crash run, and its part; the harness starts these itself.
    Worker(Orders, Casting),
}

/// Which part a worker has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Casting {
    /// One of several in a cycle.
    Cycle {
        /// How many.
        workers: u64,
    },
    /// Opening a new ledger.
    Birth,
    /// Finishing what is left.
    Last,
    /// The play of a misdeed.
    Scene,
}

/// Reads the command line.
pub fn parse(arguments: &[String]) -> Result<Wanted, String> {
    let (command, rest) = arguments.split_first().ok_or("a command is missing")?;
    if command == "onceward" {
        return Ok(Wanted::Onceward(arguments.iter().map(Into::into).collect()));
    }
    let mut given = Given::parse(rest)?;
    let wanted = match command.as_str() {
        "crash" => Wanted::Crash(Options {
            cycles: given.number("--cycles", 300)?,
            seed: given.number("--seed", 1)?,
            workers: given.number("--workers", 3)?.clamp(1, 16),
            keep: given.flag("--keep"),
            misdeed: given.misdeed()?,
            enough: given.number("--enough", 20)?.max(1),
        }),
        "judge" => Wanted::Judge(given.folder()?, given.number("--seed", 1)?),
        "power" => Wanted::Power(power::Options {
            cycles: given.number("--cycles", 50)?,
            seed: given.number("--seed", 1)?,
            swallow: given.swallow(),
        }),
        "disk" => Wanted::Disk(disk::Options {
            seed: given.number("--seed", 1)?,
            every: given.number("--every", 1)?,
            only: given.text("--only").unwrap_or_default(),
        }),
        "model" => Wanted::Model(Bounds {
            begins: given.small("--begins", Bounds::LARGE.begins)?,
            ticks: given.small("--ticks", Bounds::LARGE.ticks)?,
        }),
        "walk" => Wanted::Walk(walk::Options { runs: given.number("--runs", 400)?, seed: given.number("--seed", 1)? }),
        "clock" => {
            Wanted::Clock(clock::Options { runs: given.number("--runs", 2000)?, seed: given.number("--seed", 1)? })
        }
        "interleave" => Wanted::Interleave(interleave::Options {
            schedules: given.number("--schedules", 100_000)?,
            seed: given.number("--seed", 1)?,
            lie: given.lie()?,
        }),
        "gateway" => Wanted::Gateway(gateway::Options {
            common: given.kills()?,
            memory: given.flag("--honours-key").then_some(gateway::MEMORY),
            gateways: usize::from(given.small("--gateways", 1)?.max(1)),
        }),
        "mcp" => Wanted::Mcp(given.kills()?, given.ways()?),
        "scenes" => Wanted::Scenes(given.kills()?),
        "scene-server" => Wanted::SceneServer(Effects::at(&given.path("--effects")?)),
        "api" => Wanted::Api(given.kills()?),
        "run" => Wanted::Run(given.kills()?),
        "effect" => Wanted::Effect(run::Role {
            effects: given.path("--effects")?,
            seed: given.number("--seed", 1)?,
            key: given.text("--key").ok_or("--key is missing")?,
        }),
        "effect-server" => Wanted::EffectServer(mcp::Role {
            effects: given.path("--effects")?,
            seed: given.number("--seed", 1)?,
            pid_file: given.text("--pid-file").map(PathBuf::from),
        }),
        "turns" => Wanted::Turns(turns::Options {
            processes: given.number("--processes", 2)?.clamp(1, 16),
            seconds: given.number("--seconds", 5)?.clamp(1, 600),
            callers: given.number("--callers", 64)?.clamp(1, 1024),
            folder: given.text("--folder").map(PathBuf::from),
            least: given.number("--least", 50)?,
            longest: given.number("--longest", 30)?,
            stops: given.flag("--stop"),
        }),
        "turns-part" => Wanted::TurnsPart(turns::Orders {
            folder: given.folder()?,
            number: given.number("--number", 0)?,
            start: given.number("--start", 0)?,
            callers: given.number("--callers", 1)?,
            seconds: given.number("--seconds", 1)?,
            pairs: given.number("--pairs", 0)?,
            stop: given.number("--stop", 0)?,
        }),
        "vectors" => Wanted::Vectors,
        "conformance" => Wanted::Conformance(given.number("--enough", u64::MAX)?),
        "plants" => Wanted::Plants(plants::Options {
            only: given.text("--only").map(|name| plant_called(&name)).transpose()?,
            quick: given.flag("--quick"),
            every: given.flag("--every"),
            json: given.flag("--json"),
            table: given.flag("--table"),
        }),
        "worker" => Wanted::Worker(
            Orders {
                folder: given.folder()?,
                seed: given.number("--seed", 1)?,
                cycle: given.number("--cycle", 0)?,
                worker: given.number("--worker", 0)?,
                die: given.step()?,
                since: given.number("--since", 0)?,
                misdeed: given.misdeed()?,
            },
            match (given.flag("--last"), given.flag("--birth"), given.flag("--scene"), given.number("--workers", 3)?) {
                (true, _, _, _) => Casting::Last,
                (_, true, _, _) => Casting::Birth,
                (_, _, true, _) => Casting::Scene,
                (_, _, _, workers) => Casting::Cycle { workers },
            },
        ),
        other => return Err(format!("`{other}` is no command")),
    };
    match given.0.into_keys().next() {
        Some(unknown) => Err(format!("`{unknown}` is no option here")),
        None => Ok(wanted),
    }
}

/// Takes the bug that is to be planted out of the command line: every command may have one.
pub fn plant(arguments: &mut Vec<String>) -> Result<Option<Plant>, String> {
    let Some(place) = arguments.iter().position(|argument| argument == "--plant") else { return Ok(None) };
    let taken: Vec<String> = arguments.drain(place..arguments.len().min(place + 2)).collect();
    let name = taken.get(1).ok_or("--plant needs the name of a bug")?;
    plant_called(name).map(Some)
}

fn plant_called(name: &str) -> Result<Plant, String> {
    let plant = Plant::ALL.iter().copied().find(|plant| plant.name() == name);
    plant.ok_or(format!("`{name}` is no bug that can be planted"))
}

/// Options by name; flags have an empty value.
struct Given(BTreeMap<String, String>);

impl Given {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut given = BTreeMap::new();
        let mut rest = arguments.iter().peekable();
        while let Some(name) = rest.next() {
            if !name.starts_with("--") {
                return Err(format!("`{name}` is no option"));
            }
            let value = rest.next_if(|value| !value.starts_with("--")).cloned().unwrap_or_default();
            given.insert(name.clone(), value);
        }
        Ok(Self(given))
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
        self.text(name).map(PathBuf::from).ok_or(format!("{name} is missing"))
    }

    fn kills(&mut self) -> Result<kills::Options, String> {
        let (kills, seed) = (self.number("--kills", 50)?, self.number("--seed", 1)?);
        // Some of it is started in other folders.
        let binary = self.text("--binary").map(std::path::absolute).transpose().map_err(|error| error.to_string())?;
        Ok(kills::Options { kills, seed, binary })
    }

    fn ways(&mut self) -> Result<Vec<mcp::Over>, String> {
        let Some(name) = self.text("--over") else { return Ok(mcp::Over::ALL.map(|(_, over)| over).into()) };
        let over = mcp::Over::ALL.iter().find(|(known, _)| *known == name);
        over.map(|(_, over)| vec![*over]).ok_or(format!("`--over {name}`: unknown; use stdio, http or several"))
    }

    fn number(&mut self, name: &str, default: u64) -> Result<u64, String> {
        match self.text(name) {
            None => Ok(default),
            Some(text) => text.parse().map_err(|_| format!("`{name} {text}`: a whole number is needed")),
        }
    }

    fn small(&mut self, name: &str, default: u8) -> Result<u8, String> {
        let number = self.number(name, u64::from(default))?;
        u8::try_from(number).ok().filter(|number| *number <= 12).ok_or(format!("`{name}` goes up to 12"))
    }

    fn misdeed(&mut self) -> Result<Option<Misdeed>, String> {
        let Some(name) = self.text("--misdeed") else { return Ok(None) };
        let misdeed = Misdeed::ALL.iter().find(|(known, _)| *known == name);
        misdeed.map(|(_, misdeed)| Some(*misdeed)).ok_or(format!("`{name}` is no misdeed that is known"))
    }

    fn lie(&mut self) -> Result<Option<interleave::Lie>, String> {
        let Some(name) = self.text("--lie") else { return Ok(None) };
        let lie = interleave::Lie::ALL.iter().find(|(known, _)| *known == name);
        lie.map(|(_, lie)| Some(*lie)).ok_or(format!("`{name}` is no lie that a store tells here"))
    }

    fn swallow(&mut self) -> Swallow {
        match (self.flag("--no-sync"), self.flag("--no-log-sync"), self.flag("--no-file-sync")) {
            (true, _, _) => Swallow::All,
            (_, true, _) => Swallow::Of(Part::Log),
            (_, _, true) => Swallow::Of(Part::Main),
            _ => Swallow::None,
        }
    }

    fn step(&mut self) -> Result<Option<(Step, u32)>, String> {
        let Some(text) = self.text("--die") else { return Ok(None) };
        let parsed = text.split_once(':').and_then(|(name, times)| {
            let step = Step::ALL.into_iter().find(|step| step.name() == name)?;
            Some((step, times.parse().ok()?))
        });
        parsed.map(Some).ok_or(format!("`{text}` is no step"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<Wanted, String> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_crash_run_has_defaults() {
        let Ok(Wanted::Crash(options)) = of("crash --seed 9 --keep") else { panic!("not a crash run") };
        assert_eq!((options.cycles, options.seed, options.workers, options.keep), (300, 9, 3, true));
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for line in [
            "",
            "burn",
            "crash 7",
            "crash --cycles many",
            "crash --sed 1",
            "crash --misdeed weeds",
            "plants --only weeds",
        ] {
            assert!(of(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_bug_can_be_planted_under_any_command() {
        let mut given: Vec<String> = ["crash", "--plant", "no-fence", "--seed", "2"].map(str::to_owned).into();
        assert_eq!(plant(&mut given), Ok(Some(Plant::NoFence)));
        assert_eq!(given, ["crash", "--seed", "2"]);
        assert_eq!(plant(&mut given), Ok(None));
        for wrong in [vec!["crash", "--plant"], vec!["crash", "--plant", "weeds"]] {
            assert!(plant(&mut wrong.into_iter().map(str::to_owned).collect()).is_err());
        }
    }

    #[test]
    fn a_worker_knows_where_to_die() {
        let Ok(Wanted::Worker(orders, casting)) = of("worker --folder x --die Renewed:2") else { panic!("no worker") };
        assert_eq!((orders.die, casting), (Some((Step::Renewed, 2)), Casting::Cycle { workers: 3 }));
    }
}
