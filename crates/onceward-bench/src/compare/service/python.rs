//! A Python environment with idemkit below the target folder, and a Python process that runs the callers.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

use super::finish;
use crate::BoxError;

/// The packages to install. The parser in C and the faster event loop are not required by idemkit, but make it faster.
const REQUIREMENTS: [&str; 3] = ["idemkit[redis,postgres]>=1.0,<2", "hiredis", "uvloop"];

/// The callers, in Python.
const PROGRAM: &str = include_str!("../../../python/callers.py");

/// How much longer than the requested work the process may take to respond.
const EXTRA_TIME: Duration = Duration::from_secs(30);

/// A Python environment with idemkit.
#[derive(Debug)]
pub struct Python {
    program: PathBuf,
    script: PathBuf,
}

/// A process that reads commands, one per line, and responds to each with a line of JSON.
#[derive(Debug)]
pub struct CallerProcess {
    child: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Python {
    /// Creates the environment, or uses the existing one.
    pub fn prepare(folder: &Path) -> Result<Self, BoxError> {
        let environment = folder.join("python");
        let python = Self { program: environment.join("bin/python"), script: folder.join("callers.py") };
        if finish(Command::new(&python.program).args(["-c", "import idemkit, redis, asyncpg, hiredis, uvloop"]))
            .is_err()
        {
            println!("pip install {}", REQUIREMENTS.join(" "));
            finish(Command::new("python3").args(["-m", "venv"]).arg(&environment)).map_err(|fault| {
                format!("{fault}\nPython with venv is required (Debian: python3-venv), or --skip idemkit-…")
            })?;
            finish(Command::new(&python.program).args(["-m", "pip", "install", "--quiet"]).args(REQUIREMENTS))?;
        }
        std::fs::write(&python.script, PROGRAM)?;
        Ok(python)
    }

    /// The relevant versions.
    pub fn versions(&self) -> Result<Vec<(String, String)>, BoxError> {
        let line = "import platform, importlib.metadata as m\n\
                    print('Python', platform.python_version())\n\
                    for name in ['idemkit', 'redis', 'asyncpg', 'hiredis', 'uvloop']: print(name, m.version(name))";
        let said = finish(Command::new(&self.program).args(["-c", line]))?;
        let pairs = said.lines().filter_map(|line| line.split_once(' '));
        Ok(pairs.map(|(name, version)| (name.to_owned(), version.to_owned())).collect())
    }

    /// Starts a process that uses a store.
    pub fn start(&self, backend: &str, url: &str, callers: usize, outcome: usize) -> Result<CallerProcess, BoxError> {
        let mut child = tokio::process::Command::new(&self.program)
            .arg(&self.script)
            .args([backend, url, &callers.to_string(), &outcome.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .process_group(0)
            .spawn()?;
        let orders = child.stdin.take().ok_or("the process has no stdin")?;
        let answers = BufReader::new(child.stdout.take().ok_or("the process has no stdout")?).lines();
        Ok(CallerProcess { child, orders, answers })
    }
}

impl CallerProcess {
    /// The process id, for measuring processor time.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Sends a command that takes this long, and returns the response.
    pub async fn send(&mut self, order: &str, long: Duration) -> Result<Value, BoxError> {
        self.orders.write_all(format!("{order} {}\n", long.as_secs_f64()).as_bytes()).await?;
        let answer = tokio::time::timeout(long + EXTRA_TIME, self.answers.next_line());
        let line = answer.await.map_err(|_| format!("idemkit: no response to `{order}`"))??;
        let line = line.ok_or("idemkit: the process has ended; its output is above")?;
        Ok(serde_json::from_str(&line)?)
    }
}
