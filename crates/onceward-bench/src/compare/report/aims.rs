//! The aims, fixed before the measurement, and whether they are met.

use super::format::{grouped, micros, number};
use super::summary::{onceward_figure, spread, times};
use crate::plan::{Storage, System};
use crate::run::Results;

/// One aim: its text, the measured value, and whether it is met. `None` if it was not measured in this run.
struct Aim {
    wanted: String,
    found: Option<(String, bool)>,
}

/// The aims of the ledger as Markdown.
pub fn table(results: &Results) -> String {
    let mut text = "## The ledger\n\n| aim | measured | |\n|---|--:|---|\n".to_owned();
    for aim in aims(results) {
        let (found, met) = match aim.found {
            Some((found, true)) => (found, "met"),
            Some((found, false)) => (found, "**missed**"),
            None => ("not measured in this run".to_owned(), ""),
        };
        text.push_str(&format!("| {} | {found} | {met} |\n", aim.wanted));
    }
    text
}

fn aims(results: &Results) -> Vec<Aim> {
    let [tmpfs, disk] = Storage::ALL;
    let at_least = |wanted: &str, value: Option<f64>, least: f64, say: fn(f64) -> String| Aim {
        wanted: wanted.to_owned(),
        found: value.map(|value| (say(value), value >= least)),
    };
    let at_most = |wanted: &str, value: Option<f64>, most: f64, say: fn(f64) -> String| Aim {
        wanted: wanted.to_owned(),
        found: value.map(|value| (say(value), value <= most)),
    };
    let ratio_to = |system| times(results, tmpfs, system).map(|times| times.median);
    let ours = |figure| spread(results, tmpfs, System::Onceward, figure).map(|spread| spread.median);
    let ours_only = |storage, name| onceward_figure(results, storage, name).map(|spread| spread.median);
    let large = |name: &str| results.large.as_ref()?.get(name).copied();
    let records = grouped(large("preload").unwrap_or(5e6));
    let fuller =
        large("pairs_per_second").zip(ours(|figures| figures.pairs_per_second)).map(|(full, empty)| full / empty);
    let slower = large("expiring_claim_p99_us").zip(large("calm_claim_p99_us")).map(|(busy, calm)| busy / calm);
    let expired = grouped(large("expire").unwrap_or(1e5));
    let per_second = |value| format!("{}/s", grouped(value));
    let times = |value| format!("{} ×", number(value));
    let percent = |value| format!("{:.0} %", value * 100.0);
    vec![
        at_least(
            "tmpfs: 3 times the pairs of Redis (always), one connection",
            ratio_to(System::RedisAlways),
            3.0,
            times,
        ),
        at_least(
            "tmpfs: 3 times the pairs of Redis (always), one connection each",
            ratio_to(System::RedisConnections),
            3.0,
            times,
        ),
        at_least("tmpfs: 5 times the pairs of PostgreSQL", ratio_to(System::Postgres), 5.0, times),
        at_least("tmpfs: 25 % of the bare log", ours_only(tmpfs, "ratio_to_raw_log"), 0.25, percent),
        at_most(
            "tmpfs: at most 20 µs of processor time per pair",
            ours(|figures| figures.cpu_us_per_pair),
            20.0,
            micros,
        ),
        at_least("tmpfs: 1,000,000 replays/s from memory", ours(|figures| figures.replays_per_second), 1e6, per_second),
        at_least(
            "disk: 100,000 replays/s from the store",
            ours_only(disk, "store_replays_per_second"),
            1e5,
            per_second,
        ),
        at_least(&format!("{records} records: 60 % of the pairs of an empty ledger"), fuller, 0.6, percent),
        at_most(&format!("{records} records: under 400 MB of memory"), large("resident_mb"), 400.0, |value| {
            format!("{} MB", grouped(value))
        }),
        at_most(&format!("{records} records: reopened within 1 s"), large("reopen_ms"), 1_000.0, |value| {
            format!("{} ms", number(value))
        }),
        at_most(
            &format!("{expired} records expire in the background: claim p99 within twice its value"),
            slower,
            2.0,
            times,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn an_aim_is_met_or_missed_by_its_figure() {
        let text = table(&example());
        assert!(text.contains("Redis (always), one connection | 3.00 × | met |"), "{text}");
        assert!(text.contains("60 % of the pairs of an empty ledger | 50 % | **missed** |"), "{text}");
        assert!(text.contains("claim p99 within twice its value | 2.22 × | **missed** |"), "{text}");
        assert!(text.contains("25 % of the bare log | 30 % | met |"), "{text}");
        assert_eq!(text.matches("met |").count(), 9, "{text}");
    }

    #[test]
    fn an_aim_that_was_not_measured_is_neither_met_nor_missed() {
        let mut results = example();
        results.large = None;
        results.samples.clear();
        let text = table(&results);
        assert_eq!(text.matches("| not measured in this run |  |").count(), 11, "{text}");
    }
}
