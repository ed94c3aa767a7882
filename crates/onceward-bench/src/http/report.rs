//! The results and the aims: one JSON object for programs, tables for people.

use std::collections::BTreeMap;

use serde::Serialize;

use super::super::aim::Aim;
use super::super::bench_part::threads;
use super::super::report::number;
use super::HttpArgs;
use super::aims;
use super::case::Case;
use super::figures::{Figures, Rounds};
use super::setup::{HttpBench, Idle};

/// The results.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    store: String,
    connections: u16,
    rounds: u32,
    /// Per case, over all rounds.
    seconds: f64,
    /// Per server. nginx has as many workers.
    threads: usize,
    /// Its version; null if it is not installed.
    nginx: Option<String>,
    /// The median of all rounds.
    cases: BTreeMap<Case, Figures>,
    idle: Option<Idle>,
    aims: Vec<Aim>,
}

impl Report {
    pub(super) fn new(args: &HttpArgs, bench: &HttpBench, rounds: &Rounds) -> Self {
        Self {
            store: bench.store(),
            connections: args.connections,
            rounds: args.rounds,
            seconds: args.seconds,
            threads: threads(),
            nginx: bench.nginx_version().map(str::to_owned),
            cases: Case::ALL.into_iter().filter_map(|case| Some((case, Figures::median(rounds, case)?))).collect(),
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
                "{}, {} connections, {} rounds, {} s per case, {} threads per server{nginx}",
                self.store, self.connections, self.rounds, self.seconds, self.threads
            ),
            format!("{:<32}{:>14}{:>14}{:>14}{:>16}", "", "requests/s", "median", "99th perc.", "CPU/request"),
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
        lines.extend(self.idle.as_ref().map(idle_line));
        lines.push(String::new());
        lines.extend(self.aims.iter().map(|aim| format!("{}: {}", aim.aim, aim.text())));
        lines.join("\n")
    }
}

fn idle_line(idle: &Idle) -> String {
    let megabytes = |value: Option<f64>| value.map_or("unknown".to_owned(), |value| format!("{value:.1} MB"));
    match &idle.not_measured {
        Some(why) => format!("{} idle connections: not measured: {why}", idle.connections),
        None => format!(
            "{} idle connections: the gateway uses {} of memory, {} before",
            idle.connections,
            megabytes(idle.after_mb),
            megabytes(idle.before_mb)
        ),
    }
}
