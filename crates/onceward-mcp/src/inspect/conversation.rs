//! Starts a server, negotiates a protocol version, asks for its tools, and stops it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, timeout};

use super::super::list::cursor;
use super::super::members::Members;
use super::super::message::{self, Id, Message, to_line};
use onceward_runtime::exit::{CANNOT_RUN, Fault, NO_COMMAND, SIGNAL_BASE, STORE};
use onceward_runtime::output;
use onceward_runtime::process::{exit_code, is_missing, kill_with_parent};

/// The protocol version with a handshake. It is requested first, because most servers support it.
pub(crate) const HANDSHAKE_VERSION: &str = "2025-11-25";

/// The protocol version without a handshake.
pub(crate) const STATELESS_VERSION: &str = "2026-07-28";

/// The most pages that a list may have, as in the gateway.
const MAX_PAGES: usize = 50;

/// The longest line.
const MAX_LINE_BYTES: u64 = 64 * 1024 * 1024;

/// How long a server may take to exit after its stdin is closed, and again after SIGTERM.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// How long to wait for the exit code of a server that has closed its stdout.
const EXIT_CODE_TIMEOUT: Duration = Duration::from_secs(1);

/// How often the progress line is updated.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// The responses of a server.
#[derive(Debug)]
pub(super) struct ServerTools {
    pub(super) protocol: String,
    /// The results of `tools/list`.
    pub(super) pages: Vec<Members>,
    pub(super) junk: usize,
}

/// How a server is started.
#[derive(Debug)]
pub(super) struct ServerCommand<'a> {
    pub(super) command: &'a [OsString],
    pub(super) env: &'a BTreeMap<String, String>,
    /// The working directory, if not the current one.
    pub(super) folder: Option<&'a Path>,
    /// The prefix of the progress line.
    pub(super) label: &'a str,
    pub(super) stderr: Stderr,
}

/// What to do with a server's stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stderr {
    /// Show it on the stderr of this process.
    Shown,
    /// Drop it: it may hold secrets, and users share the output of `inspect --all`.
    Dropped,
}

/// Starts a server, asks for its tools, and stops it.
pub(super) async fn listed(started: &ServerCommand<'_>, patience: Duration) -> Result<ServerTools, Fault> {
    let child = spawn(started)?;
    let group = ProcessGroup::of(&child);
    tokio::select! {
        tools = tools_of(child, &group, started, patience) => tools,
        signal = interrupted() => {
            // The terminal's signal does not reach another process group.
            group.signal(Signal::SIGKILL);
            output::progress("");
            std::process::exit(SIGNAL_BASE + signal as i32);
        }
    }
}

/// Asks a server for its tools, and stops it.
async fn tools_of(
    mut child: Child,
    group: &ProcessGroup,
    started: &ServerCommand<'_>,
    patience: Duration,
) -> Result<ServerTools, Fault> {
    let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(Fault::new(STORE, "the server has no pipes"));
    };
    let from = BufReader::new(from);
    let label = started.label.to_owned();
    let mut conversation = Conversation { to, from, label, patience, meta: None, requests: 0, junk: 0 };
    let listed = conversation.list_tools().await;
    output::progress("");
    let junk = conversation.junk;
    // Closes the server's stdin, which tells it to exit.
    drop(conversation);
    match listed {
        Ok((protocol, pages)) => {
            stop(&mut child, group).await;
            Ok(ServerTools { protocol, pages, junk })
        }
        Err(ListError::Ended) => {
            let ended = timeout(EXIT_CODE_TIMEOUT, child.wait()).await;
            stop(&mut child, group).await;
            Err(ended_early(ended.ok().and_then(Result::ok), junk, started.stderr))
        }
        Err(ListError::TimedOut(method)) => {
            stop(&mut child, group).await;
            let what = format!(
                "the server did not respond to {method} within {} s and was stopped.{}\n  Does it speak MCP over stdin and \
                 stdout? Allow more time with --timeout, for example for a package that must be downloaded.",
                patience.as_secs_f64(),
                junk_note(junk)
            );
            Err(Fault::new(STORE, what))
        }
        Err(ListError::Refused(ErrorResponse { code, message, .. })) => {
            stop(&mut child, group).await;
            Err(Fault::new(STORE, format!("the server does not list its tools: error {code}: {message}")))
        }
        Err(ListError::Failed(what)) => {
            stop(&mut child, group).await;
            Err(Fault::new(STORE, what))
        }
    }
}

fn ended_early(status: Option<ExitStatus>, junk: usize, stderr: Stderr) -> Fault {
    let how = match status {
        Some(status) => format!("the server exited with code {} before it listed its tools", exit_code(status)),
        None => "the server closed its stdout before it listed its tools".to_owned(),
    };
    let hint = match stderr {
        Stderr::Shown => "\n  Its stderr is above.",
        Stderr::Dropped => " Inspect it alone to see its stderr.",
    };
    Fault::new(STORE, format!("{how}.{}{hint}", junk_note(junk)))
}

fn junk_note(junk: usize) -> String {
    match junk {
        0 => String::new(),
        1 => " One line on its stdout is not a message.".to_owned(),
        junk => format!(" {junk} lines on its stdout are not messages."),
    }
}

fn spawn(started: &ServerCommand<'_>) -> Result<Child, Fault> {
    let Some((program, arguments)) = started.command.split_first() else {
        return Err(Fault::usage("the command that starts the server is missing"));
    };
    let mut starting = Command::new(program);
    let stderr = if started.stderr == Stderr::Dropped { Stdio::null() } else { Stdio::inherit() };
    starting.args(arguments).envs(started.env).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
    if let Some(folder) = started.folder {
        starting.current_dir(folder);
    }
    // A group of its own, so that its child processes can be ended too.
    starting.process_group(0);
    kill_with_parent(&mut starting);
    starting.spawn().map_err(|error| {
        let code = if is_missing(program) { NO_COMMAND } else { CANNOT_RUN };
        Fault::new(code, format!("the server {} cannot be started: {error}", program.display()))
    })
}

/// A server and its child processes.
struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw))
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.0 {
            let _ = killpg(group, signal);
        }
    }
}

/// Waits for a server whose stdin is closed, then ends it and its child processes.
async fn stop(child: &mut Child, group: &ProcessGroup) {
    if timeout(EXIT_TIMEOUT, child.wait()).await.is_err() {
        group.signal(Signal::SIGTERM);
        let _ = timeout(EXIT_TIMEOUT, child.wait()).await;
    }
    group.signal(Signal::SIGKILL);
    let _ = child.wait().await;
}

/// Waits for a signal that ends this process.
async fn interrupted() -> Signal {
    let of = |kind: SignalKind| async move {
        match signal(kind) {
            Ok(mut signals) => signals.recv().await,
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = of(SignalKind::interrupt()) => Signal::SIGINT,
        _ = of(SignalKind::terminate()) => Signal::SIGTERM,
        _ = of(SignalKind::hangup()) => Signal::SIGHUP,
    }
}

/// Why there is no list of tools.
enum ListError {
    Ended,
    TimedOut(String),
    /// The server responded with an error.
    Refused(ErrorResponse),
    /// The server responded in a way that cannot be used.
    Failed(String),
}

/// An error response of the server.
pub(crate) struct ErrorResponse {
    pub(crate) code: i64,
    pub(crate) message: String,
    /// The protocol versions that it supports, if it lists them.
    pub(crate) supported: Vec<String>,
}

struct Conversation {
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    label: String,
    patience: Duration,
    /// The `_meta` of every request.
    meta: Option<Value>,
    requests: u64,
    junk: usize,
}

impl Conversation {
    async fn list_tools(&mut self) -> Result<(String, Vec<Members>), ListError> {
        let protocol = self.negotiate().await?;
        Ok((protocol, self.pages().await?))
    }

    /// Finds a protocol version that the server speaks.
    async fn negotiate(&mut self) -> Result<String, ListError> {
        let error_response = match self.initialize(HANDSHAKE_VERSION).await {
            Err(ListError::Refused(error_response)) => error_response,
            other => return other,
        };
        let is_stateless =
            error_response.supported.is_empty() || error_response.supported.iter().any(|one| one == STATELESS_VERSION);
        if let Some(other) = error_response.supported.iter().rev().find(|_| !is_stateless) {
            match self.initialize(&other.clone()).await {
                Err(ListError::Refused(_)) => {}
                other => return other,
            }
        }
        self.meta = Some(json!({
            "io.modelcontextprotocol/protocolVersion": STATELESS_VERSION,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": client_info(),
        }));
        match self.ask("server/discover", json!({})).await {
            Ok(_) => Ok(STATELESS_VERSION.to_owned()),
            Err(ListError::Refused(_)) => Err(ListError::Failed(format!(
                "the server refused to initialize: error {}: {}",
                error_response.code, error_response.message
            ))),
            Err(error) => Err(error),
        }
    }

    /// Returns the protocol version that the server chose.
    async fn initialize(&mut self, protocol: &str) -> Result<String, ListError> {
        let parameters = json!({ "protocolVersion": protocol, "capabilities": {}, "clientInfo": client_info() });
        let result = self.ask("initialize", parameters).await?;
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await?;
        Ok(result.text("protocolVersion").unwrap_or_else(|| protocol.to_owned()))
    }

    async fn pages(&mut self) -> Result<Vec<Members>, ListError> {
        let (mut pages, mut parameters) = (Vec::new(), json!({}));
        for _ in 0..MAX_PAGES {
            let page = match self.ask("tools/list", parameters).await {
                // Servers without tools may not know the method.
                Err(ListError::Refused(refused)) if refused.code == -32601 && pages.is_empty() => return Ok(pages),
                page => page?,
            };
            let next = cursor(&page).map(ToOwned::to_owned);
            pages.push(page);
            match next {
                Some(next) => parameters = json!({ "cursor": next }),
                None => return Ok(pages),
            }
        }
        Err(ListError::Failed(format!("the server's list of tools has no end; {MAX_PAGES} pages were read")))
    }

    /// Sends a request and waits for the response.
    async fn ask(&mut self, method: &str, mut parameters: Value) -> Result<Members, ListError> {
        self.requests += 1;
        if let (Some(meta), Some(parameters)) = (&self.meta, parameters.as_object_mut()) {
            parameters.insert("_meta".to_owned(), meta.clone());
        }
        let id = self.requests;
        let request_id = Id::Number(id.to_string());
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": parameters })).await?;
        let (patience, label) = (self.patience, self.label.clone());
        let waiting = async {
            let mut waited = Duration::ZERO;
            while waited < patience {
                let seconds = waited.as_secs();
                output::progress(&format!("{label}waiting for the response to {method}: {seconds} s"));
                let pause = PROGRESS_INTERVAL.min(patience - waited);
                sleep(pause).await;
                waited += pause;
            }
        };
        let answer = tokio::select! {
            biased;
            answer = self.answer(&request_id) => answer?,
            () = waiting => return Err(ListError::TimedOut(method.to_owned())),
        };
        if let Some(result) = answer.object("result") {
            return Ok(result);
        }
        let Some(error) = answer.object("error") else {
            return Err(ListError::Failed(format!(
                "the server's response to {method} has neither a result nor an error"
            )));
        };
        Err(ListError::Refused(error_response(&error)))
    }

    /// The response to this request. Requests of the server are refused meanwhile: there is no user to ask.
    async fn answer(&mut self, request_id: &Id) -> Result<Members, ListError> {
        loop {
            let mut line = Vec::new();
            match (&mut self.from).take(MAX_LINE_BYTES).read_until(b'\n', &mut line).await {
                Ok(0) | Err(_) => return Err(ListError::Ended),
                Ok(length) if length as u64 == MAX_LINE_BYTES => {
                    return Err(ListError::Failed(format!("the server sent a message over {MAX_LINE_BYTES} bytes")));
                }
                Ok(_) => {}
            }
            match Message::read(&line) {
                Message::Response { id, members } if id == *request_id => return Ok(members),
                Message::Request { written, method, .. } if method == "ping" => {
                    self.write(&message::result(&written, &json!({}))).await?;
                }
                Message::Request { written, .. } => {
                    self.write(&message::error(Some(&written), -32601, "this client only lists the tools")).await?;
                }
                Message::NotJson => self.junk += 1,
                Message::Other if !line.trim_ascii().is_empty() => self.junk += 1,
                _ => {}
            }
        }
    }

    async fn send(&mut self, message: &Value) -> Result<(), ListError> {
        let Some(message) = Members::read(&message.to_string()) else { return Err(ListError::Ended) };
        self.write(&to_line(&message)).await
    }

    /// Writes a line. A closed pipe is not an error: the server may have responded before it closed its stdin.
    async fn write(&mut self, line: &[u8]) -> Result<(), ListError> {
        match timeout(self.patience, self.to.write_all(line)).await {
            Ok(_) => Ok(()),
            Err(_) => Err(ListError::Failed("the server does not read what is sent to it".to_owned())),
        }
    }
}

pub(crate) fn error_response(error: &Members) -> ErrorResponse {
    let supported = error.object("data").and_then(|data| serde_json::from_str(data.get("supported")?.get()).ok());
    ErrorResponse {
        code: error.get("code").and_then(|code| code.get().parse().ok()).unwrap_or_default(),
        message: error.text("message").map(|message| onceward_runtime::output::printable(&message)).unwrap_or_default(),
        supported: supported.unwrap_or_default(),
    }
}

/// The name and version of this client.
pub(crate) fn client_info() -> Value {
    json!({ "name": "onceward", "version": env!("CARGO_PKG_VERSION") })
}
