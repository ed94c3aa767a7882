//! Concurrent callers of one key, and callers that wait for the owner.

use std::time::Duration;

use onceward::{Begun, Error, Failure, InDoubt, Ledger};

use crate::{Effects, every_ledger};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_a_thousand_callers_one_runs_and_all_get_its_value() {
    for (ledger, _folder) in every_ledger().await {
        let effects = Effects::default();
        let callers = (0..1000).map(|_| {
            let (ledger, effects) = (ledger.clone(), effects.clone());
            tokio::spawn(async move {
                let call = ledger.operation("charge").key("k").wait(Duration::from_secs(30));
                let work = |_| async move {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    Ok(effects.happen())
                };
                call.run(work).await.unwrap().value
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            assert_eq!(caller.await.unwrap(), 1);
        }
        assert_eq!(effects.count(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_a_thousand_callers_that_do_not_wait_one_runs_and_the_others_are_told_to_retry() {
    for (ledger, _folder) in every_ledger().await {
        let effects = Effects::default();
        let (open, gate) = tokio::sync::watch::channel(false);
        let mut callers = tokio::task::JoinSet::new();
        for _ in 0..1000 {
            let (ledger, effects, mut gate) = (ledger.clone(), effects.clone(), gate.clone());
            callers.spawn(async move {
                let work = |_| async move {
                    gate.wait_for(|open| *open).await.unwrap();
                    Ok(effects.happen())
                };
                ledger.operation("charge").key("k").run(work).await
            });
        }
        let mut ran = 0;
        for number in 0..1000 {
            if number == 999 {
                open.send_replace(true);
            }
            match callers.join_next().await.unwrap().unwrap() {
                Ok(done) => ran += usize::from(!done.replayed),
                Err(Error::InFlight { retry_after, .. }) => assert!(retry_after <= Duration::from_secs(1)),
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!((ran, effects.count()), (1, 1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn waiting_callers_get_the_owners_failure_and_do_not_run_one_after_another() {
    for (ledger, _folder) in every_ledger().await {
        let effects = Effects::default();
        let callers = (0..50).map(|_| {
            let (ledger, effects) = (ledger.clone(), effects.clone());
            tokio::spawn(async move {
                let call = ledger.operation("charge").key("k").wait(Duration::from_secs(30));
                let work = |_| async move {
                    tokio::time::sleep(Duration::from_millis(300)).await;
                    effects.happen();
                    Err::<(), _>(Failure::not_sent("connection refused"))
                };
                call.run(work).await
            })
        });
        let mut owner_failed = 0;
        for caller in callers.collect::<Vec<_>>() {
            match caller.await.unwrap() {
                Err(Error::Failed { .. }) => {}
                Err(Error::OwnerFailed { reason, .. }) => {
                    assert_eq!(reason, "connection refused");
                    owner_failed += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((effects.count(), owner_failed), (1, 49));
    }
}

#[tokio::test]
async fn a_waiting_caller_learns_that_the_owners_outcome_is_in_doubt() {
    for (ledger, _folder) in every_ledger().await {
        let (began, mut has_begun) = tokio::sync::watch::channel(false);
        let owner = {
            let ledger = ledger.clone();
            tokio::spawn(async move {
                let work = |_| async {
                    began.send_replace(true);
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    Err::<(), _>(Failure::unknown("time-out"))
                };
                ledger.operation("charge").key("k").run(work).await
            })
        };
        has_begun.wait_for(|begun| *begun).await.unwrap();
        let call = ledger.operation("charge").key("k").wait(Duration::from_secs(30));
        let answer = call.run(|_| async { Ok(()) }).await;
        assert!(matches!(answer, Err(Error::InDoubt { .. })), "{answer:?}");
        assert!(matches!(owner.await.unwrap(), Err(Error::Failed { .. })));
    }
}

#[tokio::test]
async fn a_caller_waits_no_longer_than_its_limit() {
    for (ledger, _folder) in every_ledger().await {
        let held = ledger.operation("charge").key("k").begin().await.unwrap();
        let started = std::time::Instant::now();
        let call = ledger.operation("charge").key("k").wait(Duration::from_millis(120));
        assert!(matches!(call.run(|_| async { Ok(()) }).await, Err(Error::InFlight { .. })));
        assert!(started.elapsed() >= Duration::from_millis(120));
        let endless = ledger.operation("charge").key("k").wait(Duration::MAX);
        let waiting = tokio::time::timeout(Duration::from_millis(50), endless.run(|_| async { Ok(()) })).await;
        assert!(waiting.is_err(), "the caller still waits: its deadline did not overflow");
        drop(held);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn several_handles_on_one_file_share_its_claims() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let mut callers = Vec::new();
    let effects = Effects::default();
    for _ in 0..4 {
        let ledger = Ledger::open(path.to_str().unwrap()).await.unwrap();
        for number in 0..100 {
            let (ledger, effects) = (ledger.clone(), effects.clone());
            callers.push(tokio::spawn(async move {
                let call = ledger.operation("charge").key(&format!("{}", number % 10)).wait(Duration::from_secs(30));
                call.run(|_| async move { Ok(effects.happen()) }).await.unwrap().replayed
            }));
        }
    }
    let mut fresh = 0;
    for caller in callers {
        fresh += usize::from(!caller.await.unwrap());
    }
    assert_eq!((fresh, effects.count()), (10, 10));
}

/// Under `retry` the downstream remembers the key, so an operator need not resolve the doubt: the waiting caller is told to
/// retry.
#[tokio::test]
async fn a_caller_that_waits_for_a_repeatable_attempt_is_not_told_to_resolve_it() {
    for (ledger, _folder) in every_ledger().await {
        for (in_doubt, retries) in [(InDoubt::Retry, true), (InDoubt::Hold, false)] {
            let call = ledger.operation("charge").key(&format!("{in_doubt:?}")).in_doubt(in_doubt);
            let Begun::Acquired(guard) = call.begin().await.unwrap() else { panic!("not acquired") };
            let waiting = call.clone().wait(Duration::from_secs(20));
            let waiting = tokio::spawn(async move { waiting.run(|_| async { Ok(1) }).await });
            tokio::time::sleep(Duration::from_millis(50)).await;
            guard.doubt(Some("lost")).await.unwrap();
            let result = waiting.await.unwrap();
            assert_eq!(matches!(result, Err(Error::OwnerUnknown { .. })), retries, "{result:?}");
            assert_eq!(matches!(result, Err(Error::InDoubt { .. })), !retries, "{result:?}");
        }
    }
}
