//! Redis, compared with `SET … NX PX` and a script that compares and sets, on one connection that all callers share.
//!
//! - `connection`: a connection without a ledger, to a server or a cluster.
//! - `bench_keys`: the keys of a measurement, and their removal.
//! - `simple_use`: the simple use, and what the servers report.

mod bench_keys;
mod connection;
mod simple_use;

use std::time::Instant;

use onceward::store::redis::Redis;
use onceward_runtime::exit::Fault;
use onceward_runtime::output;

use super::alternate::{Ledgers, alternate};
use super::counting_proxy::CountingProxy;
use super::figures::{Case, ratio};
use super::replays::replays;
use super::report::{MeasuredServer, Report};
use crate::aim::{Aim, Unit};
use crate::pairs::{self, FinishedKeys};
use crate::{StoreArgs, fill, unless_interrupted};
use bench_keys::BenchKeys;
use simple_use::SimpleUse;

/// Records that are replayed, for each second of a measurement.
const REPLAYED_PER_SECOND: u64 = 4_000;

/// Measures, under a prefix whose keys are removed afterwards.
pub(super) async fn run(args: &StoreArgs, url: &str) -> Result<Report, Fault> {
    let keys = BenchKeys::create(url, usize::from(args.callers)).await?;
    let measured = unless_interrupted(measure(args, &keys)).await;
    match args.keep {
        true => output::out(&format!("kept the keys with the prefix {}", keys.prefix)),
        false => keys.remove().await?,
    }
    measured
}

async fn measure(args: &StoreArgs, keys: &BenchKeys) -> Result<Report, Fault> {
    Redis::migrate(&keys.url, false).await?;
    let simple = SimpleUse::prepare(keys).await?;
    let ledgers = Ledgers { ledger: pairs::open(&keys.url).await?, large: None };
    let mut report = Report::new(args, MeasuredServer::Prefix(keys.prefix.clone()));
    let finished = FinishedKeys::default();
    if args.preload > 0 {
        let began = Instant::now();
        fill(&ledgers.ledger, &finished, args.preload).await?;
        report.fill_seconds = Some(began.elapsed().as_secs_f64());
    }
    let rounds = alternate(args, &ledgers, &finished, &simple, &mut report).await?;
    let records = REPLAYED_PER_SECOND * u64::from(args.seconds);
    let counts = CountingProxy::can_count(&keys.url);
    report.replays(&replays(&keys.url, &ledgers.ledger, args, records, counts).await?);
    ledgers.close().await;
    let of_simple = ratio(&rounds, [Case::Ledger, Case::Simple]);
    let aims =
        vec![Aim::at_least("pairs, of SET NX and a script", 0.9, Unit::Times, of_simple), report.round_trips_aim()];
    Ok(report.judged(&rounds, aims))
}
