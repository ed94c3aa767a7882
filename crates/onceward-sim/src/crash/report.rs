//! What a run prints.

use std::path::Path;
use std::time::Duration;

use onceward::step::Step;

use super::Options;
use super::judge::Judge;
use super::processes::Processes;
use super::run_store::RunStore;

/// A line while it runs, on the error stream.
pub fn progress(done: u64, all: u64, age: Duration, judge: &Judge, processes: &Processes) {
    eprintln!(
        "cycle {done} of {all}, {} s: {} kills, {} effects, {} replays, {} violations",
        age.as_secs(),
        processes.killed,
        judge.tally.effects,
        judge.tally.replays,
        judge.violations.len()
    );
}

/// Prints a violation as soon as it is found.
pub fn found(violation: &str) {
    eprintln!("VIOLATION {violation}");
}

/// How much a run has done.
#[derive(Debug)]
pub struct Played {
    pub cycles: u64,
    pub time: Duration,
    /// The largest size of the write-ahead log, in bytes.
    pub longest_log: u64,
}

/// Prints the summary. True if no rule was broken and every step was hit.
pub fn print(options: &Options, judge: &Judge, processes: &Processes, played: &Played) -> bool {
    let tally = &judge.tally;
    let told = |answer| tally.answers.get(&answer).copied().unwrap_or_default();
    let rows = [
        ("cycles", played.cycles),
        ("seed", options.seed),
        ("milliseconds per cycle", u64::try_from(played.time.as_millis()).unwrap_or(u64::MAX) / played.cycles.max(1)),
        ("largest write-ahead log, KiB", played.longest_log / 1024),
        ("worker processes", processes.started),
        ("killed (kill -9)", processes.killed),
        ("stopped and continued", processes.stopped),
        ("intents", judge.histories.len() as u64),
        ("claims granted", tally.claims),
        ("taken over from the dead or lapsed", tally.takeovers),
        ("effects", tally.effects),
        ("... too late, by attempts that overran", tally.overran),
        ("outcomes acknowledged", tally.acknowledged),
        ("outcomes replayed", tally.replays),
        ("answered: in doubt", told(super::journal::CallResult::InDoubt)),
        ("answered: in flight", told(super::journal::CallResult::InFlight)),
        ("answered: outcome not kept", told(super::journal::CallResult::NotKept)),
        ("answered: claim lost", told(super::journal::CallResult::ClaimLost)),
        ("answered: owner failed", told(super::journal::CallResult::OwnerFailed)),
        ("doubts resolved by the parent", tally.resolved),
        ("keys used again after they were forgotten", tally.renewals_of_keys),
        ("... of intents that never happened", tally.started_over),
    ];
    for (name, number) in rows {
        println!("{name:<44}{number:>10}");
    }
    for step in Step::OF_CALLS {
        let kills = tally.steps.get(&step.name()).copied().unwrap_or_default();
        println!("killed at {:<34}{kills:>10}", step.name());
    }
    let missed = judge.missed_steps();
    println!("{:<44}{:>10}", "violations", judge.violations.len());
    for violation in &judge.violations {
        println!("VIOLATION {violation}");
    }
    if !judge.violations.is_empty() {
        let store = options.store.as_ref().map(|store| format!(" --store {store}")).unwrap_or_default();
        println!("again: onceward-sim crash --cycles {} --seed {}{store}", options.cycles, options.seed);
    }
    if !missed.is_empty() {
        println!("never killed at: {}; run more cycles", missed.join(", "));
    }
    judge.violations.is_empty() && missed.is_empty()
}

/// Prints where the files are.
pub fn kept(folder: &Path, store: RunStore, keeps_server: bool) {
    match store {
        RunStore::File(_) => println!("ledger and journal are in {}", folder.display()),
        RunStore::Server(server) => {
            println!("the journal is in {}", folder.display());
            if keeps_server {
                println!("the ledger is {}", server.keep());
            }
        }
    }
}
