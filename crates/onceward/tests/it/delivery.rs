//! Delivery of answers to callers: every later begin sees a delivery, the store writes it with its next write, and closing
//! the ledger does not lose it.

use std::path::Path;
use std::time::{Duration, Instant};

use onceward::core::decide::Decision;
use onceward::core::outcome::Outcome;
use onceward::core::policy::{InDoubt, Policy};
use onceward::core::record::Status;
use onceward::remote::WriteResult;
use onceward::{Begun, CallBuilder, Delivery, Guard, Ledger};
use rusqlite::Connection;

use crate::every_ledger;

fn call(ledger: &Ledger, key: &str) -> CallBuilder {
    let policy = Policy { after_delivery: Some(Duration::ZERO), in_doubt: InDoubt::Tell, ..Policy::default() };
    ledger.operation("set").key(key).policy(policy)
}

async fn acquired(operation: &CallBuilder) -> Guard {
    match operation.begin().await.unwrap() {
        Begun::Acquired(guard) => guard,
        Begun::Answered(decision) => panic!("{decision:?}"),
    }
}

/// Does the work, and returns the handle that records the delivery of its answer.
async fn done(operation: &CallBuilder) -> Delivery {
    let guard = acquired(operation).await;
    let delivery = guard.delivery();
    guard.finish(Outcome::success("1")).await.unwrap();
    delivery
}

async fn is_replayed(operation: &CallBuilder) -> bool {
    match operation.begin().await.unwrap() {
        Begun::Answered(Decision::Replay { .. }) => true,
        Begun::Answered(other) => panic!("{other:?}"),
        Begun::Acquired(guard) => {
            guard.finish(Outcome::success("2")).await.unwrap();
            false
        }
    }
}

#[tokio::test]
async fn every_later_begin_sees_that_an_answer_arrived() {
    for (ledger, _folder) in every_ledger().await {
        let operation = call(&ledger, "light");
        for _ in 0..30 {
            done(&operation).await.arrived();
        }
        assert!(!is_replayed(&operation).await);
        assert!(is_replayed(&operation).await, "this answer was not delivered");
    }
}

#[tokio::test]
async fn did_not_arrive_overrides_a_pending_delivery() {
    for (ledger, _folder) in every_ledger().await {
        for number in 0..30 {
            let operation = call(&ledger, &format!("k{number}"));
            let delivery = done(&operation).await;
            delivery.arrived();
            delivery.did_not_arrive().await;
            assert!(is_replayed(&operation).await);
            delivery.arrived();
            assert!(!is_replayed(&operation).await);
            delivery.did_not_arrive().await;
            assert!(is_replayed(&operation).await, "the next call's outcome is unchanged and not delivered");
        }
    }
}

#[tokio::test]
async fn an_intent_in_doubt_runs_again_after_the_doubt_was_delivered() {
    for (ledger, _folder) in every_ledger().await {
        let operation = call(&ledger, "light");
        let guard = acquired(&operation).await;
        let delivery = guard.delivery();
        guard.doubt(Some("the connection was lost")).await.unwrap();
        for _ in 0..2 {
            let answer = operation.begin().await.unwrap();
            assert!(matches!(answer, Begun::Answered(Decision::InDoubt { .. })), "{answer:?}");
        }
        delivery.arrived();
        assert!(!is_replayed(&operation).await);
    }
}

/// The delivery time of an intent, read from the file.
fn delivered(path: &Path, key: &str) -> Option<i64> {
    let file = Connection::open(path).unwrap();
    file.query_row("SELECT delivered_at FROM intent WHERE key = ?1", [key], |row| row.get(0)).unwrap()
}

/// The number of commits in the write-ahead log: a commit frame holds the size of the file after the commit.
fn commits(path: &Path) -> usize {
    let log = std::fs::read(format!("{}-wal", path.display())).unwrap();
    let number = |at: usize| u32::from_be_bytes(log[at..at + 4].try_into().unwrap());
    let (page, salts) = (number(8) as usize, log[16..24].to_vec());
    let frames = (32..log.len()).step_by(24 + page).filter(|at| at + 24 <= log.len());
    frames.filter(|at| log[at + 8..at + 16] == salts[..] && number(at + 4) > 0).count()
}

#[tokio::test]
async fn a_delivery_is_written_with_the_next_write_and_needs_no_separate_commit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let ledger = Ledger::open(path.to_str().unwrap()).await.unwrap();
    let mut fewest = usize::MAX;
    // Maintenance may commit in between, but not in every round.
    for number in 0..10 {
        let key = format!("k{number}");
        let delivery = done(&call(&ledger, &key)).await;
        let before = commits(&path);
        delivery.arrived();
        let _guard = acquired(&call(&ledger, &format!("next{number}"))).await;
        assert!(delivered(&path, &key).is_some(), "it is written together with the next write");
        fewest = fewest.min(commits(&path) - before);
    }
    assert_eq!(fewest, 1);
    ledger.close().await;
}

#[tokio::test]
async fn a_delivery_without_a_later_write_is_written_within_about_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let ledger = Ledger::open(path.to_str().unwrap()).await.unwrap();
    let delivery = done(&call(&ledger, "light")).await;
    let from = Instant::now();
    delivery.arrived();
    while delivered(&path, "light").is_none() {
        // Without the second it would be written when the ledger is closed.
        assert!(from.elapsed() < Duration::from_secs(30), "the delivery is still not written");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    ledger.close().await;
}

#[tokio::test]
async fn a_pending_delivery_is_written_when_the_ledger_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let ledger = Ledger::open(path.to_str().unwrap()).await.unwrap();
    done(&call(&ledger, "light")).await.arrived();
    ledger.close().await;
    assert!(delivered(&path, "light").is_some());
}

#[tokio::test]
async fn another_process_sees_a_delivery_soon_and_its_revocation_immediately() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let one = Ledger::open(path.to_str().unwrap()).await.unwrap();
    let other = Ledger::open(path.to_str().unwrap()).await.unwrap();
    let delivery = done(&call(&one, "light")).await;
    assert!(is_replayed(&call(&other, "light")).await);
    delivery.arrived();
    delivery.did_not_arrive().await;
    assert!(is_replayed(&call(&other, "light")).await, "the revocation is written when did_not_arrive returns");
    delivery.arrived();
    crate::eventually("the other process runs the next call", async || !is_replayed(&call(&other, "light")).await)
        .await;
    // The record belongs to the next call by now.
    delivery.did_not_arrive().await;
    assert!(is_replayed(&call(&one, "light")).await);
    for ledger in [one, other] {
        ledger.close().await;
    }
}

#[tokio::test]
async fn a_late_outcome_settles_the_doubt_of_its_own_attempt_only() {
    for (ledger, _folder) in every_ledger().await {
        let operation = call(&ledger, "light");
        let first = acquired(&operation).await;
        let late = first.late_owner();
        let delivery = first.delivery();
        first.claim().sent().await.unwrap();
        first.doubt(None).await.unwrap();
        delivery.arrived_after_all().await;
        done(&operation).await.arrived();

        let next = acquired(&operation).await;
        assert_eq!(next.claim().attempt(), 1, "the attempts of the next call are counted from 1");
        let own = next.late_owner();
        next.claim().sent().await.unwrap();
        next.doubt(None).await.unwrap();
        let status = async || ledger.get(&operation.call().unwrap().identity).await.unwrap().unwrap().status();
        assert!(matches!(late.finish(Outcome::success("late")).await.unwrap(), WriteResult::Stale));
        assert_eq!(status().await, Some(Status::InDoubt));
        assert!(matches!(own.finish(Outcome::success("own")).await.unwrap(), WriteResult::Written(_)));
        assert_eq!(status().await, Some(Status::Done));
    }
}
