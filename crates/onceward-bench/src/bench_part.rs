//! The processes of a measurement: this same program in other roles, and a wrapper that ties any program to its parent.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::http::{echo, load};
use super::mcp::server;
use onceward_runtime::exit::{self, Fault};

/// A process of a measurement, started by it.
#[derive(Debug, clap::Args)]
pub struct BenchPart {
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, clap::Subcommand)]
enum Role {
    /// Replace this process by another program, which ends with its parent.
    Become {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        line: Vec<OsString>,
    },
    /// The service behind the gateways.
    Echo,
    /// The load generator.
    Load,
    /// An MCP tool server.
    Tools,
}

impl BenchPart {
    pub fn execute(self) -> Result<u8, Fault> {
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
    let Some((program, arguments)) = line.split_first() else { return Fault::usage("no program to run") };
    // If the measurement is killed, none of its processes stays behind.
    #[cfg(target_os = "linux")]
    if let Err(error) = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGTERM) {
        return Fault::new(exit::STORE, format!("cannot tie the process to its parent: {error}"));
    }
    let error = Command::new(program).args(arguments).exec();
    Fault::new(exit::CANNOT_RUN, format!("cannot start {}: {error}", program.display()))
}

/// Threads per server: one per core.
pub(super) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
