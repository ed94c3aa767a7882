//! Other processes are told when work ends, so that their waiting callers need not poll.

use std::time::Duration;

use onceward::Ledger;
use onceward::store::Store;
use onceward::store::postgres::Postgres;

use super::pooled::pooled_url;
use super::server::{Database, run};

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_work_is_heard_in_another_process() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    // They share nothing but the database.
    let (owner, listener) =
        (Ledger::open(database.url.as_str()).await.unwrap(), Postgres::open(&database.url).await.unwrap());
    let mut hints = listener.hints().unwrap();
    // A hint may be lost, for example while either side still connects; so several pieces of work end.
    let heard = async {
        for number in 0.. {
            let call = owner.operation("mail").key(&format!("k{number}"));
            call.run(|_| async { Ok(1) }).await.unwrap();
            let id = call.call().unwrap().identity.digest();
            while let Ok(hint) = tokio::time::timeout(Duration::from_secs(1), hints.recv()).await {
                if hint.unwrap() == id {
                    return;
                }
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), heard).await.expect("no hint arrives");
    listener.close().await;
}

/// The connection that listens would go back to the pool, and its notifications would reach other clients of the pool.
#[tokio::test(flavor = "multi_thread")]
async fn no_pooled_connection_is_left_listening() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    let Some(pooled) = pooled_url(&database) else { return };
    let store = Postgres::open(&pooled).await.unwrap();
    let _hints = store.hints().unwrap();
    tokio::time::sleep(Duration::from_secs(4)).await;
    // Each holds a connection of the pool for itself.
    let looks = "BEGIN; SELECT pg_sleep(1); SELECT count(*) FROM pg_listening_channels(); COMMIT";
    let looks: Vec<_> = (0..12)
        .map(|_| {
            let pooled = pooled.clone();
            tokio::spawn(async move { run(&pooled, looks).await.unwrap() })
        })
        .collect();
    for look in looks {
        let rows = look.await.unwrap();
        assert_eq!(rows.last().unwrap()[0].as_deref(), Some("0"), "a connection of the pool listens");
    }
    store.close().await;
}
