//! Polling: a claim or an outcome is never lost, whichever task or runtime polls its future, and however late.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use onceward::clock::{Clock, SystemClock};
use onceward::core::decide::Decision;
use onceward::core::time::Timestamp;
use onceward::store::sqlite::Sqlite;
use onceward::{Begun, InDoubt, Ledger, Outcome};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::faulty::FaultyStore;
use crate::{Effects, eventually, every_ledger, every_timed_ledger, outlives_its_lease, status};

fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// A caller that is busy elsewhere (a buffered stream, a `select!` with a long arm) does not poll its begin for a while.
/// The work has not started and the process is alive, so the claim must not lapse into doubt.
#[tokio::test(flavor = "multi_thread")]
async fn a_begin_that_is_not_polled_for_a_while_is_not_in_doubt() {
    for (ledger, clock, _folder) in every_timed_ledger().await {
        let call = ledger.operation("charge").key("k").in_doubt(InDoubt::Hold).max_runtime(Duration::from_millis(100));
        let mut begin = Box::pin(call.begin());
        if poll_once(begin.as_mut()).is_ready() {
            // The in-memory store answers immediately.
            continue;
        }
        // The claim is held by a live caller that has done nothing yet.
        outlives_its_lease(&call, &clock, Duration::from_millis(300)).await;
        assert!(matches!(begin.await, Ok(Begun::Acquired(_))));
    }
}

/// The same under `retry`: another caller takes over, and the first caller must not be granted the claim afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_begin_that_was_superseded_before_it_was_polled_grants_nothing() {
    for (ledger, _folder) in every_ledger().await {
        let call = ledger.operation("charge").key("k").in_doubt(InDoubt::Retry).max_runtime(Duration::from_millis(100));
        let effects = Effects::default();
        let mut first = Box::pin(call.run(|_| async {
            effects.happen();
            tokio::time::sleep(Duration::from_millis(50)).await;
            Ok(1)
        }));
        if poll_once(first.as_mut()).is_ready() || effects.count() > 0 {
            continue;
        }
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let second = call.run(|_| async {
            effects.happen();
            Ok(2)
        });
        let second = second.await;
        let first = first.await;
        assert_eq!(effects.count(), 1, "first {first:?}, second {second:?}");
    }
}

/// The caller finishes its guard on a short-lived runtime, which ends while the write is still being retried. The guard
/// belongs to a runtime that lives on.
#[test]
fn a_finish_continues_without_the_timers_of_the_runtime_that_polled_it() {
    let home = Runtime::new().unwrap();
    let store = FaultyStore::new();
    let ledger = Ledger::builder().on(Arc::<FaultyStore>::clone(&store));
    let call = ledger.operation("charge").key("k");
    let Begun::Acquired(guard) = home.block_on(call.begin()).unwrap() else { panic!("not acquired") };
    store.set_down(true);
    let away = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let waited = away.block_on(async { timeout(Duration::from_millis(50), guard.finish(Outcome::success("7"))).await });
    assert!(waited.is_err(), "the store is down");
    drop(away);
    store.set_down(false);
    home.block_on(eventually("the outcome is recorded", async || status(&call).await == "done"));
}

/// A begin is first polled on a Tokio runtime and then completed by a plain executor, as a `JoinHandle` can be.
#[test]
fn a_begin_may_be_polled_by_any_executor_once_it_has_started() {
    let home = Runtime::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let ledger = home.block_on(Ledger::open(folder.path().join("l.db").to_str().unwrap())).unwrap();
    let call = ledger.operation("charge").key("k");
    let mut begin = pin!(call.begin());
    {
        let _inside = home.enter();
        assert!(poll_once(begin.as_mut()).is_pending());
    }
    std::thread::sleep(Duration::from_millis(200));
    let begun = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| poll_once(begin.as_mut())));
    assert!(begun.is_ok(), "the claim is written, but a panic loses the guard");
}

#[derive(Debug)]
struct PanickingClock(AtomicBool);

impl Clock for PanickingClock {
    fn now(&self) -> Timestamp {
        let writing = std::thread::current().name() == Some("onceward-write");
        assert!(!(writing && self.0.load(Ordering::SeqCst)), "the clock panics in the writer thread");
        SystemClock.now()
    }
}

/// Whatever kills the writer thread, later calls get an error and do not wait forever.
#[tokio::test]
async fn calls_do_not_wait_for_a_writer_that_died() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(PanickingClock(AtomicBool::new(false)));
    let store = Sqlite::open(&folder.path().join("l.db"), Arc::<PanickingClock>::clone(&clock)).await.unwrap();
    let ledger = Ledger::builder().on(Arc::new(store));
    assert!(matches!(ledger.operation("charge").key("a").begin().await, Ok(Begun::Acquired(_))));
    clock.0.store(true, Ordering::SeqCst);
    let died = timeout(Duration::from_secs(5), ledger.operation("charge").key("b").begin()).await;
    assert!(died.expect("the call waits although its answer was dropped").is_err());
    clock.0.store(false, Ordering::SeqCst);
    let after = timeout(Duration::from_secs(5), ledger.operation("charge").key("c").begin()).await;
    assert!(after.expect("the call waits for a thread that has ended").is_err());
}

/// The runtime of the first caller stalls, so neither the caller nor a background task polls the claim, and its lease
/// lapses. Another caller then takes over, and the first must not be granted the claim when it is polled again.
#[test]
fn a_claim_that_lapsed_on_a_stalled_runtime_is_not_granted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("l.db");
    let stalled = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let open = || Ledger::open(path.to_str().unwrap());
    let (first, second) = (stalled.block_on(open()).unwrap(), stalled.block_on(open()).unwrap());
    let call_on = |ledger: &Ledger| {
        ledger.operation("charge").key("k").in_doubt(InDoubt::Retry).max_runtime(Duration::from_millis(100))
    };
    let call = call_on(&first);
    let mut begin = Box::pin(async move { call.begin().await });
    stalled.block_on(async { assert!(poll_once(begin.as_mut()).is_pending()) });
    std::thread::sleep(Duration::from_millis(1500));
    let other = Runtime::new().unwrap();
    other.block_on(async {
        let Begun::Acquired(guard) = call_on(&second).begin().await.unwrap() else { panic!("the first claim lapsed") };
        let begun = tokio::task::spawn_blocking(move || stalled.block_on(begin)).await;
        assert!(matches!(begun, Ok(Ok(Begun::Answered(Decision::InFlight { .. })))), "{begun:?}");
        guard.finish(Outcome::success("7")).await.unwrap();
    });
}

/// A claim is renewed while its caller does nothing but work, and only for as long as it works.
#[tokio::test]
async fn a_guard_is_renewed_on_a_single_threaded_runtime() {
    for (ledger, clock, _folder) in every_timed_ledger().await {
        let call = ledger.operation("charge").key("k").max_runtime(Duration::from_millis(100));
        let Ok(Begun::Acquired(guard)) = call.begin().await else { panic!("not acquired") };
        let again = ledger.operation("charge").key("other").max_runtime(Duration::from_millis(100));
        drop(again.begin().await.unwrap());
        outlives_its_lease(&call, &clock, Duration::from_millis(300)).await;
        guard.finish(Outcome::success("7")).await.unwrap();
    }
}

/// The answer to the claim arrives after its lease has ended, and the store fails when asked whether the claim still
/// holds.
#[tokio::test]
async fn a_claim_whose_lease_has_ended_is_not_granted_when_the_store_fails() {
    let store = FaultyStore::new();
    let ledger = Ledger::builder().on(store.clone());
    let call = ledger.operation("charge").key("k").in_doubt(InDoubt::Retry).max_runtime(Duration::from_millis(50));
    store.insert_millis.store(400, Ordering::SeqCst);
    store.fail_next_replace.store(true, Ordering::SeqCst);
    let Ok(Begun::Acquired(guard)) = call.begin().await else { panic!("not acquired") };
    assert!(guard.claim().attempt() > 1, "a lapsed claim was granted");
    let holds = store.record("charge", "k").await.unwrap();
    assert_eq!(holds.attempts, guard.claim().attempt());
    guard.finish(Outcome::success("7")).await.unwrap();
}
