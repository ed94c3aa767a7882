//! In which store an operation lives. It is recorded before the first claim, so that a later configuration cannot move the operation
//! to another store, where its finished work would not be found and would run again. Reads and writes stores.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use onceward_core::name::{Identity, Operation};

use super::Inner;
use crate::clock::{Clock, SystemClock};
use crate::store::{self, Store};

/// The most operations that one process records. Names of operations are few, except those that clients of the API make up;
/// further ones are looked for by their keys, where there are several stores.
const MAX_RECORDED: usize = 1024;

/// How long a process may take to record an operation: several times as long as a store may take to answer. Clocks of machines
/// differ by less.
const RECORDING: Duration = Duration::from_secs(60);

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
            if let Err(refused) = self.accepts_claims().await {
                // A sealed ledger still shows what it has.
                return self.store.get(identity.digest()).await?.map(drop).ok_or(refused);
            }
            self.claim_operation(operation).await?;
        }
        self.places.remember(operation);
        Ok(())
    }

    /// Whether the seal of the ledger accepts claims: a claim that it refuses must not leave the name of its operation behind. The
    /// store's own check names the store in its error.
    async fn accepts_claims(&self) -> Result<(), store::Error> {
        let Some(transfer) = self.store.transfer() else { return Ok(()) };
        match transfer.seal().await?.not_ready("") {
            None => Ok(()),
            Some(_) => self.store.check().await,
        }
    }

    async fn claim_operation(&self, operation: &Operation) -> Result<(), store::Error> {
        let names = std::slice::from_ref(operation);
        // Nothing is written for one that lives elsewhere.
        refuse_elsewhere(&self.places.others, names).await?;
        record(&self.store, &self.places.others, names).await
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

/// Records that operations live in a store, unless another one has recorded them.
///
/// A name that is recorded stays: another process may rely on it at once. So a marker goes first, which belongs to this attempt, and
/// then the other stores are asked for names and markers. Of any number of processes that differ, none finds nothing unless all
/// others find its marker or its name; of two that find each other's markers, none records.
pub(super) async fn record(
    store: &Arc<dyn Store>,
    others: &[(String, Arc<dyn Store>)],
    names: &[Operation],
) -> Result<(), store::Error> {
    if others.is_empty() {
        return store.claim_operations(names).await;
    }
    let token = String::from(super::begin::new_fence().map_err(|error| store::Error::Other(error.to_string()))?);
    let marker = |name| Operation::new(format!("{} {token} {}", marker_of(name), SystemClock.now().as_millis()));
    let markers: Result<Vec<_>, _> = names.iter().map(marker).collect();
    let markers = markers.map_err(|error| store::Error::Other(error.to_string()))?;
    store.claim_operations(&markers).await?;
    let recorded = async {
        refuse_elsewhere(others, names).await?;
        store.claim_operations(names).await
    };
    let recorded = recorded.await;
    // A marker that is left counts for a minute.
    if let Err(error) = store.release_operations(&markers).await {
        tracing::warn!(%error, "the marker of an operation that was to be recorded is left in its store");
    }
    recorded
}

/// Refuses operations that another store has recorded, or that another process is recording there.
async fn refuse_elsewhere(others: &[(String, Arc<dyn Store>)], names: &[Operation]) -> Result<(), store::Error> {
    for (store, other) in others {
        let Some(first) = names.first() else { return Ok(()) };
        let found = other.operations().await.map_err(|error| not_asked(first, store, &error))?;
        for name in names {
            if found.iter().any(|found| found == name.as_str()) {
                return Err(misplaced(name, store));
            }
            if found.iter().any(|found| is_recent(found, name)) {
                let reason = format!(
                    "another process is recording {name} in it: run this again, with one configuration for all"
                );
                return Err(store::Error::Refused { store: store.clone(), reason });
            }
        }
    }
    Ok(())
}

/// How the markers of an operation begin.
fn marker_of(name: &Operation) -> String {
    // A name may be as long as a marker.
    format!("recording {}", &onceward_core::hash::digest(name.as_str().as_bytes()).to_hex()[..32])
}

/// Whether this is a marker of the operation that a process has written lately. One that ended before it removed its marker must not
/// keep an operation from being recorded for ever.
fn is_recent(found: &str, name: &Operation) -> bool {
    let millis = found.strip_prefix(&*marker_of(name)).and_then(|rest| rest.rsplit(' ').next()?.parse().ok());
    let age = |millis: i64| SystemClock.now().as_millis().abs_diff(millis);
    millis.is_some_and(|millis| u128::from(age(millis)) < RECORDING.as_millis())
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
