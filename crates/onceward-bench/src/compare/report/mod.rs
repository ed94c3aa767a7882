//! Writes the results for people: the page with a table per storage and the gateway, the plot, and the page with the aims.

mod aims;
mod format;
mod http;
mod page;
mod plot;
mod summary;
mod table;

use std::fs;
use std::path::Path;

use crate::BoxError;
use crate::run::Results;

/// The generated part of the page with the results.
pub fn figures(results: &Results) -> String {
    [table::machine(results), table::tables(results), http::section(results.http.as_ref())].join("\n")
}

/// The generated part of the page with the aims.
pub fn aims(results: &Results) -> String {
    let date = format!("Measured on {}, see [the results](../benchmarks.md).\n", results.machine.date);
    [date, aims::table(results), http::aims(results.http.as_ref())].join("\n")
}

/// Where the aims are, next to the page with the results.
const AIMS_PAGE: &str = "internals/benchmark-aims.md";

/// Updates both pages and the plot. The hand-written text around the generated parts stays.
pub fn write(page: &Path, results: &Results) -> Result<(), BoxError> {
    update(page, &figures(results))?;
    update(&page.with_file_name(AIMS_PAGE), &aims(results))?;
    fs::write(page.with_extension("svg"), plot::draw(results))?;
    Ok(())
}

fn update(page: &Path, generated: &str) -> Result<(), BoxError> {
    let text = fs::read_to_string(page).map_err(|error| format!("{}: {error}", page.display()))?;
    let text = page::splice(&text, generated).map_err(|fault| format!("{}: {fault}", page.display()))?;
    Ok(fs::write(page, text)?)
}

/// Results for tests: every system once in every round, with easily distinguished speeds.
#[cfg(test)]
fn example() -> Results {
    use std::collections::BTreeMap;

    use crate::figures::Figures;
    use crate::machine::Machine;
    use crate::plan::{Storage, System};
    use crate::run::Sample;

    let sample = |round: usize, storage: Storage, index: usize| {
        let pairs =
            [60_000.0, 20_000.0, 12_000.0, 30_000.0, 10_000.0, 1_500.0, 900.0][index] * (1.0 + round as f64 * 0.1);
        let figures = Figures {
            pairs_per_second: if storage == Storage::Disk { pairs / 10.0 } else { pairs },
            claim_p50_us: 500.0,
            claim_p99_us: 900.0,
            pair_p50_us: 1_000.0,
            pair_p99_us: 1_800.0,
            replays_per_second: pairs * 20.0,
            cpu_us_per_pair: 15.0,
        };
        let extra = [
            ("ratio_to_raw_log", 0.3),
            ("raw_log_pairs_per_second", 200_000.0),
            ("fsync_p50_us", 100.0),
            ("store_replays_per_second", 150_000.0),
        ];
        let extra = extra.map(|(name, value)| (name.to_owned(), value));
        let extra = if index == 0 { BTreeMap::from(extra) } else { BTreeMap::new() };
        Sample { round, system: System::ALL[index], storage, figures, extra }
    };
    let samples = (0..3).flat_map(|round| {
        let all = Storage::ALL.into_iter();
        all.flat_map(move |storage| (0..System::ALL.len()).map(move |index| sample(round, storage, index)))
    });
    let large = [
        ("pairs_per_second", 33_000.0),
        ("resident_mb", 120.0),
        ("reopen_ms", 40.0),
        ("calm_claim_p99_us", 900.0),
        ("expiring_claim_p99_us", 2_000.0),
        ("preload", 5_000_000.0),
        ("expire", 100_000.0),
    ];
    Results {
        machine: Machine {
            date: "2026-11-15".to_owned(),
            processor: "Some Processor".to_owned(),
            cores: 2,
            memory_gib: 23.4,
            kernel: "6.1".to_owned(),
            distribution: "Debian".to_owned(),
            disk: "ext4 on /dev/vda".to_owned(),
            versions: vec![("Redis".to_owned(), "7.0.15".to_owned())],
        },
        callers: 64,
        seconds: 5.0,
        rounds: 3,
        samples: samples.collect(),
        large: Some(large.map(|(name, value)| (name.to_owned(), value)).into()),
        http: None,
    }
}
