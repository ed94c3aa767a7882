//! A server that goes away or falls silent: waiting reads share one attempt to connect and its failure.

use std::sync::Arc;
use std::time::{Duration, Instant};

use onceward::core::record::Fence;
use onceward::store::postgres::{Postgres, migrate};
use onceward::store::{Error, Store};

use super::cuts::claim_of;
use super::front::{Front, Mode};
use super::server::Database;

/// Reads one record many times at once. Returns how many were answered, and how long the last one took.
async fn read(store: &Arc<Postgres>, times: usize) -> (usize, Duration) {
    let (began, mut reads) = (Instant::now(), tokio::task::JoinSet::new());
    for _ in 0..times {
        let store = Arc::clone(store);
        reads.spawn(async move { store.get(claim_of("k", Fence::from_bits(1)).id).await.is_ok() });
    }
    let mut answered = 0;
    while let Some(read) = reads.join_next().await {
        answered += usize::from(read.unwrap());
    }
    (answered, began.elapsed())
}

/// With several stores, the reason alone does not tell which of them is down.
#[tokio::test]
async fn an_error_of_connecting_names_the_server_and_not_the_password() {
    // The port is free again when the listener is gone.
    let address = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let url = format!("postgres://ana:secret@{address}/app");
    for error in [Postgres::open(&url).await.unwrap_err(), migrate(&url, false).await.unwrap_err()] {
        let text = error.to_string();
        assert!(matches!(error, Error::Unreachable(_)), "{text}");
        assert!(text.contains(&format!("ana:…@{address}/app")) && !text.contains("secret"), "{text}");
    }
}

/// Waits until all of these reads are answered: on a busy machine, some take longer than the store waits for them.
async fn recovers(store: &Arc<Postgres>, times: usize) {
    crate::eventually("all reads are answered", async || read(store, times).await.0 == times).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_do_not_connect_in_a_storm_to_a_server_that_closes_connections() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    let front = Front::start(&database.url).await;
    let store = Arc::new(Postgres::open(&front.url(&format!("{}?timeout=2", database.url))).await.unwrap());
    recovers(&store, 1).await;
    front.set(Mode::Close);
    let (answered, lasted) = read(&store, 150).await;
    assert!(answered == 0 && lasted < Duration::from_secs(30), "{answered}, {lasted:?}");
    assert!(front.accepted() <= 60, "{} connections", front.accepted());
    front.set(Mode::Carry);
    recovers(&store, 150).await;
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_do_not_wait_in_turn_for_a_server_that_does_not_answer() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    let front = Front::start(&database.url).await;
    let store = Arc::new(Postgres::open(&front.url(&format!("{}?timeout=2", database.url))).await.unwrap());
    recovers(&store, 1).await;
    front.set(Mode::Ignore);
    let (answered, lasted) = read(&store, 60).await;
    // In turn, they would wait for two minutes.
    assert!(answered == 0 && lasted < Duration::from_secs(30), "{answered}, {lasted:?}");
    front.set(Mode::Carry);
    recovers(&store, 60).await;
    store.close().await;
}

/// Only the warning of a commit that was not replicated says something about the commit.
#[tokio::test]
async fn other_warnings_do_not_make_a_commit_doubtful() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    let warn = "CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'x'; RETURN NEW; END $$; \
                CREATE TRIGGER warn BEFORE INSERT ON onceward.intent FOR EACH ROW EXECUTE FUNCTION warn()";
    database.run(warn).await.unwrap();
    // A doubtful commit is tried again until the time is over.
    let store = Postgres::open(&format!("{}?timeout=60", database.url)).await.unwrap();
    let began = Instant::now();
    store.insert(claim_of("k", Fence::from_bits(1)), None).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    store.close().await;
}
