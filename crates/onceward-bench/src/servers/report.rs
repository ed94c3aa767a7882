//! The results and the aims: one JSON object for programs, a table for people.

use std::collections::BTreeMap;

use serde::Serialize;

use super::super::aim::{Aim, Unit};
use super::super::report::number;
use super::super::rounds::Rounds;
use super::super::{ROUNDS, StoreArgs};
use super::Replays;
use super::figures::{Case, ServerFigures};
use super::postgres::{Database, Sizes};

/// The results.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    database: String,
    callers: u16,
    preload: u64,
    rounds: u32,
    seconds: u32,
    pub(super) fill_seconds: Option<f64>,
    /// Connections of the ledger.
    pub(super) connections: Option<i64>,
    /// The median of all rounds.
    cases: BTreeMap<Case, ServerFigures>,
    /// The pairs of the ledger divided by those of the simple use: every round.
    ratios: Vec<f64>,
    store_replays_per_second: Option<f64>,
    round_trips_per_replay: Option<f64>,
    pub(super) sizes: Option<Sizes>,
    aims: Vec<Aim>,
}

impl Report {
    pub(super) fn new(args: &StoreArgs, database: &Database) -> Self {
        Self {
            database: database.name.clone(),
            callers: args.callers,
            preload: args.preload,
            rounds: ROUNDS,
            seconds: args.seconds,
            fill_seconds: None,
            connections: None,
            cases: BTreeMap::new(),
            ratios: Vec::new(),
            store_replays_per_second: None,
            round_trips_per_replay: None,
            sizes: None,
            aims: Vec::new(),
        }
    }

    pub(super) fn replays(&mut self, replays: &Replays) {
        self.store_replays_per_second = replays.per_second;
        self.round_trips_per_replay = Some(replays.round_trips);
    }

    pub(super) fn judged(mut self, rounds: &Rounds<Case, ServerFigures>) -> Self {
        let cases = Case::of(true).into_iter();
        self.cases = cases.filter_map(|case| Some((case, ServerFigures::median(rounds, case)?))).collect();
        let rate = |figures: ServerFigures| figures.pairs_per_second;
        let ratio =
            |above, below| rounds.median_across([above, below], |[above, below]| Some(rate(above) / rate(below)));
        self.ratios = rounds.across([Case::Ledger, Case::Simple], |[above, below]| Some(rate(above) / rate(below)));
        #[expect(clippy::cast_precision_loss)]
        let connections = self.connections.map(|number| number as f64);
        self.aims = vec![
            Aim::at_least("pairs, of one statement per call", 4.0, Unit::Times, ratio(Case::Ledger, Case::Simple)),
            Aim::at_most("connections", 8.0, Unit::Count, connections),
            // The ledger also has background work, such as its sweeper.
            Aim::at_most("round trips of a replay from the store", 1.05, Unit::Count, self.round_trips_per_replay),
        ];
        if self.preload > 0 {
            let kept = ratio(Case::Large, Case::Ledger).map(|ratio| ratio * 100.0);
            self.aims.push(Aim::at_least("pairs with many records, of the empty table", 80.0, Unit::Percent, kept));
        }
        self
    }

    pub(super) fn table(&self) -> String {
        let mut lines = vec![
            format!(
                "PostgreSQL, {} rounds, {} s per case, {} preloaded records",
                self.rounds, self.seconds, self.preload
            ),
            format!(
                "{:<44}{:>10}{:>12}{:>12}{:>12}{:>12}{:>10}",
                "", "pairs/s", "median", "99th perc.", "client CPU", "server CPU", "WAL"
            ),
        ];
        let micros = |value: f64| format!("{} µs", number(value));
        for (case, figures) in &self.cases {
            lines.push(format!(
                "{:<44}{:>10}{:>12}{:>12}{:>12}{:>12}{:>10}",
                case.label(self.callers),
                number(figures.pairs_per_second),
                micros(figures.pair_p50_us),
                micros(figures.pair_p99_us),
                micros(figures.client_cpu_us_per_pair),
                figures.server_cpu_us_per_pair.map(micros).unwrap_or_default(),
                format!("{} B", number(figures.wal_bytes_per_pair)),
            ));
        }
        let ratios: Vec<String> = self.ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
        lines.push(format!("ratio in each round: {}", ratios.join(", ")));
        if let Some(rate) = self.store_replays_per_second {
            lines.push(format!("replays of another process's records: {} /s", number(rate)));
        }
        if let Some(sizes) = &self.sizes {
            lines.push(format!(
                "finished records: {} bytes in the table and {} in indexes, each, of {}",
                number(sizes.table_bytes_per_record),
                number(sizes.index_bytes_per_record),
                number(sizes.records)
            ));
        }
        lines.push(String::new());
        lines.extend(self.aims.iter().map(|aim| format!("{}: {}", aim.aim, aim.text())));
        lines.join("\n")
    }
}
