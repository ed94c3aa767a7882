//! Everything that is configured, started together and stopped together.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use onceward::Ledger;
use onceward::core::policy::Effect;
use tokio::task::JoinSet;

use crate::api::Api;
use crate::config::Settings;
use crate::exit::{Fault, STORE};
use crate::gateway::{GRACE, Gateway, Listening, Route, Routes, Tls, Upstreams};
use crate::listener::Bound;
use crate::output;
use crate::stop::Signals;

/// Where the gateway listens when nobody says where.
const GATEWAY_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

/// Serves until a signal. `listen` outranks the API's configured address.
pub(crate) async fn serve(settings: &Settings, listen: Option<SocketAddr>) -> Result<(), Fault> {
    let (mut signals, stop) = Signals::catch().map_err(cannot_start)?;
    let (api, gateway) = (settings.api(listen)?, gateway(settings)?);
    let ledger = open(settings).await?;
    let mut listeners = JoinSet::new();
    if let Some(api) = api {
        let bound = bind("api.listen", api.listen).await?;
        output::out(&format!("onceward api listens on http://{}", bound.address()));
        let router = Api::new(ledger.clone(), api.tokens, stop.clone()).router();
        listeners.spawn(bound.serve(router, stop.clone()));
    }
    if let Some((listen, tls, routes)) = gateway {
        let gateway = Gateway::new(ledger.clone(), routes, Upstreams::new()?);
        let listening = Listening::bind(listen, tls, gateway).await?;
        output::out(&format!("onceward gateway listens on {}", listening.url()?));
        let mut stop = stop.clone();
        listeners.spawn(listening.serve(async move { stop.stopped().await }, GRACE));
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

/// The gateway's address, certificates and routes.
fn gateway(settings: &Settings) -> Result<Option<(SocketAddr, Option<Tls>, Routes)>, Fault> {
    let Some(gateway) = settings.gateway() else { return Ok(None) };
    let listen = match &gateway.listen {
        Some(listen) => listen.parse().map_err(|error| Fault::config(format!("gateway.listen: {error}")))?,
        None => GATEWAY_LISTEN,
    };
    let path = |name: &str| settings.folder().join(name);
    let tls = gateway.tls.as_ref().map(|tls| Tls::read(&path(&tls.chain), &path(&tls.key))).transpose()?;
    let mut routes = Vec::new();
    for (number, written) in gateway.route.iter().enumerate() {
        let operation = written.operation.as_deref().map(|name| settings.operation(name)).unwrap_or_default();
        let route = Route::configured(written, &operation, settings.folder());
        let wrong = |(field, what)| Fault::config(format!("gateway.route[{number}].{field}: {what}"));
        routes.push(route.map_err(wrong)?);
    }
    Ok(Some((listen, tls, Routes::new(routes))))
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
