//! What the kit gives to one call of a tool: a ledger and a provider.

use std::sync::Arc;

use super::process::Process;
use super::provider::{Behaviour, Effects, Provider};
use super::recording_store::RecordingStore;
use super::scenario_log::ScenarioLog;
use crate::Ledger;
use crate::clock::ManualClock;
use crate::store::Store;

/// The ledger and the provider for one call of the tool. Both belong to one simulated process of the scenario, and stop with
/// it.
#[derive(Clone, Debug)]
pub struct TestBench {
    store: Arc<dyn Store>,
    ledger: Ledger,
    provider: Provider,
    clock: ManualClock,
}

/// What all calls of one scenario share.
#[derive(Debug)]
pub(super) struct ScenarioState {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: ManualClock,
    pub(super) log: Arc<ScenarioLog>,
    pub(super) effects: Arc<Effects>,
}

impl TestBench {
    /// The bench of one call. Each call has its own ledger, as a new process would.
    pub(super) fn new(
        state: &ScenarioState,
        process: &Arc<Process>,
        call: usize,
        behaviour: Behaviour,
        shortens_leases: bool,
    ) -> Self {
        let (real, log) = (Arc::clone(&state.store), Arc::clone(&state.log));
        let store: Arc<dyn Store> =
            Arc::new(RecordingStore::new(real, Arc::clone(process), log, call, shortens_leases));
        Self {
            ledger: Ledger::builder().on(Arc::clone(&store)),
            store,
            provider: Provider::new(&state.effects, process, &state.log, call, behaviour),
            clock: state.clock.clone(),
        }
    }

    /// A ledger without policies.
    pub fn ledger(&self) -> Ledger {
        self.ledger.clone()
    }

    /// The store of the ledger, for a tool that needs a ledger with policies and recipes:
    /// `Ledger::builder().policy(…).on(bench.store())`.
    pub fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    /// The stand-in for the provider, which counts effects.
    pub fn provider(&self) -> Provider {
        self.provider.clone()
    }

    /// The clock of the scenario. It stands still, except that the kit advances it past the leases of a process that died.
    pub fn clock(&self) -> ManualClock {
        self.clock.clone()
    }
}
