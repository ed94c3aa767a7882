//! A Python with idemkit, in an environment of its own below the target folder, and one process of it at work.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

use super::finish;
use crate::Fault;

/// What is installed, by name. The parser in C and the faster event loop are not required by idemkit; they make it
/// faster, so it gets them.
const REQUIREMENTS: [&str; 3] = ["idemkit[redis,postgres]>=1.0,<2", "hiredis", "uvloop"];

/// The callers, in Python.
const PROGRAM: &str = include_str!("../../python/callers.py");

/// How much longer than it was told to the process may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// An environment with idemkit in it.
#[derive(Debug)]
pub struct Python {
    program: PathBuf,
    script: PathBuf,
}

/// A process that is told what to do, line by line, and answers each line with one of JSON.
#[derive(Debug)]
pub struct Process {
    child: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Python {
    /// Makes the environment, or takes the one that is there.
    pub fn prepare(folder: &Path) -> Result<Self, Fault> {
        let environment = folder.join("python");
        let python = Self { program: environment.join("bin/python"), script: folder.join("callers.py") };
        if finish(Command::new(&python.program).args(["-c", "import idemkit, redis, asyncpg, hiredis, uvloop"]))
            .is_err()
        {
            println!("pip install {}", REQUIREMENTS.join(" "));
            finish(Command::new("python3").args(["-m", "venv"]).arg(&environment)).map_err(|fault| {
                format!("{fault}\nPython with venv is needed (Debian: python3-venv), or --skip idemkit-…")
            })?;
            finish(Command::new(&python.program).args(["-m", "pip", "install", "--quiet"]).args(REQUIREMENTS))?;
        }
        std::fs::write(&python.script, PROGRAM)?;
        Ok(python)
    }

    /// The versions that matter.
    pub fn versions(&self) -> Result<Vec<(String, String)>, Fault> {
        let line = "import platform, importlib.metadata as m\n\
                    print('Python', platform.python_version())\n\
                    for name in ['idemkit', 'redis', 'asyncpg', 'hiredis', 'uvloop']: print(name, m.version(name))";
        let said = finish(Command::new(&self.program).args(["-c", line]))?;
        let pairs = said.lines().filter_map(|line| line.split_once(' '));
        Ok(pairs.map(|(name, version)| (name.to_owned(), version.to_owned())).collect())
    }

    /// Starts a process on a store.
    pub fn start(&self, backend: &str, url: &str, callers: usize, outcome: usize) -> Result<Process, Fault> {
        let mut child = tokio::process::Command::new(&self.program)
            .arg(&self.script)
            .args([backend, url, &callers.to_string(), &outcome.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .process_group(0)
            .spawn()?;
        let orders = child.stdin.take().ok_or("a process without an input")?;
        let answers = BufReader::new(child.stdout.take().ok_or("a process without an output")?).lines();
        Ok(Process { child, orders, answers })
    }
}

impl Process {
    /// The process, for its processor time.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Tells it to do something for this long.
    pub async fn tell(&mut self, order: &str, long: Duration) -> Result<Value, Fault> {
        self.orders.write_all(format!("{order} {}\n", long.as_secs_f64()).as_bytes()).await?;
        let answer = tokio::time::timeout(long + PATIENCE, self.answers.next_line());
        let line = answer.await.map_err(|_| format!("idemkit: no answer to `{order}`"))??;
        let line = line.ok_or("idemkit: the process has ended; what it said is above")?;
        Ok(serde_json::from_str(&line)?)
    }
}
