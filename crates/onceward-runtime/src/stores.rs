//! Opens the stores of a configuration as one ledger, and tells the operator what they survive.

use onceward::core::name;
use onceward::core::policy::Tier;
use onceward::store::{self, Durability};
use onceward::{Builder, Ledger, placement};

use crate::config::Settings;
use crate::exit::Fault;
use crate::output;

/// Opens the default store at `url` and every named one. Operations with a `store` live there.
pub async fn open(settings: &Settings, mut builder: Builder, url: &str) -> Result<Ledger, Fault> {
    for (name, url) in settings.named_stores() {
        let here = settings.operations().filter(|(_, operation)| operation.store.as_deref() == Some(name));
        let operations: Vec<&str> = here.map(|(operation, _)| operation).collect();
        let opened = store::open(url).await;
        let store = opened.map_err(|error| Fault::new(crate::exit::STORE, format!("stores.{name}: {error}")))?;
        builder = builder.store(name, store, operations);
    }
    Ok(builder.open(url).await?)
}

/// Opens the store that keeps an operation, for a command that ends at once. The others are opened only before the first claim of
/// the operation, which must not live in one of them.
pub async fn open_for(
    operation: &name::Operation,
    url: &str,
    others: &[(String, String)],
    mut builder: Builder,
) -> Result<Ledger, store::Error> {
    let own = store::open(url).await?;
    if others.is_empty() || own.has_operation(operation).await? {
        return Ok(builder.on(own));
    }
    for (name, url) in others {
        builder = builder.store(name, store::open(url).await?, Vec::<String>::new());
    }
    Ok(builder.on(own))
}

/// Opens every store for a server: refuses stores that were moved, operations that live in another store, and payments on a store that
/// may lose them.
pub async fn open_server(settings: &Settings, builder: Builder, url: &str) -> Result<Ledger, Fault> {
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
