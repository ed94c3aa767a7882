//! Processes of a measurement: starts them, talks to them over pipes, and ends them on drop.

use std::ffi::OsStr;
use std::fs::File;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use onceward_runtime::exit::{self, Fault};

/// How long a process may take to start or to respond.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a process may take to end, by itself and once it is killed; its files are removed anyway.
const EXIT_TIMEOUT: Duration = Duration::from_secs(3);

/// Enough for the last messages of a process.
const MAX_STDERR_BYTES: u64 = 4096;

/// A process that ends with its owner.
#[derive(Debug)]
pub(super) struct Process {
    name: &'static str,
    child: Child,
    pid: u32,
    stdin: Option<ChildStdin>,
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

    /// Starts any program. Not from a thread that ends before the measurement: the system would end the process with it.
    pub(super) fn start(name: &'static str, line: &[&OsStr]) -> Result<Self, Fault> {
        let cannot = |error: std::io::Error| Fault::new(exit::STORE, format!("cannot start {name}: {error}"));
        let mut command = Command::new(std::env::current_exe().map_err(cannot)?);
        // Without the user's own settings.
        for variable in ["ONCEWARD_STORE", "ONCEWARD_CONFIG", "ONCEWARD_TENANT", "ONCEWARD_SESSION"] {
            command.env_remove(variable);
        }
        let mut child = command
            .args(["bench-part", "become", "--"])
            .args(line)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C is for the driver, which then cleans up.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(cannot)?;
        let pid = child.id().unwrap_or_default();
        let (stdin, said) = (child.stdin.take(), child.stdout.take());
        Ok(Self { name, child, pid, stdin, lines: said.map(|said| BufReader::new(said).lines()) })
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether it is still there.
    pub(super) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends a line to its stdin.
    pub(super) async fn send(&mut self, line: &str) -> Result<(), Fault> {
        let sent = match &mut self.stdin {
            Some(stdin) => stdin.write_all(format!("{line}\n").as_bytes()).await.is_ok(),
            None => false,
        };
        if sent { Ok(()) } else { Err(self.ended().await) }
    }

    /// Receives the next line of its stdout, after work that takes this long.
    pub(super) async fn receive(&mut self, work: Duration) -> Result<String, Fault> {
        let Some(lines) = &mut self.lines else { return Err(self.ended().await) };
        match tokio::time::timeout(work + RESPONSE_TIMEOUT, lines.next_line()).await {
            Ok(Ok(Some(line))) => Ok(line),
            Ok(_) => Err(self.ended().await),
            Err(_) => Err(Fault::new(exit::STORE, format!("{} does not respond", self.name))),
        }
    }

    /// Its stdin and stdout, for a caller that talks to it directly.
    pub(super) fn pipes(&mut self) -> Result<(File, File), Fault> {
        let cannot = |why: &dyn std::fmt::Display| {
            Fault::new(exit::STORE, format!("cannot use the pipes of {}: {why}", self.name))
        };
        let (Some(stdin), Some(lines)) = (self.stdin.take(), self.lines.take()) else {
            return Err(cannot(&"they are already taken"));
        };
        let to = stdin.into_owned_fd().map_err(|error| cannot(&error))?;
        let from = lines.into_inner().into_inner().into_owned_fd().map_err(|error| cannot(&error))?;
        Ok((to.into(), from.into()))
    }

    /// The error for a process that ended unexpectedly.
    pub(super) async fn ended(&mut self) -> Fault {
        self.failed("it ended too early").await
    }

    /// The error for a process that failed, with the end of its stderr.
    pub(super) async fn failed(&mut self, what: &str) -> Fault {
        let _ = self.child.start_kill();
        let mut words = String::new();
        if let Some(stderr) = self.child.stderr.take() {
            let _ = tokio::time::timeout(EXIT_TIMEOUT, stderr.take(MAX_STDERR_BYTES).read_to_string(&mut words)).await;
        }
        let words = if words.trim().is_empty() { "it gave no reason" } else { words.trim() };
        Fault::new(exit::STORE, format!("{}: {what}: {words}", self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.is_running() {
            return;
        }
        // nginx has to end its workers itself, so it gets a signal first.
        if let Ok(pid) = i32::try_from(self.pid) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        self.wait();
        if self.child.start_kill().is_ok() {
            self.wait();
        }
    }
}

impl Process {
    /// Waits until it has ended: what removes its files must come after its last write.
    fn wait(&mut self) {
        let since = Instant::now();
        while self.is_running() && since.elapsed() < EXIT_TIMEOUT {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
