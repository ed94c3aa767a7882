//! The connection is cut at every step of the protocol, before and after each message in each direction, and answers are lost: every
//! write is acknowledged in the end, exists once, and has one owner.

use std::sync::Arc;
use std::time::Duration;

use onceward::core::decide::{Again, Begin, Command, Take, Write, decide};
use onceward::core::fingerprint::Fingerprint;
use onceward::core::record::{Draft, Fence, Record, Status};
use onceward::name::{Identity, Key, Operation, Tenant};
use onceward::store::postgres::Postgres;
use onceward::store::{AuditEvent, Error, EventKind, Filter, Inserted, Replace, Replaced, Store};
use onceward::{Outcome, Policy};

use super::proxy::{Fault, Proxy, Side, Strike};
use super::server::Database;

/// A time-out of one second, because some faults only show by one, and one connection, so that its messages can be counted.
const QUICK: &str = "?timeout=1&writers=1";

/// Messages are counted without a time-out: a connection that is made again has more of them, and faults would be planned for
/// messages that do not come.
const PATIENT: &str = "?timeout=60&writers=1";

/// How often a busy machine may be too slow in a row for a store that waits for a second.
const MAX_TRIES: usize = 20;

/// Callers of one process whose writes share transactions.
const CALLERS: u128 = 32;

pub(super) fn claim_of(key: &str, fence: Fence) -> Draft {
    let identity = Identity {
        tenant: Tenant::new("acme").unwrap(),
        operation: Operation::new("charge").unwrap(),
        key: Key::new(key).unwrap(),
    };
    let take =
        Take { fence, lease: Duration::from_secs(60), marks_sent: false, probes: false, owner: None, claim: None };
    let (key_digest, fingerprint, terms) = (None, Fingerprint::none(), Policy::default().terms());
    let begin = Begin { identity, key_digest, fingerprint, terms, take, again: Again::default() };
    match decide(None, &Command::Begin(begin)).write {
        Write::Insert(draft) => draft,
        other => panic!("not an insert: {other:?}"),
    }
}

/// The end of a claim, with an entry for the audit trail, so that a write that was made twice shows.
pub(super) fn end_of(claimed: &onceward::core::record::Seen, fence: Fence) -> Replace {
    let finish = Command::Finish { fence, outcome: Outcome::success(format!("{fence:?}")) };
    let Write::Replace(draft) = decide(Some(claimed), &finish).write else { panic!("the claim was lost") };
    let event = AuditEvent { what: EventKind::StaleFinish, by: None, token: None, note: Some("end".to_owned()) };
    Replace { event: Some(event), ..Replace::of(&claimed.record, draft) }
}

/// Every place where a fault can strike, given the number of messages of each side.
fn strikes(from_client: usize, from_server: usize) -> Vec<Strike> {
    let faults = [Fault::CutBefore, Fault::CutAfter, Fault::Swallow];
    let sides = [(Side::Client, from_client), (Side::Server, from_server)];
    let places = sides.into_iter().flat_map(|(side, count)| (1..=count).map(move |number| (side, number)));
    places.flat_map(|(side, number)| faults.map(|fault| Strike { side, number, fault })).collect()
}

/// A store behind a proxy, and the truth beside it.
struct ProxiedStore {
    proxy: Proxy,
    store: Arc<Postgres>,
    truth: Arc<Postgres>,
}

impl ProxiedStore {
    async fn open(database: &Database, truth: &Arc<Postgres>, settings: &str) -> Self {
        let proxy = Proxy::start(&database.url).await;
        let url = proxy.url(&format!("{}{settings}", database.url));
        let mut opened = Postgres::open(&url).await;
        for _ in 1..MAX_TRIES {
            // On a busy machine, a connection may take longer than the store waits for it.
            if !matches!(opened, Err(Error::Unreachable(_))) {
                break;
            }
            opened = Postgres::open(&url).await;
        }
        Self { proxy, store: Arc::new(opened.unwrap()), truth: Arc::clone(truth) }
    }

    /// Claims a key that no other caller wants.
    async fn claim(&self, key: &str, fence: Fence, about: &str) -> Record {
        let draft = claim_of(key, fence);
        let id = draft.id;
        let mut inserted = self.store.insert(draft.clone(), None).await;
        // A server that does not answer while a client connects counts as down: nothing was sent, and the caller is told.
        for _ in 1..MAX_TRIES {
            if !matches!(inserted, Err(Error::Unreachable(_))) {
                break;
            }
            assert!(self.truth.get(id).await.unwrap().is_none(), "{about}: nothing was sent");
            inserted = self.store.insert(draft.clone(), None).await;
        }
        match inserted {
            Ok(Inserted::Created { .. }) => {}
            other => panic!("{about}: a claim without a rival was not granted: {other:?}"),
        }
        let record = self.truth.get(id).await.unwrap().unwrap_or_else(|| panic!("{about}: the claim is lost")).record;
        assert_eq!((record.fence(), record.version), (Some(fence), 1), "{about}");
        record
    }

    async fn finish(&self, claimed: &Record, fence: Fence, about: &str) {
        let seen = self.truth.get(claimed.id).await.unwrap().unwrap();
        match self.store.replace(end_of(&seen, fence)).await {
            Ok(Replaced::Written { .. }) => {}
            other => panic!("{about}: an owner could not finish: {other:?}"),
        }
        let done = self.truth.get(claimed.id).await.unwrap().unwrap();
        assert_eq!(done.standing().map(|standing| standing.status()), Some(Status::Done), "{about}");
        assert_eq!((done.record.fence(), done.record.version), (Some(fence), 2), "{about}");
        assert_eq!(self.truth.trail(claimed.id).await.unwrap().len(), 1, "{about}: the write was made twice");
    }
}

/// What the tables must agree on, whatever was cut: rows and their counts, and one audit entry for each end.
async fn assert_consistent(database: &Database) {
    let sql = "SELECT (SELECT count(*) FROM onceward.intent), (SELECT coalesce(sum(records), 0) FROM onceward.tenant_count), \
               (SELECT count(*) FROM onceward.intent WHERE state = 'done'), (SELECT count(*) FROM onceward.audit)";
    let rows = database.run(sql).await.unwrap();
    let [records, counted, done, ends] = rows[0].as_slice() else { panic!("{rows:?}") };
    assert_eq!((records, done), (counted, ends), "a write counts twice, or not at all");
}

#[derive(Clone, Copy, Debug)]
enum CutIn {
    /// The first write of a process, which connects.
    FirstClaim,
    Claim,
    Finish,
}

/// Plays one claim and its end, with a fault in one of them. Returns how many messages passed in that moment, and whether it struck.
async fn play(proxied: &ProxiedStore, moment: CutIn, strike: Option<Strike>, number: u128) -> (usize, usize, bool) {
    let about = format!("{moment:?} {strike:?}");
    let fence = Fence::from_bits(number);
    if !matches!(moment, CutIn::FirstClaim) {
        proxied.claim(&format!("warm-{number}"), fence, &about).await;
    }
    if !matches!(moment, CutIn::Finish) {
        proxied.proxy.arm(strike);
    }
    let claimed = proxied.claim(&format!("k-{number}"), fence, &about).await;
    let counted = proxied.proxy.counted();
    if matches!(moment, CutIn::Finish) {
        proxied.proxy.arm(strike);
    }
    proxied.finish(&claimed, fence, &about).await;
    match moment {
        CutIn::Finish => proxied.proxy.counted(),
        _ => counted,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_cut_at_any_step_of_claim_and_finish_loses_and_doubles_nothing() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    let database = Arc::new(database);
    let truth = Arc::new(Postgres::open(&database.url).await.unwrap());
    let (mut number, mut struck) = (0, 0);
    for moment in [CutIn::FirstClaim, CutIn::Claim, CutIn::Finish] {
        let proxied = ProxiedStore::open(&database, &truth, PATIENT).await;
        number += 1;
        let (from_client, from_server, _) = play(&proxied, moment, None, number).await;
        assert!(from_client >= 3 && from_server >= 5, "the proxy saw too little: {from_client}, {from_server}");
        proxied.store.close().await;
        let mut playing = tokio::task::JoinSet::new();
        for strike in strikes(from_client, from_server) {
            number += 1;
            let (database, truth, number) = (Arc::clone(&database), Arc::clone(&truth), number);
            playing.spawn(async move {
                let proxied = ProxiedStore::open(&database, &truth, QUICK).await;
                let (_, _, struck) = play(&proxied, moment, Some(strike), number).await;
                proxied.store.close().await;
                struck
            });
            // A few at a time: each has connections and threads of its own.
            if playing.len() >= 8 {
                struck += usize::from(playing.join_next().await.unwrap().unwrap());
            }
        }
        while let Some(ended) = playing.join_next().await {
            struck += usize::from(ended.unwrap());
        }
    }
    assert_consistent(&database).await;
    println!("{} plays, {struck} faults struck", number);
    assert!(struck * 10 >= number as usize * 9, "only {struck} of {number} faults struck");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_under_a_batch_grants_each_key_to_one_of_two_processes() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    let truth = Arc::new(Postgres::open(&database.url).await.unwrap());
    let stores =
        [ProxiedStore::open(&database, &truth, QUICK).await, ProxiedStore::open(&database, &truth, QUICK).await];
    // More messages than one batch has, so that some strike in the next one; a swallowed answer takes a second each.
    let faults =
        strikes(12, 16).into_iter().enumerate().filter(|(at, strike)| strike.fault != Fault::Swallow || at % 5 == 0);
    let (mut granted, mut refused, mut struck) = (0, 0, 0);
    for (round, (_, strike)) in faults.enumerate() {
        // One of them, in turn.
        stores[round % 2].proxy.arm(Some(strike));
        let mut calls = tokio::task::JoinSet::new();
        for caller in 0..CALLERS * 2 {
            let store = Arc::clone(&stores[(caller % 2) as usize].store);
            let truth = Arc::clone(&truth);
            calls.spawn(async move {
                let fence = Fence::from_bits(1 + (round as u128) * 1000 + caller);
                let draft = claim_of(&format!("k-{round}-{}", caller / 2), fence);
                let id = draft.id;
                match store.insert(draft, None).await.unwrap() {
                    Inserted::Created { .. } => {
                        let seen = truth.get(id).await.unwrap().expect("a granted claim is there");
                        assert_eq!((seen.record.fence(), seen.record.version), (Some(fence), 1));
                        assert!(matches!(store.replace(end_of(&seen, fence)).await, Ok(Replaced::Written { .. })));
                        (caller / 2, true)
                    }
                    Inserted::Exists(seen) => {
                        assert_ne!(seen.record.fence(), Some(fence), "an owner was not told that it is the owner");
                        (caller / 2, false)
                    }
                    other => panic!("{other:?}"),
                }
            });
        }
        let mut owners = [0; CALLERS as usize];
        while let Some(called) = calls.join_next().await {
            let (key, is_granted) = called.unwrap();
            owners[key as usize] += u32::from(is_granted);
            granted += u32::from(is_granted);
            refused += u32::from(!is_granted);
        }
        assert_eq!(owners, [1; CALLERS as usize], "round {round}, {strike:?}");
        struck += usize::from(stores[round % 2].proxy.counted().2);
        stores[round % 2].proxy.arm(None);
    }
    assert_consistent(&database).await;
    let (filter, limit) = (Filter { status: vec![Status::Done], ..Filter::default() }, 1000);
    assert!(!truth.list(&filter, None, limit).await.unwrap().listed.is_empty());
    println!("{granted} claims granted, {refused} refused, {struck} faults struck");
    assert!(struck >= 40, "only {struck} faults struck");
}
