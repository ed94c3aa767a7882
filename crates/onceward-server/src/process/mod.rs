//! What every process that we start needs: it gets our signals, dies with us, and its end is a number as in a shell.

mod death;

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getpgrp, tcgetpgrp};
use tokio::process::Child;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

pub(crate) use death::dies_with_us;

use crate::exit::SIGNAL_BASE;

/// What is passed on. Stops and continues reach the whole group already.
const PASSED_ON: [Signal; 6] =
    [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGINT, Signal::SIGQUIT];

/// Whether there is no such program. What is there and cannot be run is left to the system to say.
pub(crate) fn is_missing(program: &OsStr) -> bool {
    if program.as_bytes().contains(&b'/') {
        return !Path::new(program).exists();
    }
    let Some(path) = std::env::var_os("PATH") else { return false };
    !std::env::split_paths(&path).any(|folder| folder.join(program).exists())
}

/// Whether a signal has reached the child without us: Ctrl-C, while our group is the terminal's foreground group.
pub(crate) fn is_there_already(signal: Signal) -> bool {
    matches!(signal, Signal::SIGINT | Signal::SIGQUIT) && in_foreground()
}

/// The id is gone once the child was waited for, so no other process can be hit.
pub(crate) fn pass_on(child: &Child, signal: Signal) {
    if let Some(id) = child.id().and_then(|id| i32::try_from(id).ok()) {
        let _ = kill(Pid::from_raw(id), signal);
    }
}

/// The same for a child that leads a group of its own: to all of it.
pub(crate) fn pass_on_to_all(child: &Child, signal: Signal) {
    if let Some(id) = child.id().and_then(|id| i32::try_from(id).ok()) {
        let _ = killpg(Pid::from_raw(id), signal);
    }
}

/// The signals that we get from now on.
pub(crate) fn listen() -> io::Result<mpsc::Receiver<Signal>> {
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
pub(crate) fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| SIGNAL_BASE + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}
