//! `onceward bench`: measures a ledger on this machine against the limit of its disk, and the cost of the gateways
//! compared with nginx and a bare service.
//!
//! - `http`: the HTTP gateway under load. `mcp`: what the MCP gateway adds to a tool call.
//! - `bench_part`: processes of a measurement, started from this same program. `process`: starts them, talks to them, ends
//!   them.
//! - `rounds`: interleaves the compared cases. `aim`: aims and whether they are met.
//! - `bench_files`: the files of a measurement, which are always new.
//! - `outbox`: entries that are queued and delivered.
//! - `pairs`: claims and finishes by many concurrent callers, and replays.
//! - `raw`: a bare log with the same callers, channel and batching: the limit.
//! - `servers/`: stores on servers, compared with the simplest use of the same server.
//! - `samples`: durations and their percentiles.
//! - `usage`, `processor`: processor time and memory of processes.
//! - `report`: the results, for people and for programs.

#![allow(missing_docs, reason = "internal to the binary; the library `onceward` is the documented API")]

mod aim;
mod bench_files;
mod bench_part;
mod http;
mod mcp;
mod outbox;
mod pairs;
mod process;
#[doc(hidden)]
pub mod processor;
mod raw;
mod report;
mod rounds;
mod samples;
mod servers;
mod usage;

use std::time::{Duration, Instant};

use onceward::Ledger;

use bench_files::BenchFiles;
use onceward_runtime::exit::{Fault, SIGNAL_BASE, STORE};
use onceward_runtime::net::stop::Signals;
use onceward_runtime::output;
use pairs::{FinishedKeys, PairSamples};
use report::Report;
use samples::Samples;

pub use bench_part::BenchPart;

/// Rounds of the ledger and the bare log alternate, so that a short load on the machine slows both.
const ROUNDS: u32 = 5;

/// Concurrent callers that fill the ledger; they are not measured.
const FILLERS: usize = 512;

/// Measure a store or a gateway on this machine
#[derive(Debug, clap::Args)]
pub struct Bench {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Debug, clap::Subcommand)]
enum BenchCommand {
    Store(StoreArgs),
    Http(http::HttpArgs),
    Mcp(mcp::McpArgs),
    Outbox(outbox::OutboxArgs),
}

/// Measure durable claims and finishes, compared with a bare log and the same callers
///
/// Creates a new ledger at --store (or in the working directory), fills it, and removes it. Rounds of the ledger and of a
/// bare append + fdatasync log alternate, so that their ratio is also valid on a busy machine.
///
/// With a postgres:// URL it measures the store on that server, compared with the simplest use of the same server: one statement
/// per call, and one connection for each caller. It creates databases of its own and removes them.
///
/// With a redis://, rediss:// or redis+cluster:// URL the simplest use is SET NX and a script that compares and sets, on one
/// connection for all callers. All keys have a new prefix and are removed.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  onceward bench store\n  onceward bench store --store /dev/shm/bench.db --callers 64 --seconds 5 --json"
)]
struct StoreArgs {
    /// Number of concurrent callers
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    callers: u16,
    /// How long to measure each of ledger, log and replays, over all rounds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Finished records in the ledger before the first round
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=50_000_000))]
    preload: u64,
    /// Expired records to free in the background during an additional round
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=10_000_000))]
    expire: u64,
    /// Keep the ledger
    #[arg(long)]
    keep: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Measures and prints the results.
pub fn run(bench: Bench, store: Option<String>) -> Result<u8, Fault> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Fault::new(onceward_runtime::exit::STORE, format!("cannot start: {error}")))?;
    let args = match bench.command {
        BenchCommand::Store(args) => args,
        BenchCommand::Http(args) => return runtime.block_on(http::run(args, store.as_deref())),
        BenchCommand::Outbox(args) => return runtime.block_on(outbox::run(args, store.as_deref())),
        BenchCommand::Mcp(args) => return runtime.block_on(mcp::run(args, store.as_deref())),
    };
    if let Some(url) = store.as_deref().filter(|url| servers::is_server(url)) {
        return runtime.block_on(servers::run(&args, url));
    }
    let files = BenchFiles::create(store.as_deref())?;
    let report = runtime.block_on(measure(&args, &files));
    output::progress("");
    if args.keep {
        files.keep();
    }
    let report = report?;
    if args.json {
        output::json(&report);
    } else {
        output::out(&report.table());
    }
    Ok(0)
}

async fn measure(args: &StoreArgs, files: &BenchFiles) -> Result<Report, Fault> {
    let callers = usize::from(args.callers);
    let slice = Duration::from_secs(u64::from(args.seconds)) / ROUNDS;
    let mut report = Report::new(files, args.callers, args.preload);
    let keys = FinishedKeys::default();
    let mut ledger = files.open()?;
    if args.preload > 0 {
        fill(&ledger, &keys, args.preload).await?;
        // Measured like a process that starts now.
        ledger.close().await;
        let opened = Instant::now();
        ledger = files.open()?;
        report.reopen_ms = Some(opened.elapsed().as_secs_f64() * 1e3);
    }
    let log = files.raw_log().map(|path| raw::prepare(&path)).transpose()?;
    let mut pairs = PairSamples::default();
    let mut raw = PairSamples::default();
    let mut syncs = Samples::default();
    for round in 1..=ROUNDS {
        output::progress(&format!("{}  claims and finishes, round {round} of {ROUNDS}", bar(round, ROUNDS)));
        pairs.add(pairs::claim_and_finish(&ledger, &keys, callers, slice).await?);
        output::progress(&format!("{}  bare log, round {round} of {ROUNDS}", bar(round, ROUNDS)));
        if let Some(log) = &log {
            let (work, sync) = raw::append_and_sync(log, callers, slice).await?;
            raw.add(work);
            syncs.add(sync);
        }
    }
    report.pairs(pairs);
    report.raw(raw, syncs);
    output::progress("replays from memory");
    let warm = pairs::repeat(&ledger, keys.newest(), callers, slice * ROUNDS, false).await?;
    report.replays_per_second = warm.per_second();
    output::progress("replays from the store");
    ledger.close().await;
    // A new ledger has an empty cache.
    let ledger = files.open()?;
    let cold = pairs::repeat(&ledger, keys.all(), callers, slice * ROUNDS, true).await?;
    report.store_replays_per_second = cold.per_second();
    if args.expire > 0 {
        expire(&ledger, &keys, args, &mut report).await?;
    }
    report.resources(files);
    ledger.close().await;
    Ok(report)
}

/// Fills the ledger with finished records.
async fn fill(ledger: &Ledger, keys: &FinishedKeys, wanted: u64) -> Result<(), Fault> {
    const STEP: u64 = 50_000;
    let mut done = 0;
    while done < wanted {
        output::progress(&format!("{}  filling: {done} of {wanted}", bar(done, wanted)));
        let step = STEP.min(wanted - done);
        pairs::fill(ledger, keys, FILLERS, step).await?;
        done += step;
    }
    Ok(())
}

/// How freeing many records affects claims.
async fn expire(ledger: &Ledger, keys: &FinishedKeys, args: &StoreArgs, report: &mut Report) -> Result<(), Fault> {
    let callers = usize::from(args.callers);
    let slice = Duration::from_secs(u64::from(args.seconds)) / ROUNDS;
    output::progress("a quiet round for comparison");
    let calm = pairs::claim_and_finish(ledger, keys, callers, slice).await?;
    output::progress(&format!("creating {} records that expire", args.expire));
    pairs::fill_briefly(ledger, FILLERS, args.expire).await?;
    tokio::time::sleep(pairs::BRIEFLY).await;
    let busy = {
        let sweeping = pairs::sweep(ledger.clone());
        let working = pairs::claim_and_finish(ledger, keys, callers, slice);
        let (freed, working) = tokio::join!(sweeping, working);
        report.expired_in_background = Some(freed?);
        working?
    };
    report.expiry(calm, busy);
    Ok(())
}

/// Runs a measurement, and ends its processes even if it is interrupted.
async fn unless_interrupted<R>(measuring: impl Future<Output = Result<R, Fault>>) -> Result<R, Fault> {
    let cannot = |error| Fault::new(STORE, format!("cannot start: {error}"));
    let (mut signals, _) = Signals::catch().map_err(cannot)?;
    let report = tokio::select! {
        report = measuring => report,
        () = signals.next() => Err(Fault::new(interrupted(), "interrupted; all started processes were ended")),
    };
    output::progress("");
    report
}

fn interrupted() -> u8 {
    u8::try_from(SIGNAL_BASE + nix::sys::signal::Signal::SIGINT as i32).unwrap_or(u8::MAX)
}

/// A number of seconds on the command line.
fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.05..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("between 0.05 and 3600 seconds".to_owned()) }
}

/// A progress bar of twenty characters.
fn bar(done: impl Into<u64>, of: impl Into<u64>) -> String {
    let (done, of) = (done.into(), of.into().max(1));
    let filled = usize::try_from(done * 20 / of).unwrap_or(20).min(20);
    format!("[{}{}]", "#".repeat(filled), " ".repeat(20 - filled))
}
