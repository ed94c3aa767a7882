//! The runner of the harnesses that play seeded runs in one process (`walk`, `clock`, `interleave`): it numbers the runs,
//! gives each one its own random numbers, stops at violations, adds up what was seen, and prints the report.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::report;
use crate::rng::Rng;

/// After this many runs, everything that a harness requires must have been seen.
const ENOUGH_RUNS: u64 = 100;

/// How many runs, and from which seed.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub runs: u64,
    pub seed: u64,
}

/// A harness whose runs depend only on a seed and their number.
pub trait Harness {
    /// The command.
    const COMMAND: &'static str;
    /// The option that gives the number of runs.
    const RUNS_OPTION: &'static str = "--runs";
    /// Violations after which the harness stops.
    const MAX_VIOLATIONS: usize = 1;
    /// Counts that must not be zero after enough runs: otherwise the harness has not tried what it is for.
    const REQUIRED: &'static [&'static str] = &[];

    /// Plans, plays and judges one run. Returns what it broke.
    fn play(&mut self, number: u64, rng: Rng, counts: &mut Counts) -> Vec<String>;
}

/// What was seen, by name.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counts(BTreeMap<&'static str, u64>);

impl Counts {
    pub fn add(&mut self, name: &'static str, more: u64) {
        *self.0.entry(name).or_default() += more;
    }

    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().map(|(name, count)| (*name, *count))
    }
}

/// What the runs came to.
#[derive(Debug, Default)]
pub struct Report {
    pub counts: Counts,
    /// With the number of the run.
    pub violations: Vec<(u64, String)>,
}

/// Plays the runs, until there are too many violations.
pub fn play<H: Harness>(harness: &mut H, options: Options) -> Report {
    let mut report = Report::default();
    for number in 0..options.runs {
        let broken = harness.play(number, Rng::of(&[options.seed, number]), &mut report.counts);
        report.violations.extend(broken.into_iter().map(|broken| (number, broken)));
        if report.violations.len() >= H::MAX_VIOLATIONS {
            break;
        }
    }
    report
}

/// Plays the runs and prints the report. True if no rule was broken and everything required was seen.
pub fn run<H: Harness>(mut harness: H, options: Options) -> bool {
    let started = Instant::now();
    let report = play(&mut harness, options);
    report::row("runs", options.runs);
    report::row("seed", options.seed);
    report.counts.iter().for_each(|(name, count)| report::row(name, count));
    report::row("violations", report.violations.len() as u64);
    println!("{:.1} s", started.elapsed().as_secs_f64());
    for (number, broken) in &report.violations {
        println!("VIOLATION run {number}, {broken}");
    }
    if let Some((number, _)) = report.violations.first() {
        let (command, runs) = (H::COMMAND, H::RUNS_OPTION);
        println!("again: onceward-sim {command} {runs} {} --seed {}", number + 1, options.seed);
        return false;
    }
    let unseen = H::REQUIRED.iter().filter(|name| options.runs >= ENOUGH_RUNS && report.counts.get(name) == 0);
    let unseen: Vec<_> = unseen.copied().collect();
    if !unseen.is_empty() {
        println!("never seen: {}", unseen.join(", "));
    }
    unseen.is_empty()
}

/// Takes the steps of one run. A violation is reported with the number of its step.
pub async fn steps(count: u64, mut step: impl AsyncFnMut() -> Result<(), String>) -> Result<(), String> {
    for number in 0..count {
        step().await.map_err(|broken| format!("step {number}: {broken}"))?;
    }
    Ok(())
}

/// A runtime with one thread, so that a run depends only on its seed.
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("the runtime starts")
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Sample;

    impl Harness for Sample {
        const COMMAND: &'static str = "sample";
        const MAX_VIOLATIONS: usize = 2;

        fn play(&mut self, number: u64, _: Rng, counts: &mut Counts) -> Vec<String> {
            counts.add("played", 1);
            if number % 3 == 2 { vec!["broken".to_owned()] } else { Vec::new() }
        }
    }

    #[test]
    fn runs_end_when_enough_is_broken() {
        let report = play(&mut Sample, Options { runs: 100, seed: 1 });
        assert_eq!(report.violations, [(2, "broken".to_owned()), (5, "broken".to_owned())]);
        assert_eq!(report.counts.get("played"), 6);
        assert!(!run(Sample, Options { runs: 100, seed: 1 }));
        assert!(run(Sample, Options { runs: 2, seed: 1 }));
    }
}
