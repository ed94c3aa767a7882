//! One process of a measurement: callers that claim and finish new intents, one after the other.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, raise};
use onceward::step::{Step, on_step};
use onceward::{Begun, Ledger, Outcome};

/// The options that the parent passes to a worker.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// Where the ledger is.
    pub folder: PathBuf,
    /// Which process this is.
    pub number: u64,
    /// When to begin, in milliseconds since 1970: all begin together.
    pub start: u64,
    /// How many callers at once.
    pub callers: u64,
    /// For how long.
    pub seconds: u64,
    /// The number of pairs, however long they take; 0 for as many as there is time for.
    pub pairs: u64,
    /// The commit at which to stop; 0 for none.
    pub stop: u64,
}

/// The commit at which this process stops.
static STOP: OnceLock<u32> = OnceLock::new();
static COMMITS: AtomicU32 = AtomicU32::new(0);

/// Has committed, and may still write.
fn stop_here(step: Step) {
    if step == Step::StoreCommitted && COMMITS.fetch_add(1, Ordering::SeqCst) + 1 == STOP.get().copied().unwrap_or(0) {
        raise(Signal::SIGSTOP).expect("a process can stop itself");
    }
}

/// Works, and prints the number of pairs in each second, and the 99th percentile of their times.
pub fn run(options: &WorkerOptions) {
    if options.stop > 0 {
        let _ = STOP.set(u32::try_from(options.stop).unwrap_or(u32::MAX));
        on_step(stop_here);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build().expect("a runtime starts");
    runtime.block_on(async {
        let path = options.folder.join("ledger.db");
        let ledger = Ledger::open(path).await.expect("the ledger opens");
        tokio::time::sleep(Duration::from_millis(options.start.saturating_sub(super::now()))).await;
        let work = Arc::new(Load { began: Instant::now(), next: AtomicU64::new(0), options: options.clone() });
        let callers: Vec<_> =
            (0..options.callers.max(1)).map(|_| tokio::spawn(Arc::clone(&work).call(ledger.clone()))).collect();
        let mut all = Vec::new();
        for caller in callers {
            all.extend(caller.await.expect("a caller ends"));
        }
        ledger.close().await;
        print(options, &mut all);
    });
}

struct Load {
    began: Instant,
    next: AtomicU64,
    options: WorkerOptions,
}

impl Load {
    /// For each pair, when it ended and how long it took.
    async fn call(self: Arc<Self>, ledger: Ledger) -> Vec<(Duration, Duration)> {
        let mut pairs = Vec::new();
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let is_over = match self.options.pairs {
                0 => self.began.elapsed() >= Duration::from_secs(self.options.seconds),
                pairs => number >= pairs,
            };
            if is_over {
                return pairs;
            }
            let started = Instant::now();
            let key = format!("{}-{number}", self.options.number);
            let begun = ledger.operation("fairness").key(&key).begin().await.expect("the store works");
            let Begun::Acquired(guard) = begun else { panic!("a new intent was not granted") };
            guard.finish(Outcome::success("{}")).await.expect("the store works");
            pairs.push((self.began.elapsed(), started.elapsed()));
        }
    }
}

fn print(options: &WorkerOptions, pairs: &mut [(Duration, Duration)]) {
    let mut seconds = vec![0u64; usize::try_from(options.seconds).unwrap_or(0).max(1)];
    let last = seconds.len() - 1;
    for (ended, _) in pairs.iter() {
        let second = usize::try_from(ended.as_secs()).unwrap_or(last);
        // A pair that was begun in time and ended late is not counted, unless the run counts pairs.
        match seconds.get_mut(second) {
            Some(count) => *count += 1,
            None if options.pairs > 0 => seconds[last] += 1,
            None => {}
        }
    }
    pairs.sort_unstable_by_key(|(_, took)| *took);
    let slow = pairs.get(pairs.len() * 99 / 100).map_or(0, |(_, took)| took.as_micros());
    let counts: Vec<String> = seconds.iter().map(u64::to_string).collect();
    println!("{} {slow}", counts.join(" "));
}
