//! The load on a ledger: many concurrent callers that claim and finish, or that replay finished intents.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onceward::core::decide::Decision;
use onceward::core::policy::Retention;
use onceward::store::MAX_PURGE_SIZE;
use onceward::{Begun, Ledger, Outcome, Policy, Tier};

use super::samples::Samples;
use super::usage;
use onceward_runtime::exit::{self, Fault};

/// About the size of a receipt.
pub(super) const BODY: &str = r#"{"id":"ch_3PqLk2eZvKYlo2C1","object":"charge","amount":4200,"currency":"eur","status":"succeeded","receipt":"https://pay.example/receipts/ch_3PqLk2eZvKYlo2C1","created":1794700800,"order":"order-17"}"#;

const OPERATION: &str = "bench";
const BRIEF_OPERATION: &str = "bench_brief";

/// Retention of records that are to expire: longer than it takes to create them, because a ledger sweeps by itself from
/// time to time.
pub(super) const BRIEFLY: Duration = Duration::from_secs(10);

/// Replays between two looks at the clock.
const CHUNK: u64 = 64;

/// The work of all callers together.
#[derive(Debug, Default)]
pub(super) struct PairSamples {
    pub(super) claims: Samples,
    pub(super) pairs: Samples,
    pub(super) took: Duration,
    pub(super) processor: Duration,
}

impl PairSamples {
    pub(super) fn add(&mut self, other: Self) {
        self.claims.add(other.claims);
        self.pairs.add(other.pairs);
        self.took += other.took;
        self.processor += other.processor;
    }

    pub(super) fn per_second(&self) -> Option<f64> {
        per_second(self.pairs.len() as u64, self.took)
    }
}

/// Replays. They are too fast to record the duration of each.
#[derive(Debug)]
pub(super) struct ReplayCount {
    pub(super) count: u64,
    took: Duration,
}

impl ReplayCount {
    pub(super) fn per_second(&self) -> Option<f64> {
        per_second(self.count, self.took)
    }
}

fn per_second(count: u64, took: Duration) -> Option<f64> {
    #[expect(clippy::cast_precision_loss)]
    (count > 0).then(|| count as f64 / took.as_secs_f64())
}

/// The keys: numbers, of which those below `next` are finished.
#[derive(Clone, Debug, Default)]
pub(super) struct FinishedKeys {
    next: Arc<AtomicU64>,
}

impl FinishedKeys {
    pub(super) fn all(&self) -> Range<u64> {
        0..self.next.load(Ordering::Relaxed)
    }

    /// A key that was not used before.
    pub(super) fn take(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Leaves out this many keys, which other callers use.
    pub(super) fn skip(&self, count: u64) {
        self.next.fetch_add(count, Ordering::Relaxed);
    }

    /// So few that all of them are cached.
    pub(super) fn newest(&self) -> Range<u64> {
        let all = self.all();
        all.end.saturating_sub(10_000).max(all.start)..all.end
    }
}

/// Opens a ledger with an operation of short retention.
pub(super) async fn open(url: &str) -> Result<Ledger, Fault> {
    let brief = Policy { tier: Some(Tier::Email), retention: Some(Retention::For(BRIEFLY)), ..Policy::default() };
    Ok(Ledger::builder().policy(BRIEF_OPERATION, brief).open(url).await?)
}

/// Each caller claims and finishes new intents, one after the other.
pub(super) async fn claim_and_finish(
    ledger: &Ledger,
    keys: &FinishedKeys,
    callers: usize,
    time: Duration,
) -> Result<PairSamples, Fault> {
    let (ledger, next) = (ledger.clone(), Arc::clone(&keys.next));
    at_once(callers, time, move || {
        let (ledger, key) = (ledger.clone(), next.fetch_add(1, Ordering::Relaxed));
        async move { pair(&ledger, OPERATION, key).await }
    })
    .await
}

/// Claims and finishes this many intents as fast as possible.
pub(super) async fn fill(ledger: &Ledger, keys: &FinishedKeys, callers: usize, count: u64) -> Result<(), Fault> {
    let next = Arc::clone(&keys.next);
    let last = next.load(Ordering::Relaxed) + count;
    fill_to(ledger, OPERATION, callers, Arc::clone(&next), last).await?;
    next.store(last, Ordering::Relaxed);
    Ok(())
}

/// The same with records that expire soon. They are not replayed.
pub(super) async fn fill_briefly(ledger: &Ledger, callers: usize, count: u64) -> Result<(), Fault> {
    fill_to(ledger, BRIEF_OPERATION, callers, Arc::default(), count).await
}

async fn fill_to(
    ledger: &Ledger,
    operation: &'static str,
    callers: usize,
    next: Arc<AtomicU64>,
    last: u64,
) -> Result<(), Fault> {
    let work = (0..callers).map(|_| {
        let (ledger, next) = (ledger.clone(), Arc::clone(&next));
        tokio::spawn(async move {
            loop {
                let key = next.fetch_add(1, Ordering::Relaxed);
                if key >= last {
                    return Ok::<_, Fault>(());
                }
                pair(&ledger, operation, key).await?;
            }
        })
    });
    for caller in work.collect::<Vec<_>>() {
        caller.await.map_err(caller_failed)??;
    }
    Ok(())
}

/// Each caller begins finished intents and must get their outcome. With `once`, each intent is begun only once, so none can
/// be cached; it ends when all were begun.
pub(super) async fn repeat(
    ledger: &Ledger,
    keys: Range<u64>,
    callers: usize,
    time: Duration,
    once: bool,
) -> Result<ReplayCount, Fault> {
    let (length, started) = ((keys.end - keys.start).max(1), Instant::now());
    let until = started + time;
    let asked = Arc::new(AtomicU64::new(0));
    let stride = stride(length);
    let work = (0..callers).map(|_| {
        let (ledger, first, asked) = (ledger.clone(), keys.start, Arc::clone(&asked));
        tokio::spawn(async move {
            let mut count = 0;
            'over: while Instant::now() < until {
                // In chunks, so that callers do not contend for the counter.
                let from = asked.fetch_add(CHUNK, Ordering::Relaxed);
                for number in from..from + CHUNK {
                    if once && number >= length {
                        break 'over;
                    }
                    let key = first + number.wrapping_mul(stride) % length;
                    let begun = ledger.operation(OPERATION).key(&name(key)).begin().await?;
                    if !matches!(begun, Begun::Answered(Decision::Replay { .. })) {
                        return Err(Fault::new(
                            exit::STORE,
                            "a finished intent was not replayed: this is a defect of onceward",
                        ));
                    }
                    count += 1;
                }
                tokio::task::yield_now().await;
            }
            Ok(count)
        })
    });
    let mut count = 0;
    for caller in work.collect::<Vec<_>>() {
        count += caller.await.map_err(caller_failed)??;
    }
    Ok(ReplayCount { count, took: started.elapsed() })
}

/// A step that visits all numbers below `length` in a scattered order.
fn stride(length: u64) -> u64 {
    const PRIME: u64 = 7_368_787;
    if length.is_multiple_of(PRIME) { 1 } else { PRIME }
}

/// Frees expired records in batches, and returns their number.
pub(super) async fn sweep(ledger: Ledger) -> Result<u64, Fault> {
    let mut freed = 0;
    loop {
        let batch = ledger.purge(MAX_PURGE_SIZE).await?.total();
        freed += batch as u64;
        if batch == 0 {
            return Ok(freed);
        }
    }
}

/// Runs this many concurrent callers, each doing one piece of work after the other until the time is over. A piece returns
/// the duration of its claim and of the whole pair.
pub(super) async fn at_once<F>(
    callers: usize,
    time: Duration,
    piece: impl FnMut() -> F + Send + Clone + 'static,
) -> Result<PairSamples, Fault>
where
    F: Future<Output = Result<(Duration, Duration), Fault>> + Send + 'static,
{
    each(vec![piece; callers], time).await
}

/// The same with a piece of work for each caller.
pub(super) async fn each<F>(
    pieces: Vec<impl FnMut() -> F + Send + 'static>,
    time: Duration,
) -> Result<PairSamples, Fault>
where
    F: Future<Output = Result<(Duration, Duration), Fault>> + Send + 'static,
{
    let (started, processor) = (Instant::now(), usage::processor());
    let until = started + time;
    let mut work = PairSamples::default();
    let mut running = Vec::with_capacity(pieces.len());
    for mut piece in pieces {
        running.push(tokio::spawn(async move {
            let mut mine = PairSamples::default();
            while Instant::now() < until {
                let (claim, pair) = piece().await?;
                mine.claims.note(claim);
                mine.pairs.note(pair);
            }
            Ok::<_, Fault>(mine)
        }));
    }
    for caller in running {
        work.add(caller.await.map_err(caller_failed)??);
    }
    work.took = started.elapsed();
    work.processor = usage::processor().saturating_sub(processor);
    Ok(work)
}

/// One claim and its finish; both are on disk when they return.
async fn pair(ledger: &Ledger, operation: &str, key: u64) -> Result<(Duration, Duration), Fault> {
    let started = Instant::now();
    let begun = ledger.operation(operation).key(&name(key)).begin().await?;
    let claimed = started.elapsed();
    let Begun::Acquired(guard) = begun else {
        return Err(Fault::new(exit::STORE, "a new intent was not granted: this is a defect of onceward"));
    };
    guard.finish(Outcome::success(BODY)).await?;
    Ok((claimed, started.elapsed()))
}

pub(super) fn name(key: u64) -> String {
    format!("order-{key}")
}

fn caller_failed(error: tokio::task::JoinError) -> Fault {
    Fault::new(exit::STORE, format!("a caller died: {error}"))
}
