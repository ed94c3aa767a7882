//! Several servers that are commands behind one gateway: to the client they are one server. The names of their tools and prompts
//! begin with the server's name.
//!
//! - `router`: where each message goes, for the relay in `stdio`. `merge`: one response out of those of several servers.
//! - `server`: one of the servers, and its handshake. `protocol_version`: translates between the two families of the protocol.
//!   `subscriptions`: who wants to be notified.

mod merge;
mod protocol_version;
mod router;
mod server;
mod subscriptions;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use onceward::core::name::Tenant;

use super::lazy_ledger::LazyLedger;
use super::stdio::{ClientSession, ServerCommand, cannot_start, relay, start};
use onceward_runtime::exit::{Fault, STORE};
use onceward_runtime::output;
use onceward_runtime::process::{catch_signals, exit_code};
use protocol_version::{ClientIntroduction, ProtocolFamily};
use server::{Server, locked};
use subscriptions::Subscriptions;

/// Separates a server's name from the name of its tool or prompt.
pub(super) const NAME_SEPARATOR: &str = "__";

/// How many resources are remembered with their servers. Beyond that, all servers are asked.
const MAX_RESOURCES: usize = 100_000;

/// One client and several servers.
#[derive(Debug)]
struct Aggregate {
    client: Arc<ClientSession>,
    servers: Vec<Arc<Server>>,
    /// How the client introduced itself, once it has.
    introduction: OnceLock<ClientIntroduction>,
    subscriptions: Subscriptions,
    /// Which server has listed a resource, by its URI.
    resources: Mutex<HashMap<String, Arc<Server>>>,
}

/// Runs the servers until the client goes, or all of them have ended. Must be called on the main thread.
pub(super) async fn run(
    commands: Vec<ServerCommand>,
    tenant: Tenant,
    ledger: Arc<LazyLedger>,
    prefix: String,
) -> Result<u8, Fault> {
    let signals = catch_signals().map_err(cannot_start)?;
    let (mut servers, mut processes) = (Vec::new(), Vec::new());
    for command in commands {
        // A server that cannot be started does not keep the others from their work.
        match start(&command, format!("{prefix}{}-", command.name)) {
            Ok((connection, process)) => {
                servers.push(Arc::new(Server::new(command.name, connection)));
                processes.push(process);
            }
            Err(fault) => output::say(&format!("{}: {}", command.name, fault.message)),
        }
    }
    let Some(first) = servers.first() else {
        return Err(Fault::new(STORE, "none of the servers could be started"));
    };
    let patience = first.gate().settings.patience;
    let client = ClientSession::new(tenant, prefix, patience, ledger);
    let aggregate = Arc::new(Aggregate::new(client, servers));
    let ended = relay(&aggregate, processes, signals).await?;
    Ok(if ended.was_wanted { 0 } else { ended.status.map_or(0, exit_code) })
}

impl Aggregate {
    fn new(client: Arc<ClientSession>, servers: Vec<Arc<Server>>) -> Self {
        let (introduction, subscriptions, resources) = Default::default();
        Self { client, servers, introduction, subscriptions, resources }
    }

    /// The servers that have neither ended nor failed their handshake.
    fn available(&self) -> impl Iterator<Item = &Arc<Server>> {
        self.servers.iter().filter(|server| server.is_available())
    }

    /// Whether the client speaks the protocol without `initialize`.
    fn is_modern(&self) -> bool {
        self.introduction.get().is_some_and(|client| client.family == ProtocolFamily::Modern)
    }

    /// The server that has listed a resource.
    fn server_of(&self, uri: &str) -> Option<Arc<Server>> {
        locked(&self.resources).get(uri).filter(|server| server.is_available()).cloned()
    }

    /// Remembers which server has which resource. Where several list one, the first one has it.
    fn learn_resources(&self, listed: impl Iterator<Item = (String, Arc<Server>)>) {
        let mut resources = HashMap::new();
        for (uri, server) in listed.take(MAX_RESOURCES) {
            resources.entry(uri).or_insert(server);
        }
        *locked(&self.resources) = resources;
    }
}
