//! Child processes: starting them, hearing them, killing them; and how they notice that their parent is gone.

use std::process::Stdio;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::Trouble;
use super::wire;

/// Enough for the last words of a process, and too little to fill the memory.
const LAST_WORDS: u64 = 4096;

/// How long a process may take to be gone after a kill, or after its input was closed.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// What a child sends to the driver.
#[derive(Debug)]
pub(super) enum Heard<T> {
    /// An event.
    Said(T),
    /// A line that is no event.
    Nonsense(String),
    /// Its output has ended.
    Silence,
}

/// A process of the demo. It is killed when this is dropped, and ends by itself when its input is closed.
#[derive(Debug)]
pub(super) struct Child {
    name: String,
    process: tokio::process::Child,
    stdin: Option<ChildStdin>,
    last_words: Option<JoinHandle<Vec<u8>>>,
}

impl Child {
    /// Starts this same program with other arguments. Everything that it says goes to `tell`.
    pub(super) fn start<T, N, F>(
        name: String,
        arguments: &[String],
        tell: mpsc::Sender<N>,
        note: F,
    ) -> Result<Self, Trouble>
    where
        T: DeserializeOwned + Send + 'static,
        N: Send + 'static,
        F: Fn(Heard<T>) -> N + Send + Sync + 'static,
    {
        let cannot = |error: std::io::Error| Trouble::Failed(format!("the {name} cannot be started: {error}"));
        let program = std::env::current_exe().map_err(cannot)?;
        let mut process = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C is for the driver, which then tidies up.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(cannot)?;
        let last_words = process.stderr.take().map(|stderr| {
            tokio::spawn(async move {
                let mut words = Vec::new();
                let _ = stderr.take(LAST_WORDS).read_to_end(&mut words).await;
                words
            })
        });
        if let Some(stdout) = process.stdout.take() {
            tokio::spawn(async move {
                let mut lines = BufReader::new(stdout).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    let heard = wire::hear(&line).map_or_else(Heard::Nonsense, Heard::Said);
                    if tell.send(note(heard)).await.is_err() {
                        return;
                    }
                }
                let _ = tell.send(note(Heard::Silence)).await;
            });
        }
        let stdin = process.stdin.take();
        Ok(Self { name, process, stdin, last_words })
    }

    /// Gives it a line of input.
    pub(super) async fn give(&mut self, line: &str) -> Result<(), Trouble> {
        let given = match &mut self.stdin {
            Some(stdin) => stdin.write_all(format!("{line}\n").as_bytes()).await.is_ok(),
            None => false,
        };
        if given { Ok(()) } else { Err(self.ended().await) }
    }

    /// SIGKILL, and waits until it is gone.
    pub(super) async fn kill(&mut self) -> Result<(), Trouble> {
        self.process.start_kill().map_err(|error| self.stuck(&error.to_string()))?;
        self.gone().await
    }

    /// Closes its input, and waits until it is gone.
    pub(super) async fn finish(mut self) -> Result<(), Trouble> {
        self.stdin = None;
        self.gone().await
    }

    async fn gone(&mut self) -> Result<(), Trouble> {
        match tokio::time::timeout(GONE_WITHIN, self.process.wait()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(self.stuck(&error.to_string())),
            Err(_) => Err(self.stuck("it does not end")),
        }
    }

    fn stuck(&self, why: &str) -> Trouble {
        Trouble::Failed(format!("the {}: {why}", self.name))
    }

    /// What to say when it ended although it should not have.
    pub(super) async fn ended(&mut self) -> Trouble {
        let words = match self.last_words.take() {
            Some(words) => tokio::time::timeout(Duration::from_secs(1), words).await.ok().and_then(Result::ok),
            None => None,
        };
        let words = words.map(|words| String::from_utf8_lossy(&words).trim().to_owned());
        let words = words.filter(|words| !words.is_empty());
        let words = words.as_deref().unwrap_or("it said nothing about why");
        Trouble::Failed(format!("the {} ended too early: {words}", self.name))
    }
}

/// Inside a child: the lines of standard input; `None` once it is closed.
pub(super) fn queue() -> mpsc::Receiver<String> {
    let (give, queue) = mpsc::channel(1);
    // A thread, because a blocked read of standard input would keep a runtime from ending.
    std::thread::spawn(move || {
        for line in std::io::stdin().lines() {
            if !line.is_ok_and(|line| give.blocking_send(line).is_ok()) {
                break;
            }
        }
    });
    queue
}

/// Inside a child: resolves when the driver is gone.
pub(super) async fn orphaned() {
    let mut queue = queue();
    while queue.recv().await.is_some() {}
}
