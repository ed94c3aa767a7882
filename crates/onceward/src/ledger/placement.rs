//! Several stores under one ledger: each operation lives in one of them. What goes over all of them is in `every_store`.

use onceward_core::name::{Identity, Operation};
use onceward_core::policy::Tier;

use super::{Call, Ledger};
use crate::error::Error;
use crate::store::{self, Durability, Filter};

/// What the default store is called in messages.
pub(super) const DEFAULT: &str = "default";

/// One of the stores under a ledger.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct StoreReport {
    /// Its name in the configuration; `default` for the one that has none.
    pub name: String,
    /// What an acknowledged write to it survives.
    pub durability: Durability,
}

impl Ledger {
    /// The ledger in which an operation lives.
    pub(super) fn home(&self, operation: &Operation) -> &Self {
        self.home_of(operation.as_str())
    }

    pub(super) fn home_of(&self, operation: &str) -> &Self {
        match self.inner.homes.get(operation) {
            Some(store) => self.named(Some(store)),
            None => self,
        }
    }

    /// The ledger on the store with this name; this one for no name or a name that is not known.
    pub fn named(&self, store: Option<&str>) -> &Self {
        let further = store.and_then(|store| self.inner.further.iter().find(|(name, _)| name == store));
        further.map_or(self, |(_, ledger)| ledger)
    }

    /// The ledger that holds a record: the home of its operation. A record of an operation without a home is looked for.
    pub(super) async fn holding(&self, identity: &Identity) -> Result<&Self, store::Error> {
        if self.inner.further.is_empty() || self.inner.homes.contains_key(identity.operation.as_str()) {
            return Ok(self.home(&identity.operation));
        }
        let id = identity.digest();
        for (_, ledger) in self.parts() {
            if ledger.inner.store.get(id).await?.is_some() {
                return Ok(ledger);
            }
        }
        Ok(self)
    }

    /// Every store, the default one first.
    pub(super) fn parts(&self) -> impl Iterator<Item = (&str, &Self)> {
        let further = self.inner.further.iter().map(|(name, ledger)| (name.as_str(), ledger));
        std::iter::once((DEFAULT, self)).chain(further)
    }

    /// What an acknowledged write survives, for each store.
    pub async fn stores(&self) -> Result<Vec<StoreReport>, store::Error> {
        let mut reports = Vec::new();
        for (name, ledger) in self.parts() {
            let durability = ledger.inner.store.durability().await?;
            reports.push(StoreReport { name: name.to_owned(), durability });
        }
        Ok(reports)
    }

    /// What an acknowledged write survives in the store of this operation.
    pub async fn durability_of(&self, operation: &Operation) -> Result<Durability, store::Error> {
        self.home(operation).inner.store.durability().await
    }

    /// Refuses stores that were moved away, or into which a copy has not finished.
    pub async fn check_seals(&self) -> Result<(), store::Error> {
        for (name, ledger) in self.parts() {
            if let Some(transfer) = ledger.inner.store.transfer() {
                let refusal = transfer.seal().await?.refusal(name, store::transfer::WriteKind::Other);
                refusal.map_or(Ok(()), Err)?;
            }
        }
        Ok(())
    }

    /// Records for each operation that it lives in its store. Refuses one that another of the stores has recorded or holds
    /// records of: its finished work would not be found, and would run again.
    pub async fn place_operations(&self, operations: &[Operation]) -> Result<(), store::Error> {
        for (name, ledger) in self.parts() {
            let recorded = ledger.inner.store.operations().await?;
            for operation in operations {
                if std::ptr::eq(self.home(operation), ledger) {
                    continue;
                }
                let is_recorded = recorded.iter().any(|recorded| recorded == operation.as_str());
                let filter = Filter { operation: Some(operation.clone()), ..Filter::default() };
                if is_recorded || !ledger.inner.store.list(&filter, None, 1).await?.listed.is_empty() {
                    return Err(misplaced(operation, name));
                }
            }
        }
        for (_, ledger) in self.parts() {
            let own: Vec<Operation> =
                operations.iter().filter(|operation| std::ptr::eq(self.home(operation), ledger)).cloned().collect();
            if !own.is_empty() {
                ledger.inner.store.claim_operations(&own).await?;
            }
        }
        Ok(())
    }

    /// Refuses payments on a store that may lose acknowledged claims, unless the policy allows that.
    pub(super) async fn check_durability(&self, call: &Call) -> Result<(), Error> {
        if call.policy.tier != Some(Tier::Payment) || call.policy.allow_best_effort {
            return Ok(());
        }
        let ask = || self.inner.store.durability();
        let durability = self.inner.durability.get_or_try_init(ask).await?;
        match durability {
            Durability::BestEffort { .. } => Err(best_effort(call.identity.operation.as_str(), durability).into()),
            Durability::Durable | Durability::Volatile => Ok(()),
        }
    }
}

fn misplaced(operation: &Operation, store: &str) -> store::Error {
    let reason = format!(
        "the operation {operation} lives in it already, and the configuration puts it into another store, where its finished work \
         would not be found and would run again. Put it back with the `store` of the operation, or give the operation a new name. \
         To move everything, use `onceward copy`"
    );
    store::Error::Refused { store: store.to_owned(), reason }
}

/// The error for a payment on a store that may lose it.
pub fn best_effort(operation: &str, durability: &Durability) -> store::Error {
    let reason = format!(
        "{operation} has tier \"payment\", and the store is {durability}. A lost claim would let a payment run twice. Use a durable \
         store, or accept it with allow_best_effort = true"
    );
    store::Error::Refused { store: "of the operation".to_owned(), reason }
}
