//! A server that the courier has started for itself: no client of a gateway reaches it. It is started for the first call, and
//! again for the next call after it has ended.

use std::fmt;
use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use onceward_runtime::config::Server;
use onceward_runtime::exit::Fault;
use onceward_runtime::process::kill_with_parent;
use onceward_runtime::process::spawner::Spawner;
use tokio::process::{Child, Command};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::super::members::Members;
use super::super::message::CALL;
use super::super::tools::Tools;
use super::handshake;
use super::server_pipes::{RequestEnd, ServerPipes};

/// How long a server may take until it can be called: it may be a package that has to be downloaded.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a server may take to end after its stdin was closed, and again after SIGTERM.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// A configured server.
pub(super) struct OwnServer {
    settings: Server,
    spawner: Spawner,
    running: Mutex<Option<Arc<RunningServer>>>,
}

/// Without its command and its variables, which may contain secrets.
impl fmt::Debug for OwnServer {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("OwnServer")
    }
}

/// A server that can be called.
#[derive(Debug)]
pub(super) struct RunningServer {
    pipes: ServerPipes,
    pub(super) tools: Tools,
    /// The `_meta` of every request.
    meta: Option<Members>,
    /// Ends when the process has ended.
    process: Mutex<Option<JoinHandle<()>>>,
}

impl OwnServer {
    /// Starts nothing yet.
    pub(super) fn new(settings: Server) -> Result<Self, Fault> {
        let spawner = Spawner::start().map_err(|error| Fault::config(format!("cannot start a thread: {error}")))?;
        Ok(Self { settings, spawner, running: Mutex::default() })
    }

    /// The server, which is started if it does not run. An error proves that no tool was called.
    pub(super) async fn running(&self) -> Result<Arc<RunningServer>, String> {
        let mut running = self.running.lock().await;
        if let Some(server) = running.as_ref().filter(|server| !server.pipes.is_closed()) {
            return Ok(Arc::clone(server));
        }
        *running = None;
        let started = timeout(START_TIMEOUT, self.start()).await;
        let started =
            started.unwrap_or_else(|_| Err(format!("it did not answer within {} s", START_TIMEOUT.as_secs())));
        let server = Arc::new(started?);
        *running = Some(Arc::clone(&server));
        Ok(server)
    }

    async fn start(&self) -> Result<RunningServer, String> {
        let (process, pipes) = self.spawn().await.map_err(|error| error.to_string())?;
        let (pipes, work) = pipes;
        let process = tokio::spawn(async move {
            work.await;
            process.end().await;
        });
        let meta = handshake::begin(&pipes).await?;
        let tools = Tools::of(self.settings.tool.clone(), self.settings.repeats);
        handshake::learn_tools(&pipes, meta.as_ref(), &tools).await?;
        Ok(RunningServer { pipes, tools, meta, process: Mutex::new(Some(process)) })
    }

    async fn spawn(&self) -> io::Result<(ServerGroup, (ServerPipes, impl Future<Output = ()> + Send + use<>))> {
        let words = self.settings.command.as_deref().unwrap_or_default();
        let (program, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command.args(arguments).envs(&self.settings.env);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        // A group of its own, so that the processes that it starts can be ended with it.
        command.process_group(0).kill_on_drop(true);
        kill_with_parent(&mut command);
        let mut child = self.spawner.spawn(command).await?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        let pipes = child.stdin.take().zip(child.stdout.take());
        let process = ServerGroup { child, group };
        let (stdin, stdout) = pipes.ok_or(io::ErrorKind::BrokenPipe)?;
        Ok((process, ServerPipes::new(stdin, stdout)))
    }

    /// Makes no further call on this process: it ends when its calls have ended.
    pub(super) async fn retire(&self, server: &Arc<RunningServer>) {
        let mut running = self.running.lock().await;
        if running.as_ref().is_some_and(|running| Arc::ptr_eq(running, server)) {
            *running = None;
        }
    }

    /// Ends the process, and waits until it has ended.
    pub(super) async fn close(&self) {
        let Some(server) = self.running.lock().await.take() else { return };
        let process = server.process.lock().await.take();
        drop(server);
        if let Some(process) = process {
            let _ = process.await;
        }
    }
}

impl RunningServer {
    /// Calls a tool.
    pub(super) async fn call(&self, mut parameters: Members) -> RequestEnd {
        if let Some(meta) = &self.meta {
            parameters.set("_meta", meta);
        }
        self.pipes.request(CALL, &parameters).await
    }
}

/// The process of a server, and those that it has started.
struct ServerGroup {
    child: Child,
    group: Option<Pid>,
}

impl ServerGroup {
    /// Waits for a server whose stdin is closed, then ends what is left of it.
    async fn end(mut self) {
        if timeout(EXIT_TIMEOUT, self.child.wait()).await.is_err() {
            self.signal(Signal::SIGTERM);
            let _ = timeout(EXIT_TIMEOUT, self.child.wait()).await;
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            let _ = killpg(group, signal);
        }
    }
}

impl Drop for ServerGroup {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
    }
}
