//! Opens the stores of a configuration as one ledger, and tells the operator what they survive.

use onceward::core::name;
use onceward::core::policy::Tier;
use onceward::store::{self, Durability};
use onceward::{Builder, Ledger, StoreUrl, placement};

use crate::config::Settings;
use crate::exit::Fault;
use crate::output;

/// Opens the default store at `url` and every named one. Operations with a `store` live there.
pub async fn open(settings: &Settings, mut builder: Builder, url: &StoreUrl) -> Result<Ledger, Fault> {
    for (name, url) in settings.named_stores() {
        let here = settings.operations().filter(|(_, operation)| operation.store.as_deref() == Some(name));
        let operations: Vec<&str> = here.map(|(operation, _)| operation).collect();
        let opened = url.clone().open().await;
        let store = opened.map_err(|error| Fault::new(crate::exit::STORE, format!("stores.{name}: {error}")))?;
        builder = builder.store(name, store, operations);
    }
    Ok(builder.open(url).await?)
}

/// The same for a server: refuses stores that were moved, operations that live in another store, and payments on a store that
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
