//! Opens existing ledgers, to read them or to settle an intent: all stores, or only the one that holds an intent. Unlike `run`, this
//! never creates a ledger: if it is missing, the user named the wrong one.

use onceward::core::name::{Identity, Operation};
use onceward::every_store::StoreFailure;
use onceward::{Ledger, StoreUrl};

use onceward_runtime::config::Settings;
use onceward_runtime::exit::{self, Fault};
use onceward_runtime::{output, stores};

/// The default store, which exists.
enum Default {
    At(StoreUrl),
    /// The one of the user's MCP gateways, which is alone.
    Own(StoreUrl),
}

fn find_default(settings: &Settings) -> Result<Default, Fault> {
    let store = settings.store()?;
    if !is_missing(store) {
        return Ok(Default::At(store.clone()));
    }
    // Agents start gateways in any folder, so those use a ledger in the state folder.
    match settings.user_ledger().filter(|own| own.exists()) {
        Some(own) => {
            output::say(&format!(
                "no {store} in this folder; using the ledger of your MCP gateways, {}.",
                own.display()
            ));
            Ok(Default::Own(own.into()))
        }
        None => Err(missing(store)),
    }
}

fn is_missing(store: &StoreUrl) -> bool {
    store.file().is_some_and(|path| !path.exists())
}

fn missing(store: &StoreUrl) -> Fault {
    let store = store.file().map_or_else(|| store.to_string(), |path| path.display().to_string());
    Fault::new(
        exit::STORE,
        format!(
            "no ledger at {store}; nothing was done.\n  Name it with --store, ONCEWARD_STORE, or `store` in onceward.toml. \
             `onceward run` creates a new one."
        ),
    )
}

/// Opens the ledger with all its stores. Those that cannot be opened are reported by what is done with it.
pub(super) async fn open_reachable(settings: &Settings) -> Result<Ledger, Fault> {
    match find_default(settings)? {
        Default::Own(own) => Ok(Ledger::open(own).await?),
        Default::At(store) => stores::open_reachable(settings, Ledger::builder(), &store).await,
    }
}

/// Reports the stores that failed, and returns the exit code.
pub(super) fn report(failed: &[StoreFailure], what: &str) -> u8 {
    for StoreFailure { name, error } in failed {
        let store = if name == "default" { "the store at the top level".to_owned() } else { format!("stores.{name}") };
        output::say(&format!("{store} was not {what}: {error}"));
    }
    if failed.is_empty() { 0 } else { exit::STORE }
}

/// Opens only the store that holds an intent, so that no other one has to be reachable. Returns its URL too.
pub(super) async fn open_holding(settings: &Settings, identity: &Identity) -> Result<(Ledger, StoreUrl), Fault> {
    if let Some(name) = settings.store_name_of(identity.operation.as_str()) {
        let store = settings.store_of(identity.operation.as_str())?;
        if is_missing(store) {
            return Err(stores::named_fault(name, format!("no ledger at {store}; nothing was done")));
        }
        let ledger = Ledger::open(store).await.map_err(|error| stores::named_fault(name, error))?;
        return Ok((ledger, store.clone()));
    }
    let store = match find_default(settings)? {
        Default::Own(own) => return Ok((Ledger::open(&own).await?, own)),
        Default::At(store) => store,
    };
    let ledger = Ledger::open(&store).await?;
    if settings.named_stores().next().is_none() || ledger.get(identity).await?.is_some() {
        return Ok((ledger, store));
    }
    // A route of a gateway may keep it in another store.
    let mut failed = Vec::new();
    for (name, url) in settings.named_stores().filter(|(_, url)| !is_missing(url)) {
        match holds(url, identity).await {
            Ok(Some(other)) => {
                ledger.close().await;
                return Ok((other, url.clone()));
            }
            Ok(None) => {}
            Err(error) => failed.push(StoreFailure { name: name.to_owned(), error }),
        }
    }
    if failed.is_empty() {
        return Ok((ledger, store));
    }
    ledger.close().await;
    report(&failed, "searched");
    Err(Fault::new(exit::STORE, format!("{identity} not found in {store}")))
}

/// Opens the store of an operation, with its policy and recipe, to queue what follows from an intent in it.
pub(super) async fn open_to_queue(settings: &Settings, operation: &Operation) -> Result<Ledger, Fault> {
    let store = match settings.store_name_of(operation.as_str()) {
        Some(name) => {
            let store = settings.store_of(operation.as_str())?;
            if is_missing(store) {
                return Err(stores::named_fault(name, format!("no ledger at {store}; nothing was done")));
            }
            store.clone()
        }
        None => match find_default(settings)? {
            Default::Own(store) | Default::At(store) => store,
        },
    };
    let others = settings.other_stores(operation.as_str());
    Ok(stores::open_for(operation, &store, &others, stores::builder(settings)?).await?)
}

/// The ledger on a store, if it holds an intent.
async fn holds(url: &StoreUrl, identity: &Identity) -> Result<Option<Ledger>, onceward::store::Error> {
    let store = url.clone().open().await?;
    if store.get(identity.digest()).await?.is_some() {
        return Ok(Some(Ledger::builder().on(store)));
    }
    store.close().await;
    Ok(None)
}
