//! Child processes: forwarding signals, dying with the parent, and exit codes as in a shell.
//!
//! - `capture`: output that is kept; `output_frame`: its encoding. `settle`: what the end of a command says about its effect.
//! - `spawner`: starts programs on a thread of its own.

pub mod capture;
mod death;
pub mod output_frame;
pub mod settle;
pub mod spawner;

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

pub use death::kill_with_parent;

use crate::exit::SIGNAL_BASE;

/// The signals to forward. SIGSTOP and SIGCONT reach the whole process group already.
const FORWARDED: [Signal; 6] =
    [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGINT, Signal::SIGQUIT];

/// Whether the program does not exist. If it exists but cannot be run, the system reports why.
pub fn is_missing(program: &OsStr) -> bool {
    if program.as_bytes().contains(&b'/') {
        return !Path::new(program).exists();
    }
    let Some(path) = std::env::var_os("PATH") else { return false };
    !std::env::split_paths(&path).any(|folder| folder.join(program).exists())
}

/// Whether the child gets this signal from the terminal: Ctrl-C while our group is the foreground group.
pub fn is_sent_by_terminal(signal: Signal) -> bool {
    matches!(signal, Signal::SIGINT | Signal::SIGQUIT) && in_foreground()
}

/// Sends a signal to the child. Its id is gone once it has been waited for, so no other process can be hit.
pub fn forward_signal(child: &Child, signal: Signal) {
    if let Some(id) = child.id().and_then(|id| i32::try_from(id).ok()) {
        let _ = kill(Pid::from_raw(id), signal);
    }
}

/// Sends a signal to the whole process group that the child leads.
pub fn forward_signal_to_group(child: &Child, signal: Signal) {
    if let Some(id) = child.id().and_then(|id| i32::try_from(id).ok()) {
        let _ = killpg(Pid::from_raw(id), signal);
    }
}

/// The signals that this process receives from now on.
pub fn catch_signals() -> io::Result<mpsc::Receiver<Signal>> {
    // A parent that ignores SIGCHLD passes that on, and then the system does not report how a child ended. Any handler undoes
    // it.
    let _ = signal(SignalKind::child())?;
    let (sender, receiver) = mpsc::channel(16);
    let ignored = ignored();
    for forwarded in FORWARDED {
        // Under `nohup` the child must ignore the signal as well, and a handler would not be inherited.
        if ignored & (1 << (forwarded as u32 - 1)) != 0 {
            continue;
        }
        let mut arrivals = signal(SignalKind::from_raw(forwarded as i32))?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while arrivals.recv().await.is_some() {
                if sender.send(forwarded).await.is_err() {
                    return;
                }
            }
        });
    }
    Ok(receiver)
}

/// The signals that were ignored when this process started, one bit each; none if the system does not tell.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Whether our process group is the terminal's foreground group.
fn in_foreground() -> bool {
    let terminal = std::fs::File::open("/dev/tty");
    terminal.is_ok_and(|terminal| tcgetpgrp(&terminal).is_ok_and(|group| group == getpgrp()))
}

/// The exit code as in a shell: 128 plus the signal number for a command that was killed by a signal.
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| SIGNAL_BASE + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}
