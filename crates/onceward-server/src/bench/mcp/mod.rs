//! `onceward bench mcp`: what the gateway adds to a call of a tool over stdio, beside the same server asked directly.
//!
//! - `server`: a tool server that does nothing but answer. `client`: who calls it. `talk`: what both say.
//! - `case`: what is measured. `stage`: everything that runs meanwhile. `figures`: what came out.
//! - `aims`: what was aimed at. `report`: all of it, for people and for programs.

mod aims;
mod case;
mod client;
mod figures;
mod report;
pub(super) mod server;
mod stage;
mod talk;

use std::time::Duration;

use super::{rounds, seconds, unless_interrupted};
use crate::exit::Fault;
use crate::output;
use case::Step;
use figures::Rounds;
use report::Report;
use stage::Stage;

/// Call tools over stdio through the gateway, and beside it directly
///
/// Starts a tool server that answers at once, and the gateway before further ones of the same kind: every one is a process
/// of its own. Calls are made one at a time, and then with 16 in flight. Rounds of all cases and of bare syncs of the disk
/// take turns, so that what is added holds on a busy machine too. New ledgers are made at --store (or in the working
/// directory), and removed again.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  onceward bench mcp\n  onceward bench mcp --store /dev/shm/bench.db --seconds 10 --json"
)]
pub(crate) struct Args {
    /// How long each case is measured in each way, over all rounds
    #[arg(long, default_value_t = 3.0, value_parser = seconds)]
    seconds: f64,
    /// How often the cases take turns; the middle of the rounds is reported
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// Measures, and prints what came out. Whatever was started is ended, also when it fails or is interrupted.
pub(super) async fn run(args: Args, store: Option<&str>) -> Result<u8, Fault> {
    let report = unless_interrupted(measure(&args, store)).await?;
    if args.json {
        output::json(&report);
    } else {
        output::out(&report.table());
    }
    Ok(0)
}

async fn measure(args: &Args, store: Option<&str>) -> Result<Report, Fault> {
    let slice = Duration::from_secs_f64(args.seconds / f64::from(args.rounds));
    output::progress("starting");
    let mut stage = Stage::set(store).await?;
    let mut rounds = Rounds::default();
    for round in 0..args.rounds {
        for step in rounds::order(&Step::all(), round) {
            let so_far = super::bar(round, args.rounds);
            output::progress(&format!("{so_far}  round {} of {}: {}", round + 1, args.rounds, step.label()));
            rounds.note(step, stage.measure(step, slice).await?);
        }
    }
    let happened = stage.counted().await?;
    Ok(Report::new(args, stage.store(), &rounds, happened))
}
