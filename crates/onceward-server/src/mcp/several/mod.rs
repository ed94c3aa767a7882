//! Several servers that are commands behind one gateway: to the client they are one server, and the names of their tools and
//! prompts say whose they are.
//!
//! - `hub`: where each message goes. `gather`: one answer out of several. `server`: how each of them is met. `client_side`: what
//!   is known of the client.
//! - `era`: what one generation of the protocol says, in the words of the other. `listen`: who wants to hear news.

mod client_side;
mod era;
mod gather;
mod hub;
mod listen;
mod server;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::thread;

use onceward::core::name::Tenant;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use super::books::Books;
use super::gate::Gate;
use super::stdio::{LAST_WRITES, UnderWay, Wire, all_is_read, attend, cannot_start, each_line, idle, spawn};
use crate::exit::{Fault, STORE};
use crate::output;
use crate::process::{code, listen};
use hub::Hub;
use server::Server;

/// What stands between a server's name and that of its tool.
pub(super) const BETWEEN: &str = "__";

/// How many calls are under way.
type Busy = watch::Sender<usize>;

/// A server that is to be started.
pub(super) struct Planned {
    pub(super) name: String,
    pub(super) command: Vec<OsString>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) gate: Arc<Gate>,
}

/// Runs them until the client goes, or all of them have ended. Must be called on the main thread.
pub(super) async fn run(planned: Vec<Planned>, tenant: Tenant, books: Arc<Books>, prefix: String) -> Result<u8, Fault> {
    let signals = listen().map_err(cannot_start)?;
    let (mut servers, mut children, mut outputs) = (Vec::new(), Vec::new(), Vec::new());
    for plan in planned {
        // One that cannot be started does not keep the others from their work.
        let mut child = match spawn(&plan.command, &plan.env) {
            Ok(child) => child,
            Err(fault) => {
                output::say(&format!("{}: {}", plan.name, fault.message));
                continue;
            }
        };
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else { continue };
        let stdin = File::from(stdin.into_owned_fd().map_err(cannot_start)?);
        outputs.push(File::from(stdout.into_owned_fd().map_err(cannot_start)?));
        let wire = Wire::new(stdin, format!("{prefix}{}-", plan.name));
        servers.push(Server::new(plan.name, plan.gate, wire));
        children.push(child);
    }
    if servers.is_empty() {
        return Err(Fault::new(STORE, "none of the servers could be started"));
    }
    let hub = Arc::new(Hub::new(servers, tenant, Handle::current(), prefix));
    for (number, output) in outputs.into_iter().enumerate() {
        let from_server = Arc::clone(&hub);
        started("from-server", move || {
            each_line(output, "server", |line| from_server.server_says(number, &line));
            from_server.ended(number);
        })?;
    }
    let (no_more, client_gone) = oneshot::channel();
    let from_client = Arc::clone(&hub);
    started("from-client", move || {
        each_line(io::stdin(), "client", |line| from_client.client_says(line));
        from_client.client_ended();
        let _ = no_more.send(());
    })?;
    let under_way = UnderWay { busy: &hub.busy, books: &books };
    let ended = attend(children, signals, under_way, client_gone, || hub.known.ends(), || hub.close()).await;
    let mut busy = hub.busy.subscribe();
    let _ = timeout(LAST_WRITES, idle(&mut busy)).await;
    hub.known.judge_last(all_is_read(io::stdout())).await;
    let _ = timeout(LAST_WRITES, books.close()).await;
    Ok(if ended.was_wanted { 0 } else { ended.status.map_or(0, code) })
}

/// A thread that may wait.
fn started(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Fault> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map(drop).map_err(cannot_start)
}
