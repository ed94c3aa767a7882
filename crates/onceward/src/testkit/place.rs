//! Where scenarios are played: any store, a fresh one for each of them.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::clock::ManualClock;
use crate::store::Store;
use crate::store::memory::Memory;

/// An empty store for one scenario, and whatever must stay alive with it: a temporary folder, a server.
pub struct Place {
    pub(super) store: Arc<dyn Store>,
    pub(super) keep: Box<dyn Any>,
}

impl Place {
    /// A store.
    pub fn new(store: impl Store + 'static) -> Self {
        Self { store: Arc::new(store), keep: Box::new(()) }
    }

    /// Keeps something alive as long as the store.
    pub fn keeping(self, keep: impl Any) -> Self {
        Self { keep: Box::new((self.keep, keep)), ..self }
    }

    pub(super) fn in_memory(clock: ManualClock) -> Self {
        Self::new(Memory::new(Arc::new(clock)))
    }
}

impl From<Arc<dyn Store>> for Place {
    fn from(store: Arc<dyn Store>) -> Self {
        Self { store, keep: Box::new(()) }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("store", &self.store).finish_non_exhaustive()
    }
}
