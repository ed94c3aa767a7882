//! The process of the command: started, sent the signals that we get, waited for.

use std::ffi::OsString;
use std::future::Future;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};

use super::capture::{Capture, Phase, pump};
use super::frame::Stream;
use crate::process::{code, dies_with_us, is_there_already, listen, pass_on};

/// What the child finds its downstream key under.
const KEY_VARIABLE: &str = "ONCEWARD_KEY";

/// How long a command may take to end after it was asked to because its claim is lost.
const PATIENCE: Duration = Duration::from_secs(5);

/// How a command came to its end.
#[derive(Debug)]
pub(super) enum Ended {
    /// It could not be started: it did nothing.
    NotStarted(io::Error),
    /// It ended, with this code as a shell counts, which says the same of an exit and of a signal.
    Exited { code: u8, by_signal: bool, capture: Capture },
    /// It is gone, and the system does not say how it ended.
    Unknown(io::Error),
    /// It was stopped because somebody else may go on with the work.
    Stopped,
}

/// Runs the command to its end. Must be called on the main thread, see [`dies_with_us`].
pub(super) async fn run(
    command: &[OsString],
    downstream_key: &str,
    limit: usize,
    lost: impl Future<Output = ()>,
) -> Ended {
    let mut signals = match listen() {
        Ok(signals) => signals,
        Err(error) => return Ended::NotStarted(error),
    };
    let mut child = match spawn(command, downstream_key) {
        Ok(child) => child,
        Err(error) => return Ended::NotStarted(error),
    };
    let capture = Arc::new(Mutex::new(Capture::new(limit)));
    let (phase, watched) = watch::channel(Phase::Running);
    let stdout =
        child.stdout.take().map(|from| tokio::spawn(pump(from, Stream::Stdout, Arc::clone(&capture), watched.clone())));
    let stderr =
        child.stderr.take().map(|from| tokio::spawn(pump(from, Stream::Stderr, Arc::clone(&capture), watched)));
    let status = attend(&mut child, &mut signals, lost).await;
    phase.send_replace(Phase::Ended);
    let pumps = async {
        for pump in [stdout, stderr].into_iter().flatten() {
            let _ = pump.await;
        }
    };
    drain(pumps, &mut signals, &phase).await;
    match status {
        Some(Ok(status)) => {
            let empty = Capture::new(0);
            let capture = std::mem::replace(&mut *capture.lock().unwrap_or_else(PoisonError::into_inner), empty);
            Ended::Exited { code: code(status), by_signal: status.signal().is_some(), capture }
        }
        Some(Err(error)) => Ended::Unknown(error),
        None => Ended::Stopped,
    }
}

fn spawn(command: &[OsString], downstream_key: &str) -> io::Result<Child> {
    let (program, arguments) = command.split_first().ok_or(io::ErrorKind::NotFound)?;
    let mut command = Command::new(program);
    command.args(arguments).env(KEY_VARIABLE, downstream_key);
    command.stdin(Stdio::inherit()).stdout(Stdio::piped()).stderr(Stdio::piped());
    dies_with_us(&mut command);
    command.spawn()
}

/// Waits for the child, also when the claim is lost: what a command says that ends by itself is worth knowing whoever
/// goes on with the work. `None` when it had to be stopped; an error when there is no such child any more, and nobody
/// can be asked how it ended.
async fn attend(
    child: &mut Child,
    signals: &mut mpsc::Receiver<Signal>,
    lost: impl Future<Output = ()>,
) -> Option<io::Result<ExitStatus>> {
    tokio::select! {
        biased;
        status = until_it_ends(child, signals) => return Some(status),
        () = lost => {}
    }
    pass_on(child, Signal::SIGTERM);
    match tokio::time::timeout(PATIENCE, until_it_ends(child, signals)).await {
        // Our own signal ended it, not the command itself.
        Ok(Ok(status)) if status.signal().is_some() => None,
        Ok(status) => Some(status),
        Err(_) => {
            let _ = child.kill().await;
            None
        }
    }
}

/// Waits for the child and passes signals on.
async fn until_it_ends(child: &mut Child, signals: &mut mpsc::Receiver<Signal>) -> io::Result<ExitStatus> {
    loop {
        tokio::select! {
            biased;
            status = child.wait() => return status,
            Some(signal) = signals.recv() => {
                if !is_there_already(signal) {
                    pass_on(child, signal);
                }
            }
        }
    }
}

/// Waits for the last output. There is no command any more that a signal could be passed on to: who asks us to end
/// means us, and a reader that does not read must not keep the outcome from being recorded.
async fn drain(pumps: impl Future<Output = ()>, signals: &mut mpsc::Receiver<Signal>, phase: &watch::Sender<Phase>) {
    tokio::pin!(pumps);
    loop {
        tokio::select! {
            biased;
            () = &mut pumps => return,
            Some(signal) = signals.recv() => {
                if matches!(signal, Signal::SIGTERM | Signal::SIGINT | Signal::SIGHUP) {
                    phase.send_replace(Phase::Leaving);
                }
            }
        }
    }
}
