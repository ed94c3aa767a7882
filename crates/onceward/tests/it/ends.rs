//! How claims end: failures of every class, dropped calls, panics and lost leases are all recorded.

use std::sync::Arc;
use std::time::Duration;

use onceward::core::class::Class;
use onceward::{CallBuilder, Error, Failure, InDoubt, Ledger, OnError, Policy, Tier};

use crate::{Effects, eventually, every_ledger, every_timed_ledger, outlives_its_lease, status};

async fn fail(call: &CallBuilder, failure: Failure) -> Error {
    call.run(|_| async { Err::<u32, _>(failure) }).await.unwrap_err()
}

async fn runs_again(call: &CallBuilder) -> bool {
    match call.run(|_| async { Ok(1) }).await {
        Ok(done) => !done.replayed,
        Err(_) => false,
    }
}

#[tokio::test]
async fn a_request_that_was_never_sent_may_be_retried() {
    for (ledger, _folder) in every_ledger().await {
        let call = ledger.operation("charge").key("k").tier(Tier::Payment);
        let error = fail(&call, Failure::not_sent("connection refused")).await;
        assert!(matches!(error, Error::Failed { replayed: false, .. }));
        assert_eq!(status(&call).await, "open");
        assert!(runs_again(&call).await);
    }
}

#[tokio::test]
async fn a_temporary_refusal_is_not_retried_before_its_retry_after() {
    for (ledger, _folder) in every_ledger().await {
        let call = ledger.operation("charge").key("k");
        let asked_for = Duration::from_secs(2);
        fail(&call, Failure::refused("429", Some(asked_for))).await;
        let retry_after = match call.run(|_| async { Ok(1) }).await {
            Err(Error::InFlight { retry_after, .. }) => retry_after,
            other => panic!("{other:?}"),
        };
        assert!(retry_after <= asked_for);
        tokio::time::sleep(retry_after + Duration::from_millis(10)).await;
        assert!(runs_again(&call).await);
    }
}

#[tokio::test]
async fn a_final_failure_is_kept_and_replayed() {
    for (ledger, _folder) in every_ledger().await {
        let call = ledger.operation("charge").key("k");
        fail(&call, Failure::permanent("card declined")).await;
        match call.run(|_| async { Ok(1) }).await {
            Err(Error::Failed { failure, replayed: true, .. }) => {
                assert_eq!((failure.message(), failure.class()), ("card declined", Class::Final));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn an_unknown_outcome_is_held() {
    for (ledger, _folder) in every_ledger().await {
        let call = ledger.operation("charge").key("k");
        fail(&call, Failure::unknown("time-out")).await;
        assert_eq!(status(&call).await, "in_doubt");
        let error = call.run(|_| async { Ok(1) }).await.unwrap_err();
        assert!(matches!(error, Error::InDoubt { .. }));
        assert!(error.to_string().contains("Do not try again under another key"), "{error}");
    }
}

#[tokio::test]
async fn under_retry_an_unknown_outcome_is_retried_with_the_same_downstream_key() {
    for (ledger, _folder) in every_ledger().await {
        let call = ledger.operation("charge").key("k").in_doubt(InDoubt::Retry);
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        for attempt in 1..=2 {
            let sender = sender.clone();
            let run = call.run(|claim| async move {
                sender.send((claim.attempt(), claim.downstream_key().to_owned())).unwrap();
                if attempt == 1 { Err(Failure::unknown("time-out")) } else { Ok(1) }
            });
            assert_eq!(run.await.is_ok(), attempt == 2);
        }
        let (first, second) = (receiver.recv().await.unwrap(), receiver.recv().await.unwrap());
        assert_eq!((first.0, second.0), (1, 2));
        assert_eq!(first.1, second.1);
        assert_eq!(status(&call).await, "done");
    }
}

#[tokio::test]
async fn a_timeout_or_connection_reset_is_in_doubt_without_any_policy() {
    let ledger = Ledger::open("memory:").await.unwrap();
    let timed_out = ledger.operation("a").key("k");
    let run = timed_out.run(|_| async {
        let work = std::future::pending::<()>();
        Ok(tokio::time::timeout(Duration::from_millis(1), work).await?)
    });
    assert!(run.await.is_err());
    assert_eq!(status(&timed_out).await, "in_doubt");
    let reset = ledger.operation("b").key("k");
    let run = reset.run(|_| async { Err::<(), _>(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()) });
    assert!(run.await.is_err());
    assert_eq!(status(&reset).await, "in_doubt");
    let refused = ledger.operation("c").key("k");
    let run =
        refused.run(|_| async { Err::<(), _>(std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into()) });
    assert!(run.await.is_err());
    assert_eq!(status(&refused).await, "open");
}

#[tokio::test]
async fn an_error_without_a_class_follows_the_policy() {
    let ledger = Ledger::open("memory:").await.unwrap();
    let cases = [
        (ledger.operation("a").key("k"), "open"),
        (ledger.operation("e").key("k").tier(Tier::Email), "in_doubt"),
        (ledger.operation("f").key("k").tier(Tier::Payment).on_error(OnError::Retry), "open"),
        (ledger.operation("b").key("k").tier(Tier::Payment), "in_doubt"),
        (ledger.operation("c").key("k").on_error(OnError::Doubt), "in_doubt"),
        (ledger.operation("d").key("k").on_error(OnError::Keep), "done"),
    ];
    for (call, expected) in cases {
        let parsed = call.run(|_| async { Ok("x".parse::<u32>()?) }).await;
        match parsed {
            Err(Error::Failed { failure, .. }) => {
                assert_eq!(failure.class(), Class::Unclassified { evidence: None });
                assert!(failure.source().unwrap().is::<std::num::ParseIntError>(), "the error itself is kept");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(status(&call).await, expected);
    }
}

#[tokio::test]
async fn an_unclassified_error_after_an_explicit_sent_is_always_in_doubt() {
    for (ledger, _folder) in every_ledger().await {
        let call = ledger.operation("charge").key("k").marks_sent().on_error(OnError::Retry);
        let run = call.run(|claim| async move {
            claim.sent().await?;
            Ok("x".parse::<u32>()?)
        });
        assert!(run.await.is_err());
        assert_eq!(status(&call).await, "in_doubt");
    }
}

#[tokio::test]
async fn a_dropped_call_is_in_doubt_immediately_unless_nothing_was_sent() {
    for (ledger, _folder) in every_ledger().await {
        for (key, marks, sends, expected) in
            [("a", false, false, "in_doubt"), ("b", true, false, "open"), ("c", true, true, "in_doubt")]
        {
            let call = ledger.operation("charge").key(key);
            let call = if marks { call.marks_sent() } else { call };
            let (started, start) = tokio::sync::oneshot::channel();
            let running = {
                let call = call.clone();
                tokio::spawn(async move {
                    call.run(|claim| async move {
                        if sends {
                            claim.sent().await?;
                        }
                        started.send(()).unwrap();
                        std::future::pending::<()>().await;
                        Ok(())
                    })
                    .await
                })
            };
            start.await.unwrap();
            assert_eq!(status(&call).await, "running");
            running.abort();
            eventually("the claim ends", async || status(&call).await == expected).await;
        }
    }
}

#[tokio::test]
async fn a_panic_leaves_the_intent_in_doubt_and_propagates() {
    for (ledger, _folder) in every_ledger().await {
        let call = ledger.operation("charge").key("k");
        let running = {
            let call = call.clone();
            tokio::spawn(async move {
                call.run(|_| async { panic!("out of paper") }).await.map(|done: onceward::Done<()>| done)
            })
        };
        let panic = running.await.unwrap_err();
        assert!(panic.is_panic());
        assert_eq!(status(&call).await, "in_doubt", "the doubt is written before the caller sees the panic");
    }
}

#[tokio::test]
async fn a_claim_is_renewed_while_the_work_runs() {
    for (ledger, clock, _folder) in every_timed_ledger().await {
        let call = ledger.operation("charge").key("k").max_runtime(Duration::from_millis(50)).in_doubt(InDoubt::Retry);
        let (effects, is_over) = (Effects::default(), Arc::new(tokio::sync::Notify::new()));
        let owner = {
            let (call, effects, is_over) = (call.clone(), effects.clone(), Arc::clone(&is_over));
            tokio::spawn(async move {
                call.run(|_| async move {
                    is_over.notified().await;
                    Ok(effects.happen())
                })
                .await
            })
        };
        outlives_its_lease(&call, &clock, Duration::from_millis(150)).await;
        assert!(!runs_again(&call).await);
        is_over.notify_one();
        owner.await.unwrap().unwrap();
        assert_eq!(effects.count(), 1);
    }
}

#[tokio::test]
async fn a_call_whose_result_is_too_large_to_keep_never_runs_again() {
    for (ledger, _folder) in every_ledger().await {
        let call = ledger.operation("report").key("k");
        let effects = Effects::default();
        for attempt in 1..=2 {
            let effects = effects.clone();
            let run = call.run(|_| async move {
                effects.happen();
                Ok("x".repeat(300 * 1024))
            });
            match run.await {
                Ok(done) if attempt == 1 => assert_eq!(done.value.len(), 300 * 1024, "the first caller gets it whole"),
                Err(Error::OutcomeNotKept { status: Some(0), .. }) if attempt == 2 => {}
                other => panic!("attempt {attempt}: {:?}", other.map(|done| done.replayed)),
            }
        }
        assert_eq!(effects.count(), 1);
    }
}

#[tokio::test]
async fn a_value_that_json_cannot_represent_is_in_doubt_and_reported() {
    use std::collections::BTreeMap;
    let ledger = Ledger::open("memory:").await.unwrap();
    let call = ledger.operation("odd").key("k");
    // JSON has no objects with lists as names.
    let run = call.run(|_| async { Ok(BTreeMap::from([(vec![1], 2)])) });
    assert!(matches!(run.await, Err(Error::NotJson { .. })));
    assert_eq!(status(&call).await, "in_doubt");
}

#[tokio::test]
async fn under_probe_the_next_caller_probes_first() {
    for (ledger, _folder) in every_ledger().await {
        let without_probe = ledger.operation("charge").key("k").in_doubt(InDoubt::Probe);
        fail(&without_probe, Failure::unknown("time-out")).await;
        let refused = without_probe.run(|_| async { Ok(1) }).await;
        assert!(matches!(refused, Err(Error::InDoubt { .. })), "a caller that cannot probe is refused: {refused:?}");
        let call = without_probe.probes();
        let found_nothing = call.run(|claim| async move {
            assert!(claim.probe_first());
            Err::<u32, _>(Failure::not_sent("the probe itself failed"))
        });
        assert!(found_nothing.await.is_err());
        assert_eq!(status(&call).await, "in_doubt", "an unanswered probe settles nothing");
        let settled = call.run(|claim| async move {
            assert!(claim.probe_first());
            claim.not_found().await?;
            claim.sent().await?;
            Ok(claim.attempt())
        });
        assert_eq!(settled.await.unwrap().value, 3);
    }
}

#[tokio::test]
async fn a_caller_that_is_dropped_before_it_sees_its_claim_leaves_a_released_claim() {
    let mut gone = 0;
    for (ledger, _folder) in every_ledger().await {
        // So that the operation is known, and the next call begins with its write.
        ledger.operation("charge").key("first").run(|_| async { Ok(1) }).await.unwrap();
        // The store in memory answers at once, and so does a file now and then on a busy machine: nothing is left to be dropped.
        for number in 0..20 {
            let call = ledger.operation("charge").key(&number.to_string());
            let mut begin = Box::pin(call.begin());
            if futures_util::poll!(begin.as_mut()).is_ready() {
                continue;
            }
            gone += 1;
            // The claim is written and handed over while the caller does not poll; then the caller is dropped.
            eventually("the claim is written", async || status(&call).await == "running").await;
            tokio::time::sleep(Duration::from_millis(30)).await;
            drop(begin);
            eventually("the claim is released", async || status(&call).await == "open").await;
            break;
        }
    }
    assert!(gone > 0);
}

#[tokio::test]
async fn a_superseded_owner_gets_its_outcome_back_and_the_trail_keeps_it() {
    for (ledger, clock, _folder) in crate::every_timed_ledger().await {
        let call = ledger.operation("charge").key("k").in_doubt(InDoubt::Retry);
        let (go, wait) = tokio::sync::oneshot::channel::<()>();
        let late = {
            let call = call.clone();
            tokio::spawn(async move {
                call.run(|_| async move {
                    wait.await?;
                    Ok("ch_17".to_owned())
                })
                .await
                .map(|done| done.replayed)
            })
        };
        eventually("it runs", async || status(&call).await == "running").await;
        clock.advance(Duration::from_secs(3600));
        call.run(|_| async { Ok("ch_18".to_owned()) }).await.unwrap();
        go.send(()).unwrap();
        match late.await.unwrap() {
            Err(Error::ClaimLost { outcome: Some(outcome), .. }) => {
                assert_eq!(*outcome, onceward::Outcome::success("\"ch_17\""));
            }
            other => panic!("{other:?}"),
        }
        let trail = call.get().await.unwrap().unwrap().trail;
        assert!(trail[0].event.note.as_ref().unwrap().contains("ch_17"), "{trail:?}");
    }
}

#[tokio::test]
async fn work_past_its_deadline_is_in_doubt_and_may_still_be_finished() {
    for (ledger, _folder) in every_ledger().await {
        let deadline = Some(Duration::from_millis(50));
        let policy = Policy { deadline, in_doubt: InDoubt::Retry, ..Policy::default() };
        let call = ledger.operation("charge").key("k").policy(policy);
        let (go, wait) = tokio::sync::oneshot::channel::<()>();
        let owner = call.clone();
        let owner = tokio::spawn(async move {
            owner
                .run(|_| async move {
                    let _ = wait.await;
                    Ok(42)
                })
                .await
        });
        while status(&call).await != "in_doubt" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // The policy allows a retry, but not while the owner is still alive.
        let repeat = call.run(|_| async { Ok(7) }).await;
        assert!(matches!(repeat, Err(Error::InDoubt { .. })), "{repeat:?}");
        go.send(()).unwrap();
        assert_eq!(owner.await.unwrap().unwrap().value, 42);
        assert_eq!(call.run(|_| async { Ok(7) }).await.unwrap().value, 42);
    }
}
