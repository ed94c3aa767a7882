//! Servers that are started here, on private sockets, and stopped here: by a signal to their own process, also when
//! the run fails or is interrupted, and by the kernel should this program be killed.

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
use crate::Fault;

/// How long a server may take to come up or to go away. A shutdown may have to write what is in memory.
const PATIENCE: Duration = Duration::from_secs(30);

/// A process that ends with its owner.
#[derive(Debug)]
pub struct Server {
    name: &'static str,
    child: Child,
    farewell: Signal,
    log: PathBuf,
}

impl Server {
    /// Starts a program under `setpriv`, which lets the kernel end it when this process is gone.
    ///
    /// In a process group of its own: an interrupt from the keyboard is for us, and we stop it then.
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

    /// The process, for its processor time.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the server answers.
    fn until(&mut self, mut ready: impl FnMut() -> bool) -> Result<(), Fault> {
        let start = Instant::now();
        while !ready() {
            let ended = self.child.try_wait()?;
            if ended.is_some() || start.elapsed() > PATIENCE {
                let log = std::fs::read_to_string(&self.log).unwrap_or_default();
                return Err(format!("{} did not come up:\n{log}", self.name).into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Ok(pid) = i32::try_from(self.child.id()) else { return };
        // Gone already is what is wanted.
        let _ = kill(Pid::from_raw(pid), self.farewell);
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if start.elapsed() > PATIENCE {
                let _ = self.child.kill();
                let _ = self.child.wait();
                eprintln!("{} had to be killed", self.name);
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A server that is about to start.
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

    fn go(mut self, farewell: Signal) -> Result<Server, Fault> {
        let child = self.command.spawn().map_err(|error| format!("{} cannot be started: {error}", self.name))?;
        Ok(Server { name: self.name, child, farewell, log: self.log })
    }
}

/// Runs a program to its end; what it said is the error when it fails.
fn finish(command: &mut Command) -> Result<String, Fault> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{program}: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{program} failed ({}):\n{said}", output.status).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
