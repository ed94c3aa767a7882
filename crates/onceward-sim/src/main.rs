//! Harnesses that try to break Onceward.
//!
//! - `crash`: real processes on one ledger file, killed at every named step and at any moment.
//! - `disk`: every single operation on the disk fails once.
//! - `power`: power cuts under one ledger, over and over.
//! - `standing`: how a record stands, by a rule that calls nothing of the ledger.
//! - `vfs`: the disk that loses power and fails; `witness`: what was acknowledged.
//! - `model`: every order of events within bounds, through the real `decide`.
//! - `walk`: random calls through the ledger, beside an oracle that says what each must be answered.
//! - `clock`: clocks that jump by an hour and by ten years while the ledger works.
//! - `vectors`, `conformance`: what the tests of core and library check, as commands.
//! - `plants`: every bug that can be planted, against every check.
//! - `interleave`: the real ledger under schedules that let its callers overtake each other.
//! - `sweep`: a ledger whose first sweep is over.
//! - `turns`: processes that share one ledger, and how much each gets done.
//! - `gateway`: the HTTP gateway, killed under load in front of an upstream that counts.
//! - `mcp`, `api`, `run`: the MCP gateway, the API and `onceward run`, killed under load. `kills`: what these share.
//! - `scenes`: the real surfaces, step by step.
//! - `arguments`: the command line.
//! - `dice`: numbers from a seed.

// A harness that cannot go on says why and stops: there is nobody above it to hand an error to. Its output is its
// product.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]
// The crate is one program.
#![allow(unreachable_pub)]

mod api;
mod arguments;
mod carry;
mod clock;
mod conformance;
mod crash;
mod dice;
mod disk;
mod gateway;
mod interleave;
mod kills;
mod mcp;
mod model;
mod plants;
mod power;
mod run;
mod scenes;
mod standing;
mod sweep;
mod turns;
mod vectors;
mod vfs;
mod walk;
mod witness;

use std::process::ExitCode;

use onceward::core::plant;

use arguments::{Casting, Wanted};

fn main() -> ExitCode {
    let mut given: Vec<String> = std::env::args().skip(1).collect();
    let wanted = arguments::plant(&mut given).and_then(|planted| {
        planted.into_iter().for_each(plant::plant);
        arguments::parse(&given)
    });
    match wanted {
        Ok(Wanted::Crash(options)) => ExitCode::from(u8::from(!crash::run(&options))),
        Ok(Wanted::Judge(folder, seed)) => ExitCode::from(u8::from(!crash::judge_again(&folder, seed))),
        Ok(Wanted::Interleave(options)) => ExitCode::from(u8::from(!interleave::run(&options))),
        Ok(Wanted::Model(bounds)) => ExitCode::from(u8::from(!model::run(bounds))),
        Ok(Wanted::Walk(options)) => ExitCode::from(u8::from(!walk::run(&options))),
        Ok(Wanted::Clock(options)) => ExitCode::from(u8::from(!clock::run(&options))),
        Ok(Wanted::Vectors) => ExitCode::from(u8::from(!vectors::run())),
        Ok(Wanted::Conformance(enough)) => ExitCode::from(u8::from(!conformance::run(enough))),
        Ok(Wanted::Plants(options)) => ExitCode::from(u8::from(!plants::run(&options))),
        Ok(Wanted::Gateway(options)) => ExitCode::from(u8::from(!gateway::run(&options))),
        Ok(Wanted::Mcp(options, ways)) => ExitCode::from(u8::from(!mcp::run(&options, &ways))),
        Ok(Wanted::Scenes(options)) => ExitCode::from(u8::from(!scenes::run(&options))),
        Ok(Wanted::SceneServer(effects)) => {
            scenes::serve(&effects);
            ExitCode::SUCCESS
        }
        Ok(Wanted::Api(options)) => ExitCode::from(u8::from(!api::run(&options))),
        Ok(Wanted::Run(options)) => ExitCode::from(u8::from(!run::run(&options))),
        Ok(Wanted::Effect(role)) => ExitCode::from(run::act(&role)),
        Ok(Wanted::EffectServer(role)) => {
            mcp::serve(&role);
            ExitCode::SUCCESS
        }
        Ok(Wanted::Onceward(arguments)) => onceward_server::main_with(arguments),
        Ok(Wanted::Disk(options)) => ExitCode::from(u8::from(!disk::run(&options))),
        Ok(Wanted::Power(options)) => ExitCode::from(u8::from(!power::run(&options))),
        Ok(Wanted::Turns(options)) => ExitCode::from(u8::from(!turns::run(&options))),
        Ok(Wanted::TurnsPart(orders)) => {
            turns::work(&orders);
            ExitCode::SUCCESS
        }
        Ok(Wanted::Worker(orders, casting)) => {
            let part = match casting {
                Casting::Cycle { workers } => crash::Part::of(orders.seed, orders.cycle, orders.worker, workers),
                Casting::Birth => crash::Part::birth(),
                Casting::Scene => {
                    let misdeed = orders.misdeed.expect("a scene is about a misdeed");
                    crash::scene(orders.seed, misdeed, orders.worker)
                }
                Casting::Last => crash::Part::calm(orders.seed, &crash::rest(&orders.folder)),
            };
            crash::work(orders, part);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}\n{}", arguments::USAGE);
            ExitCode::from(64)
        }
    }
}
