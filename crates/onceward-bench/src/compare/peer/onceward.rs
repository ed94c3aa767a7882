//! Onceward: the command `onceward bench store`, which also measures the bare log.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use super::{RunSize, SystemResult};
use crate::BoxError;
use crate::figures::Figures;

/// How much longer than the measurement the command may take: opening, warm-up, the bare log, replays, clean-up.
const EXTRA_TIME: Duration = Duration::from_secs(60);

/// Additional load on the ledger.
#[derive(Clone, Copy, Debug, Default)]
pub struct LargeLedger {
    /// Finished records before the measurement starts.
    pub preload: u64,
    /// Records that expire during an additional measurement.
    pub expire: u64,
}

/// Measures with a new ledger in a folder.
pub async fn measure(
    program: &Path,
    folder: &Path,
    size: RunSize,
    extra: LargeLedger,
) -> Result<SystemResult, BoxError> {
    let mut command = tokio::process::Command::new(program);
    let file = folder.join(format!("onceward-{}.db", std::process::id()));
    command.args(["bench", "store", "--json", "--store", &format!("file:{}", file.display())]);
    command.args(["--callers", &size.callers.to_string()]);
    // The command takes whole seconds.
    command.args(["--seconds", &format!("{:.0}", size.long.as_secs_f64().ceil())]);
    if extra.preload > 0 {
        command.args(["--preload", &extra.preload.to_string()]);
    }
    if extra.expire > 0 {
        command.args(["--expire", &extra.expire.to_string()]);
    }
    // It measures the ledger, the bare log and two kinds of replays. Filling: even a slow disk takes ten thousand records per
    // second in bulk.
    let limit = size.long * 8 + EXTRA_TIME + Duration::from_millis((extra.preload + extra.expire) / 10);
    command.stdin(Stdio::null()).stderr(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).process_group(0);
    let output = tokio::time::timeout(limit, command.output());
    let output = output.await.map_err(|_| format!("`onceward bench store` took over {limit:?}"))??;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("`onceward bench store` failed ({}):\n{said}", output.status).into());
    }
    read(&String::from_utf8_lossy(&output.stdout))
}

/// Parses the output of the command: one JSON object, all of whose numbers are kept.
fn read(text: &str) -> Result<SystemResult, BoxError> {
    let object: BTreeMap<String, Value> = serde_json::from_str(text)?;
    let numbers: BTreeMap<String, f64> =
        object.into_iter().filter_map(|(name, value)| Some((name, value.as_f64()?))).collect();
    let number = |name: &str| {
        numbers
            .get(name)
            .copied()
            .ok_or_else(|| BoxError::from(format!("`onceward bench store` does not report `{name}`")))
    };
    let figures = Figures {
        pairs_per_second: number("pairs_per_second")?,
        claim_p50_us: number("claim_p50_us")?,
        claim_p99_us: number("claim_p99_us")?,
        pair_p50_us: number("pair_p50_us")?,
        pair_p99_us: number("pair_p99_us")?,
        replays_per_second: number("replays_per_second")?,
        cpu_us_per_pair: number("cpu_us_per_pair")?,
    };
    Ok((figures, numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_kept_and_a_missing_one_is_reported() {
        let text = r#"{"pairs_per_second": 5, "claim_p50_us": 1, "claim_p99_us": 2, "pair_p50_us": 3, "pair_p99_us": 4,
            "replays_per_second": 6, "cpu_us_per_pair": 7.5, "ratio_to_raw_log": 0.4, "store": "sqlite"}"#;
        let (figures, rest) = read(text).unwrap();
        assert!((figures.cpu_us_per_pair - 7.5).abs() < 1e-9);
        assert_eq!(rest.get("ratio_to_raw_log"), Some(&0.4));
        let missing = read(&text.replace("pair_p99_us", "other")).unwrap_err();
        assert!(missing.to_string().contains("pair_p99_us"));
    }
}
