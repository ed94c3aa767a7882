//! The owners of intents in this process. A caller that waits for an owner gets its response, also one that is not kept: the
//! same error, or the same task.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onceward::core::hash::Digest;
use onceward::core::name::Identity;

use super::members::Members;

/// The owners of this process, by intent.
#[derive(Clone, Debug, Default)]
pub(super) struct Owners(Arc<Mutex<HashMap<Digest, Arc<OwnerResponse>>>>);

/// The response of an owner, for callers that wait.
#[derive(Debug, Default)]
pub(super) struct OwnerResponse(Mutex<ResponseState>);

#[derive(Debug, Default)]
enum ResponseState {
    /// There is none yet.
    #[default]
    None,
    /// A response that is not kept.
    Final(Arc<Members>),
    /// A response of work that goes on.
    Ongoing(Arc<Members>),
}

/// The owner of an intent until this is dropped.
#[derive(Debug)]
pub(super) struct Owner {
    owners: Arc<Mutex<HashMap<Digest, Arc<OwnerResponse>>>>,
    id: Digest,
    said: Arc<OwnerResponse>,
}

impl Owners {
    pub(super) fn enter(&self, identity: &Identity) -> Owner {
        let owner = Owner { owners: Arc::clone(&self.0), id: identity.digest(), said: Arc::default() };
        locked(&self.0).insert(owner.id, Arc::clone(&owner.said));
        owner
    }

    pub(super) fn find(&self, identity: &Identity) -> Option<Arc<OwnerResponse>> {
        locked(&self.0).get(&identity.digest()).cloned()
    }
}

impl Owner {
    /// Sets a response that is not kept.
    pub(super) fn set_response(&self, answer: &Members) {
        *locked(&self.said.0) = ResponseState::Final(Arc::new(answer.clone()));
    }

    /// Sets a response of work that goes on.
    pub(super) fn set_ongoing(&self, answer: &Members) {
        *locked(&self.said.0) = ResponseState::Ongoing(Arc::new(answer.clone()));
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let mut owners = locked(&self.owners);
        // A later owner may have taken the entry.
        if owners.get(&self.id).is_some_and(|said| Arc::ptr_eq(said, &self.said)) {
            owners.remove(&self.id);
        }
    }
}

impl OwnerResponse {
    pub(super) fn answer(&self) -> Option<Arc<Members>> {
        match &*locked(&self.0) {
            ResponseState::Final(answer) | ResponseState::Ongoing(answer) => Some(Arc::clone(answer)),
            ResponseState::None => None,
        }
    }

    /// The response of work that goes on.
    pub(super) fn goes_on(&self) -> Option<Arc<Members>> {
        match &*locked(&self.0) {
            ResponseState::Ongoing(answer) => Some(Arc::clone(answer)),
            _ => None,
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use onceward::core::name::{Key, Operation, Tenant};

    use super::*;

    #[test]
    fn an_owner_is_found_until_it_is_gone_and_does_not_remove_a_later_one() {
        let (owners, operation) = (Owners::default(), Operation::new("mcp:mail/send").unwrap());
        let identity = Identity { tenant: Tenant::default(), operation, key: Key::new("k").unwrap() };
        let first = owners.enter(&identity);
        let found = owners.find(&identity).unwrap();
        assert!(found.answer().is_none());
        first.set_response(&Members::read(r#"{"id":1}"#).unwrap());
        let second = owners.enter(&identity);
        drop(first);
        assert_eq!(found.answer().unwrap().to_json(), r#"{"id":1}"#);
        assert!(found.goes_on().is_none() && owners.find(&identity).unwrap().answer().is_none());
        second.set_ongoing(&Members::default());
        assert!(owners.find(&identity).unwrap().goes_on().is_some());
        drop(second);
        assert!(owners.find(&identity).is_none());
    }
}
