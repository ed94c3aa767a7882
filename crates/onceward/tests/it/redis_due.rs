//! Due entries of many tenants over all shards of Redis.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;

use onceward::clock::{Clock, ManualClock};
use onceward::core::decide::{Command, Enqueue, LeaseEntry, Take, Write, decide};
use onceward::core::fingerprint::Fingerprint;
use onceward::core::name::{Identity, Key, Operation, Tenant};
use onceward::core::outbox::{Destination, Entry, Priority};
use onceward::core::outcome::Outcome;
use onceward::core::policy::Policy;
use onceward::core::record::{Draft, Fence, Seen};
use onceward::store::redis::Redis;
use onceward::store::{DueEntries, DueQuery, Replace, Store};

use crate::redis::server;

fn entry(tenant: &str, key: usize, delay: Duration, priority: Priority, payload: usize) -> Draft {
    let identity = Identity {
        tenant: Tenant::new(tenant).unwrap(),
        operation: Operation::new("send mail").unwrap(),
        key: Key::new(key.to_string()).unwrap(),
    };
    let enqueue = Enqueue {
        identity,
        key_digest: None,
        fingerprint: Fingerprint::none(),
        terms: Policy::default().terms(),
        payload: vec![b'x'; payload].into(),
        entry: Entry { priority, ..Entry::default() },
        delay,
    };
    let Write::Insert(draft) = decide(None, &Command::Enqueue(enqueue)).write else { panic!("nothing to insert") };
    draft
}

async fn ledger(clock: &ManualClock) -> Option<(Redis, String)> {
    let url = server("ONCEWARD_TEST_REDIS")?;
    Redis::migrate(&url, false).await.unwrap();
    Some((Redis::open_with_clock(&url, Arc::new(clock.clone())).await.unwrap(), url))
}

async fn insert(store: &Redis, drafts: Vec<Draft>) {
    for part in drafts.chunks(1000) {
        for inserted in join_all(part.iter().map(|draft| store.insert(draft.clone(), None))).await {
            inserted.unwrap();
        }
    }
}

async fn look(store: &Redis, after: Option<Tenant>, limit: usize) -> DueEntries {
    let operation = Operation::new("send mail").unwrap();
    store.due(&DueQuery { operation, tenant: None, after, limit, with_abandoned: false }).await.unwrap()
}

fn tenant(seen: &Seen) -> &str {
    seen.record.identity.as_ref().unwrap().tenant.as_str()
}

/// A courier takes an entry.
async fn take(store: &Redis, seen: &Seen) {
    let take = Take {
        fence: Fence::from_bits(1),
        lease: Duration::from_secs(60),
        marks_sent: false,
        probes: false,
        owner: None,
        claim: None,
    };
    let destination = Destination { sink: "smtp".to_owned(), key: "k".to_owned() };
    let lease = Command::Lease(LeaseEntry { take, destination });
    let Write::Replace(draft) = decide(Some(seen), &lease).write else { panic!("not due: {seen:?}") };
    store.replace(Replace::of(&seen.record, draft)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_tenant_has_its_turn_beside_a_backlog_and_every_entry_is_met_once() {
    let clock = ManualClock::default();
    let Some((store, _)) = ledger(&clock).await else { return };
    let backlog = (0..2000).map(|key| entry("t050", key, Duration::ZERO, Priority::Normal, 10));
    let others = (0..100).map(|number| entry(&format!("t{number:03}"), 9000, Duration::ZERO, Priority::Normal, 10));
    let delayed =
        (0..100).map(|number| entry(&format!("t{number:03}"), 9001, Duration::from_secs(3600), Priority::High, 10));
    insert(&store, backlog.chain(others).chain(delayed).collect()).await;
    let (mut met, mut after, mut looks) = (BTreeSet::new(), None, 0);
    let mut of_tenant: BTreeMap<String, usize> = BTreeMap::new();
    loop {
        let found = look(&store, after, 50).await;
        assert!(found.entries.len() <= 50);
        looks += 1;
        for seen in &found.entries {
            take(&store, seen).await;
            assert!(met.insert(*seen.record.id.as_bytes()), "an entry that is taken is not due");
            *of_tenant.entry(tenant(seen).to_owned()).or_default() += 1;
        }
        if looks == 8 {
            assert_eq!(of_tenant.len(), 100, "every tenant had its turn: {of_tenant:?}");
        }
        after = found.reached;
        if found.entries.is_empty() && after.is_none() {
            break;
        }
        assert!(looks < 200, "{} met", met.len());
    }
    assert_eq!(met.len(), 2100);
    clock.advance(Duration::from_secs(60));
    assert_eq!(look(&store, None, 10).await.entries.len(), 10, "their couriers have gone");
    clock.advance(Duration::from_secs(3600));
    let first = look(&store, None, 100).await.entries;
    assert!(first.iter().all(|seen| seen.record.entry.as_ref().unwrap().priority == Priority::High));
    assert_eq!(first.iter().map(tenant).collect::<BTreeSet<_>>().len(), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_entries_of_all_shards_are_first() {
    let clock = ManualClock::default();
    let Some((store, _)) = ledger(&clock).await else { return };
    let drafts = (0..300).map(|key| entry("a", key, Duration::from_millis(key as u64), Priority::Normal, 10));
    insert(&store, drafts.collect()).await;
    clock.advance(Duration::from_secs(1));
    let found = look(&store, None, 200).await.entries;
    let keys: Vec<usize> =
        found.iter().map(|seen| seen.record.identity.as_ref().unwrap().key.as_str().parse().unwrap()).collect();
    assert_eq!(keys, (0..200).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_entry_holds_up_no_other() {
    let clock = ManualClock::default();
    let Some((store, url)) = ledger(&clock).await else { return };
    let drafts = (0..10).map(|key| entry("a", key, Duration::from_millis(key as u64), Priority::Normal, 10));
    insert(&store, drafts.collect()).await;
    clock.advance(Duration::from_secs(1));
    let found = look(&store, None, 10).await.entries;
    let (server, prefix) = (url.split('?').next().unwrap(), url.split("prefix=").nth(1).unwrap());
    let client = ::redis::Client::open(server).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    for seen in &found[..2] {
        let shard = seen.record.id.as_bytes()[0] >> 2;
        let key = format!("{{{prefix}:{shard:02x}}}:r:{}", seen.record.id.to_hex());
        let gone: i64 = ::redis::cmd("DEL").arg(key).query_async(&mut connection).await.unwrap();
        assert_eq!(gone, 1);
    }
    let now = look(&store, None, 2).await.entries;
    assert_eq!(now.iter().map(|seen| seen.record.id).collect::<Vec<_>>(), [found[2].record.id, found[3].record.id]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_record_stays_in_an_index() {
    let clock = ManualClock::default();
    let Some((store, url)) = ledger(&clock).await else { return };
    insert(&store, vec![entry("a", 1, Duration::ZERO, Priority::Normal, 10)]).await;
    let seen = look(&store, None, 10).await.entries.remove(0);
    let (server, prefix) = (url.split('?').next().unwrap(), url.split("prefix=").nth(1).unwrap());
    let mut connection = ::redis::Client::open(server).unwrap().get_multiplexed_async_connection().await.unwrap();
    let mut places = async |letters: &str| {
        let mut exists = String::new();
        for letter in letters.chars() {
            let key = format!("{{{prefix}:{:02x}}}:{letter}", seen.record.id.as_bytes()[0] >> 2);
            let found: bool = ::redis::cmd("EXISTS").arg(&key).query_async(&mut connection).await.unwrap();
            let ttl: i64 = ::redis::cmd("PTTL").arg(&key).query_async(&mut connection).await.unwrap();
            assert!(ttl < 0, "{key} expires");
            exists.extend(found.then_some(letter));
        }
        exists
    };
    assert_eq!(places("wfp").await, "wp");
    take(&store, &seen).await;
    assert_eq!(places("wfp").await, "wp", "it is due when its courier has gone");
    let taken = store.get(seen.record.id).await.unwrap().unwrap();
    let outcome = Outcome::success("1").with_reference(Some("ch_1".to_owned()));
    let finish = Command::Finish { fence: Fence::from_bits(1), outcome };
    let Write::Replace(draft) = decide(Some(&taken), &finish).write else { panic!("not finished") };
    store.replace(Replace::of(&taken.record, draft)).await.unwrap();
    assert_eq!(places("wfp").await, "fp");
    clock.advance(Duration::from_secs(86_400));
    assert_eq!(store.purge(10).await.unwrap().tombstones, 1);
    assert_eq!(places("wfp").await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_brings_as_many_large_payloads_as_fit() {
    let clock = ManualClock::default();
    let Some((store, _)) = ledger(&clock).await else { return };
    let drafts = (0..5).map(|key| entry("a", key, Duration::ZERO, Priority::Normal, 3 * 1024 * 1024));
    insert(&store, drafts.collect()).await;
    assert_eq!(look(&store, None, 10).await.entries.len(), 2, "at most 8 MiB");
    assert_eq!(look(&store, None, 1).await.entries.len(), 1);
}

/// Prints how long a look takes among this many entries.
#[tokio::test(flavor = "multi_thread")]
async fn a_look_among_many_entries_reads_only_what_it_brings() {
    let clock = ManualClock::default();
    let Some((store, _)) = ledger(&clock).await else { return };
    let many: usize = std::env::var("ONCEWARD_TEST_ENTRIES").ok().and_then(|text| text.parse().ok()).unwrap_or(5000);
    let tenant = |key: usize| if key % 5 < 3 { "big".to_owned() } else { format!("t{:04}", key % 1000) };
    let delay = |key: usize| Duration::from_secs(if key % 5 == 4 { 3600 } else { 0 });
    insert(&store, (0..many).map(|key| entry(&tenant(key), key, delay(key), Priority::Normal, 10)).collect()).await;
    clock.set(clock.now().after(Duration::from_secs(1)));
    for limit in [10, 100, 1000] {
        let mut after = None;
        for _ in 0..3 {
            let begun = Instant::now();
            let found = look(&store, after, limit).await;
            println!("{} of {many}: {:?}", found.entries.len(), begun.elapsed());
            assert!((1..=limit).contains(&found.entries.len()));
            after = found.reached;
        }
    }
}
