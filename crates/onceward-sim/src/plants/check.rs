//! The checks, the cheapest first. A new harness is one more line here.

use std::time::Duration;

use onceward::core::plant::Plant;

/// A check: a command of this very program, which says `VIOLATION …` and ends with 1 when something is broken.
#[derive(Debug)]
pub struct Check {
    pub name: &'static str,
    arguments: &'static str,
    /// It takes seconds, also in a debug build.
    pub quick: bool,
    /// It hangs when it takes longer.
    pub limit: Duration,
}

pub const CHECKS: &[Check] = &[
    Check { name: "vectors", arguments: "", quick: true, limit: Duration::from_secs(60) },
    Check { name: "walk", arguments: "--runs 160 --seed 1", quick: true, limit: Duration::from_secs(240) },
    Check { name: "clock", arguments: "--runs 200 --seed 1", quick: true, limit: Duration::from_secs(240) },
    Check { name: "conformance", arguments: "", quick: true, limit: Duration::from_secs(240) },
    Check { name: "model", arguments: "--begins 3 --ticks 7", quick: false, limit: Duration::from_secs(600) },
    Check {
        name: "crash",
        arguments: "--cycles 300 --seed 1 --enough 1",
        quick: false,
        limit: Duration::from_secs(900),
    },
];

/// Bugs that only a check can find which is not built in yet.
const NEEDS: [(Plant, &str); 2] = [(Plant::SyncSkipped, "power"), (Plant::AnswersBeforeSync, "power")];

/// Bugs that only a check finds which is not quick.
const SLOW: [(Plant, &str); 0] = [];

/// The check that a bug needs and that was not among those that ran.
pub fn missing(plant: Plant, quick: bool) -> Option<&'static str> {
    let of = |list: &[(Plant, &'static str)]| list.iter().find(|(other, _)| *other == plant).map(|(_, check)| *check);
    of(&NEEDS).or_else(|| if quick { of(&SLOW) } else { None })
}

impl Check {
    pub fn arguments(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.arguments.split_whitespace())
    }

    /// How to run it by hand.
    pub fn line(&self) -> String {
        format!("onceward-sim {}", self.arguments().collect::<Vec<_>>().join(" "))
    }
}
