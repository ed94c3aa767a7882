//! What the numbers mean, and what to try next.

use std::io;
use std::path::Path;

use super::paint::{Line, Tone};
use super::plan::{Fault, Plan};
use super::scene::{Cell, Scene};
use super::settle::held;
use super::show::Show;
use super::world::{OPERATION, World};

/// What fits on a line beside the indentation and a backslash.
const LONGEST_COMMAND: usize = 72;

/// Two or three sentences about the table.
pub(super) fn explain(scene: &Scene, show: &mut Show) -> io::Result<()> {
    let [bare, _, no_keys] = &scene.lanes;
    let text = format!(
        "Without Onceward, {} of {} customers paid twice. With it, nobody did: retries carry one key, so a \
         provider that honours keys charges once. If it ignores them, the {} payments without an answer, charged or \
         not, are held for you.",
        bare.count(Cell::Twice),
        scene.payments(),
        no_keys.count(Cell::Held),
    );
    show.paragraph(&text)
}

/// Commands for what is left in the ledger.
pub(super) fn suggest(scene: &Scene, plan: &Plan, settled: usize, store: &Path, show: &mut Show) -> io::Result<()> {
    let left: Vec<usize> = held(scene).filter(|number| *number != settled).collect();
    let program = program();
    let store = quoted(&store.display().to_string());
    show.paragraph(&format!("{} more wait for you in {store}. Try:", left.len()))?;
    show.lines(&broken(&format!("{program} list --store {store} --state in_doubt")))?;
    let tenant = World::NoKeys.tenant().unwrap_or_default();
    if let Some(&number) = left.iter().find(|number| plan.fault(**number, 1) == Some(Fault::LineDropped)) {
        let invoice = plan.payment(number).invoice;
        let which = format!("--store {store} --tenant {tenant} --operation {OPERATION} --key {invoice}");
        show.lines(&broken(&format!("{program} get {which}")))?;
        let hint = format!("  # {invoice} met a dropped line and is not in the provider's books:");
        show.lines(&[Line::new(Tone::Faint, hint)])?;
        show.lines(&broken(&format!("{program} resolve {which} --did-not-happen")))?;
    }
    Ok(())
}

/// A command over several lines, as a shell reads it.
fn broken(command: &str) -> Vec<Line> {
    let mut lines: Vec<String> = vec![String::new()];
    for option in command.replace(" --", "\n--").split('\n') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(option),
            Some(line) if line.chars().count() + 1 + option.chars().count() <= LONGEST_COMMAND => {
                line.push(' ');
                line.push_str(option);
            }
            _ => lines.push(format!("    {option}")),
        }
    }
    let last = lines.len() - 1;
    let ended = lines.into_iter().enumerate().map(|(at, line)| if at == last { line } else { line + " \\" });
    ended.map(|line| Line::new(Tone::Plain, "  ").then(Tone::Strong, line)).collect()
}

/// How the user started this program.
fn program() -> &'static str {
    match std::env::var_os("CARGO") {
        None => "onceward",
        // The same build as now: the other one may not be there yet.
        Some(_) if cfg!(debug_assertions) => "cargo run -q --",
        Some(_) => "cargo run -q --release --",
    }
}

/// As a shell wants it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=+,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
