//! The courier over the embedded store and the store in memory: real leases, real time, sinks that fail in every way.

mod breakers;
mod fallback;
mod sinks;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceward::breakers::{ForceBreaker, Stops};
use onceward::clock::ManualClock;
use onceward::core::breaker;
use onceward::core::decide::Decision;
use onceward::core::outbox::Priority;
use onceward::core::retry::{backoff, budget};
use onceward::courier::{Courier, Health, LookUp, Parcel, Route, Sink, SinkResult, async_trait};
use onceward::name::{Identity, Key, Operation, Tenant};
use onceward::outcome::Verdict;
use onceward::record::{State, Status};
use onceward::store::EventKind;
use onceward::store::memory::Memory;
use onceward::{EnqueueOptions, Enqueued, Error, InDoubt, Ledger, Outcome, Policy, Resolution, Resolver};
use tokio::sync::{Semaphore, oneshot};

const MAIL: &str = "send_mail";

type SinkScript = dyn Fn(&Parcel, usize) -> SinkResult + Send + Sync;

/// A sink that counts effects by downstream key, and answers as its script says.
struct Scripted {
    effects: Mutex<HashMap<String, usize>>,
    calls: Mutex<Vec<Parcel>>,
    script: Box<SinkScript>,
    looked_up: AtomicUsize,
    closed: AtomicUsize,
    knows_effects: bool,
}

impl Scripted {
    fn new(script: impl Fn(&Parcel, usize) -> SinkResult + Send + Sync + 'static) -> Arc<Self> {
        Self::with(false, script)
    }

    fn with(knows_effects: bool, script: impl Fn(&Parcel, usize) -> SinkResult + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            effects: Mutex::default(),
            calls: Mutex::default(),
            script: Box::new(script),
            looked_up: AtomicUsize::new(0),
            closed: AtomicUsize::new(0),
            knows_effects,
        })
    }

    fn calls(&self) -> usize {
        self.calls.lock().unwrap().len()
    }

    fn keys(&self) -> Vec<String> {
        self.calls.lock().unwrap().iter().map(|parcel| parcel.identity.key.as_str().to_owned()).collect()
    }

    fn downstream_keys(&self) -> Vec<String> {
        self.calls.lock().unwrap().iter().map(|parcel| parcel.downstream_key.clone()).collect()
    }
}

#[async_trait]
impl Sink for Scripted {
    async fn deliver(&self, parcel: &Parcel) -> SinkResult {
        let number = {
            let mut calls = self.calls.lock().unwrap();
            calls.push(parcel.clone());
            calls.len()
        };
        let attempt = (self.script)(parcel, number);
        if matches!(attempt, SinkResult::Ended(_) | SinkResult::Unknown { .. }) {
            *self.effects.lock().unwrap().entry(parcel.downstream_key.clone()).or_default() += 1;
        }
        attempt
    }

    async fn look_up(&self, parcel: &Parcel) -> LookUp {
        self.looked_up.fetch_add(1, Ordering::SeqCst);
        match self.effects.lock().unwrap().contains_key(&parcel.downstream_key) {
            true => LookUp::Happened(Outcome::success("\"found\"")),
            false => LookUp::NotFound,
        }
    }

    fn can_look_up(&self) -> bool {
        self.knows_effects
    }

    async fn close(&self) {
        self.closed.fetch_add(1, Ordering::SeqCst);
    }
}

fn delivered() -> SinkResult {
    SinkResult::Ended(Outcome::success("\"sent\""))
}

fn refused(again: bool) -> SinkResult {
    SinkResult::Refused { error: "too busy".to_owned(), retry_after: None, again, health: Health::Working }
}

fn unknown() -> SinkResult {
    SinkResult::Unknown { error: "no answer".to_owned(), retry_after: None, health: Health::Working }
}

fn quick(sink: Arc<Scripted>) -> Route {
    let retry = backoff::Settings {
        base: Duration::from_millis(1),
        cap: Duration::from_millis(2),
        ..backoff::Settings::default()
    };
    let budget = budget::Settings { percent: 100, per_second: 1000, burst: 1000 };
    Route { retry, budget, settle: Duration::ZERO, ..Route::to("mail", sink) }
}

async fn ledger(policy: Policy) -> Ledger {
    Ledger::builder().policy(MAIL, policy).open("memory:").await.unwrap()
}

async fn queue(ledger: &Ledger, key: &str) -> Enqueued {
    let letter = ledger.operation(MAIL).key(key);
    letter.enqueue(&format!("letter {key}"), EnqueueOptions::default()).await.unwrap()
}

fn identity(key: &str) -> Identity {
    Identity { tenant: Tenant::default(), operation: Operation::new(MAIL).unwrap(), key: Key::new(key).unwrap() }
}

async fn status(ledger: &Ledger, key: &str) -> Option<Status> {
    ledger.get(&identity(key)).await.unwrap().and_then(|intent| intent.status())
}

/// Runs a courier until the condition holds.
async fn deliver_until(ledger: &Ledger, route: Route, holds: impl AsyncFn() -> bool) {
    let courier = Courier::new(ledger.clone()).route(MAIL, route).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(courier.run(async {
        let _ = stopped.await;
    }));
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("the courier gets there");
    stop.send(()).unwrap();
    running.await.unwrap();
}

#[tokio::test]
async fn ten_calls_make_one_entry_that_is_delivered_once() {
    let ledger = ledger(Policy::default()).await;
    let sink = Scripted::new(|_, _| delivered());
    assert_eq!(queue(&ledger, "a").await, Enqueued::Created);
    for _ in 0..9 {
        assert_eq!(queue(&ledger, "a").await, Enqueued::Existing(Decision::Queued { created: false }));
    }
    deliver_until(&ledger, quick(sink.clone()), async || status(&ledger, "a").await == Some(Status::Done)).await;
    assert_eq!(sink.calls(), 1);
    match queue(&ledger, "a").await {
        Enqueued::Existing(Decision::Replay { outcome, .. }) => assert_eq!(outcome, Outcome::success("\"sent\"")),
        other => panic!("the outcome is replayed: {other:?}"),
    }
    let record = ledger.get(&identity("a")).await.unwrap().unwrap().seen.record;
    assert_eq!(record.payload, None, "the payload is erased");
    assert_eq!(record.entry.unwrap().destination.unwrap().sink, "mail");
}

#[tokio::test]
async fn the_same_key_with_another_payload_is_refused() {
    let ledger = ledger(Policy::default()).await;
    queue(&ledger, "a").await;
    let other = ledger.operation(MAIL).key("a").enqueue("another letter", EnqueueOptions::default()).await;
    assert!(matches!(other, Err(Error::Mismatch { .. })), "{other:?}");
}

#[tokio::test]
async fn a_direct_caller_of_a_queued_intent_is_told_so() {
    let ledger = ledger(Policy::default()).await;
    queue(&ledger, "a").await;
    let direct = ledger.operation(MAIL).key("a").intent("letter a").run(|_| async { Ok("sent".to_owned()) }).await;
    assert!(matches!(direct, Err(Error::Queued { .. })), "{direct:?}");
}

#[tokio::test]
async fn a_refused_attempt_is_made_again_with_the_same_key_until_it_is_delivered() {
    let ledger = ledger(Policy::default()).await;
    let sink = Scripted::new(|_, number| if number < 4 { refused(true) } else { delivered() });
    queue(&ledger, "a").await;
    deliver_until(&ledger, quick(sink.clone()), async || status(&ledger, "a").await == Some(Status::Done)).await;
    let keys = sink.downstream_keys();
    assert_eq!(keys.len(), 4);
    assert!(keys.iter().all(|key| *key == keys[0] && key.starts_with("once_v1_")), "{keys:?}");
    let trail = ledger.get(&identity("a")).await.unwrap().unwrap().trail;
    let failures: Vec<_> = trail.iter().filter(|entry| entry.event.what == EventKind::AttemptFailed).collect();
    assert_eq!(failures.len(), 3, "every attempt is in the audit trail");
    assert_eq!(failures[0].event.note.as_deref(), Some("attempt 1 to mail: too busy"));
}

#[tokio::test]
async fn refused_attempts_are_used_up_and_a_person_has_the_entry_tried_again() {
    let ledger = ledger(Policy { max_attempts: Some(3), ..Policy::default() }).await;
    let is_up = Arc::new(AtomicBool::new(false));
    let up = Arc::clone(&is_up);
    let sink = Scripted::new(move |_, _| if up.load(Ordering::SeqCst) { delivered() } else { refused(true) });
    queue(&ledger, "a").await;
    deliver_until(&ledger, quick(sink.clone()), async || status(&ledger, "a").await == Some(Status::Dead)).await;
    assert_eq!(sink.calls(), 3);
    is_up.store(true, Ordering::SeqCst);
    let version = ledger.get(&identity("a")).await.unwrap().unwrap().seen.record.version;
    ledger.requeue(&identity("a"), version, false, Resolver::default(), None).await.unwrap();
    deliver_until(&ledger, quick(sink.clone()), async || status(&ledger, "a").await == Some(Status::Done)).await;
    assert_eq!(sink.calls(), 4);
}

#[tokio::test]
async fn what_would_be_refused_again_is_dead_at_once() {
    let ledger = ledger(Policy::default()).await;
    let sink = Scripted::new(|_, _| refused(false));
    queue(&ledger, "a").await;
    deliver_until(&ledger, quick(sink.clone()), async || status(&ledger, "a").await == Some(Status::Dead)).await;
    assert_eq!(sink.calls(), 1);
}

#[tokio::test]
async fn a_final_failure_is_kept_and_replayed() {
    let ledger = ledger(Policy::default()).await;
    let sink = Scripted::new(|_, _| SinkResult::Ended(Outcome::of(Verdict::Failure, "text/plain", "no such address")));
    queue(&ledger, "a").await;
    deliver_until(&ledger, quick(sink.clone()), async || status(&ledger, "a").await == Some(Status::Done)).await;
    let again = queue(&ledger, "a").await;
    assert!(
        matches!(again, Enqueued::Existing(Decision::Replay { outcome, .. }) if outcome.verdict == Verdict::Failure)
    );
}

#[tokio::test]
async fn under_hold_an_unknown_attempt_is_never_repeated() {
    let ledger = ledger(Policy::default()).await;
    let sink = Scripted::new(|_, _| unknown());
    queue(&ledger, "a").await;
    deliver_until(&ledger, quick(sink.clone()), async || status(&ledger, "a").await == Some(Status::InDoubt)).await;
    let patience = Arc::new(AtomicUsize::new(0));
    let looks = Arc::clone(&patience);
    deliver_until(&ledger, quick(sink.clone()), async || looks.fetch_add(1, Ordering::SeqCst) > 100).await;
    assert_eq!(sink.calls(), 1);
    let version = ledger.get(&identity("a")).await.unwrap().unwrap().seen.record.version;
    ledger.resolve(&identity("a"), version, Resolution::DidNotHappen, None, None).await.unwrap();
    assert_eq!(status(&ledger, "a").await, Some(Status::Queued), "settled, the courier tries it again");
}

#[tokio::test]
async fn under_retry_an_unknown_attempt_is_repeated_with_the_same_key() {
    let ledger = ledger(Policy { in_doubt: InDoubt::Retry, ..Policy::default() }).await;
    let sink = Scripted::new(|_, number| if number < 3 { unknown() } else { delivered() });
    queue(&ledger, "a").await;
    deliver_until(&ledger, quick(sink.clone()), async || status(&ledger, "a").await == Some(Status::Done)).await;
    assert_eq!(sink.calls(), 3);
    assert_eq!(sink.effects.lock().unwrap().len(), 1, "one downstream key: a sink that honours it acts once");
}

#[tokio::test]
async fn unknown_attempts_that_are_used_up_wait_for_a_person() {
    let ledger = ledger(Policy { in_doubt: InDoubt::Retry, max_attempts: Some(2), ..Policy::default() }).await;
    let sink = Scripted::new(|_, _| unknown());
    queue(&ledger, "a").await;
    let is_held = async || {
        let record = ledger.get(&identity("a")).await.unwrap().unwrap().seen.record;
        matches!(record.state, State::InDoubt { retry_at: None, .. })
    };
    deliver_until(&ledger, quick(sink.clone()), is_held).await;
    assert_eq!(sink.calls(), 2);
}

#[tokio::test]
async fn under_probe_the_sink_is_asked_and_what_happened_is_not_repeated() {
    let ledger = ledger(Policy { in_doubt: InDoubt::Probe, ..Policy::default() }).await;
    let sink = Scripted::with(true, |_, _| unknown());
    queue(&ledger, "a").await;
    deliver_until(&ledger, quick(sink.clone()), async || status(&ledger, "a").await == Some(Status::Done)).await;
    assert_eq!((sink.calls(), sink.looked_up.load(Ordering::SeqCst)), (1, 1));
}

#[tokio::test]
async fn a_look_up_that_finds_nothing_is_believed_only_after_the_settle_time() {
    let ledger = ledger(Policy { in_doubt: InDoubt::Probe, ..Policy::default() }).await;
    let sink = Scripted::with(true, |_, number| if number == 1 { unknown() } else { delivered() });
    queue(&ledger, "a").await;
    let route = Route { settle: Duration::from_secs(3600), ..quick(sink.clone()) };
    sink.effects.lock().unwrap().clear();
    deliver_until(&ledger, route, async || {
        sink.effects.lock().unwrap().clear();
        sink.looked_up.load(Ordering::SeqCst) > 0
    })
    .await;
    assert_eq!(sink.calls(), 1, "the sink may still show the effect");
}

#[tokio::test]
async fn a_delayed_entry_is_not_delivered_before_its_time_and_a_late_one_not_at_all() {
    let ledger = ledger(Policy::default()).await;
    let sink = Scripted::new(|_, _| delivered());
    let delayed = EnqueueOptions { delay: Duration::from_secs(3600), ..EnqueueOptions::default() };
    ledger.operation(MAIL).key("delayed").enqueue("x", delayed).await.unwrap();
    let late = EnqueueOptions { deliver_within: Some(Duration::ZERO), ..EnqueueOptions::default() };
    ledger.operation(MAIL).key("late").enqueue("x", late).await.unwrap();
    deliver_until(&ledger, quick(sink.clone()), async || status(&ledger, "late").await == Some(Status::Dead)).await;
    assert_eq!((sink.calls(), status(&ledger, "delayed").await), (0, Some(Status::Queued)));
}

#[tokio::test]
async fn entries_of_a_high_priority_go_first() {
    let ledger = ledger(Policy::default()).await;
    for (key, priority) in [("low", Priority::Low), ("normal", Priority::Normal), ("high", Priority::High)] {
        let options = EnqueueOptions { priority, ..EnqueueOptions::default() };
        ledger.operation(MAIL).key(key).enqueue("x", options).await.unwrap();
    }
    let sink = Scripted::new(|_, _| delivered());
    let route = Route { concurrency: 1, ..quick(sink.clone()) };
    deliver_until(&ledger, route, async || status(&ledger, "low").await == Some(Status::Done)).await;
    assert_eq!(sink.keys(), ["high", "normal", "low"]);
}

#[tokio::test]
async fn a_breaker_that_is_open_pauses_entries_without_using_up_their_attempts() {
    let ledger = ledger(Policy { max_attempts: Some(3), ..Policy::default() }).await;
    let is_up = Arc::new(AtomicBool::new(false));
    let up = Arc::clone(&is_up);
    let sink = Scripted::new(move |_, _| if up.load(Ordering::SeqCst) { delivered() } else { down() });
    for number in 0..100 {
        queue(&ledger, &number.to_string()).await;
    }
    let mut route = Route { concurrency: 1, ..quick(sink.clone()) };
    route.breaker.failures = 5;
    route.breaker.recovery = Duration::from_secs(2);
    let courier = Courier::new(ledger.clone()).route(MAIL, route).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(courier.run(async {
        let _ = stopped.await;
    }));
    tokio::time::sleep(Duration::from_millis(1000)).await;
    assert!(sink.calls() <= 5, "{} attempts at a downstream that is down", sink.calls());
    is_up.store(true, Ordering::SeqCst);
    let all_done = async {
        for number in 0..100 {
            while status(&ledger, &number.to_string()).await != Some(Status::Done) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all_done).await.expect("everything is delivered when it returns");
    stop.send(()).unwrap();
    running.await.unwrap();
    assert_eq!(sink.effects.lock().unwrap().len(), 100);
    assert!(sink.effects.lock().unwrap().values().all(|times| *times == 1));
}

/// Holds back every answer until the gate opens.
struct Gated {
    gate: Semaphore,
    started: Semaphore,
    keys: Mutex<Vec<String>>,
}

#[async_trait]
impl Sink for Gated {
    async fn deliver(&self, parcel: &Parcel) -> SinkResult {
        self.keys.lock().unwrap().push(parcel.identity.key.as_str().to_owned());
        self.started.add_permits(1);
        self.gate.acquire().await.unwrap().forget();
        delivered()
    }
}

#[tokio::test]
async fn an_entry_that_waited_for_room_is_not_tried_after_its_downstream_has_forgotten_the_key() {
    let clock = ManualClock::default();
    let store = Arc::new(Memory::new(Arc::new(clock.clone())));
    let policy = Policy { in_doubt: InDoubt::Retry, honours_key_for: Duration::from_secs(600), ..Policy::default() };
    let ledger = Ledger::builder().policy(MAIL, policy).on(store);
    queue(&ledger, "in doubt").await;
    let lost = Courier::new(ledger.clone()).route(MAIL, quick(Scripted::new(|_, _| unknown()))).unwrap();
    lost.run_until_idle().await;
    clock.advance(Duration::from_secs(1));
    let first = EnqueueOptions { priority: Priority::High, ..EnqueueOptions::default() };
    ledger.operation(MAIL).key("first").enqueue("x", first).await.unwrap();
    let sink = Arc::new(Gated { gate: Semaphore::new(0), started: Semaphore::new(0), keys: Mutex::default() });
    let route = Route { concurrency: 1, ..Route::to("mail", Arc::clone(&sink) as Arc<dyn Sink>) };
    let running = tokio::spawn(Courier::new(ledger.clone()).route(MAIL, route).unwrap().run_until_idle());
    sink.started.acquire().await.unwrap().forget();
    // The courier has found the other entry by now, and has room for one only.
    clock.advance(Duration::from_secs(600));
    sink.gate.add_permits(10);
    running.await.unwrap();
    assert_eq!(*sink.keys.lock().unwrap(), ["first"]);
    let record = ledger.get(&identity("in doubt")).await.unwrap().unwrap().seen.record;
    assert!(matches!(record.state, State::InDoubt { retry_at: None, .. }), "it waits for a person: {record:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_couriers_deliver_every_entry_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let ledger = Ledger::open(path.clone()).await.unwrap();
    let sink = Scripted::new(|_, _| delivered());
    let queuers = (0..10).map(|_| {
        let ledger = ledger.clone();
        tokio::spawn(async move {
            for number in 0..50 {
                queue(&ledger, &number.to_string()).await;
            }
        })
    });
    let queuers: Vec<_> = queuers.collect();
    let (stop, _) = tokio::sync::broadcast::channel::<()>(1);
    let mut couriers = Vec::new();
    for _ in 0..4 {
        let of_courier = Ledger::open(path.clone()).await.unwrap();
        let courier = Courier::new(of_courier).route(MAIL, quick(sink.clone())).unwrap();
        let mut stopped = stop.subscribe();
        couriers.push(tokio::spawn(courier.run(async move {
            let _ = stopped.recv().await;
        })));
    }
    for queuer in queuers {
        queuer.await.unwrap();
    }
    for number in 0..50 {
        while status(&ledger, &number.to_string()).await != Some(Status::Done) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    stop.send(()).unwrap();
    for courier in couriers {
        courier.await.unwrap();
    }
    let effects = sink.effects.lock().unwrap();
    assert_eq!((effects.len(), effects.values().sum::<usize>()), (50, 50));
}

#[tokio::test]
async fn a_cancelled_entry_is_not_delivered_and_one_under_way_cannot_be_cancelled() {
    let ledger = ledger(Policy::default()).await;
    queue(&ledger, "a").await;
    ledger.cancel(&identity("a"), 1, Resolver::default(), Some("a mistake")).await.unwrap();
    let (gate, started) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    struct Slow(Arc<Semaphore>, Arc<Semaphore>);
    #[async_trait]
    impl Sink for Slow {
        async fn deliver(&self, _: &Parcel) -> SinkResult {
            self.1.add_permits(1);
            self.0.acquire().await.unwrap().forget();
            delivered()
        }
    }
    queue(&ledger, "b").await;
    let sink = Arc::new(Slow(Arc::clone(&gate), Arc::clone(&started)));
    let courier = Courier::new(ledger.clone()).route(MAIL, Route::to("mail", sink)).unwrap();
    let running = tokio::spawn(courier.run_until_idle());
    started.acquire().await.unwrap().forget();
    let version = ledger.get(&identity("b")).await.unwrap().unwrap().seen.record.version;
    let refused = ledger.cancel(&identity("b"), version, Resolver::default(), None).await.unwrap();
    assert_eq!(refused, onceward::Resolved::Refused(onceward::Refusal::Running));
    gate.add_permits(1);
    running.await.unwrap();
    assert_eq!((status(&ledger, "a").await, status(&ledger, "b").await), (Some(Status::Dead), Some(Status::Done)));
}

/// What the sink of a downstream that is down says.
fn down() -> SinkResult {
    SinkResult::Refused {
        error: "connection refused".to_owned(),
        retry_after: None,
        again: true,
        health: Health::Failing,
    }
}
