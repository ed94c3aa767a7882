//! `onceward bench store` with a store on a server: rounds of the ledger alternate with the simplest use of the same server,
//! which is one statement per call and one connection for each caller.
//!
//! - `postgres`: the databases of a measurement, the simple use of PostgreSQL, and what its server reports.
//! - `counting_proxy`: counts round trips.
//! - `figures`: one case in one round. `report`: the results and the aims.

mod counting_proxy;
mod figures;
mod postgres;
mod report;

use std::time::Duration;

use onceward::Ledger;
use onceward_runtime::exit::{Fault, STORE};
use onceward_runtime::output;

use super::pairs::{self, FinishedKeys};
use super::rounds::{Rounds, order};
use super::{ROUNDS, StoreArgs, bar, unless_interrupted};
use counting_proxy::CountingProxy;
use figures::{Case, ServerFigures};
use postgres::{Database, SimpleUse};
use report::Report;

/// A number of callers that one machine with a few hundred workers has.
const MANY_CALLERS: usize = 512;

/// How many replays are counted, one after the other.
const COUNTED_REPLAYS: u64 = 200;

/// Whether the URL names a store on a server.
pub(super) fn is_server(url: &str) -> bool {
    url.starts_with("postgres://") || url.starts_with("postgresql://")
}

/// Measures and prints the results.
pub(super) async fn run(args: &StoreArgs, url: &str) -> Result<u8, Fault> {
    if args.expire > 0 {
        return Err(Fault::usage("--expire is only for stores in a file"));
    }
    let mut databases = Vec::new();
    let measured = unless_interrupted(measure(args, url, &mut databases)).await;
    for database in databases {
        match args.keep {
            true => output::out(&format!("kept the database {}", database.name)),
            false => database.remove().await?,
        }
    }
    let report = measured?;
    match args.json {
        true => output::json(&report),
        false => output::out(&report.table()),
    }
    Ok(0)
}

async fn measure(args: &StoreArgs, url: &str, databases: &mut Vec<Database>) -> Result<Report, Fault> {
    let callers = usize::from(args.callers);
    let slice = Duration::from_secs(u64::from(args.seconds)) / ROUNDS;
    databases.push(Database::create(url, "empty").await?);
    if args.preload > 0 {
        databases.push(Database::create(url, "large").await?);
    }
    let (empty, large) = (&databases[0], databases.get(1));
    let simple = SimpleUse::prepare(empty, callers).await?;
    let ledger = pairs::open(&empty.url).await?;
    let keys = FinishedKeys::default();
    let mut report = Report::new(args, empty);
    let large = match large {
        None => None,
        Some(database) => {
            let ledger = pairs::open(&database.url).await?;
            report.fill_seconds = Some(fill(database, &ledger, args.preload).await?.as_secs_f64());
            Some((database, ledger))
        }
    };
    let mut rounds = Rounds::<Case, ServerFigures>::default();
    let cases = Case::of(large.is_some());
    // The first calls of a process open connections and fill the server's caches.
    pairs::claim_and_finish(&ledger, &keys, callers, slice / 4).await?;
    for round in 0..ROUNDS {
        for case in order(&cases, round) {
            output::progress(&format!(
                "{}  {}, round {} of {ROUNDS}",
                bar(round, ROUNDS),
                case.label(args.callers),
                round + 1
            ));
            let before = empty.counters().await?;
            let work = match (case, &large) {
                (Case::Large, Some((_, ledger))) => pairs::claim_and_finish(ledger, &keys, callers, slice).await?,
                (Case::Ledger | Case::Large, _) => pairs::claim_and_finish(&ledger, &keys, callers, slice).await?,
                (Case::LedgerOne, _) => pairs::claim_and_finish(&ledger, &keys, 1, slice).await?,
                (Case::LedgerMany, _) => pairs::claim_and_finish(&ledger, &keys, MANY_CALLERS, slice).await?,
                (Case::Simple, _) => simple.claim_and_finish(&keys, callers, slice).await?,
                (Case::SimpleOne, _) => simple.claim_and_finish(&keys, 1, slice).await?,
            };
            let after = empty.counters().await?;
            if case == Case::Ledger {
                report.connections = Some(empty.connections().await?);
            }
            rounds.note(case, ServerFigures::of(work, before, after));
        }
    }
    report.sizes = Some(empty.sizes().await?);
    output::progress("replays of another process's records");
    report.replays(&replays(empty, &ledger, callers, slice).await?);
    ledger.close().await;
    if let Some((_, ledger)) = large {
        ledger.close().await;
    }
    Ok(report.judged(&rounds))
}

/// Replays from the store, by a ledger whose cache is empty.
struct Replays {
    per_second: Option<f64>,
    round_trips: f64,
}

async fn replays(database: &Database, ledger: &Ledger, callers: usize, slice: Duration) -> Result<Replays, Fault> {
    // Intents of their own: every other case finishes new ones only.
    let keys = FinishedKeys::default();
    keys.skip(1 << 40);
    let from = keys.take() + 1;
    pairs::fill(ledger, &keys, callers, COUNTED_REPLAYS + 20_000).await?;
    let cold = pairs::open(&database.url).await?;
    let all = keys.all().end;
    let replayed = pairs::repeat(&cold, from + COUNTED_REPLAYS..all, callers, slice * ROUNDS, true).await?;
    cold.close().await;
    let proxy = CountingProxy::start(&database.url).await?;
    let counted = pairs::open(&proxy.url).await?;
    // The connection is opened by the first one.
    pairs::repeat(&counted, from..from + 1, 1, slice * ROUNDS, true).await?;
    let before = proxy.round_trips();
    pairs::repeat(&counted, from + 1..from + COUNTED_REPLAYS, 1, slice * ROUNDS, true).await?;
    #[expect(clippy::cast_precision_loss)]
    let round_trips = (proxy.round_trips() - before) as f64 / (COUNTED_REPLAYS - 1) as f64;
    counted.close().await;
    Ok(Replays { per_second: replayed.per_second(), round_trips })
}

/// Fills a ledger with finished records, made by the server from one that the ledger has finished.
async fn fill(database: &Database, ledger: &Ledger, wanted: u64) -> Result<Duration, Fault> {
    /// Enough that a statement takes a few seconds.
    const STEP: u64 = 100_000;
    let began = std::time::Instant::now();
    let sample = FinishedKeys::default();
    sample.skip(1 << 41);
    pairs::fill(ledger, &sample, 1, 1).await?;
    let mut done = 0;
    while done < wanted {
        output::progress(&format!("{}  filling: {done} of {wanted}", bar(done, wanted)));
        let step = STEP.min(wanted - done);
        database.fill(done, step).await?;
        done += step;
    }
    database.settle().await?;
    Ok(began.elapsed())
}

fn failed(error: impl std::fmt::Display) -> Fault {
    Fault::new(STORE, format!("the measurement failed: {error}"))
}
