//! PostgreSQL, compared with one prepared statement per call on a connection for each caller.
//!
//! - `database`: the databases of a measurement, the simple use, and what the server reports.

mod database;

use std::time::{Duration, Instant};

use onceward::Ledger;
use onceward_runtime::exit::Fault;
use onceward_runtime::output;

use super::alternate::{ComparedServer, Ledgers, alternate};
use super::figures::{Case, Counters, ServerFigures, ratio};
use super::replays::replays;
use super::report::{MeasuredServer, Report};
use crate::aim::{Aim, Unit};
use crate::pairs::{self, FinishedKeys, PairSamples};
use crate::rounds::Rounds;
use crate::{StoreArgs, bar, unless_interrupted};
pub(super) use database::Sizes;
use database::{Database, SimpleUse};

/// Enough replays for a few seconds.
const REPLAYED_RECORDS: u64 = 20_000;

/// Measures, in databases that are removed afterwards.
pub(super) async fn run(args: &StoreArgs, url: &str) -> Result<Report, Fault> {
    let mut databases = Vec::new();
    let measured = unless_interrupted(measure(args, url, &mut databases)).await;
    for database in databases {
        match args.keep {
            true => output::out(&format!("kept the database {}", database.name)),
            false => database.remove().await?,
        }
    }
    measured
}

async fn measure(args: &StoreArgs, url: &str, databases: &mut Vec<Database>) -> Result<Report, Fault> {
    databases.push(Database::create(url, "empty").await?);
    if args.preload > 0 {
        databases.push(Database::create(url, "large").await?);
    }
    let (empty, large) = (&databases[0], databases.get(1));
    let simple = SimpleUse::prepare(empty, usize::from(args.callers)).await?;
    let mut ledgers = Ledgers { ledger: pairs::open(&empty.url).await?, large: None };
    let mut report = Report::new(args, MeasuredServer::Database(empty.name.clone()));
    if let Some(database) = large {
        let ledger = pairs::open(&database.url).await?;
        report.fill_seconds = Some(fill(database, &ledger, args.preload).await?.as_secs_f64());
        ledgers.large = Some(ledger);
    }
    let server = Server { database: empty, simple };
    let rounds = alternate(args, &ledgers, &FinishedKeys::default(), &server, &mut report).await?;
    report.sizes = Some(empty.sizes().await?);
    report.replays(&replays(&empty.url, &ledgers.ledger, args, REPLAYED_RECORDS, true).await?);
    ledgers.close().await;
    let aims = aims(args, &report, &rounds);
    Ok(report.judged(&rounds, aims))
}

fn aims(args: &StoreArgs, report: &Report, rounds: &Rounds<Case, ServerFigures>) -> Vec<Aim> {
    #[expect(clippy::cast_precision_loss)]
    let connections = report.connections.map(|number| number as f64);
    let of_simple = ratio(rounds, [Case::Ledger, Case::Simple]);
    let mut aims = vec![
        Aim::at_least("pairs, of one statement per call", 4.0, Unit::Times, of_simple),
        Aim::at_most("connections", 8.0, Unit::Count, connections),
        report.round_trips_aim(),
    ];
    if args.preload > 0 {
        let kept = ratio(rounds, [Case::Large, Case::Ledger]).map(|ratio| ratio * 100.0);
        aims.push(Aim::at_least("pairs with many records, of the empty table", 80.0, Unit::Percent, kept));
    }
    aims
}

/// The database of the measurement and the simple use of it.
struct Server<'a> {
    database: &'a Database,
    simple: SimpleUse,
}

impl ComparedServer for Server<'_> {
    async fn claim_and_finish(
        &self,
        keys: &FinishedKeys,
        callers: usize,
        time: Duration,
    ) -> Result<PairSamples, Fault> {
        self.simple.claim_and_finish(keys, callers, time).await
    }

    async fn counters(&self) -> Result<Counters, Fault> {
        self.database.counters().await
    }

    async fn connections(&self) -> Result<Option<i64>, Fault> {
        self.database.connections().await.map(Some)
    }
}

/// Fills a ledger with finished records, made by the server from one that the ledger has finished.
async fn fill(database: &Database, ledger: &Ledger, wanted: u64) -> Result<Duration, Fault> {
    /// Enough that a statement takes a few seconds.
    const STEP: u64 = 100_000;
    let began = Instant::now();
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
