//! The process of the command: starts it, forwards signals to it, and waits for it.

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

use super::capture::{CommandProgress, pump};
use onceward_runtime::process::capture::Capture;
use onceward_runtime::process::output_frame::Stream;
use onceward_runtime::process::{catch_signals, exit_code, forward_signal, is_sent_by_terminal, kill_with_parent};

/// The environment variable with the downstream key.
const KEY_VARIABLE: &str = "ONCEWARD_KEY";

/// How long a command may take to end after it was asked to, because its claim is lost.
const TERMINATION_LIMIT: Duration = Duration::from_secs(5);

/// How a command ended.
#[derive(Debug)]
pub(super) enum CommandEnd {
    /// It could not be started: it did nothing.
    NotStarted(io::Error),
    /// It ended with this code, as a shell reports it: the code alone does not tell an exit from a signal.
    Exited { code: u8, by_signal: bool, capture: Capture },
    /// It is gone, and the system does not report how it ended.
    Unknown(io::Error),
    /// It was stopped because another owner may have taken over.
    Stopped,
}

/// Runs the command to its end. Must be called on the main thread, see [`kill_with_parent`].
pub(super) async fn run(
    command: &[OsString],
    downstream_key: &str,
    limit: usize,
    lost: impl Future<Output = ()>,
) -> CommandEnd {
    let mut signals = match catch_signals() {
        Ok(signals) => signals,
        Err(error) => return CommandEnd::NotStarted(error),
    };
    let mut child = match spawn(command, downstream_key) {
        Ok(child) => child,
        Err(error) => return CommandEnd::NotStarted(error),
    };
    let capture = Arc::new(Mutex::new(Capture::new(limit)));
    let (phase, watched) = watch::channel(CommandProgress::Running);
    let stdout =
        child.stdout.take().map(|from| tokio::spawn(pump(from, Stream::Stdout, Arc::clone(&capture), watched.clone())));
    let stderr =
        child.stderr.take().map(|from| tokio::spawn(pump(from, Stream::Stderr, Arc::clone(&capture), watched)));
    let status = attend(&mut child, &mut signals, lost).await;
    phase.send_replace(CommandProgress::Ended);
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
            CommandEnd::Exited { code: exit_code(status), by_signal: status.signal().is_some(), capture }
        }
        Some(Err(error)) => CommandEnd::Unknown(error),
        None => CommandEnd::Stopped,
    }
}

fn spawn(command: &[OsString], downstream_key: &str) -> io::Result<Child> {
    let (program, arguments) = command.split_first().ok_or(io::ErrorKind::NotFound)?;
    let mut command = Command::new(program);
    command.args(arguments).env(KEY_VARIABLE, downstream_key);
    command.stdin(Stdio::inherit()).stdout(Stdio::piped()).stderr(Stdio::piped());
    kill_with_parent(&mut command);
    command.spawn()
}

/// Waits for the child, even if the claim is lost: the result of a command that ends by itself is worth knowing, whether or
/// not another owner took over. `None` if it had to be stopped; an error if the child no longer exists and its exit status
/// cannot be found out.
async fn attend(
    child: &mut Child,
    signals: &mut mpsc::Receiver<Signal>,
    lost: impl Future<Output = ()>,
) -> Option<io::Result<ExitStatus>> {
    tokio::select! {
        biased;
        status = wait_for_exit(child, signals) => return Some(status),
        () = lost => {}
    }
    forward_signal(child, Signal::SIGTERM);
    match tokio::time::timeout(TERMINATION_LIMIT, wait_for_exit(child, signals)).await {
        // Our own signal ended it; the command did not.
        Ok(Ok(status)) if status.signal().is_some() => None,
        Ok(status) => Some(status),
        Err(_) => {
            let _ = child.kill().await;
            None
        }
    }
}

/// Waits for the child and forwards signals.
async fn wait_for_exit(child: &mut Child, signals: &mut mpsc::Receiver<Signal>) -> io::Result<ExitStatus> {
    loop {
        tokio::select! {
            biased;
            status = child.wait() => return status,
            Some(signal) = signals.recv() => {
                if !is_sent_by_terminal(signal) {
                    forward_signal(child, signal);
                }
            }
        }
    }
}

/// Waits for the last output. There is no command any more to forward a signal to: a signal now means this process, and a
/// reader that does not read must not prevent the outcome from being recorded.
async fn drain(
    pumps: impl Future<Output = ()>,
    signals: &mut mpsc::Receiver<Signal>,
    phase: &watch::Sender<CommandProgress>,
) {
    tokio::pin!(pumps);
    loop {
        tokio::select! {
            biased;
            () = &mut pumps => return,
            Some(signal) = signals.recv() => {
                if matches!(signal, Signal::SIGTERM | Signal::SIGINT | Signal::SIGHUP) {
                    phase.send_replace(CommandProgress::ShuttingDown);
                }
            }
        }
    }
}
