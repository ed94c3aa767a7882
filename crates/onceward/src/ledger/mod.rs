//! The front: every surface builds a [`Call`] and comes here.
//!
//! - `call`: from names and arguments to a `Call`.
//! - `begin`: the claim, with the cache in front.
//! - `claiming`: a claim that is being asked for, and who looks after it.
//! - `upkeep`: which claims fall due when.
//! - `carried_on`: a future that does not end with whoever waits for it.
//! - `guard`: a claim that was granted: renew, finish, release, doubt. `claim`: what the work sees of it.
//! - `delivery`: whether the caller got the answer.
//! - `late`: what a superseded owner reports.
//! - `remote`: a claim whose owner is not in this process.
//! - `run`: a closure under a guard.
//! - `wait`: a repeat that waits for the running one.
//! - `settle`: looking, listing, resolving, purging.
//! - `drive`: decide, write, and decide again on a conflict.

mod begin;
mod cache;
mod call;
mod carried_on;
mod claim;
mod claiming;
mod delivery;
mod drive;
mod guard;
mod late;
mod remote;
mod run;
mod settle;
mod upkeep;
mod wait;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Notify;

use onceward_core::policy::Policy;
use onceward_core::recipe::Recipe;

use crate::store::{self, Store};

pub use begin::Begun;
pub use call::{Call, Operation};
pub(crate) use carried_on::CarriedOn;
pub use claim::Claim;
pub use delivery::Delivery;
pub use guard::{Guard, Reach};
pub use remote::{Grant, Granted, Held, Holder};
pub use run::Done;
pub(crate) use run::{Started, answered, unguarded};
pub use settle::{Intent, Resolved, Who};

/// The ledger: record an intent, let one caller do the work, give every repeat the outcome. Cheap to clone.
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
    upkeep: upkeep::Upkeep,
    /// Claims that guards of this process hold.
    held: AtomicUsize,
    none_held: Notify,
}

/// What is configured for an operation.
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

/// What this ledger has seen since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Claims that were granted.
    pub acquired: u64,
    /// Repeats that got a stored outcome.
    pub replayed: u64,
    /// Different intents with the same derived key: must be zero.
    pub collisions: u64,
    /// Late owners whose report cannot be true together with the record.
    pub contradictions: u64,
    /// Calls that ran unguarded because the store was down and the policy said so.
    pub unguarded: u64,
}

/// Opens a ledger with policies and recipes.
#[derive(Debug, Default)]
pub struct Builder {
    operations: HashMap<String, Settings>,
    records_per_tenant: Option<u64>,
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

    /// Limits how many records a tenant may have. A new key over the limit is refused with [`Error::Quota`]; nothing is
    /// evicted, and keys that are recorded go on working. Tombstones do not count.
    ///
    /// [`Error::Quota`]: crate::Error::Quota
    pub fn records_per_tenant(mut self, most: impl Into<Option<u64>>) -> Self {
        self.records_per_tenant = most.into();
        self
    }

    /// Opens the store that a URL names: `memory:`, a file path, or `file:PATH`.
    pub async fn open(self, url: &str) -> Result<Ledger, store::Error> {
        Ok(self.on(store::open(url).await?))
    }

    /// A ledger on a store that is open already.
    pub fn on(self, store: Arc<dyn Store>) -> Ledger {
        let inner = Inner {
            store,
            operations: self.operations,
            records_per_tenant: self.records_per_tenant,
            cache: cache::Cache::default(),
            waiters: wait::Waiters::default(),
            stats: Counters::default(),
            sweeping: AtomicBool::new(false),
            upkeep: upkeep::Upkeep::default(),
            held: AtomicUsize::new(0),
            none_held: Notify::new(),
        };
        Ledger { inner: Arc::new(inner) }
    }
}

impl Ledger {
    /// Opens the store that a URL names: `memory:`, a file path, or `file:PATH`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), onceward::store::Error> {
    /// let ledger = onceward::Ledger::open("memory:").await?;
    /// # Ok(()) }
    /// ```
    pub async fn open(url: &str) -> Result<Self, store::Error> {
        Self::builder().open(url).await
    }

    /// A ledger with policies and recipes of its own.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// What this ledger has seen since it was opened.
    pub fn stats(&self) -> Stats {
        let stats = &self.inner.stats;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            acquired: read(&stats.acquired),
            replayed: read(&stats.replayed),
            collisions: read(&stats.collisions),
            contradictions: read(&stats.contradictions),
            unguarded: read(&stats.unguarded),
        }
    }

    /// Waits until no guard of this ledger holds a claim: whoever stops should let what runs come to its end. There is no
    /// limit; put a time-out around it.
    pub async fn idle(&self) {
        loop {
            let none = self.inner.none_held.notified();
            tokio::pin!(none);
            none.as_mut().enable();
            if self.inner.held.load(Ordering::SeqCst) == 0 {
                return;
            }
            none.await;
        }
    }

    /// Whether the store can be read and written.
    pub async fn ping(&self) -> Result<(), store::Error> {
        self.inner.store.get(onceward_core::hash::digest(b"ping")).await?;
        self.inner.store.check().await
    }

    /// Ends the store's threads and waits for them. Claims that are still held are left to lapse.
    pub async fn close(self) {
        self.inner.store.close().await;
    }
}

/// Counts one more, and says how many there were before.
fn count(counter: &AtomicU64) -> u64 {
    counter.fetch_add(1, Ordering::Relaxed)
}
