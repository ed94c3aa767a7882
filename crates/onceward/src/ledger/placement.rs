//! Several stores under one ledger: each operation lives in one of them. What goes over all of them is in `every_store`.

use std::collections::HashSet;
use std::time::Duration;

use onceward_core::name::{Identity, Operation};
use onceward_core::policy::Tier;

use super::places::{misplaced, record};
use super::{Call, Ledger};
use crate::error::Error;
use crate::store::{self, Durability};

/// What the default store is called in messages.
pub(super) const DEFAULT: &str = "default";

/// Stands in front of the path of a route where routes are recorded. No operation begins with it and a space.
const ROUTE: &str = "route";

/// The operations that a store has recorded.
struct Recorded<'a> {
    store: &'a str,
    ledger: &'a Ledger,
    names: HashSet<String>,
}

/// How long payments rely on what the store has said about its durability: an operator may change its settings while it runs.
const DURABLE_KEPT_FOR: Duration = Duration::from_secs(60);

/// How long payments are refused before the store is asked again. Each refused call would ask otherwise.
const BEST_EFFORT_KEPT_FOR: Duration = Duration::from_secs(5);

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

    /// Records for each operation that it lives in its store. Refuses one that another of the stores has recorded: its finished
    /// work would not be found, and would run again.
    pub async fn place_operations(&self, operations: &[Operation]) -> Result<(), store::Error> {
        let placed = operations.iter().map(|operation| (operation.clone(), self.home(operation)));
        self.place_all(placed.collect()).await
    }

    /// The same for routes of a gateway, whose requests are kept in the store with this name. They are recorded by their paths.
    pub async fn place_routes(&self, routes: &[(&str, Option<&str>)]) -> Result<(), store::Error> {
        let named = routes.iter().filter_map(|(path, store)| {
            let operation = Operation::new(format!("{ROUTE} {path}")).ok()?;
            Some((operation, self.named(*store)))
        });
        self.place_all(named.collect()).await
    }

    /// What is misplaced is found before anything is recorded, and by [`record`] if another process records it meanwhile.
    async fn place_all(&self, placed: Vec<(Operation, &Self)>) -> Result<(), store::Error> {
        let before = self.recorded().await?;
        check_places(&before, &placed)?;
        for Recorded { ledger, names, .. } in &before {
            let is_new = |operation: &Operation| !names.contains(operation.as_str());
            let own = placed.iter().filter(|(operation, home)| std::ptr::eq(*home, *ledger) && is_new(operation));
            let own: Vec<Operation> = own.map(|(operation, _)| operation.clone()).collect();
            if !own.is_empty() {
                record(&ledger.inner.store, &ledger.inner.places.others, &own).await?;
            }
        }
        Ok(())
    }

    /// The operations that each store has recorded.
    async fn recorded(&self) -> Result<Vec<Recorded<'_>>, store::Error> {
        let mut recorded = Vec::new();
        for (store, ledger) in self.parts() {
            let names = ledger.inner.store.operations().await?.into_iter().collect();
            recorded.push(Recorded { store, ledger, names });
        }
        Ok(recorded)
    }

    /// Refuses payments on a store that may lose acknowledged claims, unless the policy allows that.
    pub(super) async fn check_durability(&self, call: &Call) -> Result<(), Error> {
        if call.policy.tier != Some(Tier::Payment) || call.policy.allow_best_effort {
            return Ok(());
        }
        let durability = self.inner.durability.get(kept_for, || self.ask_durability()).await?;
        match durability {
            Durability::BestEffort { .. } => Err(best_effort(call.identity.operation.as_str(), &durability).into()),
            Durability::Durable | Durability::Volatile => Ok(()),
        }
    }

    async fn ask_durability(&self) -> Result<Durability, store::Error> {
        let before = self.inner.durability.last();
        let durability = self.inner.store.durability().await?;
        if before.is_some_and(|before| before != durability) {
            tracing::warn!(%durability, "what an acknowledged write to the store survives has changed");
        }
        Ok(durability)
    }
}

fn kept_for(durability: &Durability) -> Duration {
    if durability.is_best_effort() { BEST_EFFORT_KEPT_FOR } else { DURABLE_KEPT_FOR }
}

/// Refuses an operation that another store than its own has recorded.
fn check_places(recorded: &[Recorded<'_>], placed: &[(Operation, &Ledger)]) -> Result<(), store::Error> {
    for Recorded { store, ledger, names } in recorded {
        let elsewhere = |(operation, home): &&(Operation, &Ledger)| {
            !std::ptr::eq(*home, *ledger) && names.contains(operation.as_str())
        };
        if let Some((operation, _)) = placed.iter().find(elsewhere) {
            return Err(misplaced(operation, store));
        }
    }
    Ok(())
}

/// The error for a payment on a store that may lose it.
pub fn best_effort(operation: &str, durability: &Durability) -> store::Error {
    let reason = format!(
        "{operation} has tier \"payment\", and the store is {durability}. A lost claim would let a payment run twice. Use a durable \
         store, or accept it with allow_best_effort = true"
    );
    store::Error::Refused { store: "of the operation".to_owned(), reason }
}
