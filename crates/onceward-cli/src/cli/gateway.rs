//! `onceward gateway`: a gateway in front of one upstream, configured by flags alone.

use std::net::SocketAddr;
use std::path::Path;

use onceward::Ledger;

use super::{Global, block_on_every_core};
use onceward_runtime::config::{self, KeyWindow, Length};
use onceward_runtime::exit::Fault;
use onceward_runtime::net::host_check::HostCheck;
use onceward_runtime::net::tls::Tls;
use onceward_runtime::proxy::{Route, Tenant};
use onceward_runtime::stores;
use onceward_server::serve::{self, GatewaySettings};

/// Run a gateway in front of an API; clients can retry freely, and each effect happens once
///
/// Guards POST and PATCH; all other requests pass through. A repeat with the same key gets the stored response. A request
/// runs to its end even if its client gives up, and the response is kept for the retry.
///
/// Keys belong to a tenant. `--tenant` names its source: `authorization` (a hash of the credential, the default),
/// `whoami:PATH#POINTER` (ask the upstream with the caller's credentials, as in `whoami:/v1/me#/id`; recommended),
/// `header:NAME` (set by a proxy on this machine), or `fixed:NAME`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  onceward gateway --upstream http://127.0.0.1:9000 --listen 127.0.0.1:8080\n  curl -X POST http://127.0.0.1:8080/v1/charges -H 'Authorization: Bearer sk_test_7' \\\n    -H 'Idempotency-Key: order-17' -H 'Content-Type: application/json' -d '{\"amount\":4200}'"
)]
pub(super) struct Gateway {
    /// The API to guard: http://, https://, or h2c:// for HTTP/2 without TLS (gRPC)
    #[arg(long, value_name = "URL")]
    upstream: String,
    /// The address to listen on; port 0 picks a free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// The idempotency rules that the API follows
    #[arg(long, value_name = "NAME", value_enum, default_value_t)]
    profile: config::Profile,
    /// Whether a guarded request needs a key; `derived` makes one from the request if it is missing
    #[arg(long, value_name = "MODE", value_enum, default_value_t)]
    key_mode: config::KeyMode,
    /// The required form of client keys: uuid, ulid, pattern:REGEX or entropy:BITS
    #[arg(long, value_name = "RULE")]
    key_format: Option<String>,
    /// How long a repeat waits for the running request
    #[arg(long, value_name = "TIME")]
    wait: Option<Length>,
    /// The upstream deduplicates by key itself: send a request with an unknown outcome again with the same key
    #[arg(long)]
    honours_key: bool,
    /// How long a derived key is held after its request is done; causal: until the response is delivered
    #[arg(long, value_name = "TIME")]
    window: Option<KeyWindow>,
    /// A header that distinguishes callers, such as Cookie; repeatable
    #[arg(long, value_name = "NAME")]
    identity_header: Vec<String>,
    /// A header that does not distinguish callers, such as a load balancer's Cookie; repeatable
    #[arg(long, value_name = "NAME")]
    ignored_header: Vec<String>,
    /// How long to wait for the upstream's response, and for its next part; after that, the outcome is unknown
    #[arg(long, value_name = "TIME")]
    timeout: Option<Length>,
    /// Also accept this host, and requests from its web pages; repeatable, `*` allows any. On a loopback address, only
    /// localhost and loopback addresses are accepted by default
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Serve TLS with this certificate chain, in PEM form
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_chain: Option<std::path::PathBuf>,
    /// The private key of the certificate, in PEM form
    #[arg(long, value_name = "FILE", requires = "tls_chain")]
    tls_key: Option<std::path::PathBuf>,
    /// Additional CA certificates for https upstreams, in PEM form
    #[arg(long, value_name = "FILE")]
    upstream_ca: Option<std::path::PathBuf>,
}

impl Gateway {
    pub(super) fn execute(self, global: &Global) -> Result<u8, Fault> {
        let settings = global.settings()?;
        let store = settings.store()?.clone();
        let ledger = Ledger::builder().records_per_tenant(settings.records_per_tenant());
        let tls = match (&self.tls_chain, &self.tls_key) {
            (Some(chain), Some(key)) => Some(Tls::read(chain, key)?),
            _ => None,
        };
        let (listen, upstream_ca) = (self.listen, self.upstream_ca.clone());
        let hosts =
            HostCheck::of(listen, &self.allow_host).map_err(|what| Fault::usage(format!("--allow-host: {what}")))?;
        let tenant = global.tenant_flag().unwrap_or("authorization").to_owned();
        if !tenant.starts_with("whoami:") {
            tenant_source(global, "authorization, whoami:PATH#POINTER or header:NAME")?;
        }
        let route = self.route(tenant)?.naming(&settings.tenant_names()?);
        block_on_every_core(async move {
            let gateway =
                GatewaySettings { listen, tls, hosts, routes: vec![route], max_connections: None, upstream_ca };
            let ledger = stores::open_server(&settings, ledger, &store).await?;
            serve::run(ledger, None, Some(gateway), None).await?;
            Ok(0)
        })
    }

    fn route(self, tenant: String) -> Result<Route, Fault> {
        let written = config::Route {
            tenant: Some(tenant),
            upstream: Some(self.upstream),
            profile: Some(self.profile),
            key_mode: Some(self.key_mode),
            key_format: self.key_format,
            honours_key: Some(self.honours_key),
            wait: self.wait,
            window: self.window,
            timeout: self.timeout,
            identity_headers: Some(self.identity_header),
            ignored_headers: Some(self.ignored_header),
            ..config::Route::default()
        };
        let route = Route::configured(&written, &config::Operation::default(), Path::new(""), None);
        route.map_err(|(field, what)| Fault::usage(format!("--{}: {what}", flag(field))))
    }
}

/// The flag for a field of a route. Repeatable flags are in the singular.
fn flag(field: &str) -> String {
    let name = field.replace('_', "-");
    match name.strip_suffix("-headers") {
        Some(name) => format!("{name}-header"),
        None => name,
    }
}

/// The source of the tenant in `--tenant`. A bare name would put all callers into one tenant, and each would get the stored
/// responses of the others: that has to be stated explicitly. `others` names the other sources of the command.
pub(super) fn tenant_source(global: &Global, others: &str) -> Result<Option<Tenant>, Fault> {
    let Some(source) = global.tenant_flag() else { return Ok(None) };
    if !["authorization", "token"].contains(&source) && !source.contains(':') {
        return Err(Fault::usage(format!(
            "--tenant {source}: write fixed:{source} if all callers are one tenant and each may get the stored responses of the \
             others; or {others}"
        )));
    }
    source.parse().map(Some).map_err(Fault::usage)
}
