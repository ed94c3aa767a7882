//! Whole ledgers moved into Redis and out of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::redis::cmd;
use futures_util::future::join_all;
use onceward::clock::SystemClock;
use onceward::copy::{Options, Side, copy};
use onceward::core::decide::Command;
use onceward::core::name::Operation;
use onceward::core::outcome::Outcome;
use onceward::core::record::{Fence, Seen, Status};
use onceward::policy::{Policy, Retention};
use onceward::store::memory::Memory;
use onceward::store::redis::Redis;
use onceward::store::transfer::{Arrival, Departure, Seal, Transfer};
use onceward::store::{Error, Filter, Inserted, Store};
use onceward::{Failure, Ledger};

use crate::copy::Cut;
use crate::redis::server;
use crate::redis_faults::{SINGLE, applied, claim, created, event, made, remove_keys};
use crate::redis_private::{Private, raw};

fn side(store: impl Store + 'static, name: &str) -> Side {
    Side { store: Arc::new(store), name: name.to_owned() }
}

fn memory() -> Memory {
    Memory::new(Arc::new(SystemClock))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_ledger_moves_into_redis_and_out_again() {
    for variable in [SINGLE, "ONCEWARD_TEST_REDIS_CLUSTER"] {
        let Some(url) = server(variable) else { return };
        let first = side(memory(), "memory: 1");
        let middle = side(made(&url).await, "redis");
        let last = side(memory(), "memory: 2");
        let ledger = |side: &Side| Ledger::builder().on(Arc::clone(&side.store));
        for number in 0..200 {
            let call = ledger(&first).operation("mail").tenant("acme").key(&format!("done-{number}"));
            call.run(|_| async move { Ok(number) }).await.unwrap();
        }
        let doubted = ledger(&first).operation("mail").key("doubt");
        assert!(doubted.run(|_| async { Err::<u32, _>(Failure::unknown("time-out")) }).await.is_err());
        let id = doubted.call().unwrap().identity.digest();
        first.store.append(id, event("ü")).await.unwrap();
        let counts = first.store.counts(None).await.unwrap();
        for (from, to) in [(&first, &middle), (&middle, &last)] {
            let copied = copy(from, to, Options::default(), &|_| {}).await.unwrap();
            let totals = copied.totals.unwrap();
            assert_eq!((totals.count(), totals.entries), (201, 1));
            assert_eq!(to.store.counts(None).await.unwrap(), counts);
            assert_eq!(to.store.trail(id).await.unwrap().len(), 1);
            let again = from.store.insert(claim("new", 1), None).await;
            assert!(matches!(again, Err(Error::Sealed { .. })), "{again:?}");
            let replayed = ledger(to).operation("mail").tenant("acme").key("done-7");
            let replayed = replayed.run(|_| async { Ok(0) }).await.unwrap();
            assert_eq!((replayed.value, replayed.replayed), (7, true));
        }
        // A ledger with records cannot receive a copy.
        let url = server(variable).unwrap();
        let filled = side(made(&url).await, "filled");
        filled.store.insert(claim("there", 1), None).await.unwrap();
        let error = copy(&last, &filled, Options::default(), &|_| {}).await.unwrap_err();
        assert!(error.to_string().contains("empty ledger"), "{error}");
        assert!(matches!(filled.store.insert(claim("next", 1), None).await.unwrap(), Inserted::Created { .. }));
    }
}

/// A seal, a page or an operation that only the primary has is gone after a failover: both ledgers would grant claims.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_goes_on_only_while_replicas_confirm_its_writes() {
    // By default, a primary waits five seconds for further replicas.
    let Some(private) = Private::start(&["--repl-diskless-sync-delay", "0"]).await else { return };
    let plain = made(&private.url()).await;
    let lonely = async || Redis::open(&format!("{}&replicas=1&wait_ms=50", private.url())).await.unwrap();
    let is_short = |error: &dyn std::fmt::Display| assert!(error.to_string().contains("of 1 replicas"), "{error}");
    let (target, source) = (side(memory(), "target"), side(memory(), "source"));
    is_short(&copy(&side(lonely().await, "redis"), &target, Options::default(), &|_| {}).await.unwrap_err());
    assert_eq!(plain.seal().await.unwrap(), Seal::Open, "the source was not sealed halfway");
    is_short(&copy(&source, &side(lonely().await, "redis"), Options::default(), &|_| {}).await.unwrap_err());
    assert_eq!(source.store.transfer().unwrap().seal().await.unwrap(), Seal::Open);

    // Each step by itself.
    let store = lonely().await;
    is_short(&store.claim_operations(&[Operation::new("mail").unwrap()]).await.unwrap_err());
    let departure = Departure { token: "t".to_owned(), to: "elsewhere".to_owned(), target: "id".to_owned() };
    let seals =
        [Seal::Draining(departure.clone()), Seal::Sealed(departure.clone()), Seal::Moved(departure), Seal::Open];
    for seal in seals {
        let present = plain.seal().await.unwrap();
        is_short(&store.set_seal(&present, &seal).await.unwrap_err());
        is_short(&store.seal().await.expect_err("a seal that may be lost does not count"));
    }
    let (from, token) = ("elsewhere".to_owned(), "t".to_owned());
    let arrival = Arrival { token, from, source: "id".to_owned(), after: None };
    let present = plain.seal().await.unwrap();
    plain.set_seal(&present, &Seal::Receiving(arrival.clone())).await.unwrap();
    source.store.insert(claim("a", 1), None).await.unwrap();
    let page = source.store.transfer().unwrap().export(None, 10).await.unwrap();
    is_short(&store.import(&arrival, page.clone()).await.unwrap_err());
    assert_eq!(plain.seal().await.unwrap(), Seal::Receiving(arrival.clone()), "the page does not count as imported");

    let replica = Private::start(&["--replicaof", "127.0.0.1", &private.port.to_string()]).await.unwrap();
    let mut imported = store.import(&arrival, page.clone()).await;
    for _ in 0..200 {
        if imported.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        imported = store.import(&arrival, page.clone()).await;
    }
    imported.unwrap();
    let epoch: String = cmd("GET").arg("{private:00}:e").query_async(&mut raw(&replica.url()).await).await.unwrap();
    assert!(epoch.contains("receiving"), "{epoch}");
}

/// What waits for running owners must see all of them, also while others leave the index.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_running_intents_skips_none_while_others_finish() {
    let Some(url) = server(SINGLE) else { return };
    let store = made(&url).await;
    // All in one shard, so that it takes several pages to read them.
    let keys = (0..200_000).map(|number| format!("key-{number}"));
    let drafts: Vec<_> =
        keys.map(|key| claim(&key, 1)).filter(|draft| draft.id.as_bytes()[0] >> 2 == 7).take(1500).collect();
    assert_eq!(drafts.len(), 1500);
    let mut records = Vec::new();
    for part in drafts.chunks(100) {
        records.extend(join_all(part.iter().map(|draft| created(&store, draft.clone()))).await);
    }
    let stay: BTreeSet<_> = records.split_off(1000).into_iter().map(|record| record.id).collect();
    let finish = Command::Finish { fence: Fence::from_bits(1), outcome: Outcome::success("1") };
    let finishing = async {
        for record in &records {
            let seen = Seen { record: record.clone(), now: record.updated_at, owner_gone: false };
            applied(&store, &seen, &finish).await;
        }
    };
    let is_over = AtomicBool::new(false);
    let listing = async {
        let mut rounds = 0;
        while !is_over.load(Ordering::SeqCst) {
            // By the time of the server they may have lapsed; they are unsettled all the same.
            let filter = Filter { status: vec![Status::Running, Status::Open, Status::InDoubt], ..Filter::default() };
            let page = store.list(&filter, None, 1000).await.unwrap();
            let found: BTreeSet<_> = page.listed.iter().map(|listed| listed.seen.record.id).collect();
            assert_eq!(stay.difference(&found).count(), 0, "round {rounds}: skipped");
            rounds += 1;
        }
        assert!(rounds > 1);
    };
    tokio::join!(
        async {
            finishing.await;
            is_over.store(true, Ordering::SeqCst)
        },
        listing
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_an_export_is_read_only_as_far_as_it_fits() {
    // Its output is counted, so no other test may use it.
    let Some(server) = Private::start(&[]).await else { return };
    let url = server.url();
    let store = made(&url).await;
    let large = Outcome::success(vec![b'x'; 1024 * 1024]);
    for number in 0..24 {
        let record = created(&store, claim(&format!("{number}"), 1)).await;
        let seen = store.get(record.id).await.unwrap().unwrap();
        applied(&store, &seen, &Command::Finish { fence: Fence::from_bits(1), outcome: large.clone() }).await;
    }
    let sent = async || -> u64 {
        let stats: String = cmd("INFO").arg("stats").query_async(&mut raw(&url).await).await.unwrap();
        let line = stats.lines().find_map(|line| line.strip_prefix("total_net_output_bytes:")).unwrap();
        line.parse().unwrap()
    };
    let (mut after, mut records) = (None, 0);
    loop {
        let before = sent().await;
        let page = store.export(after, 500).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.record.id);
        records += page.len();
        assert!(page.len() <= 8 && sent().await - before < 9 * 1024 * 1024, "{} records", page.len());
    }
    assert_eq!(records, 24);
}

/// Redis drops a tombstone by itself a day after its time, whether the ledger is sealed or not.
#[tokio::test(flavor = "multi_thread")]
async fn a_tombstone_that_is_gone_when_a_copy_is_continued_does_no_harm() {
    let Some(url) = server(SINGLE) else { return };
    let (from, to) = (side(made(&url).await, "redis"), side(memory(), "target"));
    let ledger = Ledger::builder().on(Arc::clone(&from.store));
    let short = Policy {
        retention: Some(Retention::For(Duration::from_millis(1))),
        tombstone: Some(Duration::from_secs(8)),
        ..Policy::default()
    };
    let call = ledger.operation("mail").key("old").policy(short);
    let id = call.call().unwrap().identity.digest();
    call.run(|_| async { Ok(1) }).await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    // Unless a claim has done so by the way.
    ledger.purge(10).await.unwrap();
    assert_eq!(ledger.counts().await.unwrap().of(Status::Tombstone), 1);
    ledger.operation("mail").key("new").run(|_| async { Ok(1) }).await.unwrap();
    assert!(copy(&from, &Cut::around(&to, 1, true), Options::default(), &|_| {}).await.is_err(), "after its page");
    tokio::time::sleep(Duration::from_millis(8200)).await;
    remove_keys(&url, |key| key.ends_with(id.to_hex().as_bytes())).await;
    let copied = copy(&from, &to, Options::default(), &|_| {}).await.unwrap();
    assert_eq!(copied.totals.unwrap().count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_a_sealed_ledger_in_redis_refuses_leaves_no_trace() {
    for variable in [SINGLE, "ONCEWARD_TEST_REDIS_CLUSTER"] {
        let Some(url) = server(variable) else { return };
        crate::refused_claims::leave_no_trace(&side(made(&url).await, "redis")).await;
    }
}
