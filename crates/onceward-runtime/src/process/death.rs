//! Ends the child with its parent, so that a repeat that finds the parent gone does not meet a command that is still
//! running. Linux only; elsewhere the lease covers this case. Processes that the child started survive, but they inherit the
//! owner's lock, so the owner does not count as gone before they end.

use tokio::process::Command;

/// Lets the kernel kill the child when the calling thread ends. Call this, and spawn, on the main thread.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
pub fn kill_with_parent(command: &mut Command) {
    use nix::sys::prctl::set_pdeathsig;
    use nix::sys::signal::Signal;
    use nix::unistd::{getpid, getppid};

    let parent = getpid();
    let in_child = move || {
        set_pdeathsig(Signal::SIGKILL)?;
        // The parent may have died before the line above.
        if getppid() == parent { Ok(()) } else { Err(nix::errno::Errno::ESRCH.into()) }
    };
    // SAFETY: between fork and exec only async-signal-safe functions may be called. This calls prctl and
    // getppid, allocates nothing, takes no lock, and makes errors from numbers alone.
    unsafe { command.pre_exec(in_child) };
}

#[cfg(not(target_os = "linux"))]
pub fn kill_with_parent(_command: &mut Command) {}
