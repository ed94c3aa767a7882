//! The gateway under load: the command `onceward bench http`, which starts all processes that it measures.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::BoxError;

/// How much longer than the measurement the command may take: start, warm-up, idle connections, clean-up.
const EXTRA_TIME: Duration = Duration::from_secs(120);

/// How long to measure each case in each round, in seconds.
const SLICE: usize = 1;

/// The output of the command.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Http {
    /// Number of connections.
    pub connections: u64,
    /// Number of rounds.
    pub rounds: u64,
    /// How long each case was measured, over all rounds.
    pub seconds: f64,
    /// Threads per server.
    pub threads: u64,
    /// The version of nginx, if it was measured.
    pub nginx: Option<String>,
    /// All cases by name.
    pub cases: BTreeMap<String, Case>,
    /// Memory with idle connections.
    pub idle: Option<Idle>,
    /// The aims and whether they are met.
    pub aims: Vec<Aim>,
}

/// The median of all rounds of a case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Case {
    /// Completed requests.
    pub requests_per_second: f64,
    /// From the first byte sent to the last byte received.
    pub p50_us: f64,
    /// The same, 99th percentile.
    pub p99_us: f64,
    /// Processor time of the server under test.
    pub cpu_us_per_request: Option<f64>,
}

/// The memory of idle connections.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Idle {
    /// Their number.
    pub connections: u64,
    /// Memory before the first.
    pub before_mb: Option<f64>,
    /// Memory with all of them.
    pub after_mb: Option<f64>,
}

/// One aim.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Aim {
    /// Its text.
    pub aim: String,
    /// `percent`, `times`, `us` or `mb`.
    pub unit: String,
    /// The measured value, if any.
    pub measured: Option<f64>,
    /// Whether it is met.
    pub met: Option<bool>,
}

/// Runs the command with new ledgers in a folder.
pub async fn measure(program: &Path, folder: &Path, connections: usize, rounds: usize) -> Result<Http, BoxError> {
    let file = folder.join(format!("onceward-http-{}.db", std::process::id()));
    let seconds = SLICE * rounds;
    let mut command = tokio::process::Command::new(program);
    command.args(["bench", "http", "--json", "--store", &format!("file:{}", file.display())]);
    command.args(["--connections", &connections.to_string()]);
    command.args(["--rounds", &rounds.to_string(), "--seconds", &seconds.to_string()]);
    // All processes that it starts end with it, even if it is killed.
    command.stdin(Stdio::null()).stderr(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).process_group(0);
    let limit = Duration::from_secs(seconds as u64) * 10 + EXTRA_TIME;
    let output = tokio::time::timeout(limit, command.output());
    let output = output.await.map_err(|_| format!("`onceward bench http` took over {limit:?}"))??;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("`onceward bench http` failed ({}):\n{said}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
