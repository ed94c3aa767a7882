//! The results: one JSON object for programs, a table for people.

use serde::Serialize;

use super::bench_files::BenchFiles;
use super::pairs::PairSamples;
use super::samples::Samples;
use super::usage;

/// The results. Figures that the store does not have are null.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    store: String,
    callers: u16,
    preload: u64,
    pairs_per_second: Option<f64>,
    claim_p50_us: Option<f64>,
    claim_p99_us: Option<f64>,
    pair_p50_us: Option<f64>,
    pair_p99_us: Option<f64>,
    pub(super) replays_per_second: Option<f64>,
    pub(super) store_replays_per_second: Option<f64>,
    cpu_us_per_pair: Option<f64>,
    fsync_p50_us: Option<f64>,
    raw_log_pairs_per_second: Option<f64>,
    ratio_to_raw_log: Option<f64>,
    pub(super) reopen_ms: Option<f64>,
    pub(super) expired_in_background: Option<u64>,
    calm_claim_p99_us: Option<f64>,
    expiring_claim_p99_us: Option<f64>,
    resident_mb: Option<f64>,
    ledger_mb: Option<f64>,
}

impl Report {
    pub(super) fn new(files: &BenchFiles, callers: u16, preload: u64) -> Self {
        Self {
            store: files.url(),
            callers,
            preload,
            pairs_per_second: None,
            claim_p50_us: None,
            claim_p99_us: None,
            pair_p50_us: None,
            pair_p99_us: None,
            replays_per_second: None,
            store_replays_per_second: None,
            cpu_us_per_pair: None,
            fsync_p50_us: None,
            raw_log_pairs_per_second: None,
            ratio_to_raw_log: None,
            reopen_ms: None,
            expired_in_background: None,
            calm_claim_p99_us: None,
            expiring_claim_p99_us: None,
            resident_mb: None,
            ledger_mb: None,
        }
    }

    #[expect(clippy::cast_precision_loss)]
    pub(super) fn pairs(&mut self, mut work: PairSamples) {
        self.pairs_per_second = work.per_second();
        let count = work.pairs.len();
        self.cpu_us_per_pair = (count > 0).then(|| work.processor.as_secs_f64() * 1e6 / count as f64);
        self.claim_p50_us = work.claims.percentile(0.5);
        self.claim_p99_us = work.claims.percentile(0.99);
        self.pair_p50_us = work.pairs.percentile(0.5);
        self.pair_p99_us = work.pairs.percentile(0.99);
    }

    pub(super) fn raw(&mut self, work: PairSamples, mut syncs: Samples) {
        self.raw_log_pairs_per_second = work.per_second();
        self.fsync_p50_us = syncs.percentile(0.5);
        self.ratio_to_raw_log = match (self.pairs_per_second, self.raw_log_pairs_per_second) {
            (Some(ours), Some(raw)) => Some(ours / raw),
            _ => None,
        };
    }

    pub(super) fn expiry(&mut self, mut calm: PairSamples, mut busy: PairSamples) {
        self.calm_claim_p99_us = calm.claims.percentile(0.99);
        self.expiring_claim_p99_us = busy.claims.percentile(0.99);
    }

    #[expect(clippy::cast_precision_loss)]
    pub(super) fn resources(&mut self, files: &BenchFiles) {
        self.resident_mb = usage::resident().map(|bytes| bytes as f64 / 1e6);
        self.ledger_mb = files.bytes().map(|bytes| bytes as f64 / 1e6);
    }

    pub(super) fn table(&self) -> String {
        let rows = [
            ("claims and finishes, durable", self.pairs_per_second, "pairs/s"),
            ("  claim, median", self.claim_p50_us, "µs"),
            ("  claim, 99th percentile", self.claim_p99_us, "µs"),
            ("  pair, median", self.pair_p50_us, "µs"),
            ("  pair, 99th percentile", self.pair_p99_us, "µs"),
            ("  processor time per pair", self.cpu_us_per_pair, "µs"),
            ("bare log, same callers", self.raw_log_pairs_per_second, "pairs/s"),
            ("  ledger, relative to the bare log", self.ratio_to_raw_log.map(|ratio| ratio * 100.0), "%"),
            ("  sync, median", self.fsync_p50_us, "µs"),
            ("replays from memory", self.replays_per_second, "/s"),
            ("replays from the store", self.store_replays_per_second, "/s"),
            ("time to reopen", self.reopen_ms, "ms"),
            #[expect(clippy::cast_precision_loss)]
            ("records freed in the background", self.expired_in_background.map(|count| count as f64), ""),
            ("  claim before that, 99th percentile", self.calm_claim_p99_us, "µs"),
            ("  claim during that, 99th percentile", self.expiring_claim_p99_us, "µs"),
            ("memory", self.resident_mb, "MB"),
            ("ledger", self.ledger_mb, "MB"),
        ];
        let mut lines =
            vec![format!("{}, {} concurrent callers, {} preloaded records", self.store, self.callers, self.preload)];
        for (name, value, unit) in rows {
            if let Some(value) = value {
                lines.push(format!("{name:<38}{:>12} {unit}", number(value)).trim_end().to_owned());
            }
        }
        lines.join("\n")
    }
}

/// With thousands separators, and with one decimal below a hundred.
pub(super) fn number(value: f64) -> String {
    if value < 100.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(number(2.25), "2.2");
        assert_eq!(number(999.6), "1,000");
        assert_eq!(number(1_234_567.0), "1,234,567");
    }
}
