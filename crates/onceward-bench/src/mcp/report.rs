//! The results and the aims: one JSON object for programs, tables for people.

use std::collections::BTreeMap;

use serde::Serialize;

use super::super::aim::Aim;
use super::super::report::number;
use super::case::{Case, Load, SEVERAL, Step};
use super::figures::{Figures, Rounds, added};
use super::setup::CallCounts;
use super::{McpArgs, aims};

/// The results.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    store: String,
    rounds: u32,
    /// Per case and load, over all rounds.
    seconds: f64,
    /// The number of calls in flight under load.
    in_flight: usize,
    cases: BTreeMap<Case, CaseRow>,
    /// The disk alone: a small append and a sync.
    fsync_p50_us: Option<f64>,
    fsync_p99_us: Option<f64>,
    /// A direct call between two syncs.
    synced_p50_us: Option<f64>,
    synced_p99_us: Option<f64>,
    aims: Vec<Aim>,
}

/// One case.
#[derive(Debug, Serialize)]
struct CaseRow {
    #[serde(flatten)]
    counts: CallCounts,
    one_at_a_time: Option<LoadFigures>,
    in_flight: Option<LoadFigures>,
}

/// The median of all rounds.
#[derive(Debug, Serialize)]
struct LoadFigures {
    #[serde(flatten)]
    figures: Figures,
    /// Added to the latency of the same call made directly.
    added_p50_us: Option<f64>,
}

impl Report {
    pub(super) fn new(args: &McpArgs, store: String, rounds: &Rounds, counts: BTreeMap<Case, CallCounts>) -> Self {
        let way = |case, load| {
            let figures = Figures::median(rounds, Step::Calls(case, load))?;
            Some(LoadFigures { figures, added_p50_us: added(rounds, case, load).filter(|_| case != Case::Direct) })
        };
        let row =
            |case, counts| CaseRow { counts, one_at_a_time: way(case, Load::One), in_flight: way(case, Load::Several) };
        let sync = Figures::median(rounds, Step::Sync);
        let synced = Figures::median(rounds, Step::Synced);
        Self {
            store,
            rounds: args.rounds,
            seconds: args.seconds,
            in_flight: SEVERAL,
            cases: counts.into_iter().map(|(case, counts)| (case, row(case, counts))).collect(),
            fsync_p50_us: sync.map(|sync| sync.p50_us),
            fsync_p99_us: sync.map(|sync| sync.p99_us),
            synced_p50_us: synced.map(|synced| synced.p50_us),
            synced_p99_us: synced.map(|synced| synced.p99_us),
            aims: aims::all(rounds),
        }
    }

    pub(super) fn table(&self) -> String {
        let mut lines = vec![format!(
            "{}, {} rounds, {} s per case; a sync: median {}, 99th percentile {}",
            self.store,
            self.rounds,
            self.seconds,
            micros(self.fsync_p50_us),
            micros(self.fsync_p99_us)
        )];
        let ways =
            [(Load::One, "one call at a time".to_owned()), (Load::Several, format!("{SEVERAL} calls in flight"))];
        for (load, name) in ways {
            lines.push(format!(
                "{name:<38}{:>10}{:>14}{:>14}{:>14}{:>14}",
                "calls/s", "median", "99th perc.", "added", "CPU/call"
            ));
            lines.extend(self.cases.iter().filter_map(|(case, row)| row.row_text(*case, load)));
            if load == Load::One {
                let (label, half, most) =
                    (Step::Synced.label(), micros(self.synced_p50_us), micros(self.synced_p99_us));
                lines.push(format!("{:<38}{:>10}{half:>14}{most:>14}", format!("  {label}"), ""));
            }
        }
        lines.push(String::new());
        lines.extend(self.cases.iter().map(|(case, CaseRow { counts, .. })| {
            format!("{}: {} calls, effects: {}", case.label(), counts.calls, counts.effects)
        }));
        lines.push(String::new());
        lines.extend(self.aims.iter().map(|aim| format!("{}: {}", aim.aim, aim.text())));
        lines.join("\n")
    }
}

impl CaseRow {
    fn row_text(&self, case: Case, load: Load) -> Option<String> {
        let way = match load {
            Load::One => self.one_at_a_time.as_ref()?,
            Load::Several => self.in_flight.as_ref()?,
        };
        let line = format!(
            "{:<38}{:>10}{:>14}{:>14}{:>14}{:>14}",
            format!("  {}", case.label()),
            number(way.figures.calls_per_second),
            micros(Some(way.figures.p50_us)),
            micros(Some(way.figures.p99_us)),
            micros(way.added_p50_us),
            micros(way.figures.cpu_us_per_call),
        );
        Some(line.trim_end().to_owned())
    }
}

fn micros(value: Option<f64>) -> String {
    value.map(|value| format!("{} µs", number(value))).unwrap_or_default()
}
