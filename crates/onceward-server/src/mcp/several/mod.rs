//! Several servers that are commands behind one gateway: to the client they are one server, and the names of their tools and
//! prompts say whose they are.
//!
//! - `hub`: where each message goes. `gather`: one answer out of several.

mod gather;
mod hub;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use onceward::core::name::Tenant;
use tokio::process::Child;
use tokio::runtime::Handle;
use tokio::sync::{broadcast, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::books::Books;
use super::gate::Gate;
use super::stdio::{GOODBYE, LAST_CALLS, LAST_WRITES, Wire, cannot_start, idle, spawn, started};
use crate::exit::{Fault, STORE};
use crate::output;
use crate::process::{code, listen, pass_on_to_all};
use hub::{Hub, Server};

/// What stands between a server's name and that of its tool.
pub(super) const BETWEEN: &str = "__";

/// How long a server may take to introduce itself.
const INTRODUCTION: Duration = Duration::from_secs(25);

/// How long a server may take to answer what is asked of several.
const ASKING: Duration = Duration::from_secs(60);

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
    let mut signals = listen().map_err(cannot_start)?;
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
        servers.push(Server { name: plan.name, gate: plan.gate, wire, is_out: AtomicBool::new(false) });
        children.push(child);
    }
    if servers.is_empty() {
        return Err(Fault::new(STORE, "none of the servers could be started"));
    }
    let hub = Arc::new(Hub::new(servers, tenant, Handle::current()));
    for (number, output) in outputs.into_iter().enumerate() {
        let from_server = Arc::clone(&hub);
        started("from-server", move || {
            lines(output, "server", |line| from_server.server_says(number, &line));
            from_server.ended(number);
        })?;
    }
    let (no_more, client_gone) = oneshot::channel();
    let from_client = Arc::clone(&hub);
    started("from-client", move || {
        lines(io::stdin(), "client", |line| from_client.client_says(line));
        let _ = no_more.send(());
    })?;
    let (to_all, _) = broadcast::channel(16);
    let mut running = JoinSet::new();
    for child in children {
        running.spawn(attended(child, to_all.subscribe()));
    }
    let mut busy = hub.busy.subscribe();
    let (mut last, mut asked, is_over) = (0, None, AtomicBool::new(false));
    // Calls that are under way may come to their end, and tasks after their calls were answered.
    let mut under_way = hub.busy.subscribe();
    let goodbye = async {
        let _ = client_gone.await;
        is_over.store(true, Ordering::Relaxed);
        let calls = async {
            idle(&mut under_way).await;
            if let Ok(ledger) = books.ledger().await {
                ledger.idle().await;
            }
        };
        let _ = timeout(GOODBYE, calls).await;
        hub.close();
        std::future::pending::<()>().await;
    };
    tokio::pin!(goodbye);
    loop {
        let patience = async {
            match asked {
                Some(_) => drop(timeout(LAST_CALLS, idle(&mut busy)).await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            ended = running.join_next() => match ended {
                Some(ended) => last = ended.ok().flatten().unwrap_or(last),
                None => break,
            },
            Some(signal) = signals.recv() => {
                let is_end = matches!(signal, Signal::SIGTERM | Signal::SIGINT | Signal::SIGHUP);
                is_over.fetch_or(is_end, Ordering::Relaxed);
                // Asked twice, it is meant now.
                if is_end && asked.is_none() {
                    asked = Some(signal);
                } else {
                    let _ = to_all.send(signal);
                }
            }
            () = patience => {
                if let Some(signal) = asked.take() {
                    let _ = to_all.send(signal);
                }
            }
            () = &mut goodbye => {}
        }
    }
    let mut busy = hub.busy.subscribe();
    let _ = timeout(LAST_WRITES, idle(&mut busy)).await;
    let _ = timeout(LAST_WRITES, books.close()).await;
    Ok(if is_over.load(Ordering::Relaxed) { 0 } else { last })
}

/// Waits for a server, and passes signals on.
async fn attended(mut child: Child, mut signals: broadcast::Receiver<Signal>) -> Option<u8> {
    loop {
        tokio::select! {
            biased;
            status = child.wait() => return status.ok().map(code),
            Ok(signal) = signals.recv() => pass_on_to_all(&child, signal),
        }
    }
}

const LONGEST: u64 = 256 * 1024 * 1024;
/// How long a pipe is left alone that is empty and says so instead of waiting.
const PAUSE: Duration = Duration::from_millis(5);

/// Reads lines to the end; the last one need not have one.
fn lines(from: impl Read, who: &str, mut each: impl FnMut(Vec<u8>)) {
    let mut from = io::BufReader::with_capacity(64 * 1024, from);
    let mut line = Vec::new();
    loop {
        let left = LONGEST - line.len() as u64;
        match from.by_ref().take(left).read_until(b'\n', &mut line) {
            Ok(_) if line.len() as u64 == LONGEST => {
                output::say(&format!("a message of the {who} is over {LONGEST} bytes; nothing more is read."));
                return;
            }
            Ok(0) if line.is_empty() => return,
            Ok(length) => {
                each(std::mem::take(&mut line));
                if length == 0 {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(PAUSE),
            Err(_) => return,
        }
    }
}
