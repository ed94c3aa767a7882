//! A gateway before MCP servers: tools that act are called once, and nobody has to change anything.
//!
//! - `gate`: one guarded call in a straight line. `call`: which intent it is. `verdict`: what an answer says about the effect.
//!   `reply`: what models are told. `owners`: who does what in this process. `repeated`: calls that were made before. `probe`, `probed`: asking another tool. `task`: work that
//!   goes on after its answer. `status`: our own tool. `books`: the ledger.
//! - `tools`: which tools are guarded, and why. `kind`: what names say. `list`: the answer to `tools/list`.
//!   `ask_list`: asking for it. `typed`: tools that promise structured results. `key_argument`: the argument that takes a key.
//!   `volatile`: arguments that change with every try. `warned`: warnings that were given.
//! - `repeats`: when an equal call is a repeat. `delivery`: which answers clients have got. `client`: what is known of one.
//! - `message`, `members`: JSON-RPC, with every byte that is not ours left as it came.
//! - `link`: the way to a server. `waiting`: who waits for which answer. `stdio`: a server that is a command. `http`: one that is
//!   reached by streamable HTTP. `several`: several commands behind one gateway.
//! - `inspect`: a server's tools, and a configuration to start from. `install`: the gateway in the configuration of clients.

mod ask_list;
mod books;
mod call;
mod client;
mod delivery;
mod gate;
mod http;
pub(crate) mod inspect;
pub(crate) mod install;
mod key_argument;
mod kind;
mod link;
mod list;
mod members;
mod message;
mod name;
mod owners;
mod probe;
mod probed;
mod repeated;
mod repeats;
mod reply;
mod several;
mod status;
mod stdio;
mod task;
mod tools;
mod typed;
mod verdict;
mod volatile;
mod waiting;
mod warned;

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use onceward::core::name::Tenant;

use crate::config::{Mcp, Server};
use crate::exit::Fault;
use books::Books;
use call::Naming;
use delivery::{Equals, Lines};
use gate::Gate;
use owners::Owners;
use reply::Replies;
use tools::Tools;

pub(crate) use http::Remote;
pub(crate) use name::{name_in, server_name};

/// How long equal arguments are one intent after they are done, unless something else is configured.
const ECHO: Duration = Duration::from_secs(60);

/// How long a call over HTTP may run before it counts as in doubt, unless the tool's `deadline` says otherwise. A server that
/// sends the head of an answer and then only pings would otherwise hold its key for ever.
const DEADLINE: Duration = Duration::from_secs(60 * 60);

/// What a gateway is started with.
#[derive(Debug)]
pub(crate) struct Front {
    /// The server's name in operations.
    pub(crate) name: String,
    /// The name that it has in the configuration.
    pub(crate) shown: String,
    pub(crate) server: Server,
    pub(crate) tenant: Tenant,
    pub(crate) session: Option<String>,
    pub(crate) store: String,
    /// How many records a tenant may have.
    pub(crate) records_per_tenant: Option<u64>,
    /// The flags with which a command that is typed anywhere finds the same ledger.
    pub(crate) flags: String,
}

/// Runs a server that is a command behind a gateway. The answer is the server's exit code.
pub(crate) async fn before_command(front: Front, mcp: &Mcp, command: &[OsString]) -> Result<u8, Fault> {
    let (env, tenant, prefix) = (front.server.env.clone(), front.tenant.clone(), prefix()?);
    // Opened before the server is started, so that it holds our claims for as long as it lives.
    stdio::run(gate(front, mcp).await, tenant, command, &env, prefix).await
}

/// Runs several servers that are commands behind one gateway. They are told apart by what stands before their tools' names.
pub(crate) async fn before_several(fronts: Vec<Front>, mcp: &Mcp) -> Result<u8, Fault> {
    let Some(first) = fronts.first() else { return Err(Fault::usage("no server is configured")) };
    let (books, tenant, prefix) = (books(first).await, first.tenant.clone(), prefix()?);
    let mut servers = Vec::new();
    for front in fronts {
        let (name, server) = (front.shown.clone(), front.server.clone());
        let command: Vec<OsString> = server.command.iter().flatten().map(OsString::from).collect();
        let gate = one(front, format!("{name}{}", several::BETWEEN), mcp, &books);
        servers.push(several::Planned { name, command, env: server.env, gate: Arc::new(gate) });
    }
    several::run(servers, tenant, books, prefix).await
}

/// Serves a gateway before a server that is reached by HTTP, until a signal.
pub(crate) async fn before_remote(front: Front, mcp: &Mcp, remote: Remote) -> Result<u8, Fault> {
    let server = &front.server;
    let identity = (&*server.identity_headers, &*server.ignored_headers);
    let identity = http::Identity::new(remote.tenant.as_ref(), identity, &front.shown, &remote.names);
    let books = books(&front).await;
    let mut gate = one(front, String::new(), mcp, &books);
    gate.naming.deadline = Some(DEADLINE);
    http::run(Arc::new(gate), remote, identity, prefix()?).await
}

/// What our own ids begin with: no client has thought of it.
fn prefix() -> Result<String, Fault> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| Fault::config(format!("no random numbers could be had: {error}")))?;
    Ok(format!("onceward-{:016x}-", u64::from_ne_bytes(random)))
}

async fn gate(front: Front, mcp: &Mcp) -> Arc<Gate> {
    let books = books(&front).await;
    Arc::new(one(front, String::new(), mcp, &books))
}

async fn books(front: &Front) -> Arc<Books> {
    let books = Books::at(&front.store, front.records_per_tenant);
    if let Err(error) = books.ledger().await {
        tracing::error!(%error, "the ledger cannot be opened; tools that act are refused until it can");
    }
    Arc::new(books)
}

fn one(front: Front, shown: String, mcp: &Mcp, books: &Arc<Books>) -> Gate {
    let tools = Tools::of(front.server.tool, front.server.repeats);
    let echo = mcp.echo.map_or(ECHO, |echo| echo.0);
    let patience = mcp.patience.map_or(client::PATIENCE, |patience| patience.0);
    Gate {
        naming: Naming { server: front.name, shown, session: front.session, echo, patience, deadline: None },
        replies: Replies { notice: mcp.notice.unwrap_or(true), flags: front.flags, status: list::status_name(&tools) },
        tools,
        books: Arc::clone(books),
        owners: Owners::default(),
        equals: Equals::default(),
        lines: Lines::default(),
    }
}
