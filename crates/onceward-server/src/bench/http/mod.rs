//! `onceward bench http`: what the gateway costs, beside nginx as a plain proxy and the bare service behind both.
//!
//! - `case`: what is measured. `figures`: what came out.
//! - `echo`: the service behind everything. `load`: who sends. `wire`: requests and answers as bytes. `nginx`: the one that
//!   is not ours.
//! - `stage`: everything that runs meanwhile.
//! - `aims`: what was aimed at. `report`: all of it, for people and for programs.

mod aims;
mod case;
pub(super) mod echo;
mod figures;
pub(super) mod load;
mod nginx;
mod report;
mod stage;
mod wire;

use std::time::Duration;

use super::{rounds, seconds, unless_interrupted};
use crate::exit::Fault;
use crate::output;
use case::Case;
use figures::Rounds;
use report::Report;
use stage::Stage;

/// Send requests through the gateway as fast as it goes, beside nginx and the bare service
///
/// Starts a small service, the gateway and (if it is installed) nginx, each as a process of its own on the loopback
/// interface, and a process that sends. All of them share this machine, so rounds of all cases take turns: their ratios
/// hold on a busy machine too. New ledgers are made at --store (or in the working directory), and removed again.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  onceward bench http\n  onceward bench http --store /dev/shm/bench.db --seconds 10 --json"
)]
pub(crate) struct Args {
    /// How many connections are open at once, with one request at a time on each
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
    /// How long each case is measured, over all rounds
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    seconds: f64,
    /// How often the cases take turns; the middle of the rounds is reported
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// How many connections are left idle while the gateway's memory is read; 0 leaves that out
    #[arg(long, default_value_t = 5_000, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=9000))]
    idle: u16,
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
    let mut stage = Stage::set(store, args.connections, args.idle).await?;
    if stage.nginx_version().is_none() {
        output::progress("");
        output::say(nginx::MISSING);
    }
    let cases: Vec<Case> = Case::ALL.into_iter().filter(|case| stage.has(*case)).collect();
    let mut rounds = Rounds::default();
    for round in 0..args.rounds {
        for case in rounds::order(&cases, round) {
            let so_far = super::bar(round, args.rounds);
            output::progress(&format!("{so_far}  round {} of {}: {}", round + 1, args.rounds, case.label()));
            rounds.note(case, stage.measure(case, slice).await?);
        }
    }
    let mut report = Report::new(args, &stage, &rounds);
    if args.idle > 0 {
        output::progress(&format!("{} idle connections", args.idle));
        report.idle(stage.idle(args.idle).await?);
    }
    Ok(report.judged(&rounds))
}
