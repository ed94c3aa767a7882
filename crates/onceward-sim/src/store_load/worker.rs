//! One process under load: callers that race with those of other processes for keys that are in use for a moment, act, and finish
//! under their fence, some of them long after their lease has lapsed.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use onceward::core::record::Fence;
use onceward::remote::{Owner, StartOptions, Started, WriteResult};
use onceward::{Decision, InDoubt, Ledger, Outcome, Policy};

use super::journal::{self, Journal};
use crate::rng::Rng;

/// How long a caller pauses between two calls: a key is called a few times by each process, not thousands of times.
const PAUSE: Duration = Duration::from_millis(15);

/// The number of turns in which a key is in use.
const EARLIER: u64 = 6;

/// How often an owner tries to record its outcome.
const FINISH_TRIES: u32 = 4;

/// The options that the parent passes to a worker.
#[derive(Clone, Debug)]
pub struct Options {
    pub store: String,
    /// The journal of this worker.
    pub journal: PathBuf,
    /// The file that counts effects, which all workers share.
    pub effects: PathBuf,
    /// Which worker this is.
    pub number: u64,
    pub seed: u64,
    /// How many callers at once.
    pub callers: u64,
    /// For how long.
    pub time: Duration,
    /// How long a claim lasts.
    pub lease: Duration,
    /// One owner in this many finishes after its lease has lapsed; 0 for none.
    pub late: u64,
    /// How many keys are in use at a time, and for how long.
    pub width: u64,
    pub turn: Duration,
    /// The number of the first turn, so that workers that start later use the same keys.
    pub origin: u64,
}

/// Works, and notes at the end what the store promises.
pub fn run(options: Options) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime starts").block_on(async {
        let (store, ledger) = super::open(&options.store).await;
        let journal = Journal::open(&options.journal);
        let effects = Mutex::new(journal::append_to(&options.effects));
        let load = Arc::new(Load { options, ledger: ledger.clone(), journal, effects, began: Instant::now() });
        let callers: Vec<_> =
            (0..load.options.callers.max(1)).map(|caller| tokio::spawn(Arc::clone(&load).call(caller))).collect();
        for caller in callers {
            caller.await.expect("a caller ends");
        }
        if let Ok(durability) = store.durability().await {
            load.journal.write(&serde_json::json!({ "durability": durability }));
        }
        ledger.close().await;
    });
}

struct Load {
    options: Options,
    ledger: Ledger,
    journal: Journal,
    effects: Mutex<File>,
    began: Instant,
}

impl Load {
    async fn call(self: Arc<Self>, caller: u64) {
        let mut rng = Rng::of(&[self.options.seed, self.options.number, caller]);
        while self.began.elapsed() < self.options.time {
            let turn = self.began.elapsed().as_millis() / self.options.turn.as_millis().max(1);
            // Also keys of earlier turns: a lease that has lapsed matters only if another caller wants the key.
            let turn = (self.options.origin + u64::try_from(turn).unwrap_or(0)).saturating_sub(rng.below(EARLIER));
            let number = turn * self.options.width + rng.below(self.options.width);
            self.once(number, &mut rng).await;
            tokio::time::sleep(PAUSE.mul_f64(0.5 + rng.below(100) as f64 / 100.0)).await;
        }
    }

    /// One call, and the work if it is granted. Every other key may be taken over when its owner is late.
    async fn once(&self, number: u64, rng: &mut Rng) {
        let (key, in_doubt) = match number % 2 {
            0 => (format!("hold-{number}"), InDoubt::Hold),
            _ => (format!("retry-{number}"), InDoubt::Retry),
        };
        let policy = Policy { in_doubt, ..Policy::default() };
        let call = self.ledger.operation(super::OPERATION).key(&key).policy(policy).call().expect("the call is valid");
        let options = StartOptions::default().wait(Duration::ZERO).lease(self.options.lease);
        let noted = self.journal.call("begin", &key, None);
        let offer = match self.ledger.start_remote(&call, options).await {
            Ok(Started::Acquired(offer)) => offer,
            Ok(Started::Answered(decision)) => return self.note(noted, &decision),
            Ok(other) => return self.journal.answer(noted, "other", Some(&format!("{other:?}"))),
            Err(error) => return self.journal.answer(noted, "error", Some(&error.to_string())),
        };
        let (fence, identity) = (offer.acquired().fence, offer.identity().clone());
        self.journal.answer(noted, "acquired", Some(&String::from(fence)));
        offer.hand_over();
        self.act(&key, fence);
        if self.options.late > 0 && rng.one_in(self.options.late) {
            tokio::time::sleep(self.options.lease + Duration::from_millis(100)).await;
        }
        self.finish(&self.ledger.remote_owner(identity, fence), &key, fence).await;
    }

    fn note(&self, noted: u64, decision: &Decision) {
        match decision {
            Decision::Replay { outcome, .. } => self.journal.answer(noted, "replay", Some(&journal::text(outcome))),
            Decision::InFlight { .. } => self.journal.answer(noted, "in flight", None),
            Decision::InDoubt { .. } => self.journal.answer(noted, "in doubt", None),
            other => self.journal.answer(noted, "other", Some(&format!("{other:?}"))),
        }
    }

    /// The effect: one line in a file that all workers append to.
    fn act(&self, key: &str, fence: Fence) {
        let line = format!("{key} {}\n", String::from(fence));
        self.effects.lock().expect("no thread panics in here").write_all(line.as_bytes()).expect("an effect happens");
    }

    async fn finish(&self, owner: &Owner, key: &str, fence: Fence) {
        let name = String::from(fence);
        for _ in 0..FINISH_TRIES {
            let noted = self.journal.call("finish", key, Some(&name));
            match owner.finish(Outcome::success(name.clone())).await {
                Ok(WriteResult::Written(_)) => return self.journal.answer(noted, "written", None),
                Ok(WriteResult::Stale | WriteResult::NotSent) => return self.journal.answer(noted, "stale", None),
                Err(error) => self.journal.answer(noted, "error", Some(&error.to_string())),
            }
        }
    }
}
