//! The binary under test as a process: the real one, or this program, which contains all of it and can plant a bug.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use onceward::plant;
use tokio::process::{Child, Command};

use super::Options;

/// Variables of the environment that must not reach the product.
const SETTINGS: [&str; 4] = ["ONCEWARD_STORE", "ONCEWARD_CONFIG", "ONCEWARD_SESSION", "ONCEWARD_TENANT"];

/// How the product is started.
#[derive(Clone, Debug)]
pub struct Product {
    binary: Option<PathBuf>,
}

impl Product {
    pub fn of(options: &Options) -> Self {
        Self { binary: options.binary.clone() }
    }

    /// A command of the product. It ends with the harness.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = match &self.binary {
            Some(binary) => Command::new(binary),
            None => {
                let mut command = Command::new(this_program());
                if let Some(plant) = plant::current() {
                    command.arg("--plant").arg(plant.name());
                }
                command.arg("onceward");
                command
            }
        };
        SETTINGS.iter().for_each(|name| {
            command.env_remove(name);
        });
        command.args(arguments).env("ONCEWARD_LOG", "off").stdin(Stdio::null()).kill_on_drop(true);
        command
    }
}

/// This program, which also runs the servers and commands that have effects.
pub fn this_program() -> PathBuf {
    std::env::current_exe().expect("the path of this program is known")
}

/// Kills a process that the product started for the harness. It may be gone already and its id reused: only a process
/// whose command line names the harness's file is killed. True if it was there.
pub fn kill_now(pid: u32, marker: &Path) -> bool {
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let is_ours = String::from_utf8_lossy(&command).contains(&*marker.to_string_lossy());
    let pid = i32::try_from(pid).ok().filter(|pid| is_ours && *pid > 1);
    pid.is_some_and(|pid| kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok())
}

/// Kills a child, and waits until it is gone.
pub async fn end(child: &mut Child) {
    let _ = child.start_kill();
    let _ = child.wait().await;
}
