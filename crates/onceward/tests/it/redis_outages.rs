//! Redis servers that do not answer, are the wrong ones, or miss replicas.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use onceward::core::decide::{Command, decide};
use onceward::core::outcome::Outcome;
use onceward::core::policy::StoreDown;
use onceward::core::record::{Fence, Seen, State};
use onceward::store::redis::Redis;
use onceward::store::{Error, Replace, Store};
use onceward::{Ledger, Policy};

use crate::Effects;
use crate::redis::server;
use crate::redis_faults::{applied, begin, claim, created, drafted, made};
use crate::redis_private::Private;
use crate::redis_proxy::Proxy;

#[tokio::test]
async fn a_claim_that_too_few_replicas_confirm_is_released_and_nothing_runs() {
    let Some(private) = Private::start(&[]).await else { return };
    let plain = made(&private.url()).await;
    let store = Redis::open(&format!("{}&replicas=1&wait_ms=50", private.url())).await.unwrap();
    let error = store.insert(claim("a", 1), None).await.unwrap_err();
    assert!(error.to_string().contains("0 of 1 replicas") && !error.is_out_of_reach(), "{error}");
    let id = claim("a", 1).id;
    assert_eq!(plain.get(id).await.unwrap(), None, "the claim is gone");
    // A claim on a record that exists is given back.
    let record = created(&plain, claim("a", 1)).await;
    let release = Command::Release { fence: Fence::from_bits(1), not_before: Duration::ZERO, error: None };
    let open = applied(&plain, &plain.get(record.id).await.unwrap().unwrap(), &release).await;
    let seen = Seen { record: open, now: record.created_at, owner_gone: false };
    let again = drafted(decide(Some(&seen), &begin("a", 2)).write);
    let error = store.replace(Replace::of(&seen.record, again)).await.unwrap_err();
    assert!(matches!(error, Error::Unconfirmed { .. }), "{error}");
    let left = plain.get(record.id).await.unwrap().unwrap().record;
    assert!(matches!(left.state, State::Open { .. }), "{left:?}");
    // Other writes stay, and the caller learns that they may be lost.
    let held = created(&plain, claim("b", 3)).await;
    let finish = Command::Finish { fence: Fence::from_bits(3), outcome: Outcome::success("1") };
    let seen = plain.get(held.id).await.unwrap().unwrap();
    let finished = || Replace::of(&held, drafted(decide(Some(&seen), &finish).write));
    let error = store.replace(finished()).await.unwrap_err();
    assert!(matches!(error, Error::Unconfirmed { .. }), "{error}");
    assert!(matches!(plain.get(held.id).await.unwrap().unwrap().record.state, State::Done { .. }));
    // An owner that tries again finds its own outcome there, which still is on no replica.
    let error = store.replace(finished()).await.unwrap_err();
    assert!(matches!(error, Error::Unconfirmed { .. }), "{error}");
}

#[tokio::test]
async fn work_never_runs_unguarded_because_replicas_are_missing() {
    let Some(private) = Private::start(&[]).await else { return };
    made(&private.url()).await;
    let store = Redis::open(&format!("{}&replicas=1&wait_ms=50", private.url())).await.unwrap();
    let ledger = Ledger::builder().on(Arc::new(store));
    let effects = Effects::default();
    let policy = Policy { store_down: StoreDown::Open, ..Policy::default() };
    for _ in 0..2 {
        let call = ledger.operation("mail").key("1").policy(policy.clone());
        call.run(|_| async { Ok(effects.happen()) }).await.unwrap_err();
    }
    assert_eq!(effects.count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_share_the_attempts_to_connect() {
    let Some(private) = Private::start(&[]).await else { return };
    let proxy = Proxy::to(private.port).await;
    let through = private.url().replace(&format!("127.0.0.1:{}", private.port), &proxy.address.to_string());
    Redis::migrate(&private.url(), false).await.unwrap();
    let store = Redis::open(&format!("{through}&timeout=2s&wait_ms=500")).await.unwrap();
    created(&store, claim("a", 1)).await;
    let before = proxy.connections.load(Ordering::SeqCst);
    proxy.closes.store(true, Ordering::SeqCst);
    let claims = (0..100).map(|number| store.insert(claim(&format!("b{number}"), 1), None));
    for inserted in join_all(claims.collect::<Vec<_>>()).await {
        assert!(inserted.unwrap_err().is_out_of_reach());
    }
    let attempts = proxy.connections.load(Ordering::SeqCst) - before;
    assert!((2..=20).contains(&attempts), "{attempts} connections in two seconds");
    proxy.closes.store(false, Ordering::SeqCst);
    created(&store, claim("c", 1)).await;
}

#[tokio::test]
async fn a_node_of_a_cluster_is_refused_at_once_with_the_right_scheme() {
    let Some(url) = server("ONCEWARD_TEST_REDIS_CLUSTER") else { return };
    let node = url.replace("redis+cluster://", "redis://");
    let (hosts, query) = node.split_once('?').unwrap();
    let node = format!("{}?{query}", hosts.split(',').next().unwrap());
    let began = std::time::Instant::now();
    let error = Redis::migrate(&node, false).await.unwrap_err();
    assert!(error.to_string().contains("redis+cluster://") && !error.is_out_of_reach(), "{error}");
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

#[tokio::test]
async fn health_checks_share_one_check_in_a_second() {
    let Some(private) = Private::start(&[]).await else { return };
    let store = made(&private.url()).await;
    let checks = async || {
        let stats: String = private.ask(&["INFO", "commandstats"]).await;
        let set = stats.lines().find_map(|line| line.strip_prefix("cmdstat_set:calls=")).unwrap();
        set.split(',').next().unwrap().parse::<u32>().unwrap()
    };
    let before = checks().await;
    for _ in 0..20 {
        store.check().await.unwrap();
    }
    assert_eq!(checks().await - before, 1);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    store.check().await.unwrap();
    assert_eq!(checks().await - before, 2);
}
