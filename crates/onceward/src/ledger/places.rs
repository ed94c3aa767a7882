//! In which store an operation lives. It is recorded before the first claim, so that a later configuration cannot move the operation
//! to another store, where its finished work would not be found and would run again. Reads and writes stores.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};

use onceward_core::name::{Identity, Operation};

use super::Inner;
use crate::store::{self, Store};

/// The most operations that one process records. Names of operations are few, except those that clients of the API make up;
/// further ones are looked for by their keys, where there are several stores.
const MAX_RECORDED: usize = 1024;

/// The places of a ledger on one of the stores.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// The other stores, with their names in messages.
    pub(super) others: Vec<(String, Arc<dyn Store>)>,
    /// Operations that are known to live here.
    known: RwLock<HashSet<Box<str>>>,
}

impl Places {
    pub(super) fn beside(others: Vec<(String, Arc<dyn Store>)>) -> Self {
        Self { others, ..Self::default() }
    }

    fn is_known(&self, operation: &Operation) -> bool {
        self.known.read().unwrap_or_else(PoisonError::into_inner).contains(operation.as_str())
    }

    fn is_full(&self) -> bool {
        self.known.read().unwrap_or_else(PoisonError::into_inner).len() >= MAX_RECORDED
    }

    fn remember(&self, operation: &Operation) {
        self.known.write().unwrap_or_else(PoisonError::into_inner).insert(operation.as_str().into());
    }
}

impl Inner {
    /// Records that the operation of this intent lives here, or refuses it because it lives in another store.
    pub(super) async fn place(&self, identity: &Identity) -> Result<(), store::Error> {
        let operation = &identity.operation;
        if self.places.is_known(operation) {
            return Ok(());
        }
        if is_of_route(operation) || self.places.is_full() {
            return self.look_elsewhere(identity).await;
        }
        if !self.store.has_operation(operation).await? {
            self.claim_operation(operation).await?;
        }
        self.places.remember(operation);
        Ok(())
    }

    /// Asks the other stores before and after: of two processes with different configurations, at least one finds the other.
    async fn claim_operation(&self, operation: &Operation) -> Result<(), store::Error> {
        self.refuse_if_elsewhere(operation).await?;
        let names = std::slice::from_ref(operation);
        self.store.claim_operations(names).await?;
        if let Err(elsewhere) = self.refuse_if_elsewhere(operation).await {
            // Whatever becomes of the name: that this store fails now is not the answer.
            if let Err(error) = self.store.release_operations(names).await {
                tracing::warn!(%operation, %error, "an operation that was refused stays recorded in its store");
            }
            return Err(elsewhere);
        }
        Ok(())
    }

    async fn refuse_if_elsewhere(&self, operation: &Operation) -> Result<(), store::Error> {
        for (name, other) in &self.places.others {
            if other.has_operation(operation).await.map_err(|error| not_asked(operation, name, &error))? {
                return Err(misplaced(operation, name));
            }
        }
        Ok(())
    }

    /// Operations of a gateway have a path in their name, so there may be any number of them: the record itself is looked for.
    async fn look_elsewhere(&self, identity: &Identity) -> Result<(), store::Error> {
        for (name, other) in &self.places.others {
            let operation = &identity.operation;
            if other.get(identity.digest()).await.map_err(|error| not_asked(operation, name, &error))?.is_some() {
                return Err(misplaced(operation, name));
            }
        }
        Ok(())
    }
}

/// Whether this is a request's method and path.
fn is_of_route(operation: &Operation) -> bool {
    operation.as_str().split_once(' ').is_some_and(|(_, path)| path.starts_with('/'))
}

/// The error for a call that needs another store than its own, which failed. Never that of a store out of reach: the policy of the
/// call lets work run without its own store, and that one is there and may have recorded the work.
fn not_asked(operation: &Operation, store: &str, error: &store::Error) -> store::Error {
    let reason =
        format!("it has to be asked whether it has recorded {operation}, and it failed ({error}); nothing was run");
    store::Error::Refused { store: store.to_owned(), reason }
}

pub(super) fn misplaced(operation: &Operation, store: &str) -> store::Error {
    let reason = format!(
        "{operation} lives in it already, and the configuration puts it into another store, where its finished work would not be \
         found and would run again. Put it back with the `store` of the operation, or give the operation a new name. To move \
         everything, use `onceward copy`"
    );
    store::Error::Refused { store: store.to_owned(), reason }
}
