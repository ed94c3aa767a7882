//! Breakers and pauses, which all couriers of a ledger share.

use super::*;

#[tokio::test]
async fn couriers_in_other_processes_share_the_breaker() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let [one, other] = [Ledger::open(path.clone()).await.unwrap(), Ledger::open(path).await.unwrap()];
    let sink = Scripted::new(|_, _| down());
    for number in 0..20 {
        queue(&one, &number.to_string()).await;
    }
    let mut route = Route { concurrency: 1, ..quick(sink.clone()) };
    route.breaker.failures = 3;
    route.breaker.recovery = Duration::from_secs(3600);
    let is_open =
        async || matches!(one.breaker(&Stops::Sink("mail".into())).await.unwrap().state, breaker::State::Open { .. });
    deliver_until(&one, route.clone(), is_open).await;
    let before = sink.calls();
    assert_eq!(before, 3, "the last of a row of failures opens it");
    let looks = AtomicUsize::new(0);
    deliver_until(&other, route, async || looks.fetch_add(1, Ordering::SeqCst) > 100).await;
    assert_eq!(sink.calls(), before, "another process knows that it is open");
    other.force_breaker(&Stops::Sink("mail".into()), &ForceBreaker::Reset).await.unwrap();
    deliver_until(&one, quick(sink.clone()), async || sink.calls() > before).await;
}

#[tokio::test]
async fn of_all_couriers_exactly_one_makes_the_trial() {
    let ledger = ledger(Policy::default()).await;
    let sink = Scripted::new(|_, _| down());
    for number in 0..20 {
        queue(&ledger, &number.to_string()).await;
    }
    let mut route = quick(sink.clone());
    route.breaker.failures = 1;
    route.breaker.recovery = Duration::ZERO;
    route.breaker.trial = Duration::from_secs(3600);
    route.concurrency = 1;
    deliver_until(&ledger, route.clone(), async || sink.calls() >= 1).await;
    // A trial that never ends: its courier is stopped in the middle.
    let gate = Arc::new(Semaphore::new(0));
    struct Stuck(Arc<Semaphore>, AtomicUsize);
    #[async_trait]
    impl Sink for Stuck {
        async fn deliver(&self, _: &Parcel) -> SinkResult {
            self.1.fetch_add(1, Ordering::SeqCst);
            self.0.acquire().await.unwrap().forget();
            delivered()
        }
    }
    let stuck = Arc::new(Stuck(Arc::clone(&gate), AtomicUsize::new(0)));
    let couriers: Vec<_> = (0..4)
        .map(|_| {
            let route = Route { sink: stuck.clone(), concurrency: 8, ..route.clone() };
            let courier = Courier::new(ledger.clone()).route(MAIL, route).unwrap();
            tokio::spawn(courier.run(std::future::pending()))
        })
        .collect();
    while stuck.1.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(stuck.1.load(Ordering::SeqCst), 1, "one trial for all couriers");
    gate.add_permits(100);
    while stuck.1.load(Ordering::SeqCst) < 20 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    couriers.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_paused_queue_is_not_delivered_until_it_goes_on() {
    let ledger = ledger(Policy::default()).await;
    let sink = Scripted::new(|_, _| delivered());
    queue(&ledger, "a").await;
    let paused = Stops::Queue(MAIL.to_owned());
    ledger.force_breaker(&paused, &ForceBreaker::Open { by: "ana".to_owned() }).await.unwrap();
    let looks = AtomicUsize::new(0);
    deliver_until(&ledger, quick(sink.clone()), async || looks.fetch_add(1, Ordering::SeqCst) > 100).await;
    assert_eq!(sink.calls(), 0);
    assert_eq!(ledger.breakers().await.unwrap().len(), 1);
    ledger.force_breaker(&paused, &ForceBreaker::Reset).await.unwrap();
    deliver_until(&ledger, quick(sink.clone()), async || status(&ledger, "a").await == Some(Status::Done)).await;
}

#[tokio::test]
async fn trials_of_a_long_outage_use_up_no_attempts() {
    let ledger = ledger(Policy { max_attempts: Some(3), ..Policy::default() }).await;
    let sink = Scripted::new(|_, number| if number <= 12 { down() } else { delivered() });
    for key in ["1", "2"] {
        queue(&ledger, key).await;
    }
    let mut route = Route { concurrency: 1, ..quick(sink.clone()) };
    (route.breaker.failures, route.breaker.recovery) = (2, Duration::from_millis(20));
    let are_done =
        async || status(&ledger, "1").await == Some(Status::Done) && status(&ledger, "2").await == Some(Status::Done);
    deliver_until(&ledger, route, are_done).await;
    assert_eq!(sink.calls(), 14, "twelve failures, of which ten were trials, and two deliveries");
}

#[tokio::test]
async fn a_call_cannot_name_the_operations_of_the_ledger_itself() {
    let ledger = ledger(Policy::default()).await;
    for name in [onceward::breakers::NOTES, "onceward/leases", "onceward/x"] {
        let call = ledger.operation(name).key("queue:send_mail");
        let queued = call.enqueue(&"forced_open", EnqueueOptions::default()).await;
        assert!(matches!(&queued, Err(Error::Invalid(_))), "{name}: {queued:?}");
    }
    assert_eq!(ledger.breakers().await.unwrap(), []);
}

#[tokio::test]
async fn a_poisoned_entry_is_not_the_trial_again_and_again() {
    let ledger = ledger(Policy { max_attempts: Some(100), ..Policy::default() }).await;
    // Every attempt at a poisoned entry looks like a failure of the downstream.
    let sink =
        Scripted::new(|parcel, _| if parcel.identity.key.as_str().starts_with("bad") { down() } else { delivered() });
    for number in 0..6 {
        let options = EnqueueOptions { priority: Priority::High, ..EnqueueOptions::default() };
        ledger.operation(MAIL).key(&format!("bad {number}")).enqueue(&"x", options).await.unwrap();
    }
    queue(&ledger, "good 1").await;
    queue(&ledger, "good 2").await;
    let mut route = Route { concurrency: 1, ..quick(sink.clone()) };
    (route.breaker.failures, route.breaker.recovery) = (3, Duration::from_millis(20));
    let are_done = async || {
        status(&ledger, "good 1").await == Some(Status::Done) && status(&ledger, "good 2").await == Some(Status::Done)
    };
    deliver_until(&ledger, route, are_done).await;
    assert!(sink.calls() < 200, "{} attempts", sink.calls());
}

#[tokio::test]
async fn entries_of_another_sink_are_left_to_its_couriers() {
    let ledger = ledger(Policy { in_doubt: InDoubt::Retry, ..Policy::default() }).await;
    let first = Scripted::new(|_, _| unknown());
    queue(&ledger, "doubtful").await;
    deliver_until(&ledger, quick(first.clone()), async || first.calls() >= 1).await;
    let before = ledger.get(&identity("doubtful")).await.unwrap().unwrap();
    let other = Scripted::new(|_, _| delivered());
    let renamed = Route { sink_name: "renamed".to_owned(), ..quick(other.clone()) };
    queue(&ledger, "new").await;
    deliver_until(&ledger, renamed, async || status(&ledger, "new").await == Some(Status::Done)).await;
    let after = ledger.get(&identity("doubtful")).await.unwrap().unwrap();
    assert_eq!(after.seen.record.version, before.seen.record.version, "a courier without the sink writes nothing");
    assert_eq!(other.keys(), ["new"]);
}
