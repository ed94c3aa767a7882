//! The gateway under load: the command `onceward bench http`, which starts everything that it measures.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Fault;

/// How much longer than it measures the command may take: starting, warming up, idle connections, cleaning up.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long each case is measured in each round, in seconds.
const SLICE: usize = 1;

/// What the command says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Http {
    /// Connections at once.
    pub connections: u64,
    /// How often everything was measured.
    pub rounds: u64,
    /// How long each case was measured, over all rounds.
    pub seconds: f64,
    /// Threads of each server.
    pub threads: u64,
    /// The version of nginx, if there is one.
    pub nginx: Option<String>,
    /// Every case by its name.
    pub cases: BTreeMap<String, Case>,
    /// Memory with idle connections.
    pub idle: Option<Idle>,
    /// As the command judges them.
    pub aims: Vec<Aim>,
}

/// The middle of all rounds of a case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Case {
    /// Answered requests.
    pub requests_per_second: f64,
    /// From the first byte sent to the last one read.
    pub p50_us: f64,
    /// The same, for the slowest hundredth.
    pub p99_us: f64,
    /// Processor time of the server that was asked.
    pub cpu_us_per_request: Option<f64>,
}

/// What idle connections take.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Idle {
    /// How many.
    pub connections: u64,
    /// Before the first.
    pub before_mb: Option<f64>,
    /// With all of them.
    pub after_mb: Option<f64>,
}

/// One aim.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Aim {
    /// In words.
    pub aim: String,
    /// `percent`, `times`, `us` or `mb`.
    pub unit: String,
    /// What was found, if it was measured.
    pub measured: Option<f64>,
    /// Whether that is enough.
    pub met: Option<bool>,
}

/// Runs the command with new ledgers in a folder.
pub async fn measure(program: &Path, folder: &Path, connections: usize, rounds: usize) -> Result<Http, Fault> {
    let file = folder.join(format!("onceward-http-{}.db", std::process::id()));
    let seconds = SLICE * rounds;
    let mut command = tokio::process::Command::new(program);
    command.args(["bench", "http", "--json", "--store", &format!("file:{}", file.display())]);
    command.args(["--connections", &connections.to_string()]);
    command.args(["--rounds", &rounds.to_string(), "--seconds", &seconds.to_string()]);
    // Whatever it starts ends with it, also when it is killed.
    command.stdin(Stdio::null()).stderr(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).process_group(0);
    let limit = Duration::from_secs(seconds as u64) * 10 + PATIENCE;
    let output = tokio::time::timeout(limit, command.output());
    let output = output.await.map_err(|_| format!("`onceward bench http` took over {limit:?}"))??;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("`onceward bench http` failed ({}):\n{said}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
