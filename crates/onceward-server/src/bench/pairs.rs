//! The load: many callers at once that claim and finish, or that repeat what is finished.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onceward::core::decide::Decision;
use onceward::core::policy::Retention;
use onceward::store::LARGEST_PURGE;
use onceward::{Begun, Ledger, Outcome, Policy, Tier};

use super::samples::Samples;
use super::usage;
use crate::exit::{self, Fault};

/// About a receipt.
const BODY: &str = r#"{"id":"ch_3PqLk2eZvKYlo2C1","object":"charge","amount":4200,"currency":"eur","status":"succeeded","receipt":"https://pay.example/receipts/ch_3PqLk2eZvKYlo2C1","created":1794700800,"order":"order-17"}"#;

const OPERATION: &str = "bench";
const BRIEF_OPERATION: &str = "bench_brief";

/// How long records are kept that are to expire: longer than it takes to make many of them, because a ledger sweeps by
/// itself now and then.
pub(super) const BRIEFLY: Duration = Duration::from_secs(10);

/// Repeats between two looks at the clock.
const DOZEN: u64 = 64;

/// What a number of callers did in some time.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub(super) claims: Samples,
    pub(super) pairs: Samples,
    pub(super) took: Duration,
    pub(super) processor: Duration,
}

impl Work {
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

/// Repeats are too fast for a note about each.
#[derive(Debug)]
pub(super) struct Repeats {
    count: u64,
    took: Duration,
}

impl Repeats {
    pub(super) fn per_second(&self) -> Option<f64> {
        per_second(self.count, self.took)
    }
}

fn per_second(count: u64, took: Duration) -> Option<f64> {
    #[expect(clippy::cast_precision_loss)]
    (count > 0).then(|| count as f64 / took.as_secs_f64())
}

/// Every key is a number; those below `next` are finished.
#[derive(Debug, Default)]
pub(super) struct Keys {
    next: Arc<AtomicU64>,
}

impl Keys {
    pub(super) fn all(&self) -> Range<u64> {
        0..self.next.load(Ordering::Relaxed)
    }

    /// So few that all of them are at hand.
    pub(super) fn newest(&self) -> Range<u64> {
        let all = self.all();
        all.end.saturating_sub(10_000).max(all.start)..all.end
    }
}

/// A ledger in which one of the operations is kept briefly.
pub(super) async fn open(url: &str) -> Result<Ledger, Fault> {
    let brief = Policy { tier: Some(Tier::Email), retention: Some(Retention::For(BRIEFLY)), ..Policy::default() };
    Ok(Ledger::builder().policy(BRIEF_OPERATION, brief).open(url).await?)
}

/// Each caller claims and finishes new intents, one after the other.
pub(super) async fn claim_and_finish(
    ledger: &Ledger,
    keys: &Keys,
    callers: usize,
    time: Duration,
) -> Result<Work, Fault> {
    let (ledger, next) = (ledger.clone(), Arc::clone(&keys.next));
    at_once(callers, time, move || {
        let (ledger, key) = (ledger.clone(), next.fetch_add(1, Ordering::Relaxed));
        async move { pair(&ledger, OPERATION, key).await }
    })
    .await
}

/// Claims and finishes that many, as fast as it goes.
pub(super) async fn fill(ledger: &Ledger, keys: &Keys, callers: usize, count: u64) -> Result<(), Fault> {
    let next = Arc::clone(&keys.next);
    let last = next.load(Ordering::Relaxed) + count;
    fill_to(ledger, OPERATION, callers, Arc::clone(&next), last).await?;
    next.store(last, Ordering::Relaxed);
    Ok(())
}

/// The same with records that expire soon. Nobody repeats them.
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
        caller.await.map_err(died)??;
    }
    Ok(())
}

/// Each caller asks for intents that are finished, and must be given their outcome. With `once`, no intent is asked for
/// twice, so that none can be at hand; it is over when there are no more.
pub(super) async fn repeat(
    ledger: &Ledger,
    keys: Range<u64>,
    callers: usize,
    time: Duration,
    once: bool,
) -> Result<Repeats, Fault> {
    let (length, started) = ((keys.end - keys.start).max(1), Instant::now());
    let until = started + time;
    let asked = Arc::new(AtomicU64::new(0));
    let stride = stride(length);
    let work = (0..callers).map(|_| {
        let (ledger, first, asked) = (ledger.clone(), keys.start, Arc::clone(&asked));
        tokio::spawn(async move {
            let mut count = 0;
            'over: while Instant::now() < until {
                // By the dozen, so that callers do not wait for one another here.
                let from = asked.fetch_add(DOZEN, Ordering::Relaxed);
                for number in from..from + DOZEN {
                    if once && number >= length {
                        break 'over;
                    }
                    let key = first + number.wrapping_mul(stride) % length;
                    let begun = ledger.operation(OPERATION).key(&name(key)).begin().await?;
                    if !matches!(begun, Begun::Answered(Decision::Replay { .. })) {
                        return Err(Fault::new(exit::STORE, "a finished intent was not repeated: a fault of ours"));
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
        count += caller.await.map_err(died)??;
    }
    Ok(Repeats { count, took: started.elapsed() })
}

/// Goes through all of that many numbers in an order that jumps about.
fn stride(length: u64) -> u64 {
    const PRIME: u64 = 7_368_787;
    if length.is_multiple_of(PRIME) { 1 } else { PRIME }
}

/// Frees what has expired, batch after batch, and says how much it was.
pub(super) async fn sweep(ledger: Ledger) -> Result<u64, Fault> {
    let mut freed = 0;
    loop {
        let batch = ledger.purge(LARGEST_PURGE).await?.total();
        freed += batch as u64;
        if batch == 0 {
            return Ok(freed);
        }
    }
}

/// Runs as many callers, each of which does one piece of work after the other until the time is over. A piece says how
/// long its claim took and how long all of it.
pub(super) async fn at_once<F>(
    callers: usize,
    time: Duration,
    piece: impl FnMut() -> F + Send + Clone + 'static,
) -> Result<Work, Fault>
where
    F: Future<Output = Result<(Duration, Duration), Fault>> + Send + 'static,
{
    let (started, processor) = (Instant::now(), usage::processor());
    let until = started + time;
    let mut work = Work::default();
    let mut running = Vec::with_capacity(callers);
    for _ in 0..callers {
        let mut piece = piece.clone();
        running.push(tokio::spawn(async move {
            let mut mine = Work::default();
            while Instant::now() < until {
                let (claim, pair) = piece().await?;
                mine.claims.note(claim);
                mine.pairs.note(pair);
            }
            Ok::<_, Fault>(mine)
        }));
    }
    for caller in running {
        work.add(caller.await.map_err(died)??);
    }
    work.took = started.elapsed();
    work.processor = usage::processor().saturating_sub(processor);
    Ok(work)
}

/// One claim and its finish; both are on the disk before they are answered.
async fn pair(ledger: &Ledger, operation: &str, key: u64) -> Result<(Duration, Duration), Fault> {
    let started = Instant::now();
    let begun = ledger.operation(operation).key(&name(key)).begin().await?;
    let claimed = started.elapsed();
    let Begun::Acquired(guard) = begun else {
        return Err(Fault::new(exit::STORE, "a new intent was not granted: this is a fault of ours"));
    };
    guard.finish(Outcome::success(BODY)).await?;
    Ok((claimed, started.elapsed()))
}

fn name(key: u64) -> String {
    format!("order-{key}")
}

fn died(error: tokio::task::JoinError) -> Fault {
    Fault::new(exit::STORE, format!("a caller died: {error}"))
}
