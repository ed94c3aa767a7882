//! Everything that is configured, started together and stopped together.

use std::net::SocketAddr;

use onceward::Ledger;
use onceward::core::policy::Effect;
use tokio::task::JoinSet;

use crate::api::Api;
use crate::config::Settings;
use crate::exit::{Fault, STORE};
use crate::listener::Bound;
use crate::output;
use crate::stop::Signals;

/// Serves until a signal. `listen` outranks the API's configured address.
pub(crate) async fn serve(settings: &Settings, listen: Option<SocketAddr>) -> Result<(), Fault> {
    let (mut signals, stop) = Signals::catch().map_err(cannot_start)?;
    let api = settings.api(listen)?;
    let ledger = open(settings).await?;
    let mut listeners = JoinSet::new();
    if let Some(api) = api {
        let bound = bind("api.listen", api.listen).await?;
        output::out(&format!("api listening on http://{}", bound.address()));
        let router = Api::new(ledger.clone(), api.tokens, stop.clone()).router();
        listeners.spawn(bound.serve(router, stop.clone()));
    }
    // One that ends by itself takes the others with it: half a server is harder to notice than none.
    tokio::select! {
        () = signals.next() => {}
        _ = listeners.join_next() => signals.stop(),
    }
    tokio::select! {
        () = async { while listeners.join_next().await.is_some() {} } => {}
        () = signals.next() => {}
    }
    ledger.close().await;
    Ok(())
}

async fn bind(name: &str, address: SocketAddr) -> Result<Bound, Fault> {
    let bound = Bound::to(address).await;
    bound.map_err(|error| Fault::new(STORE, format!("{name}: cannot listen on {address}: {error}")))
}

fn cannot_start(error: std::io::Error) -> Fault {
    Fault::new(STORE, format!("cannot start: {error}"))
}

/// The ledger with the policy and the recipe of every configured operation.
async fn open(settings: &Settings) -> Result<Ledger, Fault> {
    let mut builder = Ledger::builder();
    for (name, operation) in settings.operations() {
        let policy = operation.policy();
        if policy.effect == Effect::Transactional {
            return Err(Fault::config(format!("operation.{name}.effect: {}", onceward::Invalid::Transactional)));
        }
        if let Some(recipe) = operation.recipe().map_err(Fault::config)? {
            builder = builder.recipe(name, recipe);
        }
        builder = builder.policy(name, policy);
    }
    Ok(builder.open(settings.store_of_server()).await?)
}
