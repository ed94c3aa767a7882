//! A gateway before a server that is a command: it is started, its pipes are relayed, and it ends as without us.
//!
//! - `relay`: lines both ways. `wire`: the pipes, and who waits for which answer. `lines`: what comes out of a pipe. `room`: what
//!   can be written at once. `turns`: in which order. `attend`: how it ends.

mod attend;
mod lines;
mod relay;
mod room;
mod turns;
mod unread;
mod wire;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use onceward::core::name::Tenant;
use tokio::process::{Child, Command};
use tokio::sync::{Mutex, oneshot, watch};
use tokio::time::timeout;

use super::client::Client;
use super::gate::Gate;
use crate::exit::{CANNOT_RUN, Fault, NO_COMMAND, STORE};
use crate::process::{code, dies_with_us, is_missing, listen};
pub(super) use attend::{Started, UnderWay, attend, idle};
use lines::Lines;
pub(super) use lines::each as each_line;
use relay::Relay;
pub(super) use unread::all_is_read;
pub(super) use wire::{InTurn, Wire, place};

/// How long what the server has written may take to be read after it has ended: something that it left behind may hold the
/// pipe open.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How long what became of the last calls may take to be recorded.
pub(super) const LAST_WRITES: Duration = Duration::from_secs(15);

/// Runs the server until it ends. The answer is its exit code. Must be called on the main thread, see [`dies_with_us`].
pub(super) async fn run(
    gate: Arc<Gate>,
    tenant: Tenant,
    command: &[OsString],
    env: &BTreeMap<String, String>,
    prefix: String,
) -> Result<u8, Fault> {
    let signals = listen().map_err(cannot_start)?;
    let mut child = spawn(command, env)?;
    let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(cannot_start(io::ErrorKind::BrokenPipe.into()));
    };
    let stdin = File::from(stdin.into_owned_fd().map_err(cannot_start)?);
    let stdout = stdout.into_owned_fd().map_err(cannot_start)?;
    let wire = Wire::new(stdin, prefix.clone());
    let relay = Arc::new(Relay {
        gate: Arc::clone(&gate),
        tenant,
        wire: wire.clone(),
        busy: watch::Sender::new(0),
        client: Arc::new(Mutex::new(true)),
        known: Arc::new(Client::new(gate.naming.patience)),
        connection: prefix,
    });
    let client = Lines::of(from_client().map_err(cannot_start)?, "client").map_err(cannot_start)?;
    let server = Lines::of(stdout, "server").map_err(cannot_start)?;
    let (no_more, client_gone) = oneshot::channel();
    let hearing = Arc::clone(&relay);
    tokio::spawn(async move {
        hearing.hear_client(client).await;
        hearing.client_ended().await;
        let _ = no_more.send(());
    });
    let (silent, server_silent) = oneshot::channel();
    let hearing = Arc::clone(&relay);
    tokio::spawn(async move {
        hearing.hear_server(server).await;
        let _ = silent.send(());
    });
    let mut busy = relay.busy.subscribe();
    let silence = silence(server_silent, wire.clone(), relay.busy.subscribe(), Arc::clone(&relay));
    let silence = tokio::spawn(silence);
    let under_way = UnderWay { busy: &relay.busy, books: &gate.books };
    let asked = || relay.known.ends();
    let ended = attend(vec![child], signals, under_way, client_gone, asked, || wire.close_server()).await;
    let _ = timeout(LAST_WORDS, silence).await;
    wire.close();
    if timeout(LAST_WRITES, idle(&mut busy)).await.is_err() {
        tracing::warn!("calls were under way when the server ended; what became of them is in doubt");
    }
    relay.judge_last().await;
    let _ = timeout(LAST_WRITES, gate.books.close()).await;
    ended
        .status
        .map(code)
        .map_err(|error| Fault::new(STORE, format!("the server is gone, and the system does not say how: {error}")))
}

/// A server that says nothing more has nothing more to answer. Its client sees the end, as without us.
async fn silence(silent: oneshot::Receiver<()>, wire: Wire, mut busy: watch::Receiver<usize>, relay: Arc<Relay>) {
    let _ = silent.await;
    wire.close();
    let _ = timeout(LAST_WRITES, idle(&mut busy)).await;
    relay.judge_last().await;
    if let Ok(nothing) = File::options().write(true).open("/dev/null") {
        let _ = nix::unistd::dup2_stdout(nothing);
    }
}

pub(super) fn spawn(command: &[OsString], env: &BTreeMap<String, String>) -> Result<Child, Fault> {
    let Some((program, arguments)) = command.split_first() else {
        return Err(Fault::usage("there is no command to start the server with"));
    };
    let mut starting = Command::new(program);
    starting.args(arguments).envs(env).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    // Some clients send signals to the whole group. They are passed on when no call is under way any more.
    starting.process_group(0);
    dies_with_us(&mut starting);
    starting.spawn().map_err(|error| {
        let code = if is_missing(program) { NO_COMMAND } else { CANNOT_RUN };
        Fault::new(code, format!("the server {} cannot be started: {error}", program.display()))
    })
}

/// What the client says to us. The other end of it may be shared, so that nothing about it is changed.
fn from_client() -> io::Result<OwnedFd> {
    io::stdin().as_fd().try_clone_to_owned()
}

pub(super) fn cannot_start(error: io::Error) -> Fault {
    Fault::new(STORE, format!("cannot start: {error}"))
}
