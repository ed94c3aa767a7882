//! Starts servers on private sockets and stops them: with a signal to their own process, even if the run fails or is
//! interrupted; if this program is killed, the kernel stops them.

mod packages;
mod postgres;
mod python;
mod redis;

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

pub use self::packages::Packages;
pub use self::postgres::{Cluster, Postgres};
pub use self::python::Python;
pub use self::redis::{Fsync, Redis};
use crate::BoxError;

/// How long a server may take to start or to stop. It may have to write its memory to disk before it stops.
const START_STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// A process that ends with its owner.
#[derive(Debug)]
pub struct ServerProcess {
    name: &'static str,
    child: Child,
    stop_signal: Signal,
    log: PathBuf,
}

impl ServerProcess {
    /// Starts a program under `setpriv`, which lets the kernel end it when this process is gone.
    ///
    /// In its own process group: an interrupt from the keyboard goes to this process, which then stops the server.
    fn start(name: &'static str, program: &Path, account: Option<&str>, log: PathBuf) -> io::Result<Launch> {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM"]);
        if let Some(account) = account {
            command.args(["--reuid", account, "--regid", account, "--init-groups"]);
        }
        command.arg("--").arg(program);
        let file = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).process_group(0);
        Ok(Launch { name, command, log })
    }

    /// The process id, for measuring processor time.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the server responds.
    fn until(&mut self, mut ready: impl FnMut() -> bool) -> Result<(), BoxError> {
        let start = Instant::now();
        while !ready() {
            let ended = self.child.try_wait()?;
            if ended.is_some() || start.elapsed() > START_STOP_TIMEOUT {
                let log = std::fs::read_to_string(&self.log).unwrap_or_default();
                return Err(format!("{} did not start:\n{log}", self.name).into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let Ok(pid) = i32::try_from(self.child.id()) else { return };
        // An error means that the process is already gone.
        let _ = kill(Pid::from_raw(pid), self.stop_signal);
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if start.elapsed() > START_STOP_TIMEOUT {
                let _ = self.child.kill();
                let _ = self.child.wait();
                eprintln!("{} had to be killed", self.name);
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A server that has not been started yet.
struct Launch {
    name: &'static str,
    command: Command,
    log: PathBuf,
}

impl Launch {
    fn args<'a>(mut self, args: impl IntoIterator<Item = &'a str>) -> Self {
        self.command.args(args);
        self
    }

    fn go(mut self, stop_signal: Signal) -> Result<ServerProcess, BoxError> {
        let child = self.command.spawn().map_err(|error| format!("cannot start {}: {error}", self.name))?;
        Ok(ServerProcess { name: self.name, child, stop_signal, log: self.log })
    }
}

/// Runs a program to its end; its output is the error if it fails.
fn finish(command: &mut Command) -> Result<String, BoxError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{program}: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{program} failed ({}):\n{said}", output.status).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
