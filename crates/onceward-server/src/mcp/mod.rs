//! A gateway before MCP servers: tools that act are called once, and nobody has to change anything.
//!
//! - `gate`: one guarded call in a straight line. `call`: which intent it is. `verdict`: what an answer says about the effect.
//!   `reply`: what models are told. `owners`: who does what in this process. `probe`: asking another tool. `task`: work that
//!   goes on after its answer. `status`: our own tool. `books`: the ledger.
//! - `tools`: which tools are guarded, and why. `reads`: what names say. `list`: the answer to `tools/list`.
//! - `message`, `members`: JSON-RPC, with every byte that is not ours left as it came.
//! - `link`: the way to a server. `stdio`: a server that is a command.
//! - `inspect`: a server's tools, and a configuration to start from. `install`: the gateway in the configuration of clients.

mod books;
mod call;
mod gate;
pub(crate) mod inspect;
pub(crate) mod install;
mod link;
mod list;
mod members;
mod message;
mod name;
mod owners;
mod probe;
mod reads;
mod reply;
mod status;
mod stdio;
mod task;
mod tools;
mod verdict;

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use onceward::core::name::Tenant;

use crate::config::{Mcp, Server};
use crate::exit::Fault;
use books::Books;
use call::Naming;
use gate::Gate;
use owners::Owners;
use reply::Replies;
use tools::Tools;

pub(crate) use name::server_name;

/// How long equal arguments are one intent after they are done, unless something else is configured.
const ECHO: Duration = Duration::from_secs(60);

/// What a gateway is started with.
#[derive(Debug)]
pub(crate) struct Front {
    /// The server's name in operations.
    pub(crate) name: String,
    pub(crate) server: Server,
    pub(crate) tenant: Tenant,
    pub(crate) session: Option<String>,
    pub(crate) store: String,
    /// The flags with which a command that is typed anywhere finds the same ledger and tenant.
    pub(crate) flags: String,
}

/// Runs a server that is a command behind a gateway. The answer is the server's exit code.
pub(crate) async fn before_command(front: Front, mcp: &Mcp, command: &[OsString]) -> Result<u8, Fault> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| Fault::config(format!("no random numbers could be had: {error}")))?;
    let prefix = format!("onceward-{:016x}-", u64::from_ne_bytes(random));
    let env = front.server.env.clone();
    let gate = gate(front, mcp);
    // Before the server is started, so that it holds our claims for as long as it lives.
    if let Err(error) = gate.books.ledger().await {
        tracing::error!(%error, "the ledger cannot be opened; tools that act are refused until it can");
    }
    stdio::run(gate, command, &env, prefix).await
}

fn gate(front: Front, mcp: &Mcp) -> Arc<Gate> {
    let tools = Tools::new(front.server.tool);
    Arc::new(Gate {
        naming: Naming {
            tenant: front.tenant,
            server: front.name,
            session: front.session,
            echo: mcp.echo.map_or(ECHO, |echo| echo.0),
        },
        replies: Replies { notice: mcp.notice.unwrap_or(true), flags: front.flags, status: list::status_name(&tools) },
        tools,
        books: Books::at(&front.store),
        owners: Owners::default(),
    })
}
