//! A gateway in front of MCP servers: runs tools that act once. Clients and servers need no change.
//!
//! - `gate`: one guarded call from start to end. `call`: the intent of a call. `verdict`: what a response says about the effect.
//!   `reply`: the gateway's own replies to models. `owners`: the running calls of this process. `repeated_call`: calls that were
//!   made before. `probe_call`, `probe_first`: ask another tool whether a call took effect. `task`: work that continues after its
//!   response. `status`: the gateway's own tool. `lazy_ledger`: the ledger.
//! - `tools`: which tools are guarded, and why. `tool_name`: their names with a client's prefix. `kind`: what a tool's name
//!   says. `list`: the response to `tools/list`. `ask_list`: requests it. `result_schema`: structured results. `key_argument`: the argument that takes a key. `volatile_arguments`:
//!   arguments that change with every attempt. `warning_log`: warnings already given. `server_name`: names servers.
//! - `repeat_rule`: when an equal call is a repeat. `delivery`: which responses reached their clients. `client`: facts about a
//!   client. `in_progress`: counts work to wait for.
//! - `message`, `members`: JSON-RPC; every byte that the gateway does not change stays as it came.
//! - `transport`: carries requests to a server. `pending`: requests that wait for a response. `stdio`: the relay in front of one or
//!   several servers that are commands. `aggregate`: what only several servers need. `http`: a server that is reached by
//!   streamable HTTP.
//! - `queued`: tools that a courier calls later, on a server of its own.
//! - `inspect`: lists a server's tools and suggests a configuration. `install`: edits the configuration of clients.

#![allow(missing_docs, reason = "internal to the binary; the library `onceward` is the documented API")]

mod aggregate;
mod ask_list;
mod call;
mod client;
mod delivery;
mod gate;
mod http;
mod in_progress;
pub mod inspect;
pub mod install;
mod key_argument;
mod kind;
mod lazy_ledger;
mod list;
mod members;
mod message;
mod owners;
mod pending;
mod probe_call;
mod probe_first;
pub mod queued;
mod repeat_rule;
mod repeated_call;
mod reply;
mod result_schema;
mod server_name;
mod status;
mod stdio;
mod task;
mod tool_name;
mod tools;
mod transport;
mod verdict;
mod volatile_arguments;
mod warning_log;

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use onceward::StoreUrl;
use onceward::core::name::Tenant;

use call::CallSettings;
use delivery::{EqualCalls, StepQueues};
use gate::Gate;
use lazy_ledger::LazyLedger;
use onceward_runtime::config::{Mcp, Server};
use onceward_runtime::exit::Fault;
use owners::Owners;
use reply::Replies;
use tools::Tools;

pub use http::Remote;
pub use server_name::{name_in, server_name};

/// How long an equal call of an outward tool is a repeat after the response, unless `echo` is configured.
const DEFAULT_ECHO: Duration = Duration::from_secs(60);

/// How long a call over HTTP may run before it is in doubt, unless the tool has a `deadline`. Otherwise a server that sends the
/// head of a response and then only pings would hold the key for ever.
const HTTP_DEADLINE: Duration = Duration::from_secs(60 * 60);

/// How to start a gateway.
#[derive(Debug)]
pub struct GatewayOptions {
    /// The server's name in operations.
    pub name: String,
    /// The server's name in the configuration.
    pub shown: String,
    pub server: Server,
    pub tenant: Tenant,
    pub session: Option<String>,
    pub store: StoreUrl,
    /// The most records that a tenant may have.
    pub records_per_tenant: Option<u64>,
    /// The flags with which `onceward` finds the same ledger from any folder.
    pub flags: String,
}

/// Runs a gateway in front of a server that is a command. Returns the server's exit code.
pub async fn serve_command(options: GatewayOptions, mcp: &Mcp, command: &[OsString]) -> Result<u8, Fault> {
    let (name, env, tenant) = (options.shown.clone(), options.server.env.clone(), options.tenant.clone());
    // The ledger is opened before the server is started, so that the server holds the claims for as long as it lives.
    let gate = gate(options, mcp).await;
    let server = stdio::ServerCommand { name, command: command.to_vec(), env, gate };
    stdio::run(server, tenant, prefix()?).await
}

/// Runs one gateway in front of several servers that are commands. A prefix of each tool's name says which server it belongs to.
pub async fn serve_aggregate(all_options: Vec<GatewayOptions>, mcp: &Mcp) -> Result<u8, Fault> {
    let Some(first) = all_options.first() else { return Err(Fault::usage("no server is configured")) };
    let (lazy_ledger, tenant, prefix) = (opened_ledger(first).await, first.tenant.clone(), prefix()?);
    let mut servers = Vec::new();
    for options in all_options {
        let (name, server) = (options.shown.clone(), options.server.clone());
        let command: Vec<OsString> = server.command.iter().flatten().map(OsString::from).collect();
        let gate = new_gate(options, format!("{name}{}", aggregate::NAME_SEPARATOR), mcp, &lazy_ledger);
        servers.push(stdio::ServerCommand { name, command, env: server.env, gate: Arc::new(gate) });
    }
    aggregate::run(servers, tenant, lazy_ledger, prefix).await
}

/// Serves a gateway in front of a server that is reached by HTTP, until a signal.
pub async fn serve_remote(options: GatewayOptions, mcp: &Mcp, remote: Remote) -> Result<u8, Fault> {
    let server = &options.server;
    let identity = (&*server.identity_headers, &*server.ignored_headers);
    let identity = http::Identity::new(remote.tenant.as_ref(), identity, &options.shown, &remote.names);
    let lazy_ledger = opened_ledger(&options).await;
    let mut gate = new_gate(options, String::new(), mcp, &lazy_ledger);
    gate.settings.deadline = Some(HTTP_DEADLINE);
    http::run(Arc::new(gate), remote, identity, prefix()?).await
}

/// The prefix of the gateway's own request ids. It is random, so that no client uses it.
fn prefix() -> Result<String, Fault> {
    let mut random = [0; 8];
    getrandom::fill(&mut random)
        .map_err(|error| Fault::config(format!("the system provides no random numbers: {error}")))?;
    Ok(format!("onceward-{:016x}-", u64::from_ne_bytes(random)))
}

async fn gate(options: GatewayOptions, mcp: &Mcp) -> Arc<Gate> {
    let lazy_ledger = opened_ledger(&options).await;
    Arc::new(new_gate(options, String::new(), mcp, &lazy_ledger))
}

async fn opened_ledger(options: &GatewayOptions) -> Arc<LazyLedger> {
    let lazy_ledger = LazyLedger::at(options.store.clone(), options.records_per_tenant);
    if let Err(error) = lazy_ledger.ledger().await {
        tracing::error!(%error, "cannot open the ledger; each guarded call tries to open it again");
    }
    Arc::new(lazy_ledger)
}

fn new_gate(options: GatewayOptions, tool_prefix: String, mcp: &Mcp, lazy_ledger: &Arc<LazyLedger>) -> Gate {
    let tools = Tools::of(options.server.tool, options.server.repeats);
    let echo = mcp.echo.map_or(DEFAULT_ECHO, |echo| echo.0);
    let patience = mcp.patience.map_or(client::PATIENCE, |patience| patience.0);
    Gate {
        settings: CallSettings {
            server: options.name,
            tool_prefix,
            session: options.session,
            echo,
            patience,
            deadline: None,
        },
        replies: Replies {
            notice: mcp.notice.unwrap_or(true),
            flags: options.flags,
            status: list::status_name(&tools),
        },
        tools,
        lazy_ledger: Arc::clone(lazy_ledger),
        owners: Owners::default(),
        equals: EqualCalls::default(),
        lines: StepQueues::default(),
    }
}
