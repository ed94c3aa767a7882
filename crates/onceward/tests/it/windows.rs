//! Window policies for low stakes: the ledger remembers a key for the window only, without a tombstone.

use std::time::Duration;

use onceward::{Begun, CallBuilder, Failure, Ledger, Policy};

use crate::{Effects, every_timed_ledger, status};

const WINDOW: Duration = Duration::from_secs(600);

fn alert(ledger: &Ledger) -> CallBuilder {
    ledger.operation("alert").key("disk-full").policy(Policy::window(WINDOW))
}

#[tokio::test]
async fn an_intent_runs_again_when_the_window_after_its_completion_is_over() {
    for (ledger, clock, _folder) in every_timed_ledger().await {
        let effects = Effects::default();
        for round in 1..=3 {
            for repeat in 0..3 {
                let done = alert(&ledger).run(|_| async { Ok(effects.happen()) }).await.unwrap();
                assert_eq!((done.value, done.replayed), (round, repeat > 0));
                clock.advance(WINDOW / 4);
            }
            clock.advance(WINDOW / 4);
            assert_eq!(status(&alert(&ledger)).await, "absent", "there is no tombstone");
        }
        assert_eq!(ledger.purge(10).await.unwrap().removed, 1);
        assert_eq!(ledger.counts().await.unwrap().0.len(), 0);
    }
}

#[tokio::test]
async fn a_crash_never_blocks_the_key_of_a_window() {
    for (ledger, clock, _folder) in every_timed_ledger().await {
        let Begun::Acquired(crashed) = alert(&ledger).begin().await.unwrap() else { panic!("not acquired") };
        std::mem::forget(crashed);
        clock.advance(Duration::from_secs(30 * 24 * 60 * 60));
        assert_eq!(alert(&ledger).run(|claim| async move { Ok(claim.attempt()) }).await.unwrap().value, 2);
    }
}

#[tokio::test]
async fn a_failure_is_retried_at_once_and_a_final_one_is_kept_for_the_window() {
    for (ledger, clock, _folder) in every_timed_ledger().await {
        assert!(alert(&ledger).run(|_| async { Err::<u32, _>(Failure::not_sent("down")) }).await.is_err());
        assert!(alert(&ledger).run(|_| async { Err::<u32, _>(Failure::permanent("no such channel")) }).await.is_err());
        assert!(alert(&ledger).run(|_| async { Ok(1) }).await.is_err());
        clock.advance(WINDOW);
        assert_eq!(alert(&ledger).run(|_| async { Ok(1) }).await.unwrap().value, 1);
    }
}
