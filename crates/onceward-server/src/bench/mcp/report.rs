//! The figures and the aims: one JSON object for programs, tables for people.

use std::collections::BTreeMap;

use serde::Serialize;

use super::super::aim::Aim;
use super::super::report::number;
use super::case::{Case, Load, SEVERAL, Step};
use super::figures::{Figures, Rounds, added};
use super::stage::Happened;
use super::{Args, aims};

/// What was measured.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    store: String,
    rounds: u32,
    /// Of each case in each way, over all rounds.
    seconds: f64,
    /// How many calls are under way where there are several.
    in_flight: usize,
    cases: BTreeMap<Case, Row>,
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
struct Row {
    #[serde(flatten)]
    happened: Happened,
    one_at_a_time: Option<Way>,
    in_flight: Option<Way>,
}

/// The middle of all rounds.
#[derive(Debug, Serialize)]
struct Way {
    #[serde(flatten)]
    figures: Figures,
    /// To the same call made directly.
    added_p50_us: Option<f64>,
}

impl Report {
    pub(super) fn new(args: &Args, store: String, rounds: &Rounds, happened: BTreeMap<Case, Happened>) -> Self {
        let way = |case, load| {
            let figures = Figures::middle(rounds, Step::Calls(case, load))?;
            Some(Way { figures, added_p50_us: added(rounds, case, load).filter(|_| case != Case::Direct) })
        };
        let row =
            |case, happened| Row { happened, one_at_a_time: way(case, Load::One), in_flight: way(case, Load::Several) };
        let sync = Figures::middle(rounds, Step::Sync);
        let synced = Figures::middle(rounds, Step::Synced);
        Self {
            store,
            rounds: args.rounds,
            seconds: args.seconds,
            in_flight: SEVERAL,
            cases: happened.into_iter().map(|(case, happened)| (case, row(case, happened))).collect(),
            fsync_p50_us: sync.map(|sync| sync.p50_us),
            fsync_p99_us: sync.map(|sync| sync.p99_us),
            synced_p50_us: synced.map(|synced| synced.p50_us),
            synced_p99_us: synced.map(|synced| synced.p99_us),
            aims: aims::all(rounds),
        }
    }

    pub(super) fn table(&self) -> String {
        let mut lines = vec![format!(
            "{}, {} rounds, {} s of each case; a sync: half within {}, 99 % within {}",
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
                "calls/s", "half within", "99 % within", "added", "CPU a call"
            ));
            lines.extend(self.cases.iter().filter_map(|(case, row)| row.told(*case, load)));
            if load == Load::One {
                let (label, half, most) =
                    (Step::Synced.label(), micros(self.synced_p50_us), micros(self.synced_p99_us));
                lines.push(format!("{:<38}{:>10}{half:>14}{most:>14}", format!("  {label}"), ""));
            }
        }
        lines.push(String::new());
        lines.extend(self.cases.iter().map(|(case, Row { happened, .. })| {
            format!("{}: {} calls, effects: {}", case.label(), happened.calls, happened.effects)
        }));
        lines.push(String::new());
        lines.extend(self.aims.iter().map(|aim| format!("{}: {}", aim.aim, aim.told())));
        lines.join("\n")
    }
}

impl Row {
    fn told(&self, case: Case, load: Load) -> Option<String> {
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
