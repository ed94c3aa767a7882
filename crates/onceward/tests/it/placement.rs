//! Several stores under one ledger: each operation lives in one of them.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use onceward::clock::SystemClock;
use onceward::core::decide::Resolution;
use onceward::core::hash::Digest;
use onceward::core::name::{Operation, Tenant};
use onceward::core::record::{Draft, Seen, Status};
use onceward::policy::StoreDown;
use onceward::store::memory::Memory;
use onceward::store::{
    self, AuditEntry, AuditEvent, Counts, Cursor, DueEntries, DueQuery, Durability, Filter, Inserted, Page, Purged,
    Replace, Replaced, Store,
};
use onceward::{Failure, Ledger, Outcome, Policy, Resolved, Tier};

fn memory() -> Arc<dyn Store> {
    Arc::new(Memory::new(Arc::new(SystemClock)))
}

fn operation(name: &str) -> Operation {
    Operation::new(name).unwrap()
}

struct Stores {
    default: Arc<dyn Store>,
    fast: Arc<dyn Store>,
    ledger: Ledger,
}

fn stores() -> Stores {
    let (default, fast) = (memory(), memory());
    let ledger = Ledger::builder().store("fast", Arc::clone(&fast), ["email"]).on(Arc::clone(&default));
    Stores { default, fast, ledger }
}

async fn count(store: &Arc<dyn Store>) -> u64 {
    store.counts(None).await.unwrap().0.values().sum()
}

#[tokio::test]
async fn each_operation_is_recorded_in_its_store_and_read_from_it() {
    let Stores { default, fast, ledger } = stores();
    ledger.operation("email").key("1").run(|_| async { Ok(1) }).await.unwrap();
    ledger.operation("charge").key("1").run(|_| async { Ok(2) }).await.unwrap();
    ledger.operation("charge").key("2").run(|_| async { Ok(3) }).await.unwrap();
    assert_eq!((count(&default).await, count(&fast).await), (2, 1));
    assert!(ledger.operation("email").key("1").run(|_| async { Ok(0) }).await.unwrap().replayed);
    let call = ledger.operation("email").key("1").call().unwrap();
    assert!(ledger.get(&call.identity).await.unwrap().is_some());
    assert_eq!(ledger.counts().await.unwrap().of(Status::Done), 3);
    assert_eq!((ledger.stats().acquired, ledger.stats().replayed), (3, 1));
    ledger.ping().await.unwrap();
    ledger.idle().await;
}

#[tokio::test]
async fn a_remote_owner_and_an_operator_reach_the_record_in_its_store() {
    let Stores { fast, ledger, .. } = stores();
    let call = ledger.operation("email").key("1").call().unwrap();
    let started = ledger.start_remote(&call, onceward::remote::StartOptions::default()).await.unwrap();
    let onceward::remote::Started::Acquired(offer) = started else { panic!("{started:?}") };
    let fence = offer.acquired().fence;
    offer.hand_over();
    let owner = ledger.remote_owner(call.identity.clone(), fence);
    owner.doubt(Some("time-out")).await.unwrap();
    let intent = ledger.get(&call.identity).await.unwrap().unwrap();
    assert_eq!(intent.status(), Some(Status::InDoubt));
    let happened = Resolution::Happened(Outcome::success("1"));
    let version = intent.seen.record.version;
    let settled = ledger.resolve(&call.identity, version, happened, None, None).await.unwrap();
    assert_eq!(settled, Resolved::Settled);
    assert_eq!(fast.counts(None).await.unwrap().of(Status::Done), 1);
    assert_eq!(ledger.operation("email").key("1").run(|_| async { Ok(7) }).await.unwrap().value, 1);
}

#[tokio::test]
async fn a_record_that_a_route_put_into_a_named_store_is_found() {
    let Stores { fast, ledger, .. } = stores();
    let named = ledger.named(Some("fast"));
    assert!(
        named.operation("POST /mail").key("1").run(|_| async { Err::<u8, _>(Failure::unknown("lost")) }).await.is_err()
    );
    assert_eq!(count(&fast).await, 1);
    let identity = ledger.operation("POST /mail").key("1").call().unwrap().identity;
    let intent = ledger.get(&identity).await.unwrap().unwrap();
    let settled = ledger.resolve(&identity, intent.seen.record.version, Resolution::DidNotHappen, None, None).await;
    assert_eq!(settled.unwrap(), Resolved::Settled);
}

#[tokio::test]
async fn the_pages_of_a_list_go_through_every_store_once() {
    let Stores { ledger, .. } = stores();
    for number in 0..7 {
        ledger.operation("email").key(&format!("{number}")).run(|_| async { Ok(1) }).await.unwrap();
        ledger.operation("charge").key(&format!("{number}")).run(|_| async { Ok(1) }).await.unwrap();
    }
    for size in 1..16 {
        let (mut seen, mut after) = (Vec::new(), None);
        for _ in 0..40 {
            let page = ledger.list(&Filter::default(), after, size).await.unwrap();
            assert!(page.listed.len() <= size);
            seen.extend(page.listed.into_iter().map(|listed| listed.seen.record.id));
            // A client keeps the cursor as text.
            after = page.next.map(|next| next.to_string().parse::<Cursor>().unwrap());
            if after.is_none() {
                break;
            }
        }
        let distinct: std::collections::HashSet<_> = seen.iter().collect();
        assert_eq!((after, seen.len(), distinct.len()), (None, 14, 14), "{size} on a page");
    }
}

#[tokio::test]
async fn an_operation_that_lives_in_another_store_is_refused() {
    let (default, fast) = (memory(), memory());
    let before = Ledger::builder().on(Arc::clone(&default));
    before.place_operations(&[operation("email")]).await.unwrap();
    let moved = || Ledger::builder().store("fast", Arc::clone(&fast), ["email"]).on(Arc::clone(&default));
    let refused = moved().place_operations(&[operation("email")]).await.unwrap_err().to_string();
    assert!(refused.contains("email") && refused.contains("would run again"), "{refused}");
    // The other way round, and for records of an operation that was never configured.
    let back = Ledger::builder().store("fast", Arc::clone(&fast), ["sms"]).on(Arc::clone(&default));
    back.place_operations(&[operation("sms"), operation("email")]).await.unwrap();
    let all_default = Ledger::builder().store("fast", Arc::clone(&fast), ["other"]).on(Arc::clone(&default));
    assert!(all_default.place_operations(&[operation("sms")]).await.is_err());
    before.operation("undeclared").key("1").run(|_| async { Ok(1) }).await.unwrap();
    let undeclared = Ledger::builder().store("fast", Arc::clone(&fast), ["undeclared"]).on(Arc::clone(&default));
    assert!(undeclared.place_operations(&[operation("undeclared")]).await.is_err());
}

async fn run(ledger: &Ledger, operation: &str) -> Result<u8, String> {
    let done = ledger.operation(operation).key("1").run(|_| async { Ok(1) }).await;
    done.map(|done| done.value).map_err(|error| error.to_string())
}

#[tokio::test]
async fn finished_work_is_not_done_again_where_its_operation_moves_to() {
    let (default, fast) = (memory(), memory());
    let alone = Ledger::builder().on(Arc::clone(&default));
    run(&alone, "charge").await.unwrap();
    run(&alone, "POST /v1/charges").await.unwrap();
    let moved = Ledger::builder().store("fast", Arc::clone(&fast), ["charge", "sms"]).on(Arc::clone(&default));
    let refused = run(&moved, "charge").await.unwrap_err();
    assert!(refused.contains("would run again"), "{refused}");
    assert!(fast.operations().await.unwrap().is_empty(), "what was refused is not recorded");
    // A route of a gateway names its store itself.
    let refused = run(moved.named(Some("fast")), "POST /v1/charges").await.unwrap_err();
    assert!(refused.contains("would run again"), "{refused}");
    assert_eq!(run(moved.named(Some("fast")), "POST /v1/refunds").await, Ok(1));
    // And back.
    assert_eq!(run(&moved, "sms").await, Ok(1));
    let back = Ledger::builder().store("fast", fast, ["other"]).on(Arc::clone(&default));
    assert!(run(&back, "sms").await.is_err() && run(&back, "POST /v1/refunds").await.is_err());
    assert_eq!(run(&back, "charge").await, Ok(1));
}

#[tokio::test]
async fn a_route_that_moves_to_another_store_is_refused_at_the_start() {
    let (default, fast) = (memory(), memory());
    let ledger = || Ledger::builder().store("fast", Arc::clone(&fast), ["email"]).on(Arc::clone(&default));
    ledger().place_routes(&[("/v1/mail/*", Some("fast")), ("/v1/*", None)]).await.unwrap();
    ledger().place_routes(&[("/v1/*", None), ("/v1/mail/*", Some("fast"))]).await.unwrap();
    let refused = ledger().place_routes(&[("/v1/mail/*", None)]).await.unwrap_err().to_string();
    assert!(refused.contains("/v1/mail/*") && refused.contains("fast"), "{refused}");
}

#[tokio::test]
async fn of_two_servers_that_start_at_once_with_different_stores_at_most_one_takes_the_operation() {
    for _ in 0..50 {
        let (default, fast) = (memory(), memory());
        let servers = [
            Ledger::builder().store("fast", Arc::clone(&fast), ["email"]).on(Arc::clone(&default)),
            Ledger::builder().store("fast", Arc::clone(&fast), ["other"]).on(Arc::clone(&default)),
        ];
        let starts =
            servers.map(|server| tokio::spawn(async move { server.place_operations(&[operation("email")]).await }));
        let mut started = 0;
        for start in starts {
            started += usize::from(start.await.unwrap().is_ok());
        }
        let recorded = default.operations().await.unwrap().len() + fast.operations().await.unwrap().len();
        assert!(started <= 1 && recorded == started, "{started} started, {recorded} recorded");
    }
}

#[tokio::test]
async fn a_copy_takes_the_places_of_operations_along() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let file = store::open(path.to_str().unwrap()).await.unwrap();
    file.claim_operations(&[operation("email"), operation("charge"), operation("email")]).await.unwrap();
    assert_eq!(file.operations().await.unwrap(), ["charge", "email"]);
    let side =
        |store: &Arc<dyn Store>, name: &str| onceward::copy::Side { store: Arc::clone(store), name: name.into() };
    let target = memory();
    let options = onceward::copy::Options { wait: Some(Duration::ZERO), force_doubt: false };
    onceward::copy::copy(&side(&file, "file"), &side(&target, "target"), options, &|_| {}).await.unwrap();
    assert_eq!(target.operations().await.unwrap(), ["charge", "email"]);
}

#[tokio::test]
async fn a_payment_on_a_store_that_may_lose_it_is_refused_unless_the_policy_allows_it() {
    let ledger = Ledger::builder().on(Wrapped::memory(Durability::unless(vec!["appendfsync is everysec".to_owned()])));
    let refused = ledger.operation("charge").key("1").tier(Tier::Payment).run(|_| async { Ok(1) }).await.unwrap_err();
    assert!(refused.to_string().contains("allow_best_effort"), "{refused}");
    assert!(ledger.operation("charge").key("1").get().await.unwrap().is_none(), "nothing was recorded");
    let allowed = Policy { allow_best_effort: true, ..Policy::of(Tier::Payment) };
    ledger.operation("charge").key("2").policy(allowed).run(|_| async { Ok(1) }).await.unwrap();
    ledger.operation("email").key("3").tier(Tier::Email).run(|_| async { Ok(1) }).await.unwrap();
    let report = ledger.stores().await.unwrap().remove(0);
    assert!(report.name == "default" && report.durability.is_best_effort());
    // A store in memory is for tests, and stays allowed.
    Ledger::open("memory:")
        .await
        .unwrap()
        .operation("c")
        .key("1")
        .tier(Tier::Payment)
        .run(|_| async { Ok(1) })
        .await
        .unwrap();
}

/// A store that survives what the test says. It lets others go first for a random number of times before and after each step about
/// operations.
#[derive(Debug)]
struct Wrapped {
    store: Arc<dyn Store>,
    durability: Durability,
}

impl Wrapped {
    fn memory(durability: Durability) -> Arc<dyn Store> {
        Arc::new(Self { store: memory(), durability })
    }
}

async fn others_first<A>(step: impl Future<Output = A>) -> A {
    let times = || RandomState::new().build_hasher().finish() % 6;
    for _ in 0..times() {
        tokio::task::yield_now().await;
    }
    let answer = step.await;
    for _ in 0..times() {
        tokio::task::yield_now().await;
    }
    answer
}

#[async_trait]
impl Store for Wrapped {
    async fn insert(&self, draft: Draft, max_records: Option<u64>) -> Result<Inserted, store::Error> {
        self.store.insert(draft, max_records).await
    }

    async fn replace(&self, replace: Replace) -> Result<Replaced, store::Error> {
        self.store.replace(replace).await
    }

    async fn get(&self, id: Digest) -> Result<Option<Seen>, store::Error> {
        self.store.get(id).await
    }

    async fn due(&self, queue: &DueQuery) -> Result<DueEntries, store::Error> {
        self.store.due(queue).await
    }

    async fn purge(&self, limit: usize) -> Result<Purged, store::Error> {
        self.store.purge(limit).await
    }

    async fn list(&self, filter: &Filter, after: Option<Cursor>, limit: usize) -> Result<Page, store::Error> {
        self.store.list(filter, after, limit).await
    }

    async fn counts(&self, tenant: Option<&Tenant>) -> Result<Counts, store::Error> {
        self.store.counts(tenant).await
    }

    async fn append(&self, id: Digest, event: AuditEvent) -> Result<(), store::Error> {
        self.store.append(id, event).await
    }

    async fn trail(&self, id: Digest) -> Result<Vec<AuditEntry>, store::Error> {
        self.store.trail(id).await
    }

    async fn durability(&self) -> Result<Durability, store::Error> {
        Ok(self.durability.clone())
    }

    async fn has_operation(&self, name: &Operation) -> Result<bool, store::Error> {
        others_first(self.store.has_operation(name)).await
    }

    async fn operations(&self) -> Result<Vec<String>, store::Error> {
        others_first(self.store.operations()).await
    }

    async fn claim_operations(&self, names: &[Operation]) -> Result<(), store::Error> {
        others_first(self.store.claim_operations(names)).await
    }

    async fn release_operations(&self, names: &[Operation]) -> Result<(), store::Error> {
        others_first(self.store.release_operations(names)).await
    }
}

/// A store that was there, and is out of reach now.
#[derive(Debug)]
struct Unreachable(Arc<dyn Store>);

fn unreachable<T>() -> Result<T, store::Error> {
    Err(store::Error::Unreachable("it is down".into()))
}

#[async_trait]
impl Store for Unreachable {
    async fn insert(&self, _: Draft, _: Option<u64>) -> Result<Inserted, store::Error> {
        unreachable()
    }

    async fn replace(&self, _: Replace) -> Result<Replaced, store::Error> {
        unreachable()
    }

    async fn get(&self, _: Digest) -> Result<Option<Seen>, store::Error> {
        unreachable()
    }

    async fn due(&self, _: &DueQuery) -> Result<DueEntries, store::Error> {
        unreachable()
    }

    async fn purge(&self, _: usize) -> Result<Purged, store::Error> {
        unreachable()
    }

    async fn list(&self, _: &Filter, _: Option<Cursor>, _: usize) -> Result<Page, store::Error> {
        unreachable()
    }

    async fn counts(&self, _: Option<&Tenant>) -> Result<Counts, store::Error> {
        unreachable()
    }

    async fn append(&self, _: Digest, _: AuditEvent) -> Result<(), store::Error> {
        unreachable()
    }

    async fn trail(&self, _: Digest) -> Result<Vec<AuditEntry>, store::Error> {
        unreachable()
    }

    async fn durability(&self) -> Result<Durability, store::Error> {
        self.0.durability().await
    }

    async fn has_operation(&self, _: &Operation) -> Result<bool, store::Error> {
        unreachable()
    }

    async fn operations(&self) -> Result<Vec<String>, store::Error> {
        unreachable()
    }
}

#[tokio::test]
async fn work_that_its_own_store_has_recorded_does_not_run_without_it_because_another_store_is_down() {
    let (default, fast) = (memory(), memory());
    let before = Ledger::builder().store("fast", Arc::clone(&fast), ["charge"]).on(Arc::clone(&default));
    for operation in ["charge", "POST /v1/charges"] {
        assert_eq!(run(before.named(Some("fast")), operation).await, Ok(1));
    }
    let down: Arc<dyn Store> = Arc::new(Unreachable(default));
    let after = Ledger::builder().store("fast", fast, ["charge"]).on(down);
    let open = Policy { store_down: StoreDown::Open, ..Policy::default() };
    for operation in ["charge", "POST /v1/charges", "unknown"] {
        let call = after.named(Some("fast")).operation(operation).key("1").policy(open.clone());
        match call.run(|_| async { Ok(2) }).await {
            Ok(done) => assert!(done.replayed && done.value == 1, "{operation} ran again"),
            Err(error) => assert!(error.to_string().contains("the store default"), "{error}"),
        }
    }
}

/// One of those with the same configuration relies on what the other one has recorded, and takes back when it finds the third.
#[tokio::test]
async fn of_three_servers_of_which_one_differs_none_takes_an_operation_that_lives_in_another_store() {
    for round in 0..1000 {
        let (default, fast) = (Wrapped::memory(Durability::Volatile), Wrapped::memory(Durability::Volatile));
        let tasks = ["email", "email", "other"].map(|of_fast| {
            let server = Ledger::builder().store("fast", Arc::clone(&fast), [of_fast]).on(Arc::clone(&default));
            tokio::spawn(async move {
                match round % 2 {
                    0 => run(&server, "email").await.is_ok(),
                    _ => server.place_operations(&[operation("email")]).await.is_ok(),
                }
            })
        });
        let [one, same, differs] = tasks;
        let (one, same, differs) = (one.await.unwrap(), same.await.unwrap(), differs.await.unwrap());
        assert!(!(differs && (one || same)), "the operation lives in both stores");
    }
}
