//! `onceward bench mcp`: what the gateway adds to a tool call over stdio, compared with direct calls to the same server.
//!
//! - `server`: a minimal tool server. `client`: its client. `messages`: their messages.
//! - `case`: the measured cases. `setup`: all processes of a measurement. `figures`: the results.
//! - `aims`: the aims. `report`: the results, for people and for programs.

mod aims;
mod case;
mod client;
mod figures;
mod messages;
mod report;
pub(super) mod server;
mod setup;

use std::time::Duration;

use super::{rounds, seconds, unless_interrupted};
use case::Step;
use figures::Rounds;
use onceward_runtime::exit::Fault;
use onceward_runtime::output;
use report::Report;
use setup::McpBench;

/// Measure tool calls through the MCP gateway over stdio, compared with direct calls
///
/// Starts a tool server that responds at once, and gateways in front of further servers of the same kind, each as its own
/// process. Makes one call at a time, and then 16 in flight. Rounds of all cases and of bare disk syncs alternate, so that
/// the added latency is also valid on a busy machine. Creates new ledgers at --store (or in the working directory) and
/// removes them.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  onceward bench mcp\n  onceward bench mcp --store /dev/shm/bench.db --seconds 10 --json"
)]
pub(crate) struct McpArgs {
    /// How long to measure each case with each load, over all rounds
    #[arg(long, default_value_t = 3.0, value_parser = seconds)]
    seconds: f64,
    /// Number of rounds; the median of the rounds is reported
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Measures and prints the results. Ends all started processes, even if it fails or is interrupted.
pub(super) async fn run(args: McpArgs, store: Option<&str>) -> Result<u8, Fault> {
    let report = unless_interrupted(measure(&args, store)).await?;
    if args.json {
        output::json(&report);
    } else {
        output::out(&report.table());
    }
    Ok(0)
}

async fn measure(args: &McpArgs, store: Option<&str>) -> Result<Report, Fault> {
    let slice = Duration::from_secs_f64(args.seconds / f64::from(args.rounds));
    output::progress("starting");
    let mut bench = McpBench::start(store).await?;
    let mut rounds = Rounds::default();
    for round in 0..args.rounds {
        for step in rounds::order(&Step::all(), round) {
            let so_far = super::bar(round, args.rounds);
            output::progress(&format!("{so_far}  round {} of {}: {}", round + 1, args.rounds, step.label()));
            rounds.note(step, bench.measure(step, slice).await?);
        }
    }
    let counts = bench.counted().await?;
    Ok(Report::new(args, bench.store(), &rounds, counts))
}
