//! A cache of finished outcomes, so that a repeat does not read the store. `done` never changes until it expires, and
//! whether it has expired is decided anew for each repeat.

use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache as Bounded;

use crate::plant::{Plant, planted};
use onceward_core::hash::{self, Digest};
use onceward_core::name::Identity;
use onceward_core::record::{Record, State};

/// Bytes of outcomes in the cache.
const CAPACITY: u64 = 32 * 1024 * 1024;

/// About how many outcomes that is.
const ITEMS: usize = 32 * 1024;

/// What a record weighs besides its texts and bytes.
const OVERHEAD: usize = 512;

/// What a header weighs besides its name and its value: two strings and their allocations.
const HEADER_OVERHEAD: usize = 96;

#[derive(Debug)]
pub(super) struct Cache(Bounded<Digest, Arc<Record>, Weight>);

#[derive(Clone, Debug)]
struct Weight;

impl Weighter<Digest, Arc<Record>> for Weight {
    fn weight(&self, _: &Digest, record: &Arc<Record>) -> u64 {
        let names = record.identity.as_ref().map_or(0, |identity| {
            [identity.tenant.as_str(), identity.operation.as_str(), identity.key.as_str()].map(str::len).iter().sum()
        });
        let outcome = match &record.state {
            State::Done { outcome, .. } => {
                outcome.size() + outcome.content_type.len() + outcome.headers.len() * HEADER_OVERHEAD
            }
            _ => 0,
        };
        (OVERHEAD + names + outcome) as u64
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self(Bounded::with_weighter(ITEMS, CAPACITY, Weight))
    }
}

/// The key of an intent in the cache: the digest of its whole identity.
pub(super) fn key(id: Digest, identity: Option<&Identity>) -> Digest {
    match identity {
        Some(identity) if planted(Plant::CacheDropsTenant) => hash::digest(identity.key.as_str().as_bytes()),
        _ => id,
    }
}

impl Cache {
    pub(super) fn get(&self, id: &Digest) -> Option<Arc<Record>> {
        self.0.get(id)
    }

    /// Caches a record, if it is one that never changes. The head of a stream goes on to its next item.
    pub(super) fn keep(&self, record: &Record) {
        if matches!(record.state, State::Done { .. }) && record.sequence.is_none() {
            self.0.insert(key(record.id, record.identity.as_ref()), Arc::new(record.clone()));
        }
    }

    pub(super) fn forget(&self, id: &Digest) {
        self.0.remove(id);
    }
}

#[cfg(test)]
mod tests {
    use onceward_core::decide::{Again, Begin, Command, Take, Write, decide};
    use onceward_core::fingerprint::Fingerprint;
    use onceward_core::name::{Key, Operation, Tenant};
    use onceward_core::outcome::Outcome;
    use onceward_core::policy::Policy;
    use onceward_core::record::{Fence, Seen};
    use onceward_core::time::Timestamp;

    use super::*;

    fn done(key: &str, outcome: Outcome) -> Record {
        let policy = Policy::default();
        let operation = Operation::new("op").expect("a name");
        let identity = Identity { tenant: Tenant::default(), operation, key: Key::new(key).expect("a key") };
        let fence = Fence::from_bits(1);
        let (marks_sent, probes, owner, claim) = (false, false, None, None);
        let take = Take { fence, lease: policy.lease(), marks_sent, probes, owner, claim };
        let fingerprint = Fingerprint::none();
        let (key_digest, again) = (None, Again::default());
        let begin = Begin { identity, key_digest, fingerprint, terms: policy.terms(), take, again };
        let now = Timestamp::from_millis(0);
        let Write::Insert(draft) = decide(None, &Command::Begin(begin)).write else { panic!("no claim") };
        let seen = Seen { record: draft.stamp(now), now, owner_gone: false };
        let Write::Replace(draft) = decide(Some(&seen), &Command::Finish { fence, outcome }).write else {
            panic!("not finished")
        };
        draft.stamp(now)
    }

    #[test]
    fn the_weight_of_an_outcome_includes_its_headers() {
        let cache = Cache::default();
        for number in 0..200 {
            let mut outcome = Outcome::success("x");
            outcome.headers = vec![("name".to_owned(), "v".repeat(512 * 1024))];
            cache.keep(&done(&number.to_string(), outcome));
        }
        assert!(cache.0.weight() <= CAPACITY, "{} bytes are kept", cache.0.weight());
        assert!(cache.0.len() <= 64, "{} outcomes of 512 KiB are kept in 32 MiB", cache.0.len());
    }
}
