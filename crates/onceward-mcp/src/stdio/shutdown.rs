//! Waits for the servers to end. Lets calls in progress finish when the client goes or a signal asks the gateway to end.

use std::io;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::process::Child;
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::client_session::ClientSession;
use onceward_runtime::process::forward_signal_to_group;

/// How long the servers stay connected after their client has gone, so that calls in progress can finish.
const CLIENT_GONE_LIMIT: Duration = Duration::from_secs(60);

/// How long calls in progress hold back a signal that asks the servers to end. Clients send one some seconds after they have
/// closed the pipe, and kill a few seconds later.
const SIGNAL_LIMIT: Duration = Duration::from_secs(10);

/// How many signals may wait to be passed on.
const MAX_SIGNALS: usize = 16;

/// How the servers ended.
pub(crate) struct Ended {
    /// The exit status of the server that ended last.
    pub(crate) status: io::Result<ExitStatus>,
    /// The client went, or a signal asked the gateway to end.
    pub(crate) was_wanted: bool,
}

/// Waits for all servers. Calls `close_inputs` when the client has gone and no call is in progress.
pub(super) async fn wait_for_servers(
    children: Vec<Child>,
    mut signals: mpsc::Receiver<Signal>,
    client: &ClientSession,
    client_gone: oneshot::Receiver<()>,
    close_inputs: impl Fn(),
) -> Ended {
    let (to_all, _) = broadcast::channel(MAX_SIGNALS);
    let mut running = JoinSet::new();
    for child in children {
        running.spawn(wait_for_server(child, to_all.subscribe()));
    }
    let (mut last, was_wanted) = (Err(io::ErrorKind::NotFound.into()), AtomicBool::new(false));
    let after_the_client = async {
        let _ = client_gone.await;
        was_wanted.store(true, Ordering::Relaxed);
        let _ = timeout(CLIENT_GONE_LIMIT, all_work_done(client)).await;
        close_inputs();
        std::future::pending::<()>().await;
    };
    tokio::pin!(after_the_client);
    let mut held_back: Option<Signal> = None;
    loop {
        let calls_done = async {
            match held_back {
                Some(_) => drop(timeout(SIGNAL_LIMIT, client.idle()).await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            status = running.join_next() => match status {
                Some(status) => last = status.unwrap_or_else(|error| Err(io::Error::other(error))),
                None => return Ended { status: last, was_wanted: was_wanted.load(Ordering::Relaxed) },
            },
            Some(signal) = signals.recv() => {
                let is_end = matches!(signal, Signal::SIGTERM | Signal::SIGINT | Signal::SIGHUP);
                was_wanted.fetch_or(is_end, Ordering::Relaxed);
                if is_end {
                    client.known.ends();
                }
                // A second signal means now.
                if is_end && held_back.is_none() {
                    held_back = Some(signal);
                } else {
                    let _ = to_all.send(signal);
                }
            }
            () = calls_done => {
                if let Some(signal) = held_back.take() {
                    let _ = to_all.send(signal);
                }
            }
            () = &mut after_the_client => {}
        }
    }
}

/// Waits for calls, and for tasks that go on after the response to their call.
async fn all_work_done(client: &ClientSession) {
    client.idle().await;
    if let Ok(ledger) = client.ledger.ledger().await {
        ledger.idle().await;
    }
}

/// Waits for one server, and passes signals on to it.
async fn wait_for_server(mut child: Child, mut signals: broadcast::Receiver<Signal>) -> io::Result<ExitStatus> {
    loop {
        tokio::select! {
            biased;
            status = child.wait() => return status,
            Ok(signal) = signals.recv() => forward_signal_to_group(&child, signal),
        }
    }
}
