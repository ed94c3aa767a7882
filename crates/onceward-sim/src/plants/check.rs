//! The checks, the cheapest first. A new harness is one more line here.

use std::time::Duration;

use onceward::plant::Plant;

/// A check: a command of this program, which prints `VIOLATION …` and exits with 1 when a rule is broken.
#[derive(Debug)]
pub struct Check {
    pub name: &'static str,
    arguments: &'static str,
    /// The same in a few seconds, also in a debug build; `None` for a check that takes longer.
    quick: Option<&'static str>,
    /// A check that takes longer has hung.
    pub limit: Duration,
}

const MINUTE: Duration = Duration::from_secs(60);

pub const CHECKS: [Check; 15] = [
    Check { name: "vectors", arguments: "", quick: Some(""), limit: MINUTE },
    Check { name: "scenarios", arguments: "", quick: Some(""), limit: Duration::from_secs(120) },
    Check {
        name: "walk",
        arguments: "--runs 400 --seed 1",
        quick: Some("--runs 16 --seed 1"),
        limit: Duration::from_secs(600),
    },
    Check {
        name: "clock",
        arguments: "--runs 400 --seed 1",
        quick: Some("--runs 8 --seed 1"),
        limit: Duration::from_secs(600),
    },
    Check { name: "conformance", arguments: "--enough 1", quick: Some("--enough 1"), limit: Duration::from_secs(300) },
    Check {
        name: "interleave",
        arguments: "--schedules 2000 --seed 1",
        quick: Some("--schedules 150 --seed 1"),
        limit: Duration::from_secs(300),
    },
    Check {
        name: "power",
        arguments: "--cycles 100 --seed 1",
        quick: Some("--cycles 12 --seed 1"),
        limit: Duration::from_secs(600),
    },
    Check {
        name: "outbox",
        arguments: "--kills 40 --seed 1",
        quick: Some("--kills 0 --seed 1"),
        limit: Duration::from_secs(300),
    },
    Check { name: "model", arguments: "--begins 3 --ticks 7", quick: None, limit: Duration::from_secs(600) },
    Check { name: "disk", arguments: "--every 5", quick: None, limit: Duration::from_secs(600) },
    Check {
        name: "crash",
        arguments: "--cycles 300 --seed 1 --enough 1",
        quick: None,
        limit: Duration::from_secs(900),
    },
    Check { name: "gateway", arguments: "--kills 50 --seed 1", quick: None, limit: Duration::from_secs(600) },
    Check { name: "mcp", arguments: "--kills 40 --seed 1", quick: None, limit: Duration::from_secs(600) },
    Check { name: "api", arguments: "--kills 40 --seed 1", quick: None, limit: Duration::from_secs(600) },
    Check { name: "run", arguments: "--kills 60 --seed 1", quick: None, limit: Duration::from_secs(600) },
];

/// Bugs that only one check can find. They are left out where it did not run.
const NEEDS: [(Plant, &str); 7] = [
    (Plant::SyncSkipped, "power"),
    // These need servers, so that another program plants them.
    (Plant::LostCommitAssumed, "faults.py"),
    (Plant::ClientClock, "faults.py"),
    (Plant::LockProbeSkipped, "faults.py"),
    (Plant::ExpiryKept, "conformance on Redis"),
    (Plant::EpochNotChecked, "faults_redis.py"),
    (Plant::ReplicasNotCounted, "faults_redis.py"),
];

/// The check that a bug needs, if it is not among these.
pub fn missing(plant: Plant, among: &[&Check]) -> Option<&'static str> {
    let (_, needed) = NEEDS.iter().find(|(other, _)| *other == plant)?;
    among.iter().all(|check| check.name != *needed).then_some(*needed)
}

impl Check {
    pub fn is_quick(&self) -> bool {
        self.quick.is_some()
    }

    /// Its command line, after the name of the program.
    pub fn arguments(&self, quick: bool) -> Vec<&'static str> {
        let arguments = self.quick.filter(|_| quick).unwrap_or(self.arguments);
        std::iter::once(self.name).chain(arguments.split_whitespace()).collect()
    }
}
