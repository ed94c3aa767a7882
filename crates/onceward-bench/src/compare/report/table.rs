//! The machine and the tables of results, as Markdown.

use super::format::{grouped, micros, number};
use super::summary::{onceward_figure, spread, times};
use crate::plan::{Storage, System};
use crate::run::Results;

/// Where and how it was measured.
pub fn machine(results: &Results) -> String {
    let machine = &results.machine;
    let versions: Vec<String> = machine.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let fsync = onceward_figure(results, Storage::Disk, "fsync_p50_us")
        .map(|fsync| format!(", a sync takes {}", micros(fsync.median)));
    format!(
        "Measured on {}: {} × {}, {:.0} GiB of memory, {}, Linux {}. Disk: {}{}. {}.\n\n\
         {} callers; {} rounds of {} s per system and storage, interleaved, in a different order each time. Each figure is \
         the median of the rounds; the minimum and maximum are in parentheses.\n",
        machine.date,
        machine.cores,
        machine.processor,
        machine.memory_gib,
        machine.distribution,
        machine.kernel,
        machine.disk,
        fsync.unwrap_or_default(),
        versions.join(", "),
        results.callers,
        results.rounds,
        number(results.seconds).trim_end_matches('0').trim_end_matches('.'),
    )
}

/// One table per measured storage.
pub fn tables(results: &Results) -> String {
    let measured = |storage: &Storage| results.samples.iter().any(|sample| sample.storage == *storage);
    let tables = Storage::ALL.into_iter().filter(measured).map(|storage| table(results, storage));
    tables.collect::<Vec<_>>().join("\n")
}

fn table(results: &Results, storage: Storage) -> String {
    let mut text = format!(
        "### On {}\n\n| | pairs/s | claim p50 / p99 | pair p50 / p99 | CPU per pair | replays/s | Onceward's ratio |\n\
         |---|--:|--:|--:|--:|--:|--:|\n",
        storage.label()
    );
    for system in System::ALL {
        text.extend(row(results, storage, system));
    }
    text.extend(bare_log(results, storage));
    text
}

fn row(results: &Results, storage: Storage, system: System) -> Option<String> {
    let middle = |figure| spread(results, storage, system, figure).map(|spread| spread.median);
    let pairs = spread(results, storage, system, |figures| figures.pairs_per_second)?;
    let times = match system {
        System::Onceward => String::new(),
        _ => times(results, storage, system).map(|times| format!("{} ×", number(times.median))).unwrap_or_default(),
    };
    Some(format!(
        "| {} | {} ({}–{}) | {} / {} | {} / {} | {} µs | {} | {times} |\n",
        system.label(),
        grouped(pairs.median),
        grouped(pairs.least),
        grouped(pairs.most),
        micros(middle(|figures| figures.claim_p50_us)?),
        micros(middle(|figures| figures.claim_p99_us)?),
        micros(middle(|figures| figures.pair_p50_us)?),
        micros(middle(|figures| figures.pair_p99_us)?),
        number(middle(|figures| figures.cpu_us_per_pair)?),
        grouped(middle(|figures| figures.replays_per_second)?),
    ))
}

fn bare_log(results: &Results, storage: Storage) -> Option<String> {
    let pairs = onceward_figure(results, storage, "raw_log_pairs_per_second")?;
    let ratio = onceward_figure(results, storage, "ratio_to_raw_log")?;
    Some(format!(
        "| bare log ³ | {} ({}–{}) | | | | | {} × |\n",
        grouped(pairs.median),
        grouped(pairs.least),
        grouped(pairs.most),
        number(ratio.median),
    ))
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn a_row_has_the_median_and_the_ratio() {
        let text = tables(&example());
        let row = "| Redis (always), one connection | 22,000 (20,000–24,000) | 500 µs / 900 µs | 1.00 ms / 1.80 ms | 15.0 µs \
                   | 440,000 | 3.00 × |";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("| bare log ³ | 200,000 (200,000–200,000) | | | | | 0.30 × |"), "{text}");
        assert_eq!(text.matches("### On ").count(), 2);
    }

    #[test]
    fn every_row_has_as_many_cells_as_the_header() {
        let text = tables(&example());
        for row in text.lines().filter(|line| line.starts_with('|')) {
            assert_eq!(row.matches('|').count(), 8, "{row}");
        }
    }

    #[test]
    fn a_skipped_system_has_no_row() {
        let mut results = example();
        results.samples.retain(|sample| sample.storage == Storage::Disk && sample.system != System::Postgres);
        let text = tables(&results);
        assert!(!text.contains("tmpfs") && !text.contains("| PostgreSQL"), "{text}");
    }

    #[test]
    fn the_machine_is_named() {
        let text = machine(&example());
        assert!(text.contains("2 × Some Processor, 23 GiB") && text.contains("a sync takes 100 µs"), "{text}");
        assert!(text.contains("64 callers; 3 rounds of 5 s"), "{text}");
    }
}
