//! What can go wrong with Redis: flushed servers, lost answers, failovers, full servers.

use std::process::Command as Process;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ::redis::cmd;
use onceward::clock::ManualClock;
use onceward::core::decide::{Again, Begin, Command, Take, Write, decide};
use onceward::core::fingerprint::Fingerprint;
use onceward::core::name::{Identity, Key, Operation, Tenant};
use onceward::core::outcome::Outcome;
use onceward::core::record::{Draft, Fence, Record, Seen, State};
use onceward::policy::{Policy, Retention};
use onceward::store::redis::Redis;
use onceward::store::{AuditEvent, Error, EventKind, Filter, Inserted, Replace, Replaced, Store};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::redis::{FAILOVER, server};
use crate::redis_private::{Private, raw};
use crate::redis_proxy::Proxy;

pub(crate) const SINGLE: &str = "ONCEWARD_TEST_REDIS";

pub(crate) fn begin(key: &str, fence: u128) -> Command {
    let policy = Policy {
        retention: Some(Retention::For(Duration::from_secs(10))),
        tombstone: Some(Duration::from_secs(20)),
        ..Policy::default()
    };
    Command::Begin(Begin {
        identity: Identity {
            tenant: Tenant::new("acme").unwrap(),
            operation: Operation::new("mail").unwrap(),
            key: Key::new(key).unwrap(),
        },
        key_digest: None,
        fingerprint: Fingerprint::none(),
        terms: policy.terms(),
        take: Take {
            fence: Fence::from_bits(fence),
            lease: Duration::from_secs(3),
            marks_sent: false,
            probes: false,
            owner: None,
            claim: None,
        },
        again: Again::default(),
    })
}

pub(crate) fn drafted(write: Write) -> Draft {
    match write {
        Write::Insert(draft) | Write::Replace(draft) => draft,
        other => panic!("no record to write: {other:?}"),
    }
}

pub(crate) fn claim(key: &str, fence: u128) -> Draft {
    drafted(decide(None, &begin(key, fence)).write)
}

pub(crate) async fn created(store: &Redis, draft: Draft) -> Record {
    match store.insert(draft.clone(), None).await.unwrap() {
        Inserted::Created { now } => draft.stamp(now),
        other => panic!("not created: {other:?}"),
    }
}

pub(crate) async fn applied(store: &Redis, seen: &Seen, command: &Command) -> Record {
    let draft = drafted(decide(Some(seen), command).write);
    match store.replace(Replace::of(&seen.record, draft.clone())).await.unwrap() {
        Replaced::Written { now } => draft.stamp(now),
        other => panic!("not written: {other:?}"),
    }
}

pub(crate) async fn made(url: &str) -> Redis {
    Redis::migrate(url, false).await.unwrap();
    Redis::open(url).await.unwrap()
}

/// All keys of the ledger.
pub(crate) async fn keys(url: &str) -> Vec<Vec<u8>> {
    let prefix = url.split("prefix=").nth(1).unwrap();
    let prefix = prefix.split('&').next().unwrap();
    cmd("KEYS").arg(format!("{{{prefix}:*")).query_async(&mut raw(url).await).await.unwrap()
}

pub(crate) async fn remove_keys(url: &str, which: impl Fn(&[u8]) -> bool) {
    let mut connection = raw(url).await;
    for key in keys(url).await.into_iter().filter(|key| which(key)) {
        let _: u32 = cmd("DEL").arg(key).query_async(&mut connection).await.unwrap();
    }
}

pub(crate) fn event(note: &str) -> AuditEvent {
    AuditEvent { what: EventKind::Contradiction, by: None, token: None, note: Some(note.to_owned()) }
}

#[tokio::test]
async fn a_server_without_a_ledger_is_refused_and_the_error_says_what_to_do() {
    let Some(url) = server(SINGLE) else { return };
    let error = Redis::open(&url).await.unwrap_err();
    assert!(matches!(&error, Error::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains("onceward migrate --store redis://"), "{error}");
    assert!(!error.is_out_of_reach(), "work would run unguarded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_is_made_once_however_often_migrate_runs() {
    let Some(url) = server(SINGLE) else { return };
    let planned = Redis::migrate(&url, true).await.unwrap();
    assert!(planned[0].contains("create a ledger"), "{planned:?}");
    assert!(keys(&url).await.is_empty(), "a dry run changes nothing");
    let all = (0..8).map(|_| {
        let url = url.clone();
        tokio::spawn(async move { Redis::migrate(&url, false).await.unwrap() })
    });
    for done in all.collect::<Vec<_>>() {
        done.await.unwrap();
    }
    let store = Redis::open(&url).await.unwrap();
    created(&store, claim("a", 1)).await;
    let again = Redis::migrate(&url, false).await.unwrap();
    assert!(again[0].contains("nothing to do"), "{again:?}");
    assert!(matches!(store.insert(claim("a", 2), None).await.unwrap(), Inserted::Exists(_)));
}

#[tokio::test]
async fn a_flushed_server_is_refused_by_every_operation() {
    let Some(url) = server(SINGLE) else { return };
    let store = made(&url).await;
    let record = created(&store, claim("a", 1)).await;
    let operation = Operation::new("send_email").unwrap();
    store.claim_operations(std::slice::from_ref(&operation)).await.unwrap();
    remove_keys(&url, |_| true).await;
    let errors = [
        store.insert(claim("a", 2), None).await.map(drop).unwrap_err(),
        store.insert(claim("b", 2), Some(5)).await.map(drop).unwrap_err(),
        store.replace(Replace::of(&record, record.next())).await.map(drop).unwrap_err(),
        store.get(record.id).await.map(drop).unwrap_err(),
        store.list(&Filter::default(), None, 10).await.map(drop).unwrap_err(),
        store.counts(None).await.map(drop).unwrap_err(),
        store.purge(10).await.map(drop).unwrap_err(),
        store.append(record.id, event("x")).await.unwrap_err(),
        store.trail(record.id).await.map(drop).unwrap_err(),
        store.check().await.unwrap_err(),
        store.has_operation(&operation).await.map(drop).unwrap_err(),
        store.operations().await.map(drop).unwrap_err(),
        store.claim_operations(std::slice::from_ref(&operation)).await.unwrap_err(),
    ];
    for error in errors {
        assert!(error.to_string().contains("flushed") && !error.is_out_of_reach(), "{error}");
    }
    assert!(keys(&url).await.is_empty(), "a refused write left something behind");
    // A new ledger on the flushed server is another one: the process that knew the old one does not go on in it.
    made(&url).await;
    let error = store.insert(claim("a", 2), None).await.unwrap_err();
    assert!(error.to_string().contains("another ledger"), "{error}");
}

#[tokio::test]
async fn a_ledger_that_lost_a_shard_is_refused_and_migrate_does_not_hide_it() {
    let Some(url) = server(SINGLE) else { return };
    made(&url).await;
    remove_keys(&url, |key| key.windows(5).any(|part| part == b":2a}:")).await;
    for error in [Redis::open(&url).await.unwrap_err(), Redis::migrate(&url, false).await.unwrap_err()] {
        assert!(error.to_string().contains("1 of 64 shards"), "{error}");
    }
    remove_keys(&url, |key| key.ends_with(b":ledger")).await;
    let error = Redis::migrate(&url, false).await.unwrap_err();
    assert!(error.to_string().contains("63 of 64 shards"), "{error}");
}

#[tokio::test]
async fn only_a_tombstone_expires_by_itself_and_a_claim_after_it_does_not() {
    let Some(url) = server(SINGLE) else { return };
    Redis::migrate(&url, false).await.unwrap();
    let clock = ManualClock::default();
    let store = Redis::open_with_clock(&url, Arc::new(clock.clone())).await.unwrap();
    let claimed = created(&store, claim("a", 1)).await;
    let expiry = async || {
        let record = keys(&url).await.into_iter().find(|key| key.ends_with(claimed.id.to_hex().as_bytes())).unwrap();
        cmd("PTTL").arg(record).query_async::<i64>(&mut raw(&url).await).await.unwrap()
    };
    let seen = async || store.get(claimed.id).await.unwrap().unwrap();
    assert_eq!(expiry().await, -1, "a claim");
    let finish = Command::Finish { fence: Fence::from_bits(1), outcome: Outcome::success("1") };
    applied(&store, &seen().await, &finish).await;
    assert_eq!(expiry().await, -1, "a record with a name is removed by a sweep, which counts it");
    clock.advance(Duration::from_secs(11));
    assert_eq!(store.purge(10).await.unwrap().tombstones, 1);
    let left = expiry().await;
    assert!((86_400_000..=86_400_000 + 20_000).contains(&left), "a tombstone, with a day to spare: {left}");
    clock.advance(Duration::from_secs(25));
    applied(&store, &seen().await, &begin("a", 2)).await;
    assert_eq!(expiry().await, -1, "a claim that followed a tombstone");
    let doubt = Command::Doubt { fence: Fence::from_bits(2), error: None };
    let doubted = applied(&store, &seen().await, &doubt).await;
    assert!(matches!(doubted.state, State::InDoubt { .. }), "{doubted:?}");
    assert_eq!(expiry().await, -1, "a doubt");
}

#[tokio::test]
async fn what_is_left_of_a_tombstone_that_expired_by_itself_is_swept() {
    let Some(url) = server(SINGLE) else { return };
    Redis::migrate(&url, false).await.unwrap();
    let clock = ManualClock::default();
    let store = Redis::open_with_clock(&url, Arc::new(clock.clone())).await.unwrap();
    let record = created(&store, claim("a", 1)).await;
    let seen = store.get(record.id).await.unwrap().unwrap();
    let finish = Command::Finish { fence: Fence::from_bits(1), outcome: Outcome::success("1") };
    applied(&store, &seen, &finish).await;
    clock.advance(Duration::from_secs(11));
    store.purge(10).await.unwrap();
    let empty = |url: &str| {
        let url = url.to_owned();
        async move { keys(&url).await.iter().filter(|key| !key.ends_with(b":e") && !key.ends_with(b":ledger")).count() }
    };
    remove_keys(&url, |key| key.ends_with(record.id.to_hex().as_bytes())).await;
    assert!(store.list(&Filter::default(), None, 10).await.unwrap().listed.is_empty());
    clock.advance(Duration::from_secs(25));
    assert_eq!(store.purge(10).await.unwrap().removed, 1);
    assert_eq!(empty(&url).await, 0, "{:?}", keys(&url).await);
    assert_eq!(store.purge(10).await.unwrap().total(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_answer_is_lost_happens_once_and_is_answered_truthfully() {
    let Some(url) = server(SINGLE) else { return };
    Redis::migrate(&url, false).await.unwrap();
    let port: u16 = url.split("127.0.0.1:").nth(1).unwrap().split('/').next().unwrap().parse().unwrap();
    let proxy = Proxy::to(port).await;
    let through = url.replace(&format!("127.0.0.1:{port}"), &proxy.address.to_string());
    let store = Redis::open(&format!("{through}&timeout=6s&wait_ms=500")).await.unwrap();
    let lose_the_next_answer = || proxy.swallow.store(1, Ordering::SeqCst);

    lose_the_next_answer();
    let record = created(&store, claim("a", 1)).await;
    assert_eq!(store.get(record.id).await.unwrap().unwrap().record, record, "with the time of the first attempt");
    assert!(matches!(store.insert(claim("a", 2), None).await.unwrap(), Inserted::Exists(_)));

    lose_the_next_answer();
    let finish = Command::Finish { fence: Fence::from_bits(1), outcome: Outcome::success("1") };
    let seen = Seen { record: record.clone(), now: record.created_at, owner_gone: false };
    let draft = drafted(decide(Some(&seen), &finish).write);
    let replace = Replace { event: Some(event("with it")), ..Replace::of(&record, draft.clone()) };
    let Replaced::Written { now } = store.replace(replace).await.unwrap() else {
        panic!("its own write is a conflict")
    };
    assert_eq!(store.get(record.id).await.unwrap().unwrap().record, draft.stamp(now));

    lose_the_next_answer();
    store.append(record.id, event("alone")).await.unwrap();
    let notes: Vec<_> =
        store.trail(record.id).await.unwrap().into_iter().filter_map(|entry| entry.event.note).collect();
    assert_eq!(notes, ["with it", "alone"]);

    // With a quota, a repeated insert does not count twice.
    lose_the_next_answer();
    assert!(matches!(store.insert(claim("b", 1), Some(2)).await.unwrap(), Inserted::Created { .. }));
    assert_eq!(store.insert(claim("c", 1), Some(2)).await.unwrap(), Inserted::Full);
    assert!(matches!(store.insert(claim("c", 1), Some(3)).await.unwrap(), Inserted::Created { .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_insert_that_arrives_after_its_caller_gave_up_does_not_exceed_the_quota() {
    let Some(url) = server(SINGLE) else { return };
    let direct = made(&format!("{url}&timeout=60s")).await;
    let port: u16 = url.split("127.0.0.1:").nth(1).unwrap().split('/').next().unwrap().parse().unwrap();
    let proxy = Proxy::to(port).await;
    let through = url.replace(&format!("127.0.0.1:{port}"), &proxy.address.to_string());
    let slow = Redis::open(&format!("{through}&timeout=3s&wait_ms=100")).await.unwrap();
    proxy.holds.send_replace(Some(b"on its way".to_vec()));
    let error = slow.insert(claim("on its way", 1), Some(1)).await.unwrap_err();
    assert!(error.is_out_of_reach(), "{error}");
    let other = tokio::spawn(async move { direct.insert(claim("other", 2), Some(1)).await.map(|_| direct) });
    // Long enough for the other caller to insert, if it does not wait for the one that is on its way.
    tokio::time::sleep(Duration::from_millis(500)).await;
    proxy.holds.send_replace(None);
    let direct = other.await.unwrap().unwrap();
    // The insert on its way is refused if it is late, but it has to arrive first.
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(direct.list(&Filter::default(), None, 10).await.unwrap().listed.len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_answer_is_out_of_reach_within_the_time_limit() {
    let Some(private) = Private::start(&[]).await else { return };
    let store = made(&format!("{}&timeout=3s&wait_ms=100", private.url())).await;
    private.set("busy-reply-threshold", "60000").await;
    let pid = i32::try_from(private.process.id()).unwrap();
    assert!(Process::new("kill").args(["-STOP", &pid.to_string()]).status().unwrap().success());
    let began = std::time::Instant::now();
    let error = store.insert(claim("a", 1), None).await.unwrap_err();
    let took = began.elapsed();
    assert!(Process::new("kill").args(["-CONT", &pid.to_string()]).status().unwrap().success());
    assert!(error.is_out_of_reach(), "{error}");
    // Without a limit it would wait for ever.
    assert!(took < Duration::from_secs(30), "{took:?}");
    // The first attempt may have been carried out after all; nothing runs twice.
    let inserted = store.insert(claim("b", 2), None).await.unwrap();
    assert!(matches!(inserted, Inserted::Created { .. }), "it goes on by itself: {inserted:?}");
}

#[tokio::test]
async fn a_server_that_forgot_the_scripts_gets_them_again() {
    let Some(private) = Private::start(&[]).await else { return };
    let store = made(&private.url()).await;
    created(&store, claim("a", 1)).await;
    let _: String = cmd("SCRIPT").arg("FLUSH").query_async(&mut raw(&private.url()).await).await.unwrap();
    created(&store, claim("b", 1)).await;
}

#[tokio::test]
async fn a_full_server_refuses_claims_and_still_sweeps() {
    let Some(private) = Private::start(&["--maxmemory", "0"]).await else { return };
    Redis::migrate(&private.url(), false).await.unwrap();
    let clock = ManualClock::default();
    let store = Redis::open_with_clock(&private.url(), Arc::new(clock.clone())).await.unwrap();
    let record = created(&store, claim("a", 1)).await;
    let seen = store.get(record.id).await.unwrap().unwrap();
    let release = Command::Release { fence: Fence::from_bits(1), not_before: Duration::ZERO, error: None };
    applied(&store, &seen, &release).await;
    private.set("maxmemory", "1").await;
    let error = store.insert(claim("b", 1), None).await.unwrap_err();
    assert!(error.to_string().contains("no memory left") && error.is_out_of_reach(), "{error}");
    clock.advance(Duration::from_secs(3 * 86400));
    assert_eq!(store.purge(10).await.unwrap().removed, 1);
}

#[tokio::test]
async fn tls_is_verified() {
    let Some(url) = server("ONCEWARD_TEST_REDIS_TLS") else { return };
    let own = format!("{url}&ca={}", std::env::var("ONCEWARD_TEST_CA").unwrap());
    let store = made(&own).await;
    created(&store, claim("a", 1)).await;
    let error = Redis::open(&format!("{url}&timeout=20s&wait_ms=100")).await.unwrap_err();
    assert!(error.to_string().contains("certificate") && !error.is_out_of_reach(), "{error}");
    assert!(!error.to_string().contains("test-password"), "{error}");
}

/// It answers, so that no policy lets work run without it. One that closes connections may be restarting.
#[tokio::test]
async fn a_server_that_answers_without_tls_is_refused_where_the_url_asks_for_it() {
    for (answer, is_out_of_reach) in [("-ERR unknown command\r\n", false), ("", true)] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("rediss://{}/0?timeout=500ms&wait_ms=100", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let _ = client.read(&mut [0; 1024]).await;
                let _ = client.write_all(answer.as_bytes()).await;
            }
        });
        let error = Redis::open(&url).await.unwrap_err();
        assert_eq!(error.is_out_of_reach(), is_out_of_reach, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ledger_goes_on_after_a_failover_of_sentinel() {
    let Some(url) = server("ONCEWARD_TEST_REDIS_SENTINEL") else { return };
    let _no_other_test = FAILOVER.write().await;
    let store = made(&format!("{url}&timeout=20s&replicas=1")).await;
    assert!(store.durability().await.unwrap().to_string().contains("Sentinel"));
    // On a busy machine, the replica may take longer than the store waits for it: then the claim is withdrawn.
    let mut inserted = store.insert(claim("before", 1), None).await;
    for _ in 0..60 {
        if !matches!(inserted, Err(Error::Unconfirmed { .. })) {
            break;
        }
        inserted = store.insert(claim("before", 1), None).await;
    }
    let Ok(Inserted::Created { now }) = inserted else { panic!("not created: {inserted:?}") };
    let record = claim("before", 1).stamp(now);
    let sentinel = url.split("://").nth(1).unwrap().split(',').next().unwrap();
    let mut sentinel = raw(&format!("redis://{sentinel}")).await;
    let mut primary = async |words: &[&str]| -> ::redis::Value {
        let mut question = cmd("SENTINEL");
        words.iter().for_each(|word| {
            question.arg(word);
        });
        question.query_async(&mut sentinel).await.unwrap()
    };
    let before = primary(&["GET-MASTER-ADDR-BY-NAME", "ledger"]).await;
    primary(&["FAILOVER", "ledger"]).await;
    for number in 0..2000 {
        // Replicas may be missing for a while: then nothing runs.
        let inserted = store.insert(claim(&format!("during {number}"), 1), None).await;
        let is_over = primary(&["GET-MASTER-ADDR-BY-NAME", "ledger"]).await != before;
        match inserted {
            Ok(Inserted::Created { .. }) if is_over => {
                assert_eq!(store.get(record.id).await.unwrap().unwrap().record, record);
                return;
            }
            Ok(inserted) => assert!(matches!(inserted, Inserted::Created { .. }), "{inserted:?}"),
            Err(error) => assert!(error.is_out_of_reach() || matches!(error, Error::Unconfirmed { .. }), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("no claim was confirmed after the failover");
}
