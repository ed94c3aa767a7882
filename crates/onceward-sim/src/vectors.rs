//! The vectors of the specification as a command, by the code that the tests of core run.

#[allow(clippy::unwrap_used, dead_code, unused_imports, reason = "a test of core, compiled here into a program")]
#[path = "../../onceward-core/tests/it/decide_vectors.rs"]
mod decisions;
#[allow(clippy::panic, dead_code, unused_imports, reason = "a test of core, compiled here into a program")]
#[path = "../../onceward-core/tests/it/error_vectors.rs"]
mod errors;
#[allow(clippy::unwrap_used, dead_code, unused_imports, reason = "a test of core, compiled here into a program")]
#[path = "../../onceward-core/tests/it/vectors.rs"]
mod texts;

use std::panic::catch_unwind;

/// Runs them all, prints the result, and returns whether all passed.
pub fn run() -> bool {
    let all: [(&str, fn()); 7] = [
        ("decisions", decisions::run_all),
        ("errors", errors::run_all),
        ("canonical JSON", texts::canonical_json),
        ("keys", texts::keys),
        ("fingerprints", texts::fingerprints),
        ("recipes", texts::recipes),
        ("refusals", texts::refused),
    ];
    // Failures are printed below, in one line.
    std::panic::set_hook(Box::new(|_| {}));
    let broken: Vec<String> = all
        .iter()
        .filter_map(|(name, check)| Some(format!("{name}: {}", panic_message(&*catch_unwind(check).err()?))))
        .collect();
    broken.iter().for_each(|broken| println!("VIOLATION {broken}"));
    println!("{} of {} files agree", all.len() - broken.len(), all.len());
    broken.is_empty()
}

/// The message of a panic, in one line.
pub fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
        (Some(text), _) => text,
        (_, Some(text)) => *text,
        _ => "it panicked",
    };
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
