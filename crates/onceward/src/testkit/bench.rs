//! What one call of a tool works with: a ledger and a provider, both of them the kit's.

use std::sync::Arc;

use super::life::Life;
use super::log::Log;
use super::provider::{Manner, Provider, World};
use super::watched::Watched;
use crate::Ledger;
use crate::clock::ManualClock;
use crate::store::Store;

/// Handed to the tool for each call: the ledger and the provider of that call. Both belong to one process of the
/// scenario, and stop with it.
#[derive(Clone, Debug)]
pub struct Bench {
    store: Arc<dyn Store>,
    ledger: Ledger,
    provider: Provider,
    clock: ManualClock,
}

/// What the calls of one scenario share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: ManualClock,
    pub(super) log: Arc<Log>,
    pub(super) world: Arc<World>,
}

impl Bench {
    /// The bench of one call. Each call has a ledger of its own, as a new process would.
    pub(super) fn new(shared: &Shared, life: &Arc<Life>, call: usize, manner: Manner, shortens: bool) -> Self {
        let (real, log) = (Arc::clone(&shared.store), Arc::clone(&shared.log));
        let store: Arc<dyn Store> = Arc::new(Watched::new(real, Arc::clone(life), log, call, shortens));
        Self {
            ledger: Ledger::builder().on(Arc::clone(&store)),
            store,
            provider: Provider::new(&shared.world, life, &shared.log, call, manner),
            clock: shared.clock.clone(),
        }
    }

    /// The ledger, with no policies of its own.
    pub fn ledger(&self) -> Ledger {
        self.ledger.clone()
    }

    /// The store under it, for a tool that needs a ledger with policies and recipes:
    /// `Ledger::builder().policy(…).on(bench.store())`.
    pub fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    /// The other side, which counts what happens.
    pub fn provider(&self) -> Provider {
        self.provider.clone()
    }

    /// The clock of the scenario. It stands still, except that leases lapse when a process has died.
    pub fn clock(&self) -> ManualClock {
        self.clock.clone()
    }
}
