//! Child processes: starts them, reads their events, kills them; and lets a child notice that its parent is gone.

use std::process::Stdio;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::DemoError;
use super::events;

/// Enough for the error message of a process, and too little to fill the memory.
const MAX_STDERR: u64 = 4096;

/// How long a process may take to exit after a kill, or after its input was closed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to wait for the error message of a process that has exited.
const STDERR_TIMEOUT: Duration = Duration::from_secs(1);

/// What the driver reads from a child's standard output.
#[derive(Debug)]
pub(super) enum ChildOutput<T> {
    /// An event.
    Event(T),
    /// A line that is not an event.
    Invalid(String),
    /// The output has ended.
    Closed,
}

/// A process of the demo. Dropping it kills the process; closing its input ends it.
#[derive(Debug)]
pub(super) struct Child {
    name: String,
    process: tokio::process::Child,
    stdin: Option<ChildStdin>,
    stderr: Option<JoinHandle<Vec<u8>>>,
}

impl Child {
    /// Starts this program with other arguments. Its output goes to `events`, wrapped by `wrap`.
    pub(super) fn start<T, E, F>(
        name: String,
        arguments: &[String],
        events: mpsc::Sender<E>,
        wrap: F,
    ) -> Result<Self, DemoError>
    where
        T: DeserializeOwned + Send + 'static,
        E: Send + 'static,
        F: Fn(ChildOutput<T>) -> E + Send + Sync + 'static,
    {
        let cannot_start = |error: std::io::Error| DemoError::Failed(format!("cannot start the {name}: {error}"));
        let program = std::env::current_exe().map_err(cannot_start)?;
        let mut process = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C goes to the driver, which then stops its children.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(cannot_start)?;
        let stderr = process.stderr.take().map(|stderr| {
            tokio::spawn(async move {
                let mut text = Vec::new();
                let _ = stderr.take(MAX_STDERR).read_to_end(&mut text).await;
                text
            })
        });
        if let Some(stdout) = process.stdout.take() {
            tokio::spawn(async move {
                let mut lines = BufReader::new(stdout).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    let output = events::parse_event(&line).map_or_else(ChildOutput::Invalid, ChildOutput::Event);
                    if events.send(wrap(output)).await.is_err() {
                        return;
                    }
                }
                let _ = events.send(wrap(ChildOutput::Closed)).await;
            });
        }
        let stdin = process.stdin.take();
        Ok(Self { name, process, stdin, stderr })
    }

    /// Writes a line to its standard input.
    pub(super) async fn send_line(&mut self, line: &str) -> Result<(), DemoError> {
        let is_sent = match &mut self.stdin {
            Some(stdin) => stdin.write_all(format!("{line}\n").as_bytes()).await.is_ok(),
            None => false,
        };
        if is_sent { Ok(()) } else { Err(self.unexpected_exit().await) }
    }

    /// Sends SIGKILL, and waits until the process has exited.
    pub(super) async fn kill(&mut self) -> Result<(), DemoError> {
        self.process.start_kill().map_err(|error| self.error(&error.to_string()))?;
        self.wait_for_exit().await
    }

    /// Closes its input, and waits until the process has exited.
    pub(super) async fn finish(mut self) -> Result<(), DemoError> {
        self.stdin = None;
        self.wait_for_exit().await
    }

    async fn wait_for_exit(&mut self) -> Result<(), DemoError> {
        match tokio::time::timeout(EXIT_TIMEOUT, self.process.wait()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(self.error(&error.to_string())),
            Err(_) => Err(self.error("it does not exit")),
        }
    }

    fn error(&self, reason: &str) -> DemoError {
        DemoError::Failed(format!("the {}: {reason}", self.name))
    }

    /// The error for a process that exited while the demo still needed it.
    pub(super) async fn unexpected_exit(&mut self) -> DemoError {
        let text = match self.stderr.take() {
            Some(stderr) => tokio::time::timeout(STDERR_TIMEOUT, stderr).await.ok().and_then(Result::ok),
            None => None,
        };
        let text = text.map(|text| String::from_utf8_lossy(&text).trim().to_owned());
        let text = text.filter(|text| !text.is_empty());
        let text = text.as_deref().unwrap_or("it wrote no error message");
        DemoError::Failed(format!("the {} exited too early: {text}", self.name))
    }
}

/// In a child: the lines of standard input; `None` once it is closed.
pub(super) fn stdin_lines() -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel(1);
    // A thread, because a blocked read of standard input would keep a runtime from ending.
    std::thread::spawn(move || {
        for line in std::io::stdin().lines() {
            if !line.is_ok_and(|line| sender.blocking_send(line).is_ok()) {
                break;
            }
        }
    });
    lines
}

/// In a child: resolves when the driver is gone.
pub(super) async fn driver_gone() {
    let mut lines = stdin_lines();
    while lines.recv().await.is_some() {}
}
