//! Many callers at once, slow queries and locks: what holds up one key or one kind of work leaves the others alone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use onceward::core::record::{Fence, State};
use onceward::store::postgres::Postgres;
use onceward::store::{Error, Filter, Inserted, Replace, Replaced, Store};

use super::cuts::{claim_of, end_of};
use super::server::Database;

/// A lock on the whole table of intents.
const HELD: &str =
    "FROM pg_locks WHERE relation = 'onceward.intent'::regclass AND mode = 'AccessExclusiveLock' AND granted";

/// Holds a lock on the whole table of intents until it is given back: longer than any caller waits.
async fn lock_table(database: &Database) -> tokio::task::JoinHandle<()> {
    let url = database.url.clone();
    let sql = "BEGIN; LOCK TABLE onceward.intent IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(600); COMMIT";
    let locked = tokio::spawn(async move { drop(super::server::run(&url, sql).await) });
    while count(database, &format!("SELECT count(*) {HELD}")).await == 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    locked
}

async fn unlock_table(database: &Database, locked: tokio::task::JoinHandle<()>) {
    database.run(&format!("SELECT pg_terminate_backend(pid) {HELD}")).await.unwrap();
    locked.await.unwrap();
}

async fn count(database: &Database, sql: &str) -> i64 {
    database.run(sql).await.unwrap()[0][0].as_deref().unwrap_or("0").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_repeats_of_one_key_takes_few_transactions() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    let store = Arc::new(Postgres::open(&format!("{}?writers=1", database.url)).await.unwrap());
    let owner = Fence::from_bits(1);
    store.insert(claim_of("hot", owner), None).await.unwrap();
    let mut calls = tokio::task::JoinSet::new();
    for caller in 0..1000 {
        let store = Arc::clone(&store);
        calls.spawn(async move { store.insert(claim_of("hot", Fence::from_bits(100 + caller)), None).await.unwrap() });
    }
    while let Some(answer) = calls.join_next().await {
        let Inserted::Exists(seen) = answer.unwrap() else { panic!("the key was claimed twice") };
        assert_eq!(seen.record.fence(), Some(owner));
    }
    let batches = count(&database, "SELECT max(mark) FROM onceward.high_water_mark").await;
    assert!(batches < 100, "{batches} transactions for one row");
    store.close().await;
}

/// The key has no owner yet: one caller gets it, and all others learn who has it.
#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_first_calls_of_one_key_has_one_winner() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    let store = Arc::new(Postgres::open(&database.url).await.unwrap());
    for round in 0..10 {
        let mut calls = tokio::task::JoinSet::new();
        for caller in 1..=200 {
            let (store, key) = (Arc::clone(&store), format!("k{round}"));
            calls.spawn(async move {
                let fence = Fence::from_bits(caller);
                (fence, store.insert(claim_of(&key, fence), None).await.unwrap())
            });
        }
        let (mut winner, mut told) = (None, Vec::new());
        while let Some(answer) = calls.join_next().await {
            match answer.unwrap() {
                (fence, Inserted::Created { .. }) => assert_eq!(winner.replace(fence), None, "two winners"),
                (_, Inserted::Exists(seen)) => told.push(seen.record.fence()),
                other => panic!("{other:?}"),
            }
        }
        assert!(told.len() == 199 && told.iter().all(|fence| *fence == winner), "round {round}");
    }
    store.close().await;
}

/// All of them saw the same version: one write holds, and each of the others gets the row that it made.
#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_equal_writes_has_one_winner_and_takes_few_transactions() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    let store = Arc::new(Postgres::open(&format!("{}?writers=1", database.url)).await.unwrap());
    let fence = Fence::from_bits(1);
    store.insert(claim_of("k", fence), None).await.unwrap();
    let seen = store.get(claim_of("k", fence).id).await.unwrap().unwrap();
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..500 {
        let (store, end) = (Arc::clone(&store), end_of(&seen, fence));
        calls.spawn(async move { store.replace(end).await.unwrap() });
    }
    let mut written = 0;
    while let Some(answer) = calls.join_next().await {
        match answer.unwrap() {
            Replaced::Written { .. } => written += 1,
            Replaced::Conflict(Some(seen)) => assert!(matches!(seen.record.state, State::Done { .. })),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((written, store.trail(seen.record.id).await.unwrap().len()), (1, 1));
    let batches = count(&database, "SELECT max(mark) FROM onceward.high_water_mark").await;
    assert!(batches < 100, "{batches} transactions for one row");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_do_not_wait_in_turn_for_a_lock_on_the_whole_table() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    let store = Arc::new(Postgres::open(&format!("{}?writers=1", database.url)).await.unwrap());
    store.insert(claim_of("warm", Fence::from_bits(1)), None).await.unwrap();
    let locked = lock_table(&database).await;
    let (began, mut calls) = (Instant::now(), tokio::task::JoinSet::new());
    for number in 0..40 {
        let store = Arc::clone(&store);
        calls.spawn(async move { store.insert(claim_of(&format!("k{number}"), Fence::from_bits(1)), None).await });
    }
    let mut unreachable = 0;
    while let Some(answer) = calls.join_next().await {
        match answer.unwrap() {
            Ok(Inserted::Undecided) => {}
            Err(Error::Unreachable(_)) => unreachable += 1,
            other => panic!("{other:?}"),
        }
    }
    // One after another, they would wait for five minutes.
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert!(unreachable >= 35, "{unreachable} of 40 were told the truth");
    // Those that come later are told after one attempt.
    let began = Instant::now();
    assert!(store.insert(claim_of("later", Fence::from_bits(1)), None).await.is_err());
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    unlock_table(&database, locked).await;
    assert!(matches!(
        store.insert(claim_of("after", Fence::from_bits(1)), None).await.unwrap(),
        Inserted::Created { .. }
    ));
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_that_hang_leave_the_checks_alone_and_end_on_the_server_too() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    let store = Arc::new(Postgres::open(&format!("{}?timeout=5", database.url)).await.unwrap());
    store.check().await.unwrap();
    let locked = lock_table(&database).await;
    let lists: Vec<_> = (0..4)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.list(&Filter::default(), None, 10).await })
        })
        .collect();
    let running = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                   AND application_name = 'onceward' AND state = 'active'";
    crate::eventually("a list hangs", async || count(&database, running).await > 0).await;
    store.check().await.unwrap();
    store.durability().await.unwrap();
    store.operations().await.unwrap();
    assert!(lists.iter().any(|list| !list.is_finished()), "the checks waited for the lists");
    for list in lists {
        assert!(list.await.unwrap().is_err());
    }
    // Although the lock is still held.
    crate::eventually("the statements end", async || count(&database, running).await == 0).await;
    unlock_table(&database, locked).await;
    assert!(store.list(&Filter::default(), None, 10).await.is_ok());
    store.close().await;
}

/// Large outcomes are not part of the answer to a batch, and are read by themselves.
#[tokio::test(flavor = "multi_thread")]
async fn repeats_get_all_of_a_large_outcome() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    let store = Postgres::open(&database.url).await.unwrap();
    let fence = Fence::from_bits(1);
    store.insert(claim_of("k", fence), None).await.unwrap();
    let claimed = store.get(claim_of("k", fence).id).await.unwrap().unwrap();
    let outcome = onceward::Outcome::success("x".repeat(3 << 20));
    let finish = onceward::core::decide::Command::Finish { fence, outcome: outcome.clone() };
    let onceward::core::decide::Write::Replace(draft) = onceward::core::decide::decide(Some(&claimed), &finish).write
    else {
        panic!("the claim was lost")
    };
    let end = Replace::of(&claimed.record, draft);
    assert!(matches!(store.replace(end.clone()).await, Ok(Replaced::Written { .. })));
    let Ok(Inserted::Exists(repeat)) = store.insert(claim_of("k", Fence::from_bits(2)), None).await else { panic!() };
    let Ok(Replaced::Conflict(Some(late))) = store.replace(end).await else { panic!() };
    for seen in [repeat, late] {
        let State::Done { outcome: kept, .. } = &seen.record.state else { panic!("{:?}", seen.record.state) };
        assert!(*kept == outcome);
    }
    let sizes = "SELECT count(*) FROM onceward.write_v1('{}', '{}', '{}', false, false, NULL, NULL, NULL)";
    assert_eq!(count(&database, sizes).await, 1);
    store.close().await;
}
