//! Several workers on one stream, with their steps in random order and crashes at any step. Every store call of a worker waits
//! for its turn twice, before the call and before its result, and a seeded generator chooses the next worker. A worker that
//! crashed never gets a turn again.

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
use onceward::store::{
    AuditEntry, AuditEvent, Counts, Cursor, DueEntries, DueQuery, Error, Filter, Inserted, Page, Purged, Replace,
    Replaced, Store,
};
use onceward::{InDoubt, Ledger, Outcome, Resolved};
use tokio::sync::oneshot;

const ITEMS: u64 = 6;
const WORKERS: usize = 3;
const MAX_CRASHES: usize = 8;

/// Which workers wait for a turn, which have crashed, and which worker made which claim.
#[derive(Debug, Default)]
struct Scheduler {
    waiting: Vec<(usize, oneshot::Sender<()>)>,
    gone: BTreeSet<usize>,
    claims: BTreeMap<[u8; 16], usize>,
}

type SharedScheduler = Arc<Mutex<Scheduler>>;

async fn turn(scheduler: &SharedScheduler, worker: usize) {
    let (grant, granted) = oneshot::channel();
    scheduler.lock().unwrap().waiting.push((worker, grant));
    if granted.await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// The store as one worker sees it: every call waits for its turn.
#[derive(Debug)]
struct TurnTakingStore {
    real: Arc<Memory>,
    scheduler: SharedScheduler,
    worker: usize,
}

impl TurnTakingStore {
    async fn in_turn<A>(&self, call: impl Future<Output = A>) -> A {
        turn(&self.scheduler, self.worker).await;
        let answer = call.await;
        turn(&self.scheduler, self.worker).await;
        answer
    }

    fn note(&self, draft: &Draft) {
        if let State::Leased(lease) = &draft.state {
            self.scheduler.lock().unwrap().claims.insert(lease.fence.to_bytes(), self.worker);
        }
    }
}

#[async_trait]
impl Store for TurnTakingStore {
    async fn insert(&self, draft: Draft, limit: Option<u64>) -> Result<Inserted, Error> {
        self.note(&draft);
        self.in_turn(self.real.insert(draft, limit)).await
    }

    async fn replace(&self, replace: Replace) -> Result<Replaced, Error> {
        self.note(&replace.draft);
        self.in_turn(self.real.replace(replace)).await
    }

    async fn get(&self, id: Digest) -> Result<Option<Seen>, Error> {
        self.in_turn(self.real.get(id)).await
    }

    async fn due(&self, queue: &DueQuery) -> Result<DueEntries, Error> {
        self.in_turn(self.real.due(queue)).await
    }

    async fn purge(&self, limit: usize) -> Result<Purged, Error> {
        self.in_turn(self.real.purge(limit)).await
    }

    async fn list(&self, filter: &Filter, after: Option<Cursor>, limit: usize) -> Result<Page, Error> {
        self.real.list(filter, after, limit).await
    }

    async fn counts(&self, tenant: Option<&onceward::core::name::Tenant>) -> Result<Counts, Error> {
        self.real.counts(tenant).await
    }

    async fn append(&self, id: Digest, event: AuditEvent) -> Result<(), Error> {
        self.in_turn(self.real.append(id, event)).await
    }

    async fn trail(&self, id: Digest) -> Result<Vec<AuditEntry>, Error> {
        self.real.trail(id).await
    }

    fn now(&self) -> Option<Timestamp> {
        self.real.now()
    }
}

/// What really happened, as an observer outside of the ledger sees it.
#[derive(Debug, Default)]
struct Truth {
    /// The effects in order: the item, and the run that performed it.
    effects: Vec<(u64, String)>,
    /// The results that callers got for each item.
    results: BTreeMap<u64, String>,
    runs: usize,
}

impl Truth {
    fn add_result(&mut self, number: u64, value: &str) {
        let first = self.results.entry(number).or_insert_with(|| value.to_owned());
        assert_eq!(first, value, "two callers got different results of item {number}");
        let of = self.effects.iter().find(|(_, run)| run == value).map(|(of, _)| *of);
        assert_eq!(of, Some(number), "a result of another item, or of no run: {value}");
    }
}

/// A seeded random generator: splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }
}

struct Run {
    real: Arc<Memory>,
    clock: ManualClock,
    scheduler: SharedScheduler,
    truth: Arc<Mutex<Truth>>,
    in_doubt: InDoubt,
    random: Random,
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
            scheduler: SharedScheduler::default(),
            truth: Arc::default(),
            in_doubt,
            random: Random(seed),
            workers: BTreeMap::new(),
            started: 0,
            crashes: 0,
        }
    }

    /// A worker with its own ledger, as in its own process.
    fn start(&mut self) {
        self.started += 1;
        let worker = self.started;
        let gate = TurnTakingStore { real: Arc::clone(&self.real), scheduler: Arc::clone(&self.scheduler), worker };
        let ledger = Ledger::builder().on(Arc::new(gate));
        let (scheduler, truth, in_doubt) = (Arc::clone(&self.scheduler), Arc::clone(&self.truth), self.in_doubt);
        let random = Random(self.random.0 ^ worker as u64);
        let working = work(ledger, scheduler, truth, in_doubt, random, worker);
        self.workers.insert(worker, tokio::spawn(working));
    }

    fn crash(&mut self, worker: usize) {
        self.crashes += 1;
        let mut scheduler = self.scheduler.lock().unwrap();
        scheduler.gone.insert(worker);
        scheduler.waiting.retain(|(waiting, _)| *waiting != worker);
        // The task is never polled again: a dead process cleans nothing up.
        self.workers.remove(&worker);
    }

    fn head(&self) -> Option<Record> {
        self.real_ledger_call(1).call().ok().map(|call| call.identity.digest()).and_then(|id| self.record(id))
    }

    fn record(&self, id: Digest) -> Option<Record> {
        futures_util::FutureExt::now_or_never(self.real.get(id)).unwrap().unwrap().map(|seen| seen.record)
    }

    /// A call on a ledger that does not wait for turns.
    fn real_ledger_call(&self, number: u64) -> onceward::CallBuilder {
        let store: Arc<dyn Store> = self.real.clone();
        Ledger::builder().on(store).operation("apply").item("s", number).in_doubt(self.in_doubt)
    }

    /// Lets the claim of a crashed worker lapse, and resolves held items like an operator with full knowledge.
    async fn recover(&mut self) {
        let Some(head) = self.head() else { return };
        let owner_is_gone = |scheduler: &Scheduler| match head.fence() {
            Some(fence) => {
                scheduler.claims.get(&fence.to_bytes()).is_some_and(|worker| scheduler.gone.contains(worker))
            }
            None => false,
        };
        if matches!(head.state, State::Leased(_)) && owner_is_gone(&self.scheduler.lock().unwrap()) {
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
                // A worker that found a fault reports it here.
                self.workers.remove(&worker).unwrap().await.unwrap();
            }
            if self.workers.is_empty() {
                return;
            }
            if self.crashes < MAX_CRASHES && self.random.below(40) == 0 {
                let nth = self.random.below(self.workers.len());
                let worker = *self.workers.keys().nth(nth).unwrap();
                self.crash(worker);
                self.start();
                continue;
            }
            let granted = {
                let mut scheduler = self.scheduler.lock().unwrap();
                scheduler.waiting.retain(|(_, grant)| !grant.is_closed());
                match scheduler.waiting.len() {
                    0 => None,
                    waiting => Some(scheduler.waiting.swap_remove(self.random.below(waiting))),
                }
            };
            match granted {
                Some((_, grant)) => drop(grant.send(())),
                None => {
                    self.recover().await;
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
            truth.add_result(number, &done.value);
        }
    }
}

/// Does items until all are done: mostly the next one, sometimes an old one, sometimes one that is too early.
async fn work(
    ledger: Ledger,
    scheduler: SharedScheduler,
    truth: Arc<Mutex<Truth>>,
    in_doubt: InDoubt,
    mut random: Random,
    worker: usize,
) {
    let mut next = 1;
    while next <= ITEMS {
        let number = match random.below(6) {
            0 => 1 + random.below(next as usize) as u64,
            1 => (next + 1 + random.below(2) as u64).min(ITEMS),
            _ => next,
        };
        let effect = async |_| {
            turn(&scheduler, worker).await;
            let run = {
                let mut truth = truth.lock().unwrap();
                truth.runs += 1;
                let run = format!("run {} of item {number} by {worker}", truth.runs);
                truth.effects.push((number, run.clone()));
                run
            };
            turn(&scheduler, worker).await;
            Ok(run)
        };
        match ledger.operation("apply").item("s", number).in_doubt(in_doubt).run(effect).await {
            Ok(done) => {
                truth.lock().unwrap().add_result(number, &done.value);
                next = next.max(number + 1);
            }
            Err(onceward::Error::OutOfOrder { expected, given, .. }) => {
                assert!(expected < given, "{expected} is expected and {given} is refused");
                next = next.max(expected);
            }
            Err(onceward::Error::InFlight { .. } | onceward::Error::InDoubt { .. }) => {}
            // A crashed worker never answers, which its caller notices with a timeout.
            Err(_) if scheduler.lock().unwrap().gone.contains(&worker) => return,
            Err(error) => panic!("{error}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn items_are_done_in_order_and_keep_their_results_whichever_workers_crash() {
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
    assert!(crashes > 300, "too few crashes: {crashes}");
}
