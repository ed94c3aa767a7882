//! Runs one check in a child process, with a time limit and its own temporary folder.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use onceward::plant::Plant;

use super::check::Check;

/// How often the parent polls.
const TICK: Duration = Duration::from_millis(5);

/// How a check ended.
#[derive(Debug)]
pub enum Verdict {
    /// It found nothing.
    Well,
    /// It found this first.
    Broken(String),
    /// It failed without a violation: that does not count as found.
    Failed(String),
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Well => f.write_str("it found nothing"),
            Self::Broken(what) | Self::Failed(what) => f.write_str(what),
        }
    }
}

pub struct CheckRun {
    pub verdict: Verdict,
    pub after: Duration,
}

/// Runs a check, with a bug or without.
pub fn run(check: &Check, quick: bool, plant: Option<Plant>) -> CheckRun {
    let folder = tempfile::Builder::new().prefix("onceward-plants-").tempdir().expect("a temporary folder can be made");
    let output = folder.path().join("output");
    let program = std::env::current_exe().expect("the path of this program is known");
    let mut command = Command::new(program);
    command.args(check.arguments(quick)).stdin(Stdio::null()).stderr(Stdio::null()).env("TMPDIR", folder.path());
    command.stdout(File::create(&output).expect("the folder can be written"));
    if let Some(plant) = plant {
        command.arg("--plant").arg(plant.name());
    }
    let started = Instant::now();
    // In its own process group, so that its children end with it.
    let mut child = command.process_group(0).spawn().expect("the harness can start itself");
    let code = wait(&mut child, started, check.limit);
    let after = started.elapsed();
    let output = std::fs::read_to_string(&output).unwrap_or_default();
    let first = output.lines().find_map(|line| line.strip_prefix("VIOLATION "));
    let verdict = match (code, first) {
        (Some(0), None) => Verdict::Well,
        (Some(1), Some(first)) => Verdict::Broken(first.to_owned()),
        (None, _) => Verdict::Failed(format!("it took longer than {} s", check.limit.as_secs())),
        (code, _) => Verdict::Failed(format!("it ended with {code:?}: {}", output.lines().last().unwrap_or_default())),
    };
    CheckRun { verdict, after }
}

/// The exit code; `None` when it took too long or died.
fn wait(child: &mut Child, started: Instant, limit: Duration) -> Option<i32> {
    loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            return status.code();
        }
        if started.elapsed() > limit {
            if let Ok(group) = i32::try_from(child.id()) {
                let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
            }
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(TICK);
    }
}
