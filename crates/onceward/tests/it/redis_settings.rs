//! What the settings of a Redis server promise, and what happens when an operator changes them.

use std::sync::Arc;
use std::time::Duration;

use ::redis::cmd;
use onceward::clock::ManualClock;
use onceward::copy::{self, Side};
use onceward::core::decide::Command;
use onceward::core::name::Operation;
use onceward::core::record::{Fence, Seen, State};
use onceward::policy::Tier;
use onceward::store::redis::Redis;
use onceward::store::{Durability, Error, Filter, Store};
use onceward::{Begun, Ledger, Outcome, WriteResult};

use crate::redis::server;
use crate::redis_faults::{SINGLE, applied, claim, created, made, remove_keys};
use crate::redis_private::{Private, raw};

#[tokio::test]
async fn an_evicting_server_is_refused_at_first_and_when_it_changes() {
    let Some(private) = Private::start(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]).await else {
        return;
    };
    let error = Redis::migrate(&private.url(), false).await.unwrap_err();
    assert!(error.to_string().contains("maxmemory-policy allkeys-lru"), "{error}");
    private.set("maxmemory-policy", "noeviction").await;
    let store = made(&private.url()).await;
    created(&store, claim("a", 1)).await;
    private.set("maxmemory-policy", "volatile-ttl").await;
    assert!(Redis::open(&private.url()).await.is_err());
    store.durability().await.unwrap_err();
    let error = store.insert(claim("b", 1), None).await.unwrap_err();
    assert!(error.to_string().contains("volatile-ttl") && !error.is_out_of_reach(), "{error}");
    private.set("maxmemory-policy", "noeviction").await;
    store.durability().await.unwrap();
    created(&store, claim("b", 1)).await;
}

/// Makes the server evict a key that is not the ledger's, and sets it right again.
async fn evict_one(private: &Private) {
    let _: String = private.ask(&["SET", "pad", &"x".repeat(1_000_000), "PX", "900000"]).await;
    let used: String = private.ask(&["INFO", "memory"]).await;
    let used: u64 = used.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap().trim().parse().unwrap();
    private.set("maxmemory-policy", "volatile-ttl").await;
    private.set("maxmemory", &(used - 500_000).to_string()).await;
    private.shows("stats", "evicted_keys:1").await;
    private.set("maxmemory", "0").await;
    private.set("maxmemory-policy", "noeviction").await;
}

#[tokio::test]
async fn a_process_that_made_no_claims_for_a_while_looks_before_the_next_one() {
    let Some(private) = Private::start(&[]).await else { return };
    let store = made(&private.url()).await;
    private.set("maxmemory", "100mb").await;
    private.set("maxmemory-policy", "volatile-ttl").await;
    later(Duration::from_secs(11)).await;
    let error = store.insert(claim("a", 1), None).await.unwrap_err();
    assert!(error.to_string().contains("volatile-ttl"), "{error}");
}

#[tokio::test]
async fn a_server_that_has_evicted_keys_meanwhile_is_refused_although_it_evicts_no_more() {
    let Some(private) = Private::start(&[]).await else { return };
    let store = made(&private.url()).await;
    evict_one(&private).await;
    later(Duration::from_secs(11)).await;
    let error = store.insert(claim("a", 1), None).await.unwrap_err();
    assert!(error.to_string().contains("it has evicted 1 keys") && !error.is_out_of_reach(), "{error}");
    assert!(Redis::open(&private.url()).await.is_ok(), "a new process goes on");
}

#[tokio::test]
async fn what_an_owner_writes_is_kept_by_a_server_that_has_begun_to_evict() {
    let Some(private) = Private::start(&[]).await else { return };
    let store = made(&private.url()).await;
    let ledger = Ledger::builder().on(Arc::new(Redis::open(&private.url()).await.unwrap()));
    let paid = ledger.operation("mail").key("1");
    let Begun::Acquired(guard) = paid.begin().await.unwrap() else { panic!("not acquired") };
    private.set("maxmemory", "100mb").await;
    private.set("maxmemory-policy", "volatile-ttl").await;
    later(Duration::from_secs(11)).await;
    let error = ledger.operation("mail").key("2").run(|_| async { Ok(1) }).await.unwrap_err();
    assert!(error.to_string().contains("volatile-ttl"), "{error}");
    assert_eq!(guard.finish(Outcome::success("1")).await.unwrap(), WriteResult::Written);
    let id = paid.call().unwrap().identity.digest();
    assert!(matches!(store.get(id).await.unwrap().unwrap().record.state, State::Done { .. }));
}

#[tokio::test]
async fn a_record_that_the_server_has_lost_is_not_made_again() {
    let Some(url) = server(SINGLE) else { return };
    Redis::migrate(&url, false).await.unwrap();
    let clock = ManualClock::default();
    let store = Redis::open_with_clock(&url, Arc::new(clock.clone())).await.unwrap();
    let id = created(&store, claim("a", 1)).await.id;
    let lose = async || remove_keys(&url, |key| key.ends_with(id.to_hex().as_bytes())).await;
    let seen = store.get(id).await.unwrap().unwrap();
    lose().await;
    let error = store.insert(claim("a", 2), None).await.unwrap_err();
    assert!(error.to_string().contains("has lost the record") && !error.is_out_of_reach(), "{error}");
    assert_eq!(store.get(id).await.unwrap(), None, "the refused claim left something behind");
    // A tombstone, until its work may be done again.
    let url = server(SINGLE).unwrap();
    Redis::migrate(&url, false).await.unwrap();
    let store = Redis::open_with_clock(&url, Arc::new(clock.clone())).await.unwrap();
    created(&store, claim("a", 1)).await;
    let finish = Command::Finish { fence: Fence::from_bits(1), outcome: Outcome::success("1") };
    applied(&store, &Seen { now: seen.now, ..store.get(id).await.unwrap().unwrap() }, &finish).await;
    clock.advance(Duration::from_secs(11));
    assert_eq!(store.purge(10).await.unwrap().tombstones, 1);
    remove_keys(&url, |key| key.ends_with(id.to_hex().as_bytes())).await;
    let error = store.insert(claim("a", 2), None).await.unwrap_err();
    assert!(error.to_string().contains("has lost the record"), "{error}");
    clock.advance(Duration::from_secs(25));
    created(&store, claim("a", 3)).await;
    clock.advance(Duration::from_secs(1));
    assert_eq!(store.purge(10).await.unwrap().total(), 0, "nothing is left of the tombstone");
}

#[tokio::test]
async fn durability_is_what_the_settings_of_the_server_promise() {
    let Some(private) = Private::start(&["--appendonly", "no"]).await else { return };
    let store = made(&private.url()).await;
    let shown = store.durability().await.unwrap();
    assert!(shown.is_best_effort() && shown.to_string().contains("appendonly no"), "{shown}");
    private.set("appendonly", "yes").await;
    private.set("appendfsync", "everysec").await;
    let shown = store.durability().await.unwrap();
    assert!(shown.is_best_effort() && shown.to_string().contains("appendfsync everysec"), "{shown}");
    private.set("appendfsync", "always").await;
    private.shows("persistence", "aof_rewrite_in_progress:0").await;
    assert_eq!(store.durability().await.unwrap(), Durability::Durable);
    let user = ["ACL", "SETUSER", "plain", "on", ">pw", "~*", "+@all", "-config"];
    let mut command = cmd(user[0]);
    user[1..].iter().for_each(|word| drop(command.arg(word).clone()));
    let _: String = command.query_async(&mut raw(&private.url()).await).await.unwrap();
    let store = Redis::open(&private.url().replace("redis://", "redis://plain:pw@")).await.unwrap();
    let shown = store.durability().await.unwrap();
    assert!(shown.is_best_effort() && shown.to_string().contains("unknown"), "{shown}");
    let error = Redis::open(&private.url().replace("redis://", "redis://plain:wrong-pw@")).await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }) && !error.to_string().contains("wrong-pw"), "{error}");
}

/// A server that keeps a log as a durable ledger needs it.
const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

async fn reasons(store: &Redis) -> String {
    let shown = store.durability().await.unwrap();
    assert!(shown.is_best_effort(), "{shown}");
    shown.to_string()
}

#[tokio::test]
async fn a_log_that_is_not_synced_during_a_rewrite_is_best_effort() {
    let Some(private) = Private::start(&DURABLE).await else { return };
    let store = made(&private.url()).await;
    assert_eq!(store.durability().await.unwrap(), Durability::Durable);
    private.set("no-appendfsync-on-rewrite", "yes").await;
    let shown = reasons(&store).await;
    assert!(shown.contains("no-appendfsync-on-rewrite"), "{shown}");
}

#[tokio::test]
async fn a_log_that_was_turned_on_is_best_effort_until_it_has_all_data() {
    let settings = ["--appendfsync", "always", "--rdb-key-save-delay", "20000"];
    let Some(private) = Private::start(&settings).await else { return };
    let store = made(&private.url()).await;
    private.set("appendonly", "yes").await;
    let shown = reasons(&store).await;
    assert!(shown.contains("turned its log on"), "{shown}");
    // A process that was not there before sees it too.
    let other = Redis::open(&private.url()).await.unwrap();
    let shown = reasons(&other).await;
    assert!(shown.contains("turned its log on"), "{shown}");
    private.shows("persistence", "aof_rewrite_in_progress:0").await;
    assert_eq!(store.durability().await.unwrap(), Durability::Durable);
    // The next rewrite is as safe as no rewrite.
    let _: String = private.ask(&["BGREWRITEAOF"]).await;
    assert_eq!(store.durability().await.unwrap(), Durability::Durable);
}

#[tokio::test]
async fn replicas_that_need_not_confirm_a_write_make_a_single_server_best_effort() {
    let Some(private) = Private::start(&DURABLE).await else { return };
    let store = made(&private.url()).await;
    let Some(_replica) = Private::start(&["--replicaof", &format!("127.0.0.1 {}", private.port)]).await else { return };
    private.shows("replication", "state=online").await;
    let shown = reasons(&store).await;
    assert!(shown.contains("1 replicas"), "{shown}");
    let waiting = Redis::open(&format!("{}&replicas=1", private.url())).await.unwrap();
    assert_eq!(waiting.durability().await.unwrap(), Durability::Durable);
}

#[tokio::test]
async fn a_payment_is_refused_about_a_minute_after_its_store_became_best_effort() {
    let Some(private) = Private::start(&DURABLE).await else { return };
    let ledger = Ledger::builder().on(Arc::new(made(&private.url()).await));
    let pay = async |key: &str| ledger.operation("pay").key(key).tier(Tier::Payment).run(|_| async { Ok(1) }).await;
    pay("1").await.unwrap();
    private.set("appendfsync", "everysec").await;
    later(Duration::from_secs(61)).await;
    let error = pay("2").await.unwrap_err().to_string();
    assert!(error.contains("allow_best_effort"), "{error}");
    private.set("appendfsync", "always").await;
    later(Duration::from_secs(6)).await;
    pay("2").await.unwrap();
}

/// Lets time pass for what counts it, without waiting.
async fn later(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// With the command that docs/guides/redis.md shows.
#[tokio::test]
async fn the_user_of_the_guide_may_do_everything_that_a_ledger_needs() {
    let Some(private) = Private::start(&DURABLE).await else { return };
    let guide = include_str!("../../../../docs/guides/redis.md");
    let shown = guide.lines().find(|line| line.starts_with("ACL SETUSER")).unwrap();
    let shown = shown.replace("{onceward:", "{private:");
    private.ask::<String>(&shown.split_whitespace().collect::<Vec<_>>()).await;
    let url = private.url().replace("redis://", "redis://onceward:PASSWORD@").replace("/0?", "/1?");
    Redis::migrate(&url, false).await.unwrap();
    let ledger = Ledger::builder().records_per_tenant(9).on(Arc::new(Redis::open(&url).await.unwrap()));
    for operation in ["mail", "POST /mail"] {
        let call = ledger.operation(operation).key("1").tier(Tier::Payment);
        assert_eq!(call.run(|_| async { Ok(1) }).await.unwrap().value, 1);
        assert!(call.run(|_| async { Ok(2) }).await.unwrap().replayed);
    }
    ledger.place_operations(&["mail", "sms"].map(|name| Operation::new(name).unwrap())).await.unwrap();
    ledger.purge(10).await.unwrap();
    ledger.ping().await.unwrap();
    assert_eq!(ledger.list(&Filter::default(), None, 10).await.unwrap().listed.len(), 2);
    assert_eq!(ledger.stores().await.unwrap()[0].durability, Durability::Durable);
    let folder = tempfile::tempdir().unwrap();
    let target = onceward::store::open(folder.path().join("ledger.db").to_str().unwrap()).await.unwrap();
    let from = Side { store: Arc::new(Redis::open(&url).await.unwrap()), name: "redis".into() };
    let to = Side { store: target, name: "file".into() };
    copy::copy(&from, &to, copy::Options::default(), &|_| {}).await.unwrap();
    // It can do no more than that.
    let flushed = cmd("FLUSHALL").query_async::<String>(&mut raw(&url).await).await;
    assert!(flushed.is_err(), "{flushed:?}");
}
