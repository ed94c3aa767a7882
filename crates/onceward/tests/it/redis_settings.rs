//! What the settings of a Redis server promise, and what happens when an operator changes them.

use std::sync::Arc;
use std::time::Duration;

use ::redis::cmd;
use onceward::policy::Tier;
use onceward::store::redis::Redis;
use onceward::store::{Durability, Error, Store};
use onceward::Ledger;

use crate::redis_faults::{claim, created, made};
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
