//! The child dies with us, so that a repeat which finds us gone does not meet a command that still runs. Linux
//! only; elsewhere the lease covers it. What the child itself started is not reached, but it has inherited our lock, so
//! that we do not count as gone before it is.

use tokio::process::Command;

/// Has the kernel kill the child when the calling thread ends: call this, and spawn, on the main thread.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
pub(crate) fn dies_with_us(command: &mut Command) {
    use nix::sys::prctl::set_pdeathsig;
    use nix::sys::signal::Signal;
    use nix::unistd::{getpid, getppid};

    let us = getpid();
    let in_child = move || {
        set_pdeathsig(Signal::SIGKILL)?;
        // We may have died before the line above.
        if getppid() == us { Ok(()) } else { Err(nix::errno::Errno::ESRCH.into()) }
    };
    // SAFETY: between fork and exec only async-signal-safe functions may be called. This calls prctl and
    // getppid, allocates nothing, takes no lock, and makes errors from numbers alone.
    unsafe { command.pre_exec(in_child) };
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn dies_with_us(_command: &mut Command) {}
