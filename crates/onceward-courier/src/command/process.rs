//! Runs a program: writes the payload, reads the output, and kills the whole process group when the time is over.

use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use onceward_runtime::process::capture::Capture;
use onceward_runtime::process::output_frame::Stream;
use onceward_runtime::process::spawner::Spawner;
use onceward_runtime::process::{exit_code, forward_signal_to_group, kill_with_parent};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// One read: the default capacity of a Linux pipe.
const CHUNK: usize = 64 * 1024;

/// How long the pipes may stay open after the program has ended: a background process holds them and is not waited for.
const DRAIN_LIMIT: Duration = Duration::from_secs(2);

/// How long a process group that was killed may take to end. A process in an uninterruptible wait can take longer.
const KILL_LIMIT: Duration = Duration::from_secs(5);

/// How a program ended.
pub(super) enum End {
    /// It could not be started: it did nothing.
    NotStarted(io::Error),
    /// With this code, as a shell reports it.
    Exited { code: u8, by_signal: bool, capture: Capture },
    /// It was killed after this time.
    TimedOut(Duration),
    /// The system does not report how it ended.
    Lost(io::Error),
}

/// A program with its settings.
pub(super) struct Program {
    command: Vec<String>,
    environment: Vec<(String, String)>,
    folder: Option<PathBuf>,
    timeout: Duration,
    output_limit: usize,
    spawner: Spawner,
}

/// Without arguments and variables, which may contain secrets.
impl fmt::Debug for Program {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Program").field("program", &self.command.first()).finish_non_exhaustive()
    }
}

impl Program {
    pub(super) fn new(
        command: Vec<String>,
        environment: Vec<(String, String)>,
        folder: Option<PathBuf>,
        timeout: Duration,
        output_limit: usize,
    ) -> io::Result<Self> {
        Ok(Self { command, environment, folder, timeout, output_limit, spawner: Spawner::start()? })
    }

    /// Runs the program to its end. Dropping the future kills its process group.
    pub(super) async fn run<const N: usize>(&self, variables: [(&str, String); N], payload: Bytes) -> End {
        let mut group = match self.spawner.spawn(self.prepared(variables)).await {
            Ok(child) => Group(child),
            Err(error) => return End::NotStarted(error),
        };
        let capture = Arc::new(Mutex::new(Capture::new(self.output_limit)));
        let mut pipes = JoinSet::new();
        if let Some(stdin) = group.0.stdin.take() {
            pipes.spawn(feed(stdin, payload));
        }
        if let Some(stdout) = group.0.stdout.take() {
            pipes.spawn(keep(stdout, Stream::Stdout, Arc::clone(&capture)));
        }
        if let Some(stderr) = group.0.stderr.take() {
            pipes.spawn(keep(stderr, Stream::Stderr, Arc::clone(&capture)));
        }
        let status = match timeout(self.timeout, group.0.wait()).await {
            Ok(Ok(status)) => status,
            Ok(Err(error)) => return End::Lost(error),
            Err(_) => {
                group.kill();
                let _ = timeout(KILL_LIMIT, group.0.wait()).await;
                return End::TimedOut(self.timeout);
            }
        };
        let drained = async { while pipes.join_next().await.is_some() {} };
        let _ = timeout(DRAIN_LIMIT, drained).await;
        exited(status, &capture)
    }

    fn prepared<const N: usize>(&self, variables: [(&str, String); N]) -> Command {
        let mut command = Command::new(self.command.first().map(String::as_str).unwrap_or_default());
        command.args(self.command.iter().skip(1)).envs(self.environment.iter().map(|(name, text)| (name, text)));
        command.envs(variables);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        // Its own group, so that its children can be killed with it.
        command.process_group(0).kill_on_drop(true);
        kill_with_parent(&mut command);
        command
    }
}

fn exited(status: ExitStatus, capture: &Mutex<Capture>) -> End {
    let capture = std::mem::replace(&mut *lock(capture), Capture::new(0));
    End::Exited { code: exit_code(status), by_signal: status.signal().is_some(), capture }
}

/// A program and its children.
struct Group(Child);

impl Group {
    /// Kills all of them. The id of a program that was waited for is gone, so no other process can be hit.
    fn kill(&self) {
        forward_signal_to_group(&self.0, nix::sys::signal::Signal::SIGKILL);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A program that does not read its input may still do its work.
async fn feed(mut stdin: ChildStdin, payload: Bytes) {
    let _ = stdin.write_all(&payload).await;
}

async fn keep(mut from: impl AsyncRead + Unpin, stream: Stream, capture: Arc<Mutex<Capture>>) {
    let mut chunk = vec![0; CHUNK];
    while let Ok(length) = from.read(&mut chunk).await
        && length > 0
    {
        lock(&capture).add(stream, &chunk[..length]);
    }
}

fn lock(capture: &Mutex<Capture>) -> std::sync::MutexGuard<'_, Capture> {
    capture.lock().unwrap_or_else(PoisonError::into_inner)
}
