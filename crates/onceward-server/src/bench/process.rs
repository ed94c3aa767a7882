//! Processes of a measurement: started with us, heard, and ended with us.

use std::ffi::OsStr;
use std::fs::File;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::exit::{self, Fault};

/// How long a process may take to come up, or to say what it was asked.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// How long a process may take to end by itself: what it leaves is removed anyway.
const FAREWELL: Duration = Duration::from_secs(3);

/// Enough for the last words of a process.
const LAST_WORDS: u64 = 4096;

/// A process that ends with its owner.
#[derive(Debug)]
pub(super) struct Process {
    name: &'static str,
    child: Child,
    pid: u32,
    orders: Option<ChildStdin>,
    lines: Option<Lines<BufReader<ChildStdout>>>,
}

impl Process {
    /// Starts this same program with other arguments.
    pub(super) fn ours(name: &'static str, arguments: &[&str]) -> Result<Self, Fault> {
        let program = std::env::current_exe();
        let program = program.map_err(|error| Fault::new(exit::STORE, format!("{name}: {error}")))?;
        let line: Vec<&OsStr> = [program.as_os_str()].into_iter().chain(arguments.iter().map(OsStr::new)).collect();
        Self::start(name, &line)
    }

    /// Starts any program. It must not come from a thread that ends before the measurement: the system ends it then.
    pub(super) fn start(name: &'static str, line: &[&OsStr]) -> Result<Self, Fault> {
        let cannot = |error: std::io::Error| Fault::new(exit::STORE, format!("{name} cannot be started: {error}"));
        let mut command = Command::new(std::env::current_exe().map_err(cannot)?);
        // Nothing of the person's own settings.
        for variable in ["ONCEWARD_STORE", "ONCEWARD_CONFIG", "ONCEWARD_TENANT", "ONCEWARD_SESSION"] {
            command.env_remove(variable);
        }
        let mut child = command
            .args(["bench-part", "become", "--"])
            .args(line)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C is for the driver, which then tidies up.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(cannot)?;
        let pid = child.id().unwrap_or_default();
        let (orders, said) = (child.stdin.take(), child.stdout.take());
        Ok(Self { name, child, pid, orders, lines: said.map(|said| BufReader::new(said).lines()) })
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether it is still there.
    pub(super) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Gives it a line.
    pub(super) async fn tell(&mut self, line: &str) -> Result<(), Fault> {
        let told = match &mut self.orders {
            Some(orders) => orders.write_all(format!("{line}\n").as_bytes()).await.is_ok(),
            None => false,
        };
        if told { Ok(()) } else { Err(self.ended().await) }
    }

    /// The next line that it says, after work that takes this long.
    pub(super) async fn hear(&mut self, work: Duration) -> Result<String, Fault> {
        let Some(lines) = &mut self.lines else { return Err(self.ended().await) };
        match tokio::time::timeout(work + PATIENCE, lines.next_line()).await {
            Ok(Ok(Some(line))) => Ok(line),
            Ok(_) => Err(self.ended().await),
            Err(_) => Err(Fault::new(exit::STORE, format!("{} says nothing", self.name))),
        }
    }

    /// Its input and its output, for who talks with it without us.
    pub(super) fn pipes(&mut self) -> Result<(File, File), Fault> {
        let cannot =
            |why: &dyn std::fmt::Display| Fault::new(exit::STORE, format!("{} cannot be heard: {why}", self.name));
        let (Some(orders), Some(lines)) = (self.orders.take(), self.lines.take()) else {
            return Err(cannot(&"somebody hears it already"));
        };
        let to = orders.into_owned_fd().map_err(|error| cannot(&error))?;
        let from = lines.into_inner().into_inner().into_owned_fd().map_err(|error| cannot(&error))?;
        Ok((to.into(), from.into()))
    }

    /// What to say when it ended although it should not have.
    pub(super) async fn ended(&mut self) -> Fault {
        self.failed("it ended too early").await
    }

    /// What to say when it did not do as it should have.
    pub(super) async fn failed(&mut self, what: &str) -> Fault {
        let _ = self.child.start_kill();
        let mut words = String::new();
        if let Some(stderr) = self.child.stderr.take() {
            let _ = tokio::time::timeout(FAREWELL, stderr.take(LAST_WORDS).read_to_string(&mut words)).await;
        }
        let words = if words.trim().is_empty() { "it did not say why" } else { words.trim() };
        Fault::new(exit::STORE, format!("{}: {what}: {words}", self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.is_running() {
            return;
        }
        // nginx has to end its workers itself, so it is asked first.
        if let Ok(pid) = i32::try_from(self.pid) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let asked = Instant::now();
        while self.is_running() && asked.elapsed() < FAREWELL {
            std::thread::sleep(Duration::from_millis(5));
        }
        // What is still there is killed by `kill_on_drop`.
    }
}
