//! `onceward bench`: how fast a ledger is on this machine, and how near it comes to what the disk allows; and what the
//! gateways cost, beside nginx and a bare service.
//!
//! - `http`: the gateway under load. `mcp`: what the gateway before tools adds to a call.
//! - `part`: processes of a measurement, which are this same program. `process`: starting them, hearing them, ending them.
//! - `rounds`: what is compared takes turns. `aim`: what was aimed at.
//! - `place`: the files, which are always new ones.
//! - `pairs`: claims and finishes by many callers at once; and repeats of what is finished.
//! - `raw`: a bare log with the same callers, channel and batching: the limit.
//! - `samples`: many durations, and their percentiles.
//! - `usage`: what the process has cost so far.
//! - `report`: the figures, for people and for programs.

mod aim;
mod http;
mod mcp;
mod pairs;
mod part;
mod place;
mod process;
mod raw;
mod report;
mod rounds;
mod samples;
mod usage;

use std::time::{Duration, Instant};

use onceward::Ledger;

use crate::exit::{Fault, SIGNAL_BASE, STORE};
use crate::output;
use crate::stop::Signals;
use pairs::{Keys, Work};
use place::Place;
use report::Report;
use samples::Samples;

pub(crate) use part::Part;

/// Rounds of the ledger and the bare log take turns, so that a machine that is busy for a moment slows both.
const ROUNDS: u32 = 5;

/// Callers at once while the ledger is filled; nobody measures these.
const FILLERS: usize = 512;

/// Measure a store, or a gateway, on this machine
#[derive(Debug, clap::Args)]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Store(Args),
    Http(http::Args),
    Mcp(mcp::Args),
}

/// Claim and finish as fast as it goes, durably, beside a bare log with the same callers
///
/// Makes a new ledger at --store (or in the working directory), fills it, and removes it again. Rounds of the ledger and
/// of a bare append + fdatasync log take turns, so that the ratio of both holds on a busy machine too.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  onceward bench store\n  onceward bench store --store /dev/shm/bench.db --callers 64 --seconds 5 --json"
)]
struct Args {
    /// How many callers work at once
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    callers: u16,
    /// How long each of ledger, log and repeats is measured, over all rounds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Finished records that are there before the first round
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=50_000_000))]
    preload: u64,
    /// Records that expire, and are freed in the background while a further round is measured
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=10_000_000))]
    expire: u64,
    /// Leave the ledger where it is
    #[arg(long)]
    keep: bool,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// Measures, and prints what came out.
pub(crate) fn run(bench: Bench, store: Option<String>) -> Result<u8, Fault> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Fault::new(crate::exit::STORE, format!("cannot start: {error}")))?;
    let args = match bench.what {
        What::Store(args) => args,
        What::Http(args) => return runtime.block_on(http::run(args, store.as_deref())),
        What::Mcp(args) => return runtime.block_on(mcp::run(args, store.as_deref())),
    };
    let place = Place::take(store.as_deref())?;
    let report = runtime.block_on(measure(&args, &place));
    output::progress("");
    if args.keep {
        place.keep();
    }
    let report = report?;
    if args.json {
        output::json(&report);
    } else {
        output::out(&report.table());
    }
    Ok(0)
}

async fn measure(args: &Args, place: &Place) -> Result<Report, Fault> {
    let callers = usize::from(args.callers);
    let slice = Duration::from_secs(u64::from(args.seconds)) / ROUNDS;
    let mut report = Report::new(place, args.callers, args.preload);
    let keys = Keys::default();
    let mut ledger = pairs::open(&place.url()).await?;
    if args.preload > 0 {
        fill(&ledger, &keys, args.preload).await?;
        // Measured as a process would find it that starts now.
        ledger.close().await;
        let opened = Instant::now();
        ledger = pairs::open(&place.url()).await?;
        report.reopen_ms = Some(opened.elapsed().as_secs_f64() * 1e3);
    }
    let log = place.raw_log().map(|path| raw::prepare(&path)).transpose()?;
    let mut pairs = Work::default();
    let mut raw = Work::default();
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
    output::progress("repeats, from memory");
    let warm = pairs::repeat(&ledger, keys.newest(), callers, slice * ROUNDS, false).await?;
    report.replays_per_second = warm.per_second();
    output::progress("repeats, from the store");
    ledger.close().await;
    // A new ledger has nothing at hand yet.
    let ledger = pairs::open(&place.url()).await?;
    let cold = pairs::repeat(&ledger, keys.all(), callers, slice * ROUNDS, true).await?;
    report.store_replays_per_second = cold.per_second();
    if args.expire > 0 {
        expire(&ledger, &keys, args, &mut report).await?;
    }
    report.resources(place);
    ledger.close().await;
    Ok(report)
}

/// Fills the ledger with finished records.
async fn fill(ledger: &Ledger, keys: &Keys, wanted: u64) -> Result<(), Fault> {
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

/// What the freeing of many records does to claims.
async fn expire(ledger: &Ledger, keys: &Keys, args: &Args, report: &mut Report) -> Result<(), Fault> {
    let callers = usize::from(args.callers);
    let slice = Duration::from_secs(u64::from(args.seconds)) / ROUNDS;
    output::progress("a calm round, to compare with");
    let calm = pairs::claim_and_finish(ledger, keys, callers, slice).await?;
    output::progress(&format!("{} records that expire", args.expire));
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

/// Measures with processes of its own, which are ended with it, also when somebody interrupts.
async fn unless_interrupted<R>(measuring: impl Future<Output = Result<R, Fault>>) -> Result<R, Fault> {
    let cannot = |error| Fault::new(STORE, format!("cannot start: {error}"));
    let (mut signals, _) = Signals::catch().map_err(cannot)?;
    let report = tokio::select! {
        report = measuring => report,
        () = signals.next() => Err(Fault::new(interrupted(), "interrupted; what was started is ended")),
    };
    output::progress("");
    report
}

fn interrupted() -> u8 {
    u8::try_from(SIGNAL_BASE + nix::sys::signal::Signal::SIGINT as i32).unwrap_or(u8::MAX)
}

/// A length of time on the command line.
fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.05..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("between 0.05 and 3600 seconds".to_owned()) }
}

/// A bar of twenty places.
fn bar(done: impl Into<u64>, of: impl Into<u64>) -> String {
    let (done, of) = (done.into(), of.into().max(1));
    let filled = usize::try_from(done * 20 / of).unwrap_or(20).min(20);
    format!("[{}{}]", "#".repeat(filled), " ".repeat(20 - filled))
}
