//! Everything that is configured, started together and stopped together.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::{NonZero, NonZeroU32};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::service::TowerToHyperService;
use onceward::Ledger;
use onceward::core::policy::Effect;
use onceward::http::room::Room;
use tokio::task::JoinSet;

use crate::api::Api;
use crate::config::{ApiSettings, Settings};
use crate::exit::{Fault, STORE};
use crate::gateway::{self, Gateway, Route, Routes, Upstreams};
use crate::hosts::Hosts;
use crate::lanes::Lanes;
use crate::listener::{Bound, Speaks};
use crate::output;
use crate::stop::Signals;
use crate::tls::Tls;
use crate::tokens::Tokens;

/// Where the gateway listens when nobody says where.
const GATEWAY_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

/// How long running requests may take to end once it is time to stop.
const GRACE: Duration = Duration::from_secs(30);

/// What a hash of the credential cannot do, said at every start of a gateway that relies on it.
const BY_AUTHORIZATION: &str = "tenant = \"authorization\" tells callers apart by a hash of their credential. It does not \
    protect from this: a refreshed token is a new tenant, so that its retry runs again; and a revoked credential still gets \
    stored answers. Where the upstream can say who the caller is, use tenant = \"whoami:PATH#POINTER\", as in \
    whoami:/v1/me#/id";

/// What a gateway is started with.
pub(crate) struct Front {
    pub(crate) listen: SocketAddr,
    pub(crate) tls: Option<Tls>,
    /// The hosts that it answers to.
    pub(crate) hosts: Hosts,
    pub(crate) routes: Vec<Route>,
    pub(crate) max_connections: Option<NonZeroU32>,
    /// Certificates that are believed of upstreams, besides those that the system knows.
    pub(crate) upstream_ca: Option<PathBuf>,
}

/// Serves what is configured until a signal. `listen` outranks the API's configured address.
pub(crate) async fn serve(settings: &Settings, listen: Option<SocketAddr>) -> Result<(), Fault> {
    let api = settings.api(listen)?;
    let front = front(settings, api.as_ref().map(|api| &api.tokens))?;
    run(open(settings).await?, api, front).await
}

/// Serves until a signal, and then finishes what runs.
pub(crate) async fn run(ledger: Ledger, api: Option<ApiSettings>, front: Option<Front>) -> Result<(), Fault> {
    let (mut signals, stop) = Signals::catch().map_err(cannot_start)?;
    small_pages();
    let mut listeners = JoinSet::new();
    // Lanes outlive their listener: what was sent is seen through on them.
    let mut serving = None;
    if let Some(api) = api {
        let bound = bind("api", api.listen, api.tls).await?;
        let router = Api::new(ledger.clone(), api.tokens, stop.clone()).router();
        let service = move |_, _| TowerToHyperService::new(router.clone());
        listeners.spawn(bound.serve(Speaks::Http1, Arc::new(Lanes::here()), service, stop.clone()));
    }
    let mut gateways = Vec::new();
    if let Some(Front { listen, tls, hosts, routes, max_connections, upstream_ca }) = front {
        let lanes = Lanes::start(thread::available_parallelism().map_or(1, NonZero::get)).map_err(cannot_start)?;
        if routes.iter().any(|route| matches!(route.tenant, gateway::Tenant::Authorization(_))) {
            tracing::warn!("{BY_AUTHORIZATION}");
        }
        let (routes, room) = (Routes::new(routes), Room::of(gateway::ROOM));
        // Each lane has upstream connections of its own.
        for upstreams in Upstreams::several(lanes.count(), &routes, upstream_ca.as_deref())? {
            let (routes, hosts, room) = (routes.clone(), hosts.clone(), room.clone());
            gateways.push(Arc::new(Gateway::new(ledger.clone(), routes, hosts, upstreams, room)));
        }
        let bound = bind("gateway", listen, tls).await?.at_most(max_connections);
        let lane = gateways.clone();
        let service = move |peer, number: usize| {
            let gateway = Arc::clone(&lane[number]);
            service_fn(move |request| {
                let gateway = Arc::clone(&gateway);
                async move { Ok::<_, Infallible>(gateway.answer(request, peer).await) }
            })
        };
        let lanes = Arc::new(lanes);
        serving = Some(Arc::clone(&lanes));
        listeners.spawn(bound.serve(Speaks::Http2, lanes, service, stop.clone()));
    }
    // One that ends by itself takes the others with it: half a server is harder to notice than none.
    tokio::select! {
        () = signals.next() => {}
        _ = listeners.join_next() => signals.stop(),
    }
    let over = async {
        while listeners.join_next().await.is_some() {}
        for gateway in &gateways {
            gateway.closed().await;
        }
        // What was sent is seen through to its end, also for clients that are gone.
        ledger.idle().await;
    };
    tokio::select! {
        () = over => {}
        () = signals.next() => {}
        () = tokio::time::sleep(GRACE) => {
            tracing::warn!("stopped although connections were open; what guarded requests had sent is in doubt");
        }
    }
    ledger.close().await;
    drop(serving);
    Ok(())
}

/// Thousands of idle connections hold a little memory each, here and there: in pages of 2 MB that is half as much again.
fn small_pages() {
    #[cfg(target_os = "linux")]
    if let Err(error) = nix::sys::prctl::set_thp_disable(true) {
        tracing::debug!(%error, "large pages stay");
    }
}

/// Binds, and prints the one line that says where.
async fn bind(name: &str, address: SocketAddr, tls: Option<Tls>) -> Result<Bound, Fault> {
    let bound = Bound::to(address, tls).await;
    let bound = bound.map_err(|error| Fault::new(STORE, format!("{name}: cannot listen on {address}: {error}")))?;
    output::out(&format!("onceward {name} listens on {}", bound.url()));
    Ok(bound)
}

/// What the file says about the gateway.
fn front(settings: &Settings, tokens: Option<&Arc<Tokens>>) -> Result<Option<Front>, Fault> {
    let Some(gateway) = settings.gateway() else { return Ok(None) };
    let tls = gateway.tls.as_ref().map(|files| files.read(settings.folder())).transpose()?;
    let names = settings.tenant_names()?;
    let mut routes = Vec::new();
    for (number, written) in gateway.route.iter().enumerate() {
        let operation = written.operation.as_deref().map(|name| settings.operation(name)).unwrap_or_default();
        let route = Route::configured(written, &operation, settings.folder(), tokens);
        let wrong = |(field, what)| Fault::config(format!("gateway.route[{number}].{field}: {what}"));
        routes.push(route.map_err(wrong)?.naming(&names));
    }
    let listen = gateway.listen.map_or(GATEWAY_LISTEN, |listen| listen.0);
    let allowed = gateway.allow_hosts.as_deref().unwrap_or_default();
    let hosts = Hosts::of(listen, allowed).map_err(|what| Fault::config(format!("gateway.allow_hosts: {what}")))?;
    let upstream_ca = gateway.upstream_ca.as_deref().map(|name| settings.folder().join(name));
    Ok(Some(Front { listen, tls, hosts, routes, max_connections: gateway.max_connections, upstream_ca }))
}

fn cannot_start(error: std::io::Error) -> Fault {
    Fault::new(STORE, format!("cannot start: {error}"))
}

/// The ledger with the policy and the recipe of every configured operation.
async fn open(settings: &Settings) -> Result<Ledger, Fault> {
    let mut builder = Ledger::builder().records_per_tenant(settings.records_per_tenant());
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
