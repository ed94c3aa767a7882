//! The store of a scenario: any store, a new one for each scenario.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::clock::ManualClock;
use crate::store::Store;
use crate::store::memory::Memory;

/// An empty store for one scenario, and anything that must stay alive with it, such as a temporary folder or a server.
pub struct TestStore {
    pub(super) store: Arc<dyn Store>,
    pub(super) keep: Box<dyn Any>,
}

impl TestStore {
    /// Wraps a store.
    pub fn new(store: impl Store + 'static) -> Self {
        Self { store: Arc::new(store), keep: Box::new(()) }
    }

    /// Keeps a value alive as long as the store.
    pub fn keeping(self, keep: impl Any) -> Self {
        Self { keep: Box::new((self.keep, keep)), ..self }
    }

    pub(super) fn in_memory(clock: ManualClock) -> Self {
        Self::new(Memory::new(Arc::new(clock)))
    }
}

impl From<Arc<dyn Store>> for TestStore {
    fn from(store: Arc<dyn Store>) -> Self {
        Self { store, keep: Box::new(()) }
    }
}

impl fmt::Debug for TestStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestStore").field("store", &self.store).finish_non_exhaustive()
    }
}
