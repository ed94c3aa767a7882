//! idemkit: one guarded call is a pair, in one Python process with all callers.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{RunSize, SystemResult};
use crate::BoxError;
use crate::figures::Figures;
use crate::load::OUTCOME_BYTES;
use crate::service::{Python, ServerProcess};
use onceward_bench::processor;

/// Measures a Python process that uses a server.
pub async fn measure(
    python: &Python,
    backend: &str,
    url: &str,
    server: &ServerProcess,
    size: RunSize,
) -> Result<SystemResult, BoxError> {
    let mut process = python.start(backend, url, size.callers, OUTCOME_BYTES)?;
    process.send("pairs", size.warm_up()).await?;
    let processes = [server.pid(), process.pid().ok_or("idemkit: the process has ended")?];
    let before = processor::used(&processes);
    let seen = process.send("pairs", size.long).await?;
    let used = processor::used(&processes).saturating_sub(before);
    let replayed = process.send("replays", size.replays()).await?;
    let figures = Figures {
        pairs_per_second: number(&seen, "count")? / number(&seen, "lasted")?,
        claim_p50_us: number(&seen, "claim_p50_us")?,
        claim_p99_us: number(&seen, "claim_p99_us")?,
        pair_p50_us: number(&seen, "pair_p50_us")?,
        pair_p99_us: number(&seen, "pair_p99_us")?,
        replays_per_second: number(&replayed, "count")? / number(&replayed, "lasted")?,
        cpu_us_per_pair: used.as_secs_f64() * 1e6 / number(&seen, "count")?.max(1.0),
    };
    Ok((figures, BTreeMap::new()))
}

fn number(answer: &Value, name: &str) -> Result<f64, BoxError> {
    answer.get(name).and_then(Value::as_f64).ok_or_else(|| format!("idemkit: no `{name}` in {answer}").into())
}
