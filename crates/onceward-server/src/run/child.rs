//! The process of the command: started, sent the signals that we get, waited for.

use std::ffi::{OsStr, OsString};
use std::future::Future;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpgrp, tcgetpgrp};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use super::capture::{Capture, Phase, pump};
use super::death::dies_with_us;
use super::frame::Stream;
use crate::exit::SIGNAL_BASE;

/// What the child finds its downstream key under.
const KEY_VARIABLE: &str = "ONCEWARD_KEY";

/// What is passed on. Stops and continues reach the whole group already.
const PASSED_ON: [Signal; 6] =
    [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGINT, Signal::SIGQUIT];

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

/// Whether there is no such program. What is there and cannot be run is left to the system to say.
pub(super) fn is_missing(program: &OsStr) -> bool {
    if program.as_bytes().contains(&b'/') {
        return !Path::new(program).exists();
    }
    let Some(path) = std::env::var_os("PATH") else { return false };
    !std::env::split_paths(&path).any(|folder| folder.join(program).exists())
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
                let is_there_already = matches!(signal, Signal::SIGINT | Signal::SIGQUIT) && in_foreground();
                if !is_there_already {
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

/// The id is gone once the child was waited for, so no other process can be hit.
fn pass_on(child: &Child, signal: Signal) {
    if let Some(id) = child.id().and_then(|id| i32::try_from(id).ok()) {
        let _ = kill(Pid::from_raw(id), signal);
    }
}

fn listen() -> io::Result<mpsc::Receiver<Signal>> {
    // Who ignores SIGCHLD hands that on, and then the system forgets how a child ended. A handler, even one that does
    // nothing, takes it back.
    let _ = signal(SignalKind::child())?;
    let (sender, receiver) = mpsc::channel(16);
    let ignored = ignored();
    for passed in PASSED_ON {
        // Under `nohup` the child is to ignore it as well, and a handler of ours would not be inherited.
        if ignored & (1 << (passed as u32 - 1)) != 0 {
            continue;
        }
        let mut arrivals = signal(SignalKind::from_raw(passed as i32))?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while arrivals.recv().await.is_some() {
                if sender.send(passed).await.is_err() {
                    return;
                }
            }
        });
    }
    Ok(receiver)
}

/// Which signals we were started with as ignored, one bit each; none where the system does not say.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Whether our group is the terminal's foreground group: then Ctrl-C has reached the child without us.
fn in_foreground() -> bool {
    let terminal = std::fs::File::open("/dev/tty");
    terminal.is_ok_and(|terminal| tcgetpgrp(&terminal).is_ok_and(|group| group == getpgrp()))
}

/// The exit code as a shell counts: 128 and the signal for a command that a signal ended.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| SIGNAL_BASE + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}
