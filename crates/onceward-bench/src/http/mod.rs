//! `onceward bench http`: the cost of the gateway, compared with nginx as a plain proxy and with the bare service.
//!
//! - `case`: the measured cases. `figures`: their results.
//! - `echo`: the service behind the proxies. `load`: the load generator. `wire`: requests and responses as bytes. `nginx`:
//!   runs nginx.
//! - `setup`: all processes of a measurement.
//! - `aims`: the aims. `report`: the results, for people and for programs.

mod aims;
mod case;
pub(super) mod echo;
mod figures;
pub(super) mod load;
mod nginx;
mod report;
mod setup;
mod wire;

use std::time::Duration;

use super::{rounds, seconds, unless_interrupted};
use case::Case;
use figures::Rounds;
use onceward_runtime::exit::Fault;
use onceward_runtime::output;
use report::Report;
use setup::HttpBench;

/// Measure the HTTP gateway under load, compared with nginx and the bare service
///
/// Starts a small service, the gateway, nginx (if installed) and a load generator as processes on the loopback interface.
/// They share this machine, so rounds of all cases alternate: their ratios are also valid on a busy machine. Creates new
/// ledgers at --store (or in the working directory) and removes them.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  onceward bench http\n  onceward bench http --store /dev/shm/bench.db --seconds 10 --json"
)]
pub(crate) struct HttpArgs {
    /// Number of open connections, with one request at a time on each
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
    /// How long to measure each case, over all rounds
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    seconds: f64,
    /// Number of rounds; the median of the rounds is reported
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Number of idle connections for measuring the gateway's memory; 0 skips that
    #[arg(long, default_value_t = 5_000, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=9000))]
    idle: u16,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Measures and prints the results. Ends all started processes, even if it fails or is interrupted.
pub(super) async fn run(args: HttpArgs, store: Option<&str>) -> Result<u8, Fault> {
    let report = unless_interrupted(measure(&args, store)).await?;
    if args.json {
        output::json(&report);
    } else {
        output::out(&report.table());
    }
    Ok(0)
}

async fn measure(args: &HttpArgs, store: Option<&str>) -> Result<Report, Fault> {
    let slice = Duration::from_secs_f64(args.seconds / f64::from(args.rounds));
    output::progress("starting");
    let mut bench = HttpBench::start(store, args.connections, args.idle).await?;
    if bench.nginx_version().is_none() {
        output::progress("");
        output::say(nginx::MISSING);
    }
    let cases: Vec<Case> = Case::ALL.into_iter().filter(|case| bench.has(*case)).collect();
    let mut rounds = Rounds::default();
    for round in 0..args.rounds {
        for case in rounds::order(&cases, round) {
            let so_far = super::bar(round, args.rounds);
            output::progress(&format!("{so_far}  round {} of {}: {}", round + 1, args.rounds, case.label()));
            rounds.note(case, bench.measure(case, slice).await?);
        }
    }
    let mut report = Report::new(args, &bench, &rounds);
    if args.idle > 0 {
        output::progress(&format!("{} idle connections", args.idle));
        report.idle(bench.idle(args.idle).await?);
    }
    Ok(report.judged(&rounds))
}
