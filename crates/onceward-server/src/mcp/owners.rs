//! Who carries out which intent in this process, so that somebody who waits for it gets its answer, also one that is not
//! kept: the same error, the same task.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onceward::core::hash::Digest;
use onceward::core::name::Identity;

use super::members::Members;

/// Everybody who is at something.
#[derive(Clone, Debug, Default)]
pub(super) struct Owners(Arc<Mutex<HashMap<Digest, Arc<Said>>>>);

/// What one of them has said.
#[derive(Debug, Default)]
pub(super) struct Said(Mutex<Word>);

#[derive(Debug, Default)]
enum Word {
    /// Nothing yet.
    #[default]
    None,
    /// An answer that is not kept.
    Answer(Arc<Members>),
    /// An answer, while the work goes on.
    GoesOn(Arc<Members>),
}

/// Somebody who is at something, until this is dropped.
#[derive(Debug)]
pub(super) struct Owner {
    owners: Arc<Mutex<HashMap<Digest, Arc<Said>>>>,
    id: Digest,
    said: Arc<Said>,
}

impl Owners {
    pub(super) fn enter(&self, identity: &Identity) -> Owner {
        let owner = Owner { owners: Arc::clone(&self.0), id: identity.digest(), said: Arc::default() };
        held(&self.0).insert(owner.id, Arc::clone(&owner.said));
        owner
    }

    pub(super) fn find(&self, identity: &Identity) -> Option<Arc<Said>> {
        held(&self.0).get(&identity.digest()).cloned()
    }
}

impl Owner {
    /// This is the answer, and it is not kept.
    pub(super) fn says(&self, answer: &Members) {
        *held(&self.said.0) = Word::Answer(Arc::new(answer.clone()));
    }

    /// This is the answer, and the work goes on.
    pub(super) fn continues(&self, answer: &Members) {
        *held(&self.said.0) = Word::GoesOn(Arc::new(answer.clone()));
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let mut owners = held(&self.owners);
        // Somebody else may have come after us.
        if owners.get(&self.id).is_some_and(|said| Arc::ptr_eq(said, &self.said)) {
            owners.remove(&self.id);
        }
    }
}

impl Said {
    pub(super) fn answer(&self) -> Option<Arc<Members>> {
        match &*held(&self.0) {
            Word::Answer(answer) | Word::GoesOn(answer) => Some(Arc::clone(answer)),
            Word::None => None,
        }
    }

    /// The answer of work that goes on.
    pub(super) fn goes_on(&self) -> Option<Arc<Members>> {
        match &*held(&self.0) {
            Word::GoesOn(answer) => Some(Arc::clone(answer)),
            _ => None,
        }
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use onceward::core::name::{Key, Operation, Tenant};

    use super::*;

    #[test]
    fn an_owner_is_found_until_it_is_gone_and_takes_nobody_else_along() {
        let (owners, operation) = (Owners::default(), Operation::new("mcp:mail/send").unwrap());
        let identity = Identity { tenant: Tenant::default(), operation, key: Key::new("k").unwrap() };
        let first = owners.enter(&identity);
        let found = owners.find(&identity).unwrap();
        assert!(found.answer().is_none());
        first.says(&Members::read(r#"{"id":1}"#).unwrap());
        let second = owners.enter(&identity);
        drop(first);
        assert_eq!(found.answer().unwrap().written(), r#"{"id":1}"#);
        assert!(found.goes_on().is_none() && owners.find(&identity).unwrap().answer().is_none());
        second.continues(&Members::default());
        assert!(owners.find(&identity).unwrap().goes_on().is_some());
        drop(second);
        assert!(owners.find(&identity).is_none());
    }
}
