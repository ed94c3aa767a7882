//! The command line, by hand: two commands and a few numbers need no library.

use std::collections::BTreeMap;
use std::path::PathBuf;

use onceward::step::Step;

use crate::crash::{Options, Orders, Plant};
use crate::model::Bounds;
use crate::vfs::{Part, Swallow};
use crate::{disk, power};

/// How the harness is used.
pub const USAGE: &str = "usage: onceward-sim crash [--cycles N] [--seed S] [--workers 3] [--keep]
       onceward-sim judge --folder KEPT --seed S
       onceward-sim power [--cycles N] [--seed S] [--no-sync | --no-log-sync | --no-file-sync] [--keep]
       onceward-sim disk [--seed S] [--every N] [--only TEXT]
       onceward-sim model [--begins 4] [--ticks 8]";

/// What is wanted.
#[derive(Debug)]
pub enum Wanted {
    /// A crash run.
    Crash(Options),
    /// The judge's opinion on the journal of a run that was kept.
    Judge(PathBuf, u64),
    /// Model checking within these bounds.
    Model(Bounds),
    /// A run of power cuts.
    Power(power::Options),
    /// A run of faults of the disk.
    Disk(disk::Options),
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
}

/// Reads the command line.
pub fn parse(arguments: &[String]) -> Result<Wanted, String> {
    let (command, rest) = arguments.split_first().ok_or("a command is missing")?;
    let mut given = Given::parse(rest)?;
    let wanted = match command.as_str() {
        "crash" => Wanted::Crash(Options {
            cycles: given.number("--cycles", 300)?,
            seed: given.number("--seed", 1)?,
            workers: given.number("--workers", 3)?.clamp(1, 16),
            keep: given.flag("--keep"),
            plant: given.plant()?,
        }),
        "judge" => Wanted::Judge(given.folder()?, given.number("--seed", 1)?),
        "power" => Wanted::Power(power::Options {
            cycles: given.number("--cycles", 50)?,
            seed: given.number("--seed", 1)?,
            swallow: given.swallow(),
            keep: given.flag("--keep"),
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
        "worker" => Wanted::Worker(
            Orders {
                folder: given.folder()?,
                seed: given.number("--seed", 1)?,
                cycle: given.number("--cycle", 0)?,
                worker: given.number("--worker", 0)?,
                die: given.step()?,
                since: given.number("--since", 0)?,
                plant: given.plant()?,
            },
            match (given.flag("--last"), given.flag("--birth"), given.number("--workers", 3)?) {
                (true, _, _) => Casting::Last,
                (_, true, _) => Casting::Birth,
                (_, _, workers) => Casting::Cycle { workers },
            },
        ),
        other => return Err(format!("`{other}` is no command")),
    };
    match given.0.into_keys().next() {
        Some(unknown) => Err(format!("`{unknown}` is no option here")),
        None => Ok(wanted),
    }
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
        self.text("--folder").map(PathBuf::from).ok_or("--folder is missing".to_owned())
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

    fn swallow(&mut self) -> Swallow {
        match (self.flag("--no-sync"), self.flag("--no-log-sync"), self.flag("--no-file-sync")) {
            (true, _, _) => Swallow::All,
            (_, true, _) => Swallow::Of(Part::Log),
            (_, _, true) => Swallow::Of(Part::Main),
            _ => Swallow::None,
        }
    }

    fn plant(&mut self) -> Result<Option<Plant>, String> {
        let Some(name) = self.text("--plant") else { return Ok(None) };
        let plant = Plant::ALL.iter().find(|(known, _)| *known == name);
        plant.map(|(_, plant)| Some(*plant)).ok_or(format!("`{name}` is no fault that can be planted"))
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
        for line in ["", "burn", "crash 7", "crash --cycles many", "crash --sed 1", "crash --plant weeds"] {
            assert!(of(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_worker_knows_where_to_die() {
        let Ok(Wanted::Worker(orders, casting)) = of("worker --folder x --die Renewed:2") else { panic!("no worker") };
        assert_eq!((orders.die, casting), (Some((Step::Renewed, 2)), Casting::Cycle { workers: 3 }));
    }
}
