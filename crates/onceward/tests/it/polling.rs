//! Who polls a claim and its end, when, and on which runtime: none of it may cost a claim or an outcome.

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

use crate::faulty::Faulty;
use crate::{Effects, eventually, every_ledger, status};

fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// A caller that is busy elsewhere (a buffered stream, a `select!` with a long arm) does not poll its begin for a while.
/// Nothing has started, and the process is alive: the claim must not lapse into a doubt.
#[tokio::test(flavor = "multi_thread")]
async fn a_begin_that_is_not_polled_for_a_while_is_not_in_doubt() {
    for (ledger, _folder) in every_ledger().await {
        // The lease is twice this or so.
        let call = ledger.operation("charge").key("k").in_doubt(InDoubt::Hold).max_runtime(Duration::from_millis(100));
        let mut begin = Box::pin(call.begin());
        if poll_once(begin.as_mut()).is_ready() {
            // The store in memory answers at once.
            continue;
        }
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert_eq!(status(&call).await, "running", "the claim is held by a live caller that has done nothing yet");
        assert!(matches!(begin.await, Ok(Begun::Acquired(_))));
    }
}

/// The same under `retry`: somebody takes over, and then the first one must not be told to go ahead.
#[tokio::test(flavor = "multi_thread")]
async fn a_begin_that_was_superseded_before_it_was_looked_at_grants_nothing() {
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

/// The outcome is being insisted on from a small runtime of the caller's own, which then goes away. The guard belongs to
/// a runtime that lives on.
#[test]
fn an_end_that_is_carried_on_does_not_need_the_timers_of_the_runtime_that_polled_it() {
    let home = Runtime::new().unwrap();
    let store = Faulty::new();
    let ledger = Ledger::builder().on(Arc::<Faulty>::clone(&store));
    let call = ledger.operation("charge").key("k");
    let Begun::Acquired(guard) = home.block_on(call.begin()).unwrap() else { panic!("it is new") };
    store.set_down(true);
    let away = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let waited = away.block_on(async { timeout(Duration::from_millis(50), guard.finish(Outcome::success("7"))).await });
    assert!(waited.is_err(), "the store is down");
    drop(away);
    store.set_down(false);
    home.block_on(eventually("the outcome is recorded", async || status(&call).await == "done"));
}

/// A begin that was polled on a runtime first, and is finished by a plain executor. A JoinHandle did not mind.
#[test]
fn a_begin_may_be_polled_by_any_executor_once_it_runs() {
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
    assert!(begun.is_ok(), "the claim is written, and the guard is lost in a panic");
}

#[derive(Debug)]
struct Bad(AtomicBool);

impl Clock for Bad {
    fn now(&self) -> Timestamp {
        let writing = std::thread::current().name() == Some("onceward-write");
        assert!(!(writing && self.0.load(Ordering::SeqCst)), "a bad clock");
        SystemClock.now()
    }
}

/// Whatever kills the writer: who asks afterwards gets an error, and does not wait for ever.
#[tokio::test]
async fn nobody_waits_for_a_writer_that_died() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(Bad(AtomicBool::new(false)));
    let store = Sqlite::open(&folder.path().join("l.db"), Arc::<Bad>::clone(&clock)).await.unwrap();
    let ledger = Ledger::builder().on(Arc::new(store));
    assert!(matches!(ledger.operation("charge").key("a").begin().await, Ok(Begun::Acquired(_))));
    clock.0.store(true, Ordering::SeqCst);
    let died = timeout(Duration::from_secs(5), ledger.operation("charge").key("b").begin()).await;
    assert!(died.expect("its answer was dropped").is_err());
    clock.0.store(false, Ordering::SeqCst);
    let after = timeout(Duration::from_secs(5), ledger.operation("charge").key("c").begin()).await;
    assert!(after.expect("it waits for a thread that is gone").is_err());
}

/// The runtime of the first stands still: neither its caller nor anybody in its place looks, and its lease lapses. Then
/// somebody takes over, and the first must not be told to go ahead when it is looked at again.
#[test]
fn a_claim_that_lapsed_on_a_runtime_that_stood_still_is_not_granted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("l.db");
    let still = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let open = || Ledger::open(path.to_str().unwrap());
    let (first, second) = (still.block_on(open()).unwrap(), still.block_on(open()).unwrap());
    let of = |ledger: &Ledger| {
        ledger.operation("charge").key("k").in_doubt(InDoubt::Retry).max_runtime(Duration::from_millis(100))
    };
    let call = of(&first);
    let mut begin = Box::pin(async move { call.begin().await });
    still.block_on(async { assert!(poll_once(begin.as_mut()).is_pending()) });
    std::thread::sleep(Duration::from_millis(1500));
    let other = Runtime::new().unwrap();
    other.block_on(async {
        let Begun::Acquired(guard) = of(&second).begin().await.unwrap() else { panic!("the first has lapsed") };
        let begun = tokio::task::spawn_blocking(move || still.block_on(begin)).await;
        assert!(matches!(begun, Ok(Ok(Begun::Answered(Decision::InFlight { .. })))), "{begun:?}");
        guard.finish(Outcome::success("7")).await.unwrap();
    });
}

/// A claim is renewed although its caller does nothing but work, and no longer than it works.
#[tokio::test]
async fn a_guard_is_renewed_on_a_runtime_of_one_thread() {
    for (ledger, _folder) in every_ledger().await {
        let call = ledger.operation("charge").key("k").max_runtime(Duration::from_millis(100));
        let Ok(Begun::Acquired(guard)) = call.begin().await else { panic!("it is new") };
        let again = ledger.operation("charge").key("other").max_runtime(Duration::from_millis(100));
        drop(again.begin().await.unwrap());
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert_eq!(status(&call).await, "running");
        guard.finish(Outcome::success("7")).await.unwrap();
    }
}

/// The answer to the claim comes when its lease is over already, and the store cannot be asked whether it still holds.
#[tokio::test]
async fn a_claim_whose_lease_is_over_is_not_granted_because_the_store_fails() {
    let store = Faulty::new();
    let ledger = Ledger::builder().on(store.clone());
    let call = ledger.operation("charge").key("k").in_doubt(InDoubt::Retry).max_runtime(Duration::from_millis(50));
    store.insert_millis.store(400, Ordering::SeqCst);
    store.fail_next_replace.store(true, Ordering::SeqCst);
    let Ok(Begun::Acquired(guard)) = call.begin().await else { panic!("the store is back") };
    assert!(guard.claim().attempt() > 1, "what had lapsed was granted");
    let holds = store.holds("charge", "k").await.unwrap();
    assert_eq!(holds.attempts, guard.claim().attempt());
    guard.finish(Outcome::success("7")).await.unwrap();
}
