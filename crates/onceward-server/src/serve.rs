//! Starts the configured servers, and stops them together.

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
use onceward::courier::Courier;
use onceward::http::body_memory::BodyMemory;
use tokio::task::JoinSet;

use crate::api::Api;
use crate::gateway::{self, Gateway};
use crate::inbox::receive;
use onceward_runtime::config::{ApiSettings, InboxSettings, Settings};
use onceward_runtime::exit::{Fault, STORE};
use onceward_runtime::net::host_check::HostCheck;
use onceward_runtime::net::listener::{BoundListener, HttpVersions};
use onceward_runtime::net::stop::Signals;
use onceward_runtime::net::thread_per_core::WorkerThreads;
use onceward_runtime::net::tls::Tls;
use onceward_runtime::net::tokens::Tokens;
use onceward_runtime::output;
use onceward_runtime::proxy::{self, Route, Routes, Upstreams};
use onceward_runtime::stores;

/// The default address of the gateway.
const GATEWAY_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

/// How long running requests may take after the signal to stop.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(30);

/// The limits of a credential hash, logged at every start of a gateway that relies on it.
const AUTHORIZATION_WARNING: &str = "tenant = \"authorization\" identifies callers by a hash of their credential. It has two \
    limits: a refreshed token is a new tenant, so its retry runs again; and a revoked credential still gets stored \
    responses. If the upstream can tell who the caller is, use tenant = \"whoami:PATH#POINTER\", as in whoami:/v1/me#/id";

/// The resolved settings of a gateway.
pub struct GatewaySettings {
    pub listen: SocketAddr,
    pub tls: Option<Tls>,
    /// The hosts that it accepts.
    pub hosts: HostCheck,
    pub routes: Vec<Route>,
    pub max_connections: Option<NonZeroU32>,
    /// Additional CA certificates for https upstreams.
    pub upstream_ca: Option<PathBuf>,
}

/// What a server does for the outbox.
#[derive(Debug, Default)]
pub struct Outbox {
    pub courier: Option<Courier>,
    pub inboxes: Vec<InboxSettings>,
}

/// Runs the configured servers until a signal. `listen` overrides the configured address of the API.
pub async fn serve(settings: &Settings, listen: Option<SocketAddr>) -> Result<(), Fault> {
    let api = settings.api(listen)?;
    let gateway = gateway_settings(settings, api.as_ref().map(|api| &api.tokens))?;
    let ledger = open(settings).await?;
    let courier = onceward_courier::courier(settings, &ledger).await?;
    let outbox = Outbox { courier, inboxes: settings.inboxes()? };
    run(ledger, api, gateway, outbox).await
}

/// Serves until a signal, then finishes running requests.
pub async fn run(
    ledger: Ledger,
    api: Option<ApiSettings>,
    gateway: Option<GatewaySettings>,
    outbox: Outbox,
) -> Result<(), Fault> {
    let (mut signals, stop) = Signals::catch().map_err(cannot_start)?;
    disable_huge_pages();
    if let Some(gateway) = &gateway {
        let routes = gateway.routes.iter().map(|route| (route.pattern.as_str(), route.store.as_deref()));
        ledger.place_routes(&routes.collect::<Vec<_>>()).await?;
    }
    let mut listeners = JoinSet::new();
    // The workers outlive their listener: requests that were sent are finished on them.
    let mut serving = None;
    if let Some(api) = api {
        let bound = bind("api", api.listen, api.tls).await?;
        let router = Api::new(ledger.clone(), api.tokens, stop.clone(), api.sinks).router();
        let router = router.merge(receive::router(&ledger, outbox.inboxes));
        let service = move |_, _| TowerToHyperService::new(router.clone());
        listeners.spawn(bound.serve(HttpVersions::Http1, Arc::new(WorkerThreads::current()), service, stop.clone()));
    }
    let mut gateways = Vec::new();
    if let Some(GatewaySettings { listen, tls, hosts, routes, max_connections, upstream_ca }) = gateway {
        let workers =
            WorkerThreads::start(thread::available_parallelism().map_or(1, NonZero::get)).map_err(cannot_start)?;
        if routes.iter().any(|route| matches!(route.tenant, proxy::Tenant::Authorization(_))) {
            tracing::warn!("{AUTHORIZATION_WARNING}");
        }
        let (routes, room) = (Routes::new(routes), BodyMemory::new(gateway::MAX_BUFFERED_BYTES));
        // Each worker has its own upstream connections.
        for upstreams in Upstreams::pools(workers.count(), &routes, upstream_ca.as_deref())? {
            let (routes, hosts, room) = (routes.clone(), hosts.clone(), room.clone());
            gateways.push(Arc::new(Gateway::new(ledger.clone(), routes, hosts, upstreams, room)));
        }
        let bound = bind("gateway", listen, tls).await?.max_connections(max_connections);
        let per_worker = gateways.clone();
        let service = move |peer, number: usize| {
            let gateway = Arc::clone(&per_worker[number]);
            service_fn(move |request| {
                let gateway = Arc::clone(&gateway);
                async move { Ok::<_, Infallible>(gateway.answer(request, peer).await) }
            })
        };
        let workers = Arc::new(workers);
        serving = Some(Arc::clone(&workers));
        listeners.spawn(bound.serve(HttpVersions::Http2, workers, service, stop.clone()));
    }
    let delivering = outbox.courier.map(|courier| {
        let mut stop = stop.clone();
        tokio::spawn(courier.run(async move { stop.stopped().await }))
    });
    // A listener that ends stops the others as well: half a server is harder to notice than none.
    tokio::select! {
        () = signals.next() => {}
        _ = listeners.join_next() => signals.stop(),
    }
    let finished = async {
        while listeners.join_next().await.is_some() {}
        for gateway in &gateways {
            gateway.closed().await;
        }
        if let Some(delivering) = delivering {
            // It waits for the attempts that are under way.
            let _ = delivering.await;
        }
        // Requests that were sent are finished, even for clients that are gone.
        ledger.idle().await;
    };
    tokio::select! {
        () = finished => {}
        () = signals.next() => {}
        () = tokio::time::sleep(SHUTDOWN_LIMIT) => {
    tracing::warn!("stopped while connections were open; guarded requests that were already sent are in doubt");
        }
    }
    ledger.close().await;
    drop(serving);
    Ok(())
}

/// Thousands of idle connections each hold a little memory in scattered places: with pages of 2 MB that takes half as much again.
fn disable_huge_pages() {
    #[cfg(target_os = "linux")]
    if let Err(error) = nix::sys::prctl::set_thp_disable(true) {
        tracing::debug!(%error, "failed to disable huge pages");
    }
}

/// Binds, and prints the address on stdout.
async fn bind(name: &str, address: SocketAddr, tls: Option<Tls>) -> Result<BoundListener, Fault> {
    let bound = BoundListener::bind(address, tls).await;
    let bound = bound.map_err(|error| Fault::new(STORE, format!("{name}: cannot listen on {address}: {error}")))?;
    output::out(&format!("onceward {name} listens on {}", bound.url()));
    Ok(bound)
}

/// The gateway in the file.
fn gateway_settings(settings: &Settings, tokens: Option<&Arc<Tokens>>) -> Result<Option<GatewaySettings>, Fault> {
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
    let hosts = HostCheck::of(listen, allowed).map_err(|what| Fault::config(format!("gateway.allow_hosts: {what}")))?;
    let upstream_ca = gateway.upstream_ca.as_deref().map(|name| settings.folder().join(name));
    Ok(Some(GatewaySettings { listen, tls, hosts, routes, max_connections: gateway.max_connections, upstream_ca }))
}

fn cannot_start(error: std::io::Error) -> Fault {
    Fault::new(STORE, format!("cannot start: {error}"))
}

/// Opens the ledger with the policy and the recipe of every configured operation.
pub async fn open(settings: &Settings) -> Result<Ledger, Fault> {
    for (name, operation) in settings.operations() {
        if operation.policy().effect == Effect::Transactional {
            return Err(Fault::config(format!("operation.{name}.effect: {}", onceward::Invalid::Transactional)));
        }
    }
    stores::open_server(settings, stores::builder(settings)?, settings.server_store()).await
}
