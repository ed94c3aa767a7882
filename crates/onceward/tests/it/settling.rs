//! Inspecting and resolving intents, late owners, expiry and automatic purging.

use std::time::Duration;

use onceward::core::decide::{Refusal, Resolution};
use onceward::store::{EventKind, Filter};
use onceward::{Begun, Error, Failure, Ledger, Outcome, Resolved, WriteResult};

use crate::{Effects, eventually, every_ledger, every_timed_ledger, status};

fn acquired(begun: Begun) -> onceward::Guard {
    match begun {
        Begun::Acquired(guard) => guard,
        Begun::Answered(decision) => panic!("not acquired: {decision:?}"),
    }
}

async fn in_doubt(ledger: &Ledger, key: &str) -> onceward::CallBuilder {
    let call = ledger.operation("charge").key(key);
    let unknown = call.run(|_| async { Err::<u32, _>(Failure::unknown("time-out")) }).await;
    assert!(unknown.is_err());
    call
}

#[tokio::test]
async fn an_operator_resolves_that_an_effect_happened() {
    for (ledger, _folder) in every_ledger().await {
        let call = in_doubt(&ledger, "k").await;
        let identity = call.call().unwrap().identity;
        let version = call.get().await.unwrap().unwrap().seen.record.version;
        let happened = || Resolution::Happened(Outcome::success("42"));
        let stale = ledger.resolve(&identity, version - 1, happened(), None, None).await.unwrap();
        assert_eq!(stale, Resolved::Refused(Refusal::Changed));
        let settled =
            ledger.resolve(&identity, version, happened(), Some("ana"), Some("asked the bank")).await.unwrap();
        assert_eq!(settled, Resolved::Settled);
        let done = call.run(|_| async { Ok(7) }).await.unwrap();
        assert_eq!((done.value, done.replayed), (42, true));
        let trail = call.get().await.unwrap().unwrap().trail;
        assert_eq!(trail.len(), 1);
        assert_eq!((trail[0].event.what, trail[0].event.by.as_deref()), (EventKind::ResolvedHappened, Some("ana")));
    }
}

#[tokio::test]
async fn an_operator_resolves_that_an_effect_did_not_happen_and_it_may_be_retried() {
    for (ledger, _folder) in every_ledger().await {
        let call = in_doubt(&ledger, "k").await;
        let identity = call.call().unwrap().identity;
        let version = call.get().await.unwrap().unwrap().seen.record.version;
        let settled = ledger.resolve(&identity, version, Resolution::DidNotHappen, None, None).await.unwrap();
        assert_eq!(settled, Resolved::Settled);
        assert_eq!(call.run(|claim| async move { Ok(claim.attempt()) }).await.unwrap().value, 2);
    }
}

#[tokio::test]
async fn an_intent_cannot_be_resolved_while_its_owner_works() {
    for (ledger, _folder) in every_ledger().await {
        let call = ledger.operation("charge").key("k");
        let guard = acquired(call.begin().await.unwrap());
        let identity = call.call().unwrap().identity;
        let refused = ledger.resolve(&identity, 1, Resolution::DidNotHappen, None, None).await.unwrap();
        assert_eq!(refused, Resolved::Refused(Refusal::Running));
        guard.release(Duration::ZERO, None).await.unwrap();
    }
}

#[tokio::test]
async fn a_late_owner_cannot_overwrite_the_outcome_and_is_recorded_in_the_trail() {
    for (ledger, clock, _folder) in every_timed_ledger().await {
        let call = ledger.operation("charge").key("k");
        let late = acquired(call.begin().await.unwrap());
        clock.advance(Duration::from_secs(3600));
        assert_eq!(status(&call).await, "in_doubt");
        let identity = call.call().unwrap().identity;
        let version = call.get().await.unwrap().unwrap().seen.record.version;
        let happened = Resolution::Happened(Outcome::success("1"));
        ledger.resolve(&identity, version, happened, None, None).await.unwrap();
        assert_eq!(late.finish(Outcome::success("2")).await.unwrap(), WriteResult::Stale);
        assert_eq!(call.run(|_| async { Ok(3) }).await.unwrap().value, 1);
        let trail = call.get().await.unwrap().unwrap().trail;
        assert_eq!(trail.last().unwrap().event.what, EventKind::Contradiction);
        assert_eq!(ledger.stats().contradictions, 1);
    }
}

#[tokio::test]
async fn a_late_owner_that_was_not_superseded_resolves_its_own_doubt() {
    for (ledger, clock, _folder) in every_timed_ledger().await {
        let call = ledger.operation("charge").key("k");
        let late = acquired(call.begin().await.unwrap());
        clock.advance(Duration::from_secs(3600));
        assert_eq!(status(&call).await, "in_doubt");
        assert_eq!(late.finish(Outcome::success("2")).await.unwrap(), WriteResult::Written);
        assert_eq!(call.run(|_| async { Ok(3) }).await.unwrap().value, 2);
    }
}

#[tokio::test]
async fn an_expired_outcome_is_not_served_from_the_cache() {
    for (ledger, clock, _folder) in every_timed_ledger().await {
        let effects = Effects::default();
        let call = ledger.operation("charge").key("k").retention(Duration::from_secs(10));
        let run = async || {
            let effects = effects.clone();
            call.run(|_| async move { Ok(effects.happen()) }).await
        };
        run().await.unwrap();
        clock.advance(Duration::from_millis(9_999));
        assert!(run().await.unwrap().replayed);
        clock.advance(Duration::from_millis(1));
        assert!(matches!(run().await, Err(Error::OutcomeNotKept { .. })), "a tombstone holds the key");
        clock.advance(Duration::from_secs(20));
        assert_eq!(run().await.unwrap().value, 2, "the key is free again");
    }
}

#[tokio::test]
async fn the_ledger_purges_expired_intents_by_itself() {
    for (ledger, clock, _folder) in every_timed_ledger().await {
        for number in 0..10 {
            let call = ledger.operation("charge").key(&number.to_string()).retention(Duration::from_secs(10));
            call.run(|_| async { Ok(()) }).await.unwrap();
        }
        clock.advance(Duration::from_secs(3600));
        for number in 0..256 {
            ledger.operation("other").key(&number.to_string()).run(|_| async { Ok(()) }).await.unwrap();
        }
        let left = async || {
            let all = ledger.list(&Filter::default(), None, 1000).await.unwrap().listed;
            all.iter()
                .filter(|listed| {
                    listed.seen.record.identity.as_ref().is_none_or(|name| name.operation.as_str() == "charge")
                })
                .count()
        };
        eventually("the expired intents are gone", async || left().await == 0).await;
    }
}

#[tokio::test]
async fn a_superseded_owner_stops_even_if_no_other_caller_could_take_over() {
    for (ledger, clock, _folder) in every_timed_ledger().await {
        // Doubts are held, and the claim is renewed after 300 ms: an operator has time to resolve it in between.
        let call = ledger.operation("charge").key("k").max_runtime(Duration::from_millis(300));
        let effects = Effects::default();
        let owner = {
            let (call, effects) = (call.clone(), effects.clone());
            tokio::spawn(async move {
                call.run(|_| async move {
                    tokio::time::sleep(Duration::from_secs(20)).await;
                    Ok(effects.happen())
                })
                .await
            })
        };
        eventually("it runs", async || status(&call).await == "running").await;
        clock.advance(Duration::from_secs(3600));
        let identity = call.call().unwrap().identity;
        let version = call.get().await.unwrap().unwrap().seen.record.version;
        let settled = ledger.resolve(&identity, version, Resolution::DidNotHappen, None, None).await.unwrap();
        assert_eq!(settled, Resolved::Settled);
        let stopped = tokio::time::timeout(Duration::from_secs(5), owner).await.expect("it stops").unwrap();
        assert!(matches!(stopped, Err(Error::ClaimLost { .. })), "{stopped:?}");
        assert_eq!(effects.count(), 0);
    }
}
