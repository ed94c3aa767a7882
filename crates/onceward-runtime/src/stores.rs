//! Opens the stores of a configuration as one ledger, and tells the operator what they survive.

use std::sync::Arc;

use onceward::core::name;
use onceward::core::policy::Tier;
use onceward::store::{self, Durability, Store, Unavailable};
use onceward::{Builder, Ledger, StoreUrl, placement};

use crate::config::Settings;
use crate::exit::{self, Fault};
use crate::output;

/// Opens the default store at `url` and every named one. Operations with a `store` live there.
pub async fn open(settings: &Settings, mut builder: Builder, url: &StoreUrl) -> Result<Ledger, Fault> {
    settings.check_places(url)?;
    for (name, url) in settings.named_stores() {
        let store = url.clone().open().await.map_err(|error| named_fault(name, error))?;
        builder = builder.store(name, store, settings.operations_in(name));
    }
    Ok(builder.open(url).await?)
}

/// Opens the store that keeps an operation, for a command that ends at once. The others are opened only before the first claim of
/// the operation, which must not live in one of them.
pub async fn open_for(
    operation: &name::Operation,
    url: &StoreUrl,
    others: &[(String, StoreUrl)],
    mut builder: Builder,
) -> Result<Ledger, store::Error> {
    let own = url.clone().open().await?;
    if others.is_empty() || own.has_operation(operation).await? {
        return Ok(builder.on(own));
    }
    for (name, url) in others {
        builder = builder.store(name, url.clone().open().await?, Vec::<String>::new());
    }
    Ok(builder.on(own))
}

/// A ledger with the policy and the recipe of every configured operation.
pub fn builder(settings: &Settings) -> Result<Builder, Fault> {
    let mut builder = Ledger::builder().records_per_tenant(settings.records_per_tenant());
    for (name, operation) in settings.operations() {
        if let Some(recipe) = operation.recipe().map_err(Fault::config)? {
            builder = builder.recipe(name, recipe);
        }
        builder = builder.policy(name, settings.policy(operation));
    }
    Ok(builder)
}

/// The same for a command that goes over all stores: a store that cannot be opened is left to be reported.
pub async fn open_reachable(settings: &Settings, mut builder: Builder, url: &StoreUrl) -> Result<Ledger, Fault> {
    settings.check_places(url)?;
    for (name, url) in settings.named_stores() {
        builder = builder.store(name, opened(url).await, settings.operations_in(name));
    }
    Ok(builder.on(opened(url).await))
}

async fn opened(url: &StoreUrl) -> Arc<dyn Store> {
    url.clone().open().await.unwrap_or_else(|error| Arc::new(Unavailable(error)))
}

/// The error of a named store.
pub fn named_fault(name: &str, error: impl std::fmt::Display) -> Fault {
    Fault::new(exit::STORE, format!("stores.{name}: {error}"))
}

/// Opens every store for a server. Refuses stores that were moved, operations that live in another store, and payments on a store that
/// may lose them.
pub async fn open_server(settings: &Settings, builder: Builder, url: &StoreUrl) -> Result<Ledger, Fault> {
    let ledger = open(settings, builder, url).await?;
    ledger.check_seals().await?;
    let names: Vec<_> = settings.operations().filter_map(|(name, _)| name::Operation::new(name).ok()).collect();
    for (name, operation) in names.iter().zip(settings.operations().map(|(_, operation)| operation)) {
        let policy = operation.policy();
        if policy.tier != Some(Tier::Payment) || policy.allow_best_effort {
            continue;
        }
        let durability = ledger.durability_of(name).await?;
        if durability.is_best_effort() {
            let error = placement::best_effort(name.as_str(), &durability);
            return Err(Fault::config(format!("operation.{name}: {error}")));
        }
    }
    ledger.place_operations(&names).await?;
    report(&ledger).await?;
    Ok(ledger)
}

/// Tells the operator about every store that may lose what it has acknowledged.
pub async fn report(ledger: &Ledger) -> Result<(), store::Error> {
    for report in ledger.stores().await? {
        if report.durability != Durability::Durable {
            output::say(&format!("the store {} is not durable: {}", report.name, report.durability));
        }
    }
    Ok(())
}
