//! `onceward bench outbox`: how fast entries are queued and delivered, how soon an idle courier begins, and what a slow sink
//! costs the others. The sinks do nothing, so that only the outbox is measured.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use onceward::courier::{Courier, Parcel, Route, Sink, SinkResult, async_trait};
use onceward::{EnqueueOptions, Ledger, Outcome};
use serde::Serialize;
use tokio::sync::{Notify, oneshot};

use super::bench_files::BenchFiles;
use super::samples::Samples;
use super::{pairs, usage};
use onceward_runtime::exit::{Fault, STORE};
use onceward_runtime::output;

/// About the size of an e-mail's data.
const PAYLOAD: &str =
    r#"{"to":"cus_3PqLk2eZvKYlo2C1","template":"welcome","day":"2026-11-18","name":"Ana","plan":"team","locale":"de"}"#;

/// How many entries are queued one by one to see how soon an idle courier begins.
const SINGLE_ENTRIES: usize = 200;

/// The pause between them, so that the courier is idle again.
const PAUSE: Duration = Duration::from_millis(10);

/// How long an attempt at the slow sink takes.
const SLOW: Duration = Duration::from_secs(2);

/// The measurement of one phase ends after this long: something is wrong then.
const PATIENCE: Duration = Duration::from_secs(300);

/// Measure queueing and delivering, with sinks that do nothing
///
/// Creates a new ledger at --store (or in the working directory) and removes it. A postgres:// or redis:// URL must name a ledger
/// that `onceward migrate` has made; the entries stay in it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  onceward bench outbox\n  onceward bench outbox --store /dev/shm/bench.db --entries 20000 --json"
)]
pub(super) struct OutboxArgs {
    /// Number of entries in each phase
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    entries: u64,
    /// Number of concurrent callers that queue
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    callers: u16,
    /// Number of attempts under way at the same time
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    concurrency: u16,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The results.
#[derive(Debug, Serialize)]
struct OutboxReport {
    store: String,
    entries: u64,
    callers: u16,
    concurrency: u16,
    enqueues_per_second: f64,
    deliveries_per_second: f64,
    cpu_us_per_delivery: f64,
    start_p50_ms: Option<f64>,
    start_p99_ms: Option<f64>,
    deliveries_per_second_beside_slow_sink: f64,
}

pub(super) async fn run(args: OutboxArgs, store: Option<&str>) -> Result<u8, Fault> {
    let server = store.filter(|url| url.contains("://"));
    let files = BenchFiles::create(if server.is_some() { Some("memory:") } else { store })?;
    let ledger = match server {
        Some(url) => pairs::open(url).await?,
        None => files.open()?,
    };
    let report = measure(&args, &ledger, server.map_or_else(|| files.url(), onceward::shown_store)).await;
    output::progress("");
    let report = report?;
    match args.json {
        true => output::json(&report),
        false => output::out(&table(&report)),
    }
    Ok(0)
}

async fn measure(args: &OutboxArgs, ledger: &Ledger, store: String) -> Result<OutboxReport, Fault> {
    // Entries of an earlier measurement in the same store are of other operations.
    let run = format!("bench-outbox-{:08x}", getrandom::u32().unwrap_or_default());
    let [first, slow, second, single] = ["first", "slow", "second", "single"].map(|name| format!("{run}-{name}"));
    output::progress("queueing");
    let queued = Instant::now();
    queue(ledger, &first, args.entries, args.callers).await?;
    let enqueues_per_second = per_second(args.entries, queued.elapsed());
    queue(ledger, &second, args.entries, args.callers).await?;
    output::progress("delivering");
    let before = usage::processor();
    let took = deliver(ledger, &[(&first, false)], &first, args).await?;
    let used = usage::processor().saturating_sub(before);
    output::progress("delivering beside a slow sink");
    queue(ledger, &slow, u64::from(args.concurrency) * 100, args.callers).await?;
    let beside = deliver(ledger, &[(&second, false), (&slow, true)], &second, args).await?;
    output::progress("queueing one by one");
    let mut starts = one_by_one(ledger, &single).await?;
    let milliseconds = |micros: f64| micros / 1e3;
    #[expect(clippy::cast_precision_loss)]
    let each = |used: Duration| used.as_secs_f64() * 1e6 / args.entries as f64;
    Ok(OutboxReport {
        store,
        entries: args.entries,
        callers: args.callers,
        concurrency: args.concurrency,
        enqueues_per_second,
        deliveries_per_second: per_second(args.entries, took),
        cpu_us_per_delivery: each(used),
        start_p50_ms: starts.percentile(0.5).map(milliseconds),
        start_p99_ms: starts.percentile(0.99).map(milliseconds),
        deliveries_per_second_beside_slow_sink: per_second(args.entries, beside),
    })
}

fn per_second(count: u64, took: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss)]
    let count = count as f64;
    count / took.as_secs_f64().max(1e-9)
}

/// Queues this many entries.
async fn queue(ledger: &Ledger, operation: &str, entries: u64, callers: u16) -> Result<(), Fault> {
    let next = Arc::new(AtomicU64::new(0));
    let callers = (0..callers).map(|_| {
        let (ledger, next, operation) = (ledger.clone(), Arc::clone(&next), operation.to_owned());
        tokio::spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= entries {
                    return Ok::<_, onceward::Error>(());
                }
                let call = ledger.operation(&operation).key(&number.to_string());
                call.enqueue_json(PAYLOAD.as_bytes().to_vec(), EnqueueOptions::default()).await?;
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.map_err(broken)??;
    }
    Ok(())
}

/// Delivers until all entries of `measured` are delivered. The flag marks an operation whose sink is slow.
async fn deliver(
    ledger: &Ledger,
    operations: &[(&String, bool)],
    measured: &str,
    args: &OutboxArgs,
) -> Result<Duration, Fault> {
    let counter = Arc::new(Counter { left: AtomicU64::new(args.entries), ended: Notify::new() });
    let mut courier = Courier::new(ledger.clone());
    for (operation, is_slow) in operations {
        let sink: Arc<dyn Sink> = match is_slow {
            true => Arc::new(SlowSink),
            false => Arc::clone(&counter) as Arc<dyn Sink>,
        };
        let route = Route { concurrency: usize::from(args.concurrency), ..Route::to(operation, sink) };
        courier = courier.route(operation, route).map_err(onceward::Error::from)?;
    }
    let (stop, stopped) = oneshot::channel::<()>();
    let began = Instant::now();
    let running = tokio::spawn(courier.run(async {
        let _ = stopped.await;
    }));
    let ended = tokio::time::timeout(PATIENCE, counter.ended.notified()).await;
    let took = began.elapsed();
    let _ = stop.send(());
    running.await.map_err(broken)?;
    ended.map_err(|_| Fault::new(STORE, format!("the entries of {measured} were not delivered in time")))?;
    Ok(took)
}

/// From the end of queueing one entry, on an idle courier, to the start of its attempt.
async fn one_by_one(ledger: &Ledger, operation: &str) -> Result<Samples, Fault> {
    let sink = Arc::new(Starts(Mutex::default()));
    let courier = Courier::new(ledger.clone()).route(operation, Route::to(operation, sink.clone()));
    let courier = courier.map_err(onceward::Error::from)?;
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(courier.run(async {
        let _ = stopped.await;
    }));
    let mut samples = Samples::default();
    for number in 0..SINGLE_ENTRIES {
        tokio::time::sleep(PAUSE).await;
        let asked = Instant::now();
        let call = ledger.operation(operation).key(&number.to_string());
        call.enqueue_json(PAYLOAD.as_bytes().to_vec(), EnqueueOptions::default()).await?;
        while sink.taken() <= number {
            if asked.elapsed() > PATIENCE {
                return Err(Fault::new(STORE, "an entry was not delivered in time".to_owned()));
            }
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        let started = sink.0.lock().map_err(|error| broken(error.to_string()))?[number];
        samples.note(started.saturating_duration_since(asked));
    }
    let _ = stop.send(());
    running.await.map_err(broken)?;
    Ok(samples)
}

fn broken(error: impl std::fmt::Display) -> Fault {
    Fault::new(STORE, format!("the measurement failed: {error}"))
}

fn ended() -> SinkResult {
    SinkResult::Ended(Outcome::success("\"sent\""))
}

/// Counts what is delivered.
struct Counter {
    left: AtomicU64,
    ended: Notify,
}

#[async_trait]
impl Sink for Counter {
    async fn deliver(&self, _: &Parcel) -> SinkResult {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.ended.notify_one();
        }
        ended()
    }
}

struct SlowSink;

#[async_trait]
impl Sink for SlowSink {
    async fn deliver(&self, _: &Parcel) -> SinkResult {
        tokio::time::sleep(SLOW).await;
        ended()
    }
}

/// Notes when each attempt began.
struct Starts(Mutex<Vec<Instant>>);

impl Starts {
    fn taken(&self) -> usize {
        self.0.lock().map_or(0, |starts| starts.len())
    }
}

#[async_trait]
impl Sink for Starts {
    async fn deliver(&self, _: &Parcel) -> SinkResult {
        if let Ok(mut starts) = self.0.lock() {
            starts.push(Instant::now());
        }
        ended()
    }
}

fn table(report: &OutboxReport) -> String {
    let of = |figure: Option<f64>, digits: usize| {
        figure.map_or_else(|| "unknown".to_owned(), |figure| format!("{figure:.digits$}"))
    };
    format!(
        "store                                   {}\nentries                                 {}\nenqueues a second                       {:.0}\n\
         deliveries a second                     {:.0}\nprocessor time a delivery               {} µs\n\
         from queueing to start, idle, p50       {} ms\nfrom queueing to start, idle, p99       {} ms\n\
         deliveries a second beside a slow sink  {:.0}",
        report.store,
        report.entries,
        report.enqueues_per_second,
        report.deliveries_per_second,
        of(Some(report.cpu_us_per_delivery), 0),
        of(report.start_p50_ms, 2),
        of(report.start_p99_ms, 2),
        report.deliveries_per_second_beside_slow_sink,
    )
}
