//! The binary under test as a process: the real one, or this program, which has all of it inside and can have a bug planted.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use onceward::core::plant;
use tokio::process::{Child, Command};

use super::Options;

/// Settings of the machine that must not reach the product.
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

    /// The product with these arguments. It ends with the harness.
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

/// This program, which also plays the servers and commands that have effects.
pub fn this_program() -> PathBuf {
    std::env::current_exe().expect("a program knows where it is")
}

/// Kills a process that the product started for the harness, without a word. It may be gone already, and its number may be
/// another's by now: only a process whose command line names the harness's own file is meant. True if it was there.
pub fn kill_now(pid: u32, marker: &Path) -> bool {
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let is_ours = String::from_utf8_lossy(&command).contains(&*marker.to_string_lossy());
    let pid = i32::try_from(pid).ok().filter(|pid| is_ours && *pid > 1);
    pid.is_some_and(|pid| kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok())
}

/// Ends a child without a word, and waits until it is gone.
pub async fn end(child: &mut Child) {
    let _ = child.start_kill();
    let _ = child.wait().await;
}
