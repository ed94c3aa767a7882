//! `onceward gateway`: a gateway in front of one upstream, from the command line alone.

use std::net::SocketAddr;
use std::path::Path;

use onceward::Ledger;

use super::{Global, block_on_every_core};
use crate::config::{self, KeyWindow, Length};
use crate::exit::Fault;
use crate::gateway::{Route, Tenant};
use crate::hosts::Hosts;
use crate::serve::{self, Front};
use crate::tls::Tls;

/// Put a gateway before an API: its clients may retry as they like, and each effect happens once
///
/// Guards POST and PATCH; everything else passes by. Repeats with the same key get the stored answer. What clients gave
/// up on is seen through to its end, and kept for their retry.
///
/// Keys belong to a tenant. `--tenant` says which: `authorization` (a hash of the credential, the default),
/// `whoami:PATH#POINTER` (ask the upstream with the caller's credentials, as in `whoami:/v1/me#/id`; recommended),
/// `header:NAME` (set by a proxy on this machine), or `fixed:NAME`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  onceward gateway --upstream http://127.0.0.1:9000 --listen 127.0.0.1:8080\n  curl -X POST http://127.0.0.1:8080/v1/charges -H 'Authorization: Bearer sk_test_7' \\\n    -H 'Idempotency-Key: order-17' -H 'Content-Type: application/json' -d '{\"amount\":4200}'"
)]
pub(super) struct Gateway {
    /// The API to guard: http://, https://, or h2c:// for HTTP/2 without TLS, as gRPC has it
    #[arg(long, value_name = "URL")]
    upstream: String,
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Whose rules the API follows
    #[arg(long, value_name = "NAME", value_enum, default_value_t)]
    profile: config::Profile,
    /// Whether a guarded request needs a key; `derived` makes one from the request if there is none
    #[arg(long, value_name = "MODE", value_enum, default_value_t)]
    key_mode: config::KeyMode,
    /// What a client's key has to look like: uuid, ulid, pattern:REGEX or entropy:BITS
    #[arg(long, value_name = "RULE")]
    key_format: Option<String>,
    /// How long a repeat waits for the running one
    #[arg(long, value_name = "TIME")]
    wait: Option<Length>,
    /// The upstream remembers keys itself: what is unknown may be sent again with the same key
    #[arg(long)]
    honours_key: bool,
    /// How long a derived key holds after its request is done; causal: until the answer was delivered
    #[arg(long, value_name = "TIME")]
    window: Option<KeyWindow>,
    /// A header that tells callers apart, such as Cookie; repeatable
    #[arg(long, value_name = "NAME")]
    identity_header: Vec<String>,
    /// A header that does not tell callers apart, such as a Cookie of a load balancer; repeatable
    #[arg(long, value_name = "NAME")]
    ignored_header: Vec<String>,
    /// How long the upstream may take to answer, and to go on with an answer; what takes longer is unknown
    #[arg(long, value_name = "TIME")]
    timeout: Option<Length>,
    /// Answer to this host too, and to pages from it; repeatable, `*` allows any. On a loopback address, only localhost and
    /// loopback addresses are answered otherwise
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// The certificate chain to serve TLS with, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_chain: Option<std::path::PathBuf>,
    /// Its private key, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_chain")]
    tls_key: Option<std::path::PathBuf>,
    /// Certificates to believe of an https upstream, besides those that the system knows, as PEM
    #[arg(long, value_name = "FILE")]
    upstream_ca: Option<std::path::PathBuf>,
}

impl Gateway {
    pub(super) fn execute(self, global: &Global) -> Result<u8, Fault> {
        let settings = global.settings()?;
        let store = settings.store()?.to_owned();
        let ledger = Ledger::builder().records_per_tenant(settings.records_per_tenant());
        let tls = match (&self.tls_chain, &self.tls_key) {
            (Some(chain), Some(key)) => Some(Tls::read(chain, key)?),
            _ => None,
        };
        let (listen, upstream_ca) = (self.listen, self.upstream_ca.clone());
        let hosts =
            Hosts::of(listen, &self.allow_host).map_err(|what| Fault::usage(format!("--allow-host: {what}")))?;
        let tenant = global.tenant_flag().unwrap_or("authorization").to_owned();
        if !tenant.starts_with("whoami:") {
            source(global)?;
        }
        let route = self.route(tenant)?.naming(&settings.tenant_names()?);
        block_on_every_core(async move {
            let front = Front { listen, tls, hosts, routes: vec![route], max_connections: None, upstream_ca };
            serve::run(ledger.open(&store).await?, None, Some(front)).await?;
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

/// The flag that a field of a route has here. Flags that repeat name one thing each.
fn flag(field: &str) -> String {
    let name = field.replace('_', "-");
    match name.strip_suffix("-headers") {
        Some(name) => format!("{name}-header"),
        None => name,
    }
}

/// Where `--tenant` says to take from whose requests they are. A bare name would make one of all callers, each of whom gets
/// the stored answers of the others: who means that says so.
pub(super) fn source(global: &Global) -> Result<Option<Tenant>, Fault> {
    let Some(source) = global.tenant_flag() else { return Ok(None) };
    if !["authorization", "token"].contains(&source) && !source.contains(':') {
        return Err(Fault::usage(format!(
            "--tenant {source}: write fixed:{source} if all callers are one tenant, and each may get the stored answers of the \
             others; or authorization, whoami:PATH#POINTER, or header:NAME"
        )));
    }
    source.parse().map(Some).map_err(Fault::usage)
}
