//! Several workers on one stream, in random orders of their steps, with crashes anywhere. Every call of a worker to its
//! store waits for its turn twice, before it and before its answer, and a seeded die says whose turn it is. A worker
//! that crashed never gets a turn again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use onceward::clock::{Clock, ManualClock};
use onceward::core::decide::Resolution;
use onceward::core::hash::Digest;
use onceward::core::record::{Draft, Record, Seen, State, Status};
use onceward::core::time::Timestamp;
use onceward::store::memory::Memory;
use onceward::store::{Counts, Cursor, Entry, Error, Event, Filter, Inserted, Page, Purged, Replace, Replaced, Store};
use onceward::{InDoubt, Ledger, Outcome, Resolved};
use tokio::sync::oneshot;

const ITEMS: u64 = 6;
const WORKERS: usize = 3;
const MOST_CRASHES: usize = 8;

/// Who waits for a turn, who is gone, and who made which claim.
#[derive(Debug, Default)]
struct Turns {
    waiting: Vec<(usize, oneshot::Sender<()>)>,
    gone: BTreeSet<usize>,
    claims: BTreeMap<[u8; 16], usize>,
}

type Shared = Arc<Mutex<Turns>>;

async fn turn(turns: &Shared, worker: usize) {
    let (grant, granted) = oneshot::channel();
    turns.lock().unwrap().waiting.push((worker, grant));
    if granted.await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// One worker's way to the store that all share.
#[derive(Debug)]
struct Gate {
    real: Arc<Memory>,
    turns: Shared,
    worker: usize,
}

impl Gate {
    async fn through<A>(&self, call: impl Future<Output = A>) -> A {
        turn(&self.turns, self.worker).await;
        let answer = call.await;
        turn(&self.turns, self.worker).await;
        answer
    }

    fn note(&self, draft: &Draft) {
        if let State::Leased(lease) = &draft.state {
            self.turns.lock().unwrap().claims.insert(lease.fence.to_bytes(), self.worker);
        }
    }
}

#[async_trait]
impl Store for Gate {
    async fn insert(&self, draft: Draft, most: Option<u64>) -> Result<Inserted, Error> {
        self.note(&draft);
        self.through(self.real.insert(draft, most)).await
    }

    async fn replace(&self, replace: Replace) -> Result<Replaced, Error> {
        self.note(&replace.draft);
        self.through(self.real.replace(replace)).await
    }

    async fn get(&self, id: Digest) -> Result<Option<Seen>, Error> {
        self.through(self.real.get(id)).await
    }

    async fn purge(&self, limit: usize) -> Result<Purged, Error> {
        self.through(self.real.purge(limit)).await
    }

    async fn list(&self, filter: &Filter, after: Option<Cursor>, limit: usize) -> Result<Page, Error> {
        self.real.list(filter, after, limit).await
    }

    async fn counts(&self, tenant: Option<&onceward::core::name::Tenant>) -> Result<Counts, Error> {
        self.real.counts(tenant).await
    }

    async fn append(&self, id: Digest, event: Event) -> Result<(), Error> {
        self.through(self.real.append(id, event)).await
    }

    async fn trail(&self, id: Digest) -> Result<Vec<Entry>, Error> {
        self.real.trail(id).await
    }

    fn now(&self) -> Option<Timestamp> {
        self.real.now()
    }
}

/// What really happened, seen from outside.
#[derive(Debug, Default)]
struct Truth {
    /// The effects in their order: of which item, by which run.
    effects: Vec<(u64, String)>,
    /// What callers were told about each item.
    told: BTreeMap<u64, String>,
    runs: usize,
}

impl Truth {
    fn tell(&mut self, number: u64, value: &str) {
        let first = self.told.entry(number).or_insert_with(|| value.to_owned());
        assert_eq!(first, value, "two callers were told different results of item {number}");
        let of = self.effects.iter().find(|(_, run)| run == value).map(|(of, _)| *of);
        assert_eq!(of, Some(number), "a result of another item, or of no run: {value}");
    }
}

/// A seeded die: splitmix64.
struct Die(u64);

impl Die {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % sides as u64) as usize
    }
}

struct Run {
    real: Arc<Memory>,
    clock: ManualClock,
    turns: Shared,
    truth: Arc<Mutex<Truth>>,
    in_doubt: InDoubt,
    die: Die,
    workers: BTreeMap<usize, tokio::task::JoinHandle<()>>,
    started: usize,
    crashes: usize,
}

impl Run {
    fn new(seed: u64, in_doubt: InDoubt) -> Self {
        let clock = ManualClock::default();
        Self {
            real: Arc::new(Memory::new(Arc::new(clock.clone()))),
            clock,
            turns: Shared::default(),
            truth: Arc::default(),
            in_doubt,
            die: Die(seed),
            workers: BTreeMap::new(),
            started: 0,
            crashes: 0,
        }
    }

    /// A worker with a ledger of its own, as in a process of its own.
    fn start(&mut self) {
        self.started += 1;
        let worker = self.started;
        let gate = Gate { real: Arc::clone(&self.real), turns: Arc::clone(&self.turns), worker };
        let ledger = Ledger::builder().on(Arc::new(gate));
        let (turns, truth, in_doubt) = (Arc::clone(&self.turns), Arc::clone(&self.truth), self.in_doubt);
        let die = Die(self.die.0 ^ worker as u64);
        let working = work(ledger, turns, truth, in_doubt, die, worker);
        self.workers.insert(worker, tokio::spawn(working));
    }

    fn crash(&mut self, worker: usize) {
        self.crashes += 1;
        let mut turns = self.turns.lock().unwrap();
        turns.gone.insert(worker);
        turns.waiting.retain(|(waiting, _)| *waiting != worker);
        // The task stays where it is: a dead process cleans nothing up.
        self.workers.remove(&worker);
    }

    fn head(&self) -> Option<Record> {
        self.real_ledger_call(1).call().ok().map(|call| call.identity.digest()).and_then(|id| self.record(id))
    }

    fn record(&self, id: Digest) -> Option<Record> {
        futures_util::FutureExt::now_or_never(self.real.get(id)).unwrap().unwrap().map(|seen| seen.record)
    }

    /// A call on a ledger that waits for nobody.
    fn real_ledger_call(&self, number: u64) -> onceward::Operation {
        let store: Arc<dyn Store> = self.real.clone();
        Ledger::builder().on(store).operation("apply").item("s", number).in_doubt(self.in_doubt)
    }

    /// The claim of a worker that is gone lapses; a person who knows the truth settles what is held.
    async fn help(&mut self) {
        let Some(head) = self.head() else { return };
        let owner_is_gone = |turns: &Turns| match head.fence() {
            Some(fence) => turns.claims.get(&fence.to_bytes()).is_some_and(|worker| turns.gone.contains(worker)),
            None => false,
        };
        if matches!(head.state, State::Leased(_)) && owner_is_gone(&self.turns.lock().unwrap()) {
            self.clock.advance(Duration::from_secs(200));
        }
        let (number, now) = (head.sequence.unwrap(), self.clock.now());
        let standing = Seen { record: head.clone(), now, owner_gone: false }.standing();
        if self.in_doubt == InDoubt::Hold && standing.map(|standing| standing.status()) == Some(Status::InDoubt) {
            let effect = self.truth.lock().unwrap().effects.iter().find(|(of, _)| *of == number).cloned();
            let resolution = match effect {
                Some((_, run)) => Resolution::Happened(Outcome::success(serde_json::to_string(&run).unwrap())),
                None => Resolution::DidNotHappen,
            };
            let store: Arc<dyn Store> = self.real.clone();
            let call = self.real_ledger_call(number).call().unwrap();
            let resolved =
                Ledger::builder().on(store).resolve(&call.identity, head.version, resolution, None, None).await;
            assert_eq!(resolved.unwrap(), Resolved::Settled);
        }
    }

    async fn finish_all(&mut self) {
        for _ in 0..WORKERS {
            self.start();
        }
        for _ in 0..50_000 {
            for _ in 0..8 {
                tokio::task::yield_now().await;
            }
            let over = |(worker, task): (&usize, &tokio::task::JoinHandle<()>)| task.is_finished().then_some(*worker);
            for worker in self.workers.iter().filter_map(over).collect::<Vec<_>>() {
                // A worker that found a fault tells it here.
                self.workers.remove(&worker).unwrap().await.unwrap();
            }
            if self.workers.is_empty() {
                return;
            }
            if self.crashes < MOST_CRASHES && self.die.roll(40) == 0 {
                let nth = self.die.roll(self.workers.len());
                let worker = *self.workers.keys().nth(nth).unwrap();
                self.crash(worker);
                self.start();
                continue;
            }
            let granted = {
                let mut turns = self.turns.lock().unwrap();
                turns.waiting.retain(|(_, grant)| !grant.is_closed());
                match turns.waiting.len() {
                    0 => None,
                    waiting => Some(turns.waiting.swap_remove(self.die.roll(waiting))),
                }
            };
            match granted {
                Some((_, grant)) => drop(grant.send(())),
                None => {
                    self.help().await;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
        panic!("the workers never end: {:?}", self.head());
    }

    async fn check(&mut self) {
        let mut truth = std::mem::take(&mut *self.truth.lock().unwrap());
        let order: Vec<u64> = truth.effects.iter().map(|(number, _)| *number).collect();
        assert!(order.is_sorted(), "items did not enter in order: {order:?}");
        let distinct: BTreeSet<u64> = order.iter().copied().collect();
        assert_eq!(distinct, (1..=ITEMS).collect(), "an item was left out");
        match self.in_doubt {
            InDoubt::Hold => assert_eq!(order.len() as u64, ITEMS, "an item ran twice: {order:?}"),
            _ => {
                assert!(order.len() as u64 <= ITEMS + self.crashes as u64, "more runs than crashes explain: {order:?}")
            }
        }
        for number in 1..=ITEMS {
            let done = self.real_ledger_call(number).run(|_| async { Ok(String::new()) }).await.unwrap();
            assert!(done.replayed);
            truth.tell(number, &done.value);
        }
    }
}

/// Does items until all are done: the next one, sometimes an old one, sometimes one that is too early.
async fn work(ledger: Ledger, turns: Shared, truth: Arc<Mutex<Truth>>, in_doubt: InDoubt, mut die: Die, worker: usize) {
    let mut next = 1;
    while next <= ITEMS {
        let number = match die.roll(6) {
            0 => 1 + die.roll(next as usize) as u64,
            1 => (next + 1 + die.roll(2) as u64).min(ITEMS),
            _ => next,
        };
        let effect = async |_| {
            turn(&turns, worker).await;
            let run = {
                let mut truth = truth.lock().unwrap();
                truth.runs += 1;
                let run = format!("run {} of item {number} by {worker}", truth.runs);
                truth.effects.push((number, run.clone()));
                run
            };
            turn(&turns, worker).await;
            Ok(run)
        };
        match ledger.operation("apply").item("s", number).in_doubt(in_doubt).run(effect).await {
            Ok(done) => {
                truth.lock().unwrap().tell(number, &done.value);
                next = next.max(number + 1);
            }
            Err(onceward::Error::OutOfOrder { expected, given, .. }) => {
                assert!(expected < given, "{expected} is expected and {given} is refused");
                next = next.max(expected);
            }
            Err(onceward::Error::InFlight { .. } | onceward::Error::InDoubt { .. }) => {}
            // One that is gone hears of nothing any more, and of that sooner or later a time-out.
            Err(_) if turns.lock().unwrap().gone.contains(&worker) => return,
            Err(error) => panic!("{error}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_the_order_and_whoever_crashes_items_enter_in_order_and_keep_their_results() {
    let mut crashes = 0;
    for seed in 0..150 {
        for in_doubt in [InDoubt::Hold, InDoubt::Retry] {
            let mut run = Run::new(seed, in_doubt);
            run.finish_all().await;
            run.check().await;
            crashes += run.crashes;
        }
    }
    println!("{crashes} crashes in 300 runs");
    assert!(crashes > 300, "hardly anybody crashed: {crashes}");
}
