//! The figures and the aims: one JSON object for programs, tables for people.

use std::collections::BTreeMap;

use serde::Serialize;

use super::super::aim::Aim;
use super::super::part::threads;
use super::super::report::number;
use super::Args;
use super::aims;
use super::case::Case;
use super::figures::{Figures, Rounds};
use super::stage::{Idle, Stage};

/// What was measured.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    store: String,
    connections: u16,
    rounds: u32,
    /// Of each case, over all rounds.
    seconds: f64,
    /// Of each server. nginx has as many workers.
    threads: usize,
    /// Its version. Null if it is not installed.
    nginx: Option<String>,
    /// The middle of all rounds.
    cases: BTreeMap<Case, Figures>,
    idle: Option<Idle>,
    aims: Vec<Aim>,
}

impl Report {
    pub(super) fn new(args: &Args, stage: &Stage, rounds: &Rounds) -> Self {
        Self {
            store: stage.store(),
            connections: args.connections,
            rounds: args.rounds,
            seconds: args.seconds,
            threads: threads(),
            nginx: stage.nginx_version().map(str::to_owned),
            cases: Case::ALL.into_iter().filter_map(|case| Some((case, Figures::middle(rounds, case)?))).collect(),
            idle: None,
            aims: Vec::new(),
        }
    }

    pub(super) fn idle(&mut self, idle: Idle) {
        self.idle = Some(idle);
    }

    pub(super) fn judged(mut self, rounds: &Rounds) -> Self {
        self.aims = aims::all(rounds, self.idle.as_ref());
        self
    }

    pub(super) fn table(&self) -> String {
        let nginx = self.nginx.as_ref().map(|version| format!(", nginx {version}")).unwrap_or_default();
        let mut lines = vec![
            format!(
                "{}, {} connections, {} rounds, {} s of each case, {} threads each{nginx}",
                self.store, self.connections, self.rounds, self.seconds, self.threads
            ),
            format!("{:<32}{:>14}{:>14}{:>14}{:>16}", "", "requests/s", "half within", "99 % within", "CPU a request"),
        ];
        for (case, figures) in &self.cases {
            let micros = |value: f64| format!("{} µs", number(value));
            lines.push(format!(
                "{:<32}{:>14}{:>14}{:>14}{:>16}",
                case.label(),
                number(figures.requests_per_second),
                micros(figures.p50_us),
                micros(figures.p99_us),
                figures.cpu_us_per_request.map(micros).unwrap_or_default(),
            ));
        }
        lines.extend(self.idle.as_ref().map(told));
        lines.push(String::new());
        lines.extend(self.aims.iter().map(|aim| format!("{}: {}", aim.aim, aim.told())));
        lines.join("\n")
    }
}

fn told(idle: &Idle) -> String {
    let megabytes = |value: Option<f64>| value.map_or("unknown".to_owned(), |value| format!("{value:.1} MB"));
    match &idle.not_measured {
        Some(why) => format!("{} idle connections: not measured: {why}", idle.connections),
        None => format!(
            "{} idle connections: the gateway takes {}, and {} before",
            idle.connections,
            megabytes(idle.after_mb),
            megabytes(idle.before_mb)
        ),
    }
}
