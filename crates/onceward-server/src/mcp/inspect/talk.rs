//! A short conversation with a server: hello, what are your tools, goodbye.

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
use super::super::message::{self, Id, Message, ended};
use crate::exit::{CANNOT_RUN, Fault, NO_COMMAND, SIGNAL_BASE, STORE};
use crate::output;
use crate::process::{code, dies_with_us, is_missing};

/// The generation with a handshake that is asked for first: servers of both kinds know it.
const WITH_HANDSHAKE: &str = "2025-11-25";

/// The generation without one.
const STATELESS: &str = "2026-07-28";

/// How many pages a list may have, as in the gateway.
const PAGES: usize = 50;

/// The longest line.
const LONGEST: u64 = 64 * 1024 * 1024;

/// How long a server may take to end once it is asked to, each time it is asked more firmly.
const GOODBYE: Duration = Duration::from_secs(2);

/// How long a server that has closed its output may take to end, so that its exit code can be told.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// How often people are told that there is nothing yet.
const TICK: Duration = Duration::from_millis(500);

/// What a server said.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) protocol: String,
    /// The results of `tools/list`.
    pub(super) pages: Vec<Members>,
    pub(super) junk: usize,
}

/// How a server is started.
#[derive(Debug)]
pub(super) struct Started<'a> {
    pub(super) command: &'a [OsString],
    pub(super) env: &'a BTreeMap<String, String>,
    /// Where, if not in the current folder.
    pub(super) folder: Option<&'a Path>,
    /// What stands before the progress that people see.
    pub(super) label: &'a str,
    pub(super) noise: Noise,
}

/// What becomes of a server's stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noise {
    /// It goes to ours.
    Shown,
    /// Nobody sees it: it may hold secrets, and who looks at all servers may show the result to others.
    Dropped,
}

/// Starts a server, asks for its tools, and stops it.
pub(super) async fn listed(started: &Started<'_>, patience: Duration) -> Result<Heard, Fault> {
    let child = spawn(started)?;
    let group = Group::of(&child);
    tokio::select! {
        heard = heard(child, &group, started, patience) => heard,
        signal = interrupted() => {
            // The terminal does not reach a group of its own.
            group.pass_on(Signal::SIGKILL);
            output::progress("");
            std::process::exit(SIGNAL_BASE + signal as i32);
        }
    }
}

/// Asks a server for its tools, and stops it.
async fn heard(mut child: Child, group: &Group, started: &Started<'_>, patience: Duration) -> Result<Heard, Fault> {
    let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(Fault::new(STORE, "the server has no pipes"));
    };
    let from = BufReader::new(from);
    let label = started.label.to_owned();
    let mut talk = Talk { to, from, label, patience, meta: None, asked: 0, junk: 0 };
    let heard = talk.all().await;
    output::progress("");
    let junk = talk.junk;
    // Without its input, a server has nothing left to do.
    drop(talk);
    match heard {
        Ok((protocol, pages)) => {
            stopped(&mut child, group).await;
            Ok(Heard { protocol, pages, junk })
        }
        Err(Silence::Ended) => {
            let ended = timeout(LAST_MOMENT, child.wait()).await;
            stopped(&mut child, group).await;
            Err(ended_early(ended.ok().and_then(Result::ok), junk, started.noise))
        }
        Err(Silence::TooLong(method)) => {
            stopped(&mut child, group).await;
            let what = format!(
                "the server has not answered {method} within {} s and was stopped.{}\n  Does it speak MCP over stdin and \
                 stdout? With --timeout it gets longer, such as for a package that has to be downloaded.",
                patience.as_secs_f64(),
                unread(junk)
            );
            Err(Fault::new(STORE, what))
        }
        Err(Silence::Said(what)) => {
            stopped(&mut child, group).await;
            Err(Fault::new(STORE, what))
        }
    }
}

fn ended_early(status: Option<ExitStatus>, junk: usize, noise: Noise) -> Fault {
    let how = match status {
        Some(status) => format!("the server ended with exit code {} before it listed its tools", code(status)),
        None => "the server closed its output before it listed its tools".to_owned(),
    };
    let said = match noise {
        Noise::Shown => "\n  What it wrote to stderr stands above.",
        Noise::Dropped => " Looked at alone, it shows what it writes to stderr.",
    };
    Fault::new(STORE, format!("{how}.{}{said}", unread(junk)))
}

fn unread(junk: usize) -> String {
    match junk {
        0 => String::new(),
        1 => " One line on its output is no message.".to_owned(),
        junk => format!(" {junk} lines on its output are no messages."),
    }
}

fn spawn(started: &Started<'_>) -> Result<Child, Fault> {
    let Some((program, arguments)) = started.command.split_first() else {
        return Err(Fault::usage("there is no command to start the server with"));
    };
    let mut starting = Command::new(program);
    let stderr = if started.noise == Noise::Dropped { Stdio::null() } else { Stdio::inherit() };
    starting.args(arguments).envs(started.env).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
    if let Some(folder) = started.folder {
        starting.current_dir(folder);
    }
    // With whatever it starts, so that nothing of it stays.
    starting.process_group(0);
    dies_with_us(&mut starting);
    starting.spawn().map_err(|error| {
        let code = if is_missing(program) { NO_COMMAND } else { CANNOT_RUN };
        Fault::new(code, format!("the server {} cannot be started: {error}", program.display()))
    })
}

/// A server and whatever it has started.
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw))
    }

    fn pass_on(&self, signal: Signal) {
        if let Some(group) = self.0 {
            let _ = killpg(group, signal);
        }
    }
}

/// Waits for a server whose input is closed, and insists. What it has started ends with it.
async fn stopped(child: &mut Child, group: &Group) {
    if timeout(GOODBYE, child.wait()).await.is_err() {
        group.pass_on(Signal::SIGTERM);
        let _ = timeout(GOODBYE, child.wait()).await;
    }
    group.pass_on(Signal::SIGKILL);
    let _ = child.wait().await;
}

/// Waits until we are told to end.
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

/// Why there is no answer.
enum Silence {
    Ended,
    TooLong(String),
    /// There is one, and it cannot be gone on with.
    Said(String),
}

/// An error that a server answered with.
struct Refused {
    code: i64,
    message: String,
    /// The generations that it knows, if it says so.
    supported: Vec<String>,
}

struct Talk {
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    label: String,
    patience: Duration,
    /// What every request has to carry.
    meta: Option<Value>,
    asked: u64,
    junk: usize,
}

impl Talk {
    async fn all(&mut self) -> Result<(String, Vec<Members>), Silence> {
        let protocol = self.hello().await?;
        Ok((protocol, self.pages().await?))
    }

    /// Finds a generation of the protocol that the server speaks.
    async fn hello(&mut self) -> Result<String, Silence> {
        let refused = match self.initialized(WITH_HANDSHAKE).await? {
            Ok(protocol) => return Ok(protocol),
            Err(refused) => refused,
        };
        let is_stateless = refused.supported.is_empty() || refused.supported.iter().any(|one| one == STATELESS);
        if let Some(other) = refused.supported.iter().rev().find(|_| !is_stateless)
            && let Ok(protocol) = self.initialized(&other.clone()).await?
        {
            return Ok(protocol);
        }
        self.meta = Some(json!({
            "io.modelcontextprotocol/protocolVersion": STATELESS,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": us(),
        }));
        match self.ask("server/discover", json!({})).await? {
            Ok(_) => Ok(STATELESS.to_owned()),
            Err(_) => Err(Silence::Said(format!(
                "the server refuses to be initialized, with error {}: {}",
                refused.code, refused.message
            ))),
        }
    }

    async fn initialized(&mut self, protocol: &str) -> Result<Result<String, Refused>, Silence> {
        let hello = json!({ "protocolVersion": protocol, "capabilities": {}, "clientInfo": us() });
        let result = match self.ask("initialize", hello).await? {
            Ok(result) => result,
            Err(refused) => return Ok(Err(refused)),
        };
        self.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await?;
        Ok(Ok(result.text("protocolVersion").unwrap_or_else(|| protocol.to_owned())))
    }

    async fn pages(&mut self) -> Result<Vec<Members>, Silence> {
        let (mut pages, mut parameters) = (Vec::new(), json!({}));
        for _ in 0..PAGES {
            let page = match self.ask("tools/list", parameters).await? {
                Ok(page) => page,
                // Some have none, and say it like this.
                Err(refused) if refused.code == -32601 && pages.is_empty() => return Ok(pages),
                Err(refused) => {
                    let Refused { code, message, .. } = refused;
                    return Err(Silence::Said(format!("the server does not list its tools: error {code}: {message}")));
                }
            };
            let next = cursor(&page).map(ToOwned::to_owned);
            pages.push(page);
            match next {
                Some(next) => parameters = json!({ "cursor": next }),
                None => return Ok(pages),
            }
        }
        Err(Silence::Said(format!("the server's list of tools has no end; {PAGES} pages were read")))
    }

    /// Sends a request, and waits for its answer.
    async fn ask(&mut self, method: &str, mut parameters: Value) -> Result<Result<Members, Refused>, Silence> {
        self.asked += 1;
        if let (Some(meta), Some(parameters)) = (&self.meta, parameters.as_object_mut()) {
            parameters.insert("_meta".to_owned(), meta.clone());
        }
        let id = self.asked;
        let wanted = Id::Number(id.to_string());
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": parameters })).await?;
        let (patience, label) = (self.patience, self.label.clone());
        let waiting = async {
            let mut waited = Duration::ZERO;
            while waited < patience {
                let seconds = waited.as_secs();
                output::progress(&format!("{label}waiting for the server to answer {method}: {seconds} s"));
                let pause = TICK.min(patience - waited);
                sleep(pause).await;
                waited += pause;
            }
        };
        let answer = tokio::select! {
            biased;
            answer = self.answer(&wanted) => answer?,
            () = waiting => return Err(Silence::TooLong(method.to_owned())),
        };
        if let Some(result) = answer.object("result") {
            return Ok(Ok(result));
        }
        let Some(error) = answer.object("error") else {
            return Err(Silence::Said(format!("the server's answer to {method} has neither a result nor an error")));
        };
        Ok(Err(refused(&error)))
    }

    /// The next answer to this request. What the server asks meanwhile is refused, because nobody is here to ask.
    async fn answer(&mut self, wanted: &Id) -> Result<Members, Silence> {
        loop {
            let mut line = Vec::new();
            match (&mut self.from).take(LONGEST).read_until(b'\n', &mut line).await {
                Ok(0) | Err(_) => return Err(Silence::Ended),
                Ok(length) if length as u64 == LONGEST => {
                    return Err(Silence::Said(format!("a message of the server is over {LONGEST} bytes")));
                }
                Ok(_) => {}
            }
            match Message::read(&line) {
                Message::Answer { id, members } if id == *wanted => return Ok(members),
                Message::Request { written, method, .. } if method == "ping" => {
                    self.write(&message::result(&written, &json!({}))).await?;
                }
                Message::Request { written, .. } => {
                    self.write(&message::error(Some(&written), -32601, "it only looks at the tools")).await?;
                }
                Message::Garbled => self.junk += 1,
                Message::Other if !line.trim_ascii().is_empty() => self.junk += 1,
                _ => {}
            }
        }
    }

    async fn say(&mut self, message: &Value) -> Result<(), Silence> {
        let Some(message) = Members::read(&message.to_string()) else { return Err(Silence::Ended) };
        self.write(&ended(&message)).await
    }

    /// A server that reads nothing more may still have answered, so that a pipe that is closed says nothing.
    async fn write(&mut self, line: &[u8]) -> Result<(), Silence> {
        match timeout(self.patience, self.to.write_all(line)).await {
            Ok(_) => Ok(()),
            Err(_) => Err(Silence::Said("the server does not read what is sent to it".to_owned())),
        }
    }
}

fn refused(error: &Members) -> Refused {
    let supported = error.object("data").and_then(|data| serde_json::from_str(data.get("supported")?.get()).ok());
    Refused {
        code: error.get("code").and_then(|code| code.get().parse().ok()).unwrap_or_default(),
        message: error.text("message").map(|message| super::plain(&message)).unwrap_or_default(),
        supported: supported.unwrap_or_default(),
    }
}

/// Who asks.
fn us() -> Value {
    json!({ "name": "onceward", "version": env!("CARGO_PKG_VERSION") })
}
