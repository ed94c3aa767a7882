//! The results and the aims: one JSON object for programs, a table for people.

use std::collections::BTreeMap;

use serde::Serialize;

use super::super::aim::{Aim, Unit};
use super::super::report::number;
use super::super::rounds::Rounds;
use super::super::{ROUNDS, StoreArgs};
use super::figures::{Case, ServerFigures, ratios};
use super::postgres::Sizes;
use super::replays::Replays;

/// Where the records of a measurement are.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum MeasuredServer {
    /// A database of PostgreSQL.
    Database(String),
    /// The prefix of keys in Redis.
    #[cfg(feature = "redis")]
    Prefix(String),
}

impl MeasuredServer {
    fn server(&self) -> &'static str {
        match self {
            Self::Database(_) => "PostgreSQL",
            #[cfg(feature = "redis")]
            Self::Prefix(_) => "Redis",
        }
    }

    /// The simplest use of the server.
    pub(super) fn simple_use(&self) -> &'static str {
        match self {
            Self::Database(_) => "one statement per call",
            #[cfg(feature = "redis")]
            Self::Prefix(_) => "SET NX and a script",
        }
    }
}

/// The results.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    #[serde(flatten)]
    pub(super) place: MeasuredServer,
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
    pub(super) fn new(args: &StoreArgs, place: MeasuredServer) -> Self {
        Self {
            place,
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
        self.round_trips_per_replay = replays.round_trips;
    }

    pub(super) fn round_trips_aim(&self) -> Aim {
        // The ledger also has background work, such as its sweeper.
        Aim::at_most("round trips of a replay from the store", 1.05, Unit::Count, self.round_trips_per_replay)
    }

    pub(super) fn judged(mut self, rounds: &Rounds<Case, ServerFigures>, aims: Vec<Aim>) -> Self {
        let cases = Case::of(true).into_iter();
        self.cases = cases.filter_map(|case| Some((case, ServerFigures::median(rounds, case)?))).collect();
        self.ratios = ratios(rounds, [Case::Ledger, Case::Simple]);
        self.aims = aims;
        self
    }

    pub(super) fn table(&self) -> String {
        let mut lines = vec![format!(
            "{}, {} rounds, {} s per case, {} preloaded records",
            self.place.server(),
            self.rounds,
            self.seconds,
            self.preload
        )];
        let has_log = self.cases.values().any(|figures| figures.wal_bytes_per_pair.is_some());
        lines.push(format!(
            "{:<44}{:>10}{:>12}{:>12}{:>12}{:>12}{:>10}",
            "",
            "pairs/s",
            "median",
            "99th perc.",
            "client CPU",
            "server CPU",
            if has_log { "WAL" } else { "" }
        ));
        let micros = |value: f64| format!("{} µs", number(value));
        for (case, figures) in &self.cases {
            lines.push(format!(
                "{:<44}{:>10}{:>12}{:>12}{:>12}{:>12}{:>10}",
                case.label(self.callers, self.place.simple_use()),
                number(figures.pairs_per_second),
                micros(figures.pair_p50_us),
                micros(figures.pair_p99_us),
                micros(figures.client_cpu_us_per_pair),
                figures.server_cpu_us_per_pair.map(micros).unwrap_or_default(),
                figures.wal_bytes_per_pair.map(|bytes| format!("{} B", number(bytes))).unwrap_or_default(),
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
        lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
    }
}
