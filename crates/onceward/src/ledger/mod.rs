//! The front of the library: every surface builds a [`Call`] and starts it here.
//!
//! In the order in which a call passes them:
//! - `call`: from names and arguments to a `Call`.
//! - `run`: a closure under a guard.
//! - `start`: begin, wait, and what to do when the store is down. `wait`: waiting for another caller's attempt.
//! - `begin`: one attempt to begin, with the `cache` in front of the store.
//! - `lease/`: keeps a claim alive from the moment that it is asked for until its guard has ended.
//! - `apply`: decide, write, and decide again on a conflict.
//! - `guard`: a claim as its owner holds it. `claim`: as the work sees it. `owned_claim`: the writes of both.
//! - `delivery`: whether the caller got the answer.
//! - `breakers`: the breakers of couriers, and paused queues.
//! - `outbox`: queueing entries, taking them for a courier, and what people decide about them. `rerun`: a deliberate new run.
//!
//! Besides: `remote` (owners that are not in this process), `pull` (batches of entries for workers in other processes), `late_report` (owners that were superseded), `settle` (reading,
//! listing, resolving, purging), `placement` (several stores under one ledger), `places` (in which store an operation lives),
//! `every_store` (what goes over all stores), `copy` (moving a whole ledger to another store).

mod apply;
mod begin;
pub mod breakers;
mod cache;
mod call;
mod claim;
pub mod copy;
mod delivery;
pub mod every_store;
mod guard;
mod late_report;
mod lease;
mod outbox;
mod owned_claim;
pub mod placement;
mod places;
pub mod pull;
pub mod remote;
mod rerun;
mod run;
mod settle;
mod start;
mod wait;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Notify;

use onceward_core::policy::Policy;
use onceward_core::recipe::Recipe;

use crate::kept_answer::KeptAnswer;
use crate::store::{self, Durability, Store};
use crate::store_url::StoreUrl;

pub use begin::Begun;
pub use call::{Call, CallBuilder};
pub use claim::Claim;
pub use delivery::Delivery;
pub use guard::{Guard, WriteResult};
#[cfg(feature = "http")]
pub(crate) use lease::FinishOnDrop;
pub use outbox::{AttemptFailure, EnqueueOptions, Enqueued, TakenEntry, Taking};
pub use rerun::{Rerun, RerunRequest};
pub use run::Done;
pub(crate) use run::{replay, unguarded};
pub use settle::{Intent, Resolved, Resolver};
pub use start::{OnRunning, StartOptions, Started};

/// The ledger: records an intent, lets one caller do the work, and gives every repeat the outcome. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Ledger {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Arc<dyn Store>,
    operations: HashMap<String, Settings>,
    records_per_tenant: Option<u64>,
    cache: cache::Cache,
    waiters: wait::Waiters,
    stats: Counters,
    sweeping: AtomicBool,
    /// Hints of the store wake waiting callers; set by the first of them.
    heeds_hints: AtomicBool,
    leases: lease::LeaseKeeper,
    /// How many claims guards of this process own.
    owned: AtomicUsize,
    none_owned: Notify,
    /// This process has queued an entry.
    queued: Notify,
    /// The requests of workers that are in progress.
    in_progress: pull::InProgress,
    /// Further stores, by name.
    further: Vec<(String, Ledger)>,
    /// The names of the further stores in which operations live; all other operations live in this one.
    homes: HashMap<String, String>,
    /// Which operations live in this store.
    places: places::Places,
    /// What an acknowledged write survives, if payments have asked for that.
    durability: KeptAnswer<Durability>,
}

/// The configuration of an operation.
#[derive(Clone, Debug, Default)]
struct Settings {
    policy: Arc<Policy>,
    recipe: Option<Arc<Recipe>>,
}

#[derive(Debug, Default)]
struct Counters {
    acquired: AtomicU64,
    replayed: AtomicU64,
    collisions: AtomicU64,
    contradictions: AtomicU64,
    unguarded: AtomicU64,
}

/// Counters of a ledger since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Claims that were granted.
    pub acquired: u64,
    /// Repeats that got a stored outcome.
    pub replayed: u64,
    /// Different intents with the same derived key: must be zero.
    pub collisions: u64,
    /// Reports of late owners that cannot be true together with the record.
    pub contradictions: u64,
    /// Calls that ran without a record, because the store was down and the policy said `store_down = "open"`.
    pub unguarded: u64,
}

/// Opens a ledger with policies and recipes for its operations.
#[derive(Debug, Default)]
pub struct Builder {
    operations: HashMap<String, Settings>,
    records_per_tenant: Option<u64>,
    further: Vec<(String, Arc<dyn Store>)>,
    homes: HashMap<String, String>,
}

impl Builder {
    /// Sets the policy of an operation.
    pub fn policy(mut self, operation: &str, policy: Policy) -> Self {
        self.operations.entry(operation.to_owned()).or_default().policy = Arc::new(policy);
        self
    }

    /// Sets the recipe of an operation: which fields make the intent.
    pub fn recipe(mut self, operation: &str, recipe: Recipe) -> Self {
        self.operations.entry(operation.to_owned()).or_default().recipe = Some(Arc::new(recipe));
        self
    }

    /// Limits how many records a tenant may have. A new key over the limit is refused with [`Error::Quota`]; no record is
    /// evicted, and recorded keys go on working. Tombstones do not count.
    ///
    /// [`Error::Quota`]: crate::Error::Quota
    pub fn records_per_tenant(mut self, most: impl Into<Option<u64>>) -> Self {
        self.records_per_tenant = most.into();
        self
    }

    /// Adds a store with a name, in which these operations live. All others live in the store that the ledger is opened on.
    pub fn store(
        mut self,
        name: &str,
        store: Arc<dyn Store>,
        operations: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        self.homes.extend(operations.into_iter().map(|operation| (operation.into(), name.to_owned())));
        self.further.push((name.to_owned(), store));
        self
    }

    /// Opens a store: `memory:`, a path, or `file:PATH`.
    pub async fn open(self, url: impl Into<StoreUrl>) -> Result<Ledger, store::Error> {
        Ok(self.on(url.into().open().await?))
    }

    /// Uses a store that is open already.
    pub fn on(self, store: Arc<dyn Store>) -> Ledger {
        let default = (placement::DEFAULT.to_owned(), Arc::clone(&store));
        // A further store may have the name of the default one.
        let every: Vec<_> = std::iter::once(default).chain(self.further.iter().cloned()).collect();
        let beside =
            |own: &Arc<dyn Store>| every.iter().filter(|(_, other)| !Arc::ptr_eq(own, other)).cloned().collect();
        let further = self.further.iter().map(|(name, store)| {
            let alone = Self {
                operations: self.operations.clone(),
                records_per_tenant: self.records_per_tenant,
                ..Self::default()
            };
            (name.clone(), alone.assembled(Arc::clone(store), Vec::new(), beside(store)))
        });
        let further = further.collect();
        let others = beside(&store);
        self.assembled(store, further, others)
    }

    /// The ledger on one store, with ledgers on the further ones, and the stores beside it.
    fn assembled(
        self,
        store: Arc<dyn Store>,
        further: Vec<(String, Ledger)>,
        others: Vec<(String, Arc<dyn Store>)>,
    ) -> Ledger {
        let inner = Inner {
            store,
            further,
            places: places::Places::beside(others),
            homes: self.homes,
            durability: KeptAnswer::default(),
            operations: self.operations,
            records_per_tenant: self.records_per_tenant,
            cache: cache::Cache::default(),
            waiters: wait::Waiters::default(),
            stats: Counters::default(),
            sweeping: AtomicBool::new(false),
            heeds_hints: AtomicBool::new(false),
            leases: lease::LeaseKeeper::default(),
            owned: AtomicUsize::new(0),
            none_owned: Notify::new(),
            queued: Notify::new(),
            in_progress: pull::InProgress::default(),
        };
        Ledger { inner: Arc::new(inner) }
    }
}

impl Ledger {
    /// Opens a store: `memory:`, a path, or `file:PATH`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onceward::store::Error> {
    /// # let folder = std::env::temp_dir().join(format!("onceward-doc-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder).unwrap();
    /// let ledger = onceward::Ledger::open("memory:").await?;
    /// let on_disk = onceward::Ledger::open(folder.join("ledger.db")).await?;
    /// # on_disk.close().await;
    /// # std::fs::remove_dir_all(&folder).unwrap();
    /// # Ok(()) }
    /// ```
    pub async fn open(url: impl Into<StoreUrl>) -> Result<Self, store::Error> {
        Self::builder().open(url).await
    }

    /// Configures a ledger with policies and recipes before it is opened.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Counters since this ledger was opened.
    pub fn stats(&self) -> Stats {
        let read = |counter: fn(&Counters) -> &AtomicU64| {
            self.parts().map(|(_, ledger)| counter(&ledger.inner.stats).load(Ordering::Relaxed)).sum()
        };
        Stats {
            acquired: read(|stats| &stats.acquired),
            replayed: read(|stats| &stats.replayed),
            collisions: read(|stats| &stats.collisions),
            contradictions: read(|stats| &stats.contradictions),
            unguarded: read(|stats| &stats.unguarded),
        }
    }

    /// Waits until no guard of this ledger owns a claim. A process that stops should let running work come to its end. It
    /// waits without a limit; put a time-out around it.
    pub async fn idle(&self) {
        // A claim in one store never leads to one in another.
        for (_, ledger) in self.parts() {
            ledger.inner.idle().await;
        }
    }

    /// Checks that every store can be read and written.
    pub async fn ping(&self) -> Result<(), store::Error> {
        for (_, ledger) in self.parts() {
            ledger.inner.store.get(onceward_core::hash::digest(b"ping")).await?;
            ledger.inner.store.check().await?;
        }
        Ok(())
    }

    /// Ends the store's threads and waits for them. Claims that are still held are left to lapse.
    pub async fn close(self) {
        for (_, ledger) in self.parts() {
            ledger.inner.store.close().await;
        }
    }
}

impl Inner {
    async fn idle(&self) {
        loop {
            let none = self.none_owned.notified();
            tokio::pin!(none);
            none.as_mut().enable();
            if self.owned.load(Ordering::SeqCst) == 0 {
                return;
            }
            none.await;
        }
    }
}

/// Counts one more, and returns how many there were before.
fn count(counter: &AtomicU64) -> u64 {
    counter.fetch_add(1, Ordering::Relaxed)
}
