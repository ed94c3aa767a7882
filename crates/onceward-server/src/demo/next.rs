//! What the numbers mean, and what to try next.

use std::io;
use std::path::Path;

use super::paint::{Line, Tone};
use super::plan::{Fault, Plan};
use super::scene::{Cell, Scene};
use super::settle::held;
use super::show::Show;
use super::world::{OPERATION, World};

/// Two or three sentences about the table.
pub(super) fn explain(scene: &Scene, show: &mut Show) -> io::Result<()> {
    let [bare, _, no_keys] = &scene.lanes;
    let text = format!(
        "Without Onceward, {} of {} customers paid twice. With it, nobody did: every retry carried the same key, and a \
         provider that honours keys charged once. Where the provider ignores keys, no retry is safe, so Onceward \
         held the {} whose answer was lost, until somebody finds out.",
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
    let tenant = World::NoKeys.tenant().unwrap_or_default();
    let mut commands = vec![format!("list --store {store} --state in_doubt")];
    if let Some(&number) = left.iter().find(|number| plan.fault(**number, 1) == Some(Fault::LineDropped)) {
        let invoice = plan.payment(number).invoice;
        let which = format!("--store {store} --tenant {tenant} --operation {OPERATION} --key {invoice}");
        commands.push(format!("get {which}"));
        commands.push(format!("resolve {which} --did-not-happen"));
    }
    let lines: Vec<Line> = commands
        .iter()
        .map(|command| Line::new(Tone::Plain, "  ").then(Tone::Strong, format!("{program} {command}")))
        .collect();
    show.lines(&lines)
}

/// How the user started this program.
fn program() -> &'static str {
    if std::env::var_os("CARGO").is_some() { "cargo run -q --release --" } else { "onceward" }
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
