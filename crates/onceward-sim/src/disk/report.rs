//! What a run prints.

use std::time::Duration;

use super::{Options, Sum};

/// Prints a violation as soon as it is found.
pub fn found(violation: &str) {
    eprintln!("VIOLATION {violation}");
}

/// Prints a fault that took long.
pub fn slow(name: &str, age: Duration) {
    eprintln!("slow, {} ms: {name}", age.as_millis());
}

/// Prints the summary. True if no rule was broken.
pub fn print(options: &Options, sum: &Sum, age: Duration) -> bool {
    let rows = [
        ("faults tried", sum.trials),
        ("seed", options.seed),
        ("milliseconds per fault", u64::try_from(age.as_millis()).unwrap_or(u64::MAX) / sum.trials.max(1)),
        ("the slowest, in milliseconds", u64::try_from(sum.slowest.as_millis()).unwrap_or(u64::MAX)),
        ("faults that took place", sum.fired),
        ("ledgers that refused to open", sum.refused_to_open),
        ("handles that were poisoned", sum.poisoned),
        ("writes acknowledged", sum.acknowledged),
        ("acknowledged records compared", sum.compared),
    ];
    for (name, number) in rows {
        println!("{name:<44}{number:>10}");
    }
    for (kind, count) in &sum.by_kind {
        println!("failed: {:<36}{count:>10}", format!("{kind:?}"));
    }
    println!("{:<44}{:>10}", "violations", sum.violations.len());
    for violation in &sum.violations {
        println!("VIOLATION {violation}");
    }
    if !sum.violations.is_empty() {
        println!("again: onceward-sim disk --seed {} --every {}", options.seed, options.every);
    }
    sum.violations.is_empty()
}
