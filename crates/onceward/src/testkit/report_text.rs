//! The report as text: an aligned table, then each cause once, with how to fix it.

use std::fmt::{self, Write as _};

use super::cause::Cause;
use super::report::{Report, ScenarioReport};
use super::scenario::Scenario;
use super::verdict::Verdict;

const HEADINGS: [&str; 6] = ["calls", "happened", "replayed", "held", "refused", "failed"];

/// Advice is wrapped at this width.
const WIDTH: usize = 100;

/// How many scenarios with the same cause are listed; the table has all of them.
const MAX_LISTED: usize = 4;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tool, store, all) = (self.tool(), self.store(), self.lines().len());
        match self.violations().count() {
            0 => writeln!(f, "{tool} on {store}: {all} scenarios, none broken\n")?,
            broken => writeln!(f, "{tool} on {store}: {all} scenarios, {broken} BROKEN\n")?,
        }
        table(f, self.lines())?;
        for (cause, lines) in by_cause(self.lines()) {
            reason(f, cause, &lines)?;
        }
        for note in notes(self.lines()) {
            writeln!(f)?;
            paragraph(f, "  ", note)?;
        }
        Ok(())
    }
}

fn table(f: &mut fmt::Formatter<'_>, lines: &[ScenarioReport]) -> fmt::Result {
    let names: Vec<_> = lines.iter().map(|line| line.scenario().to_string()).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or_default();
    let mut row = |name: &str, cells: &[String; 6], verdict: &str| {
        let mut text = format!("  {name:width$}");
        for (cell, heading) in cells.iter().zip(HEADINGS) {
            let column = heading.len();
            write!(text, "  {cell:>column$}")?;
        }
        writeln!(f, "{text}  {verdict}")
    };
    row("", &HEADINGS.map(str::to_owned), "verdict")?;
    for (line, name) in lines.iter().zip(&names) {
        row(name, &cells(line), &line.verdict().to_string())?;
    }
    Ok(())
}

fn cells(line: &ScenarioReport) -> [String; 6] {
    if line.verdict() == Verdict::NotTried {
        return std::array::from_fn(|_| "-".to_owned());
    }
    let (least, most) = (line.least(), line.happened());
    let happened = if least == most { most.to_string() } else { format!("{least} to {most}") };
    let [calls, replayed, held, refused, failed] =
        [line.results().len(), line.replayed(), line.held(), line.refused(), line.failed()].map(|n| n.to_string());
    [calls, happened, replayed, held, refused, failed]
}

/// The failed scenarios, grouped by cause.
fn by_cause(lines: &[ScenarioReport]) -> Vec<(&Cause, Vec<&ScenarioReport>)> {
    let mut causes: Vec<(&Cause, Vec<&ScenarioReport>)> = Vec::new();
    for line in lines {
        let Some(cause) = line.cause() else { continue };
        // Different keys in each repeat are one cause, not many.
        let is_same = |known: &Cause| std::mem::discriminant(known) == std::mem::discriminant(cause);
        match causes.iter_mut().find(|(known, _)| is_same(known)) {
            Some((_, lines)) => lines.push(line),
            None => causes.push((cause, vec![line])),
        }
    }
    causes
}

fn reason(f: &mut fmt::Formatter<'_>, cause: &Cause, lines: &[&ScenarioReport]) -> fmt::Result {
    writeln!(f)?;
    for line in lines.iter().take(MAX_LISTED) {
        paragraph(f, "  ", &format!("{}: {}: {}", line.verdict(), line.scenario(), line.description()))?;
    }
    if lines.len() > MAX_LISTED {
        writeln!(f, "  and {} more like these", lines.len() - MAX_LISTED)?;
    }
    paragraph(f, "  -> ", &cause.to_string())
}

/// Notes about scenarios that are not broken.
fn notes(lines: &[ScenarioReport]) -> Vec<&'static str> {
    let any = |is: fn(&ScenarioReport) -> bool| lines.iter().any(is);
    let is_refused = |line: &ScenarioReport| matches!(line.scenario(), Scenario::Refused { .. });
    let mut notes = Vec::new();
    if any(|line| line.verdict() == Verdict::Held && !matches!(line.scenario(), Scenario::Refused { .. })) {
        notes.push(
            "held: the outcome is unknown, so no repeat runs until an operator settles it. With a provider that honours keys \
             (`InDoubt::Retry`) or can be probed (`InDoubt::Probe`), this needs no operator.",
        );
    }
    if lines.iter().any(|line| is_refused(line) && line.verdict() == Verdict::Held) {
        notes.push(
            "held after a refusal: the provider had refused before it acted, so nothing had happened. Return \
             `Failure::not_sent` for such an error, so that repeats can run.",
        );
    }
    if lines.iter().any(|line| is_refused(line) && line.verdict() == Verdict::NotTried) {
        notes.push(
            "not tried: the tool's own test double only counts. Let it act through `bench.provider().act(…)`, so that \
             responses can be lost and requests refused.",
        );
    }
    notes
}

/// Wraps a text; the lines after the first are indented by the length of `lead`.
fn paragraph(f: &mut fmt::Formatter<'_>, lead: &str, text: &str) -> fmt::Result {
    let indent = " ".repeat(lead.len());
    let mut line = lead.to_owned();
    let mut is_empty = true;
    for word in text.split(' ') {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            writeln!(f, "{line}")?;
            line.clone_from(&indent);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    writeln!(f, "{line}")
}
