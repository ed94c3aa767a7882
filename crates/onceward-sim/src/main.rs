//! Harnesses that try to break Onceward.
//!
//! In one process, from a seed:
//! - `walk`: random calls through the ledger, compared with an oracle.
//! - `clock`: clocks that jump by an hour and by ten years while the ledger works.
//! - `interleave`: the real ledger under schedules in which its callers overtake each other.
//! - `seeded`: the runner of these three.
//! - `model`: every order of events within bounds, through the real `decide`.
//!
//! On a simulated disk (`vfs`):
//! - `power`: power cuts under one ledger, over and over.
//! - `disk`: every operation on the disk fails once.
//! - `recording_store`: records what the store has acknowledged.
//!
//! With real processes:
//! - `crash`: workers on one ledger, killed at every named step and at any moment.
//! - `outbox`: couriers, and processes that queue entries, killed under load.
//! - `gateway`, `mcp`, `api`, `run`: the real surfaces, killed under load. `kills`: what these share.
//! - `scenarios`: the real surfaces, step by step.
//! - `fairness`: processes that share one ledger, and how much each gets done.
//! - `store_load`: processes that share a store on a network, for `tests/stores/faults.py`.
//!
//! The rest:
//! - `vectors`, `conformance`: what the tests of core and library check, as commands.
//! - `plants`: every planted bug against every check.
//! - `arguments`: the command line. `report`: what is printed. `rng`: random numbers from a seed.
//! - `standing`: the status of a record, by a rule that calls nothing of the ledger.
//! - `first_sweep`, `checkpoint`: bring a ledger to a known point.

// A harness that cannot go on panics with the reason: no caller could handle the error. Its output is its product.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]
// The crate is one program.
#![allow(unreachable_pub)]

mod api;
mod arguments;
mod checkpoint;
mod clock;
mod conformance;
mod crash;
mod disk;
mod fairness;
mod first_sweep;
mod gateway;
mod interleave;
mod kills;
mod mcp;
mod model;
mod outbox;
mod plants;
mod power;
mod private_store;
mod recording_store;
mod redis_keys;
mod report;
mod rng;
mod run;
mod scenarios;
mod seeded;
mod standing;
mod store_load;
mod vectors;
mod vfs;
mod walk;

use std::process::ExitCode;

use onceward::plant;

use arguments::{Command, WorkerRole};

/// The exit code for a command line that cannot be read.
const USAGE_ERROR: u8 = 64;

fn main() -> ExitCode {
    let mut given: Vec<String> = std::env::args().skip(1).collect();
    let command = arguments::plant(&mut given).and_then(|planted| {
        planted.into_iter().for_each(plant::plant);
        arguments::parse(&given)
    });
    match command.map(run_command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error}\n{}", arguments::USAGE);
            ExitCode::from(USAGE_ERROR)
        }
    }
}

fn run_command(command: Command) -> ExitCode {
    let passed = match command {
        Command::Crash(options) => crash::run(&options),
        Command::Judge(folder, seed) => crash::judge_again(&folder, seed),
        Command::Interleave(options, fault) => seeded::run(interleave::Schedules { fault }, options),
        Command::Model(bounds, fault) => model::run(bounds, fault),
        Command::Walk(options, store) => seeded::run(walk::Walks::new(store), options),
        Command::Clock(options) => seeded::run(clock::Clocks::new(), options),
        Command::Vectors => vectors::run(),
        Command::Conformance(enough, server) => conformance::run(enough, server.as_deref()),
        Command::Plants(options) => plants::run(&options),
        Command::Gateway(options) => gateway::run(&options),
        Command::Mcp(options, transports) => mcp::run(&options, &transports),
        Command::Api(options) => api::run(&options),
        Command::Run(options) => run::run(&options),
        Command::Outbox(options) => outbox::run(&options),
        Command::OutboxCourier(options) => {
            outbox::deliver(&options);
            true
        }
        Command::OutboxEnqueuer(options) => {
            outbox::enqueue(&options);
            true
        }
        Command::Scenarios(options) => scenarios::run(&options),
        Command::Disk(options) => disk::run(&options),
        Command::Power(options) => power::run(&options),
        Command::Fairness(options) => fairness::run(&options),
        Command::Effect(role) => return ExitCode::from(run::act(&role)),
        Command::Onceward(arguments) => return onceward_cli::main_with(arguments),
        Command::ScenarioServer(effects) => {
            scenarios::serve(&effects);
            true
        }
        Command::EffectServer(role) => {
            mcp::serve(&role);
            true
        }
        Command::FairnessWorker(options) => {
            fairness::work(&options);
            true
        }
        Command::StoreMigrate(url) => store_load::migrate(&url),
        Command::StoreState(url) => store_load::print_state(&url),
        Command::StoreWorker(options) => {
            store_load::work(options);
            true
        }
        Command::Worker(options, role) => {
            play(options, role);
            true
        }
    };
    ExitCode::from(u8::from(!passed))
}

fn play(options: crash::WorkerOptions, role: WorkerRole) {
    let plan = match role {
        WorkerRole::Cycle { workers } => options.plan().worker(options.cycle, options.worker, workers),
        WorkerRole::NewLedger => return crash::make_ledger(options),
        WorkerRole::Scenario => {
            let fault = options.fault.expect("a scenario is about a fault");
            crash::scenario_plan(options.plan(), fault, options.worker)
        }
        WorkerRole::Last => options.plan().calm(&crash::rest(&options.folder)),
    };
    crash::work(options, plan);
}
