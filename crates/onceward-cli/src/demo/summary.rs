//! Explains the totals, and suggests commands to try next.

use std::io;
use std::path::Path;

use super::plan::{Fault, Method, Payment, Plan};
use super::progress::{PaymentStatus, Progress};
use super::render::{self, Style};
use super::screen::Screen;
use super::settle;
use super::world::World;

/// Explains the table in a few sentences.
pub(super) fn explain(progress: &Progress, screen: &mut Screen) -> io::Result<()> {
    let [without, _, keys_ignored] = &progress.columns;
    let (twice, payments) = (without.count(&[PaymentStatus::ChargedTwice]), progress.payments());
    let probed = counted(keys_ignored.count(&PaymentStatus::PROBED), "card payment");
    let held = match keys_ignored.count(&[PaymentStatus::Held]) {
        1 => "1 bank transfer waits".to_owned(),
        count => format!("{count} bank transfers wait"),
    };
    screen.paragraph(&format!(
        "Without Onceward, {twice} of {payments} customers were charged twice. With Onceward, no customer was. If the provider \
         honours keys, the agent retries with the same key. If it ignores keys, the agent asks the provider first: a \
         probe settled {probed}. The provider has no lookup for transfers, so {held} for a person."
    ))
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Suggests commands for what is left in the ledger.
pub(super) fn suggest(
    progress: &Progress,
    plan: &Plan,
    settled: usize,
    store: &Path,
    screen: &mut Screen,
) -> io::Result<()> {
    let held: Vec<usize> = progress.held(settle::WORLD).filter(|number| *number != settled).collect();
    let file = quoted(&store.display().to_string());
    let typed_list = |options: &[&str]| {
        let mut arguments = vec!["list".to_owned(), "--store".to_owned(), store.display().to_string()];
        arguments.extend(options.iter().map(|option| (*option).to_owned()));
        render::command(&typed(&arguments))
    };
    if held.is_empty() {
        screen.paragraph(&format!("No other payment is held. The ledger is in {file}:"))?;
        return screen.lines(&typed_list(&[]));
    }
    let more = counted(held.len(), "more transfer");
    let verb = if held.len() == 1 { "is" } else { "are" };
    screen.paragraph(&format!("{more} {verb} held in {file}. Try:"))?;
    screen.lines(&typed_list(&["--state", "in_doubt"]))?;
    if let Some(&number) = held.iter().find(|number| plan.fault(**number, 1) == Some(Fault::RequestLost)) {
        let payment = plan.payment(number);
        let hint = format!("# {} was not charged, because its request was lost:", payment.invoice);
        screen.lines(&render::indented(Style::Faint, &hint, render::COMMAND_INDENT))?;
        let mut arguments = vec!["resolve".to_owned()];
        arguments.extend(intent_options(&payment, settle::WORLD, store));
        arguments.push("--did-not-happen".to_owned());
        screen.lines(&render::command(&typed(&arguments)))?;
    }
    let found = progress.rows.iter().find(|row| {
        row.payment.method == Method::Card && progress.columns[2].statuses[row.number] == PaymentStatus::PaidAfterProbe
    });
    if let Some(row) = found {
        let hint = format!("# The trail of {} shows that a probe found nothing:", row.payment.invoice);
        screen.lines(&render::indented(Style::Faint, &hint, render::COMMAND_INDENT))?;
        let mut arguments = vec!["get".to_owned()];
        arguments.extend(intent_options(&row.payment, settle::WORLD, store));
        screen.lines(&render::command(&typed(&arguments)))?;
    }
    Ok(())
}

/// The options that name a payment's intent.
pub(super) fn intent_options(payment: &Payment, world: World, store: &Path) -> [String; 8] {
    let (tenant, operation) = (world.tenant().unwrap_or_default(), payment.method.operation());
    [
        "--store".into(),
        store.display().to_string(),
        "--tenant".into(),
        tenant.into(),
        "--operation".into(),
        operation.into(),
        "--key".into(),
        payment.invoice.clone(),
    ]
}

/// A command as the user types it in a shell: one piece for each option with its value.
pub(super) fn typed(arguments: &[String]) -> Vec<String> {
    let mut pieces = vec![program().to_owned()];
    for argument in arguments {
        match pieces.last_mut() {
            Some(last) if !argument.starts_with("--") => {
                last.push(' ');
                last.push_str(&quoted(argument));
            }
            _ => pieces.push(argument.clone()),
        }
    }
    pieces
}

/// How the user started this program.
fn program() -> &'static str {
    match std::env::var_os("CARGO") {
        None => "onceward",
        // The same profile as now: the other one may not be built.
        Some(_) if cfg!(debug_assertions) => "cargo run -q --",
        Some(_) => "cargo run -q --release --",
    }
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=+,@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
