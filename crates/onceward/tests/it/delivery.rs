//! Whether callers got their answers: seen by every later begin, written with the next write, and not lost when the ledger
//! is closed.

use std::path::Path;
use std::time::{Duration, Instant};

use onceward::core::decide::Decision;
use onceward::core::outcome::Outcome;
use onceward::core::policy::{InDoubt, Policy};
use onceward::{Begun, Delivery, Guard, Ledger, Operation};
use rusqlite::Connection;

use crate::every_ledger;

fn call(ledger: &Ledger, key: &str) -> Operation {
    let policy = Policy { after_delivery: Some(Duration::ZERO), in_doubt: InDoubt::Tell, ..Policy::default() };
    ledger.operation("set").key(key).policy(policy)
}

async fn acquired(operation: &Operation) -> Guard {
    match operation.begin().await.unwrap() {
        Begun::Acquired(guard) => guard,
        Begun::Answered(decision) => panic!("{decision:?}"),
    }
}

/// Does the work, and gives what records that its answer arrived.
async fn done(operation: &Operation) -> Delivery {
    let guard = acquired(operation).await;
    let delivery = guard.delivery();
    guard.finish(Outcome::success("1")).await.unwrap();
    delivery
}

async fn is_replayed(operation: &Operation) -> bool {
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
        assert!(is_replayed(&operation).await, "this one was not delivered");
    }
}

#[tokio::test]
async fn that_an_answer_did_not_arrive_wins_over_a_delivery_that_waits() {
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
            assert!(is_replayed(&operation).await, "the next call's outcome is not taken back, and not delivered");
        }
    }
}

#[tokio::test]
async fn a_doubt_is_run_by_the_next_call_once_it_was_told() {
    for (ledger, _folder) in every_ledger().await {
        let operation = call(&ledger, "light");
        let guard = acquired(&operation).await;
        let delivery = guard.delivery();
        guard.doubt(Some("the connection was lost")).await.unwrap();
        for _ in 0..2 {
            let told = operation.begin().await.unwrap();
            assert!(matches!(told, Begun::Answered(Decision::InDoubt { .. })), "{told:?}");
        }
        delivery.arrived();
        assert!(!is_replayed(&operation).await);
    }
}

/// When the record of the only intent was delivered, as the file says.
fn delivered(path: &Path, key: &str) -> Option<i64> {
    let file = Connection::open(path).unwrap();
    file.query_row("SELECT delivered_at FROM intent WHERE key = ?1", [key], |row| row.get(0)).unwrap()
}

/// How many commits are in the log: frames that say how large the file is afterwards.
fn commits(path: &Path) -> usize {
    let log = std::fs::read(format!("{}-wal", path.display())).unwrap();
    let number = |at: usize| u32::from_be_bytes(log[at..at + 4].try_into().unwrap());
    let (page, salts) = (number(8) as usize, log[16..24].to_vec());
    let frames = (32..log.len()).step_by(24 + page).filter(|at| at + 24 <= log.len());
    frames.filter(|at| log[at + 8..at + 16] == salts[..] && number(at + 4) > 0).count()
}

#[tokio::test]
async fn a_delivery_is_written_with_the_next_write_and_costs_no_commit_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let ledger = Ledger::open(path.to_str().unwrap()).await.unwrap();
    let mut least = usize::MAX;
    // Upkeep may commit in between; it does not do so each time.
    for number in 0..10 {
        let key = format!("k{number}");
        let delivery = done(&call(&ledger, &key)).await;
        let before = commits(&path);
        delivery.arrived();
        let _guard = acquired(&call(&ledger, &format!("next{number}"))).await;
        assert!(delivered(&path, &key).is_some(), "it is written together with the next write");
        least = least.min(commits(&path) - before);
    }
    assert_eq!(least, 1);
    ledger.close().await;
}

#[tokio::test]
async fn a_delivery_that_nothing_follows_is_written_within_about_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let ledger = Ledger::open(path.to_str().unwrap()).await.unwrap();
    let delivery = done(&call(&ledger, "light")).await;
    let from = Instant::now();
    delivery.arrived();
    while delivered(&path, "light").is_none() {
        assert!(from.elapsed() < Duration::from_secs(4), "it still waits");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    ledger.close().await;
}

#[tokio::test]
async fn a_delivery_that_waits_is_written_when_the_ledger_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let ledger = Ledger::open(path.to_str().unwrap()).await.unwrap();
    done(&call(&ledger, "light")).await.arrived();
    ledger.close().await;
    assert!(delivered(&path, "light").is_some());
}

#[tokio::test]
async fn another_process_sees_a_delivery_soon_and_its_end_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let one = Ledger::open(path.to_str().unwrap()).await.unwrap();
    let other = Ledger::open(path.to_str().unwrap()).await.unwrap();
    let delivery = done(&call(&one, "light")).await;
    assert!(is_replayed(&call(&other, "light")).await);
    delivery.arrived();
    delivery.did_not_arrive().await;
    assert!(is_replayed(&call(&other, "light")).await, "its end is written when it returns");
    delivery.arrived();
    crate::eventually("the other process runs the next call", async || !is_replayed(&call(&other, "light")).await)
        .await;
    // By then the record is the next call's.
    delivery.did_not_arrive().await;
    assert!(is_replayed(&call(&one, "light")).await);
    for ledger in [one, other] {
        ledger.close().await;
    }
}
