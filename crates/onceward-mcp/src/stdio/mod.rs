//! The gateway in front of servers that are commands: starts them, relays their pipes, and ends as they do.
//!
//! - `relay`: reads the client and every server, and hands each message to a router. `pass_through`: the router for one server.
//!   The one for several is `aggregate`.
//! - `client_session`: the client's side. `connection`: one server's side.
//! - `lines`: reads lines from a pipe. `nonblocking_write`: writes to one. `write_order`: the order of lines to a server.
//!   `unread`: whether the client has read everything. `shutdown`: how it ends.

mod client_session;
mod connection;
mod lines;
mod nonblocking_write;
mod pass_through;
mod relay;
mod shutdown;
mod unread;
mod write_order;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::Arc;

use onceward::core::name::Tenant;
use tokio::process::{Child, Command};

use super::gate::Gate;
pub(super) use client_session::ClientSession;
pub(super) use connection::{OrderedTransport, ServerConnection, request_id};
use onceward_runtime::exit::{CANNOT_RUN, Fault, NO_COMMAND, STORE};
use onceward_runtime::process::{catch_signals, exit_code, is_missing, kill_with_parent};
use pass_through::PassThrough;
pub(super) use relay::{Router, duplicate_id, relay};

/// A server that is to be started.
pub(super) struct ServerCommand {
    pub(super) name: String,
    pub(super) command: Vec<OsString>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) gate: Arc<Gate>,
}

/// The process of a server that was started, and the end of the pipe that it writes to.
pub(super) struct ServerProcess {
    pub(super) child: Child,
    pub(super) output: OwnedFd,
}

/// Runs one server until it ends. Returns its exit code. Must be called on the main thread, see [`kill_with_parent`].
pub(super) async fn run(server: ServerCommand, tenant: Tenant, prefix: String) -> Result<u8, Fault> {
    let signals = catch_signals().map_err(cannot_start)?;
    let (connection, process) = start(&server, prefix.clone())?;
    let client =
        ClientSession::new(tenant, prefix, server.gate.settings.patience, Arc::clone(&server.gate.lazy_ledger));
    let router = Arc::new(PassThrough { client, server: connection });
    let ended = relay(&router, vec![process], signals).await?;
    ended.status.map(exit_code).map_err(|error| {
        Fault::new(STORE, format!("the server has ended, and its exit status cannot be read: {error}"))
    })
}

/// Starts a server. Requests of the gateway to it have ids that begin with `prefix`.
pub(super) fn start(server: &ServerCommand, prefix: String) -> Result<(ServerConnection, ServerProcess), Fault> {
    let mut child = spawn(&server.command, &server.env)?;
    let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(cannot_start(io::ErrorKind::BrokenPipe.into()));
    };
    let stdin = File::from(stdin.into_owned_fd().map_err(cannot_start)?);
    let output = stdout.into_owned_fd().map_err(cannot_start)?;
    Ok((ServerConnection::new(Arc::clone(&server.gate), stdin, prefix), ServerProcess { child, output }))
}

fn spawn(command: &[OsString], env: &BTreeMap<String, String>) -> Result<Child, Fault> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(Fault::usage("the server has no command to start it with"));
    };
    let mut starting = Command::new(program);
    starting.args(arguments).envs(env).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    // Some clients send signals to the whole process group. The gateway passes them on once no call is in progress.
    starting.process_group(0);
    kill_with_parent(&mut starting);
    starting.spawn().map_err(|error| {
        let code = if is_missing(program) { NO_COMMAND } else { CANNOT_RUN };
        Fault::new(code, format!("the server {} cannot be started: {error}", program.display()))
    })
}

pub(super) fn cannot_start(error: io::Error) -> Fault {
    Fault::new(STORE, format!("cannot start: {error}"))
}
