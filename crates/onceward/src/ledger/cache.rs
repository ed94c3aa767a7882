//! Finished outcomes, so that a repeat costs no look at the store. `done` never changes until it expires, and
//! whether it has expired is decided anew for each repeat.

use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache as Bounded;

use onceward_core::hash::{self, Digest};
use onceward_core::name::Identity;
use onceward_core::outcome::Body;
use onceward_core::plant::{Plant, planted};
use onceward_core::record::{Record, State};

/// Bytes of outcomes that are kept at hand.
const CAPACITY: u64 = 32 * 1024 * 1024;

/// About how many outcomes that is.
const ITEMS: usize = 32 * 1024;

/// What a record weighs besides its body.
const OVERHEAD: u64 = 512;

#[derive(Debug)]
pub(super) struct Cache(Bounded<Digest, Arc<Record>, Weight>);

#[derive(Clone, Debug)]
struct Weight;

impl Weighter<Digest, Arc<Record>> for Weight {
    fn weight(&self, _: &Digest, record: &Arc<Record>) -> u64 {
        let body = match &record.state {
            State::Done { outcome, .. } => match &outcome.body {
                Body::Kept(bytes) => bytes.len() as u64,
                Body::TooLarge { .. } => 0,
            },
            _ => 0,
        };
        body + OVERHEAD
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self(Bounded::with_weighter(ITEMS, CAPACITY, Weight))
    }
}

/// Where the outcome of an intent is: at the digest of all of its identity.
pub(super) fn place(id: Digest, identity: Option<&Identity>) -> Digest {
    match identity {
        Some(identity) if planted(Plant::CacheDropsTenant) => hash::digest(identity.key.as_str().as_bytes()),
        _ => id,
    }
}

impl Cache {
    pub(super) fn get(&self, id: &Digest) -> Option<Arc<Record>> {
        self.0.get(id)
    }

    /// Remembers a record, if it is one that never changes. The head of a stream goes on to its next item.
    pub(super) fn keep(&self, record: &Record) {
        if matches!(record.state, State::Done { .. }) && record.sequence.is_none() {
            self.0.insert(place(record.id, record.identity.as_ref()), Arc::new(record.clone()));
        }
    }

    pub(super) fn forget(&self, id: &Digest) {
        self.0.remove(id);
    }
}
