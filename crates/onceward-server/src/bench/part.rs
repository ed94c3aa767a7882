//! The processes of a measurement: this same program under other arguments, and a start that ties any program to ours.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::http::{echo, load};
use super::mcp::server;
use crate::exit::{self, Fault};

/// A part of a measurement, started by it.
#[derive(Debug, clap::Args)]
pub(crate) struct Part {
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, clap::Subcommand)]
enum Role {
    /// Become another program, which ends when whoever started it is gone.
    Become {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        line: Vec<OsString>,
    },
    /// The service behind everything.
    Echo,
    /// Who sends.
    Load,
    /// A tool server.
    Tools,
}

impl Part {
    pub(crate) fn execute(self) -> Result<u8, Fault> {
        match self.role {
            Role::Become { line } => Err(become_other(&line)),
            Role::Echo => echo::run(),
            Role::Load => load::run(),
            Role::Tools => server::run(),
        }
    }
}

/// Only returns if it fails.
fn become_other(line: &[OsString]) -> Fault {
    let Some((program, arguments)) = line.split_first() else { return Fault::usage("become what?") };
    // Should the measurement be killed, nothing of it stays behind.
    #[cfg(target_os = "linux")]
    if let Err(error) = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGTERM) {
        return Fault::new(exit::STORE, format!("cannot be tied to its parent: {error}"));
    }
    let error = Command::new(program).args(arguments).exec();
    Fault::new(exit::CANNOT_RUN, format!("{} cannot be started: {error}", program.display()))
}

/// How many threads each server has: one for each core.
pub(super) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
