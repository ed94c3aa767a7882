//! The machine and the figures, as Markdown.

use super::digits::{grouped, micros, number};
use super::summary::{own, spread, times};
use crate::plan::{Ground, System};
use crate::run::Results;

/// Where and how it was measured.
pub fn machine(results: &Results) -> String {
    let machine = &results.machine;
    let versions: Vec<String> = machine.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let fsync =
        own(results, Ground::Disk, "fsync_p50_us").map(|fsync| format!(", a sync takes {}", micros(fsync.median)));
    format!(
        "Measured on {}: {} × {}, {:.0} GiB of memory, {}, Linux {}. Disk: {}{}. {}.\n\n\
         {} callers; {} rounds of {} s for each system and ground, interleaved, in another order each time. Each figure \
         is the middle of the rounds; in brackets the least and the most.\n",
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

/// A table for each ground that was measured.
pub fn grounds(results: &Results) -> String {
    let measured = |ground: &Ground| results.samples.iter().any(|sample| sample.ground == *ground);
    let tables = Ground::ALL.into_iter().filter(measured).map(|ground| table(results, ground));
    tables.collect::<Vec<_>>().join("\n")
}

fn table(results: &Results, ground: Ground) -> String {
    let mut text = format!(
        "### On {}\n\n| | pairs/s | claim p50 / p99 | pair p50 / p99 | CPU a pair | replays/s | Onceward does |\n\
         |---|--:|--:|--:|--:|--:|--:|\n",
        ground.label()
    );
    for system in System::ALL {
        text.extend(row(results, ground, system));
    }
    text.extend(bare_log(results, ground));
    text
}

fn row(results: &Results, ground: Ground, system: System) -> Option<String> {
    let middle = |figure| spread(results, ground, system, figure).map(|spread| spread.median);
    let pairs = spread(results, ground, system, |figures| figures.pairs_per_second)?;
    let times = match system {
        System::Onceward => String::new(),
        _ => times(results, ground, system).map(|times| format!("{} ×", number(times.median))).unwrap_or_default(),
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

fn bare_log(results: &Results, ground: Ground) -> Option<String> {
    let pairs = own(results, ground, "raw_log_pairs_per_second")?;
    let ratio = own(results, ground, "ratio_to_raw_log")?;
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
    fn a_row_has_the_middle_and_the_ratio() {
        let text = grounds(&example());
        let row = "| Redis (always), one connection | 22,000 (20,000–24,000) | 500 µs / 900 µs | 1.00 ms / 1.80 ms | 15.0 µs \
                   | 440,000 | 3.00 × |";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("| bare log ³ | 200,000 (200,000–200,000) | | | | | 0.30 × |"), "{text}");
        assert_eq!(text.matches("### On ").count(), 2);
    }

    #[test]
    fn every_row_has_as_many_cells_as_the_head() {
        let text = grounds(&example());
        for row in text.lines().filter(|line| line.starts_with('|')) {
            assert_eq!(row.matches('|').count(), 8, "{row}");
        }
    }

    #[test]
    fn what_was_left_out_has_no_row() {
        let mut results = example();
        results.samples.retain(|sample| sample.ground == Ground::Disk && sample.system != System::Postgres);
        let text = grounds(&results);
        assert!(!text.contains("tmpfs") && !text.contains("| PostgreSQL"), "{text}");
    }

    #[test]
    fn the_machine_is_named() {
        let text = machine(&example());
        assert!(text.contains("2 × Some Processor, 23 GiB") && text.contains("a sync takes 100 µs"), "{text}");
        assert!(text.contains("64 callers; 3 rounds of 5 s"), "{text}");
    }
}
