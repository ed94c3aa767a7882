//! Turns the progress into lines of text. Pure: no terminal, no clock.

use super::plan::{Fault, Payment};
use super::progress::{Activity, Column, FaultRow, PaymentStatus, Progress};
use super::world::World;

/// What a piece of text means, for a terminal with colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Strong,
    Faint,
    Good,
    Bad,
    Held,
}

/// A line of text in styled pieces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StyledLine(Vec<(Style, String)>);

/// Everything fits the 80 columns that every terminal has.
pub(super) const WIDTH: usize = 78;
const MARGIN: usize = 2;
const LABEL: usize = 29;
const COLUMN: usize = 16;

/// How far steps and commands are indented, the margin included.
pub(super) const STEP_INDENT: usize = 4;
pub(super) const COMMAND_INDENT: usize = 7;

/// How many invoices a strip shows side by side.
const STRIP: usize = 12;

/// Characters that the terminal may not have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Symbols {
    once: char,
    pending: char,
    rule: char,
    none: &'static str,
    separator: &'static str,
}

impl Symbols {
    pub(super) const UNICODE: Self = Self { once: '●', pending: '·', rule: '─', none: "–", separator: "·" };
    pub(super) const ASCII: Self = Self { once: 'o', pending: '.', rule: '-', none: "-", separator: "|" };

    /// The symbols that the locale allows.
    pub(super) fn of_locale() -> Self {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        if locale.contains("utf-8") || locale.contains("utf8") { Self::UNICODE } else { Self::ASCII }
    }
}

impl StyledLine {
    /// An indented line in one piece.
    fn indented(style: Style, text: impl Into<String>, indent: usize) -> Self {
        Self::default().then(Style::Plain, " ".repeat(indent)).then(style, text)
    }

    /// Adds a piece.
    fn then(mut self, style: Style, text: impl Into<String>) -> Self {
        self.0.push((style, text.into()));
        self
    }

    /// Adds a piece that is padded to a width.
    fn padded(self, style: Style, text: &str, width: usize) -> Self {
        let padding = width.saturating_sub(text.chars().count());
        self.then(style, text).then(Style::Plain, " ".repeat(padding))
    }

    /// A label and one text for each world.
    fn columns(style: Style, label: &str, text_of: impl Fn(usize) -> (Style, String)) -> Self {
        let line = Self::indented(Style::Plain, "", MARGIN).padded(style, label, LABEL);
        (0..World::ALL.len()).fold(line, |line, column| {
            let (style, text) = text_of(column);
            line.padded(style, &text, COLUMN)
        })
    }

    /// The text as it is written, with or without ANSI colours.
    pub(super) fn render(&self, colours: bool) -> String {
        let mut text = String::new();
        for (style, piece) in &self.0 {
            let code = match style {
                _ if !colours || piece.trim().is_empty() => "",
                Style::Plain => "",
                Style::Strong => "1",
                Style::Faint => "2",
                Style::Good => "32",
                Style::Bad => "1;31",
                Style::Held => "33",
            };
            if code.is_empty() {
                text.push_str(piece);
            } else {
                text.push_str(&format!("\x1b[{code}m{piece}\x1b[0m"));
            }
        }
        text.truncate(text.trim_end_matches(' ').len());
        text
    }
}

/// Breaks a text into lines at the margin.
pub(super) fn paragraph(style: Style, text: &str) -> Vec<StyledLine> {
    indented(style, text, MARGIN)
}

/// Breaks a text into indented lines.
pub(super) fn indented(style: Style, text: &str, indent: usize) -> Vec<StyledLine> {
    let lines = filled(text.split_whitespace(), WIDTH - indent);
    lines.into_iter().map(|line| StyledLine::indented(style, line, indent)).collect()
}

/// Breaks a command into lines as a shell reads them; its pieces stay whole.
pub(super) fn command(pieces: &[String]) -> Vec<StyledLine> {
    // Room for the deeper indentation of the following lines, and for a space and a backslash.
    let width = WIDTH - COMMAND_INDENT - 4;
    let lines = filled(pieces.iter().map(String::as_str), width);
    let last = lines.len().saturating_sub(1);
    let broken = lines.into_iter().enumerate().map(|(number, line)| {
        let line = if number == 0 { line } else { format!("  {line}") };
        if number == last { line } else { line + " \\" }
    });
    broken.map(|line| StyledLine::indented(Style::Strong, line, COMMAND_INDENT)).collect()
}

/// Puts as many pieces on each line as fit.
fn filled<'a>(pieces: impl Iterator<Item = &'a str>, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for piece in pieces {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + piece.chars().count() <= width => {
                line.push(' ');
                line.push_str(piece);
            }
            _ => lines.push(piece.to_owned()),
        }
    }
    lines
}

/// The title, the story, and the heads of the columns.
pub(super) fn header(progress: &Progress, symbols: Symbols) -> Vec<StyledLine> {
    let title = StyledLine::indented(Style::Strong, "Onceward demo", MARGIN)
        .then(Style::Faint, format!(" {} seed {}", symbols.separator, progress.seed));
    let story = format!(
        "An agent pays {} invoices. For some of them the provider's answer comes too late or not at all. The agent \
         retries, is killed (kill -9) and starts again. The same faults in three worlds:",
        progress.payments()
    );
    let heads = [["without", "with Onceward,", "with Onceward,"], ["Onceward", "keys honoured", "keys ignored"]];
    let mut lines = vec![title, StyledLine::default()];
    lines.extend(paragraph(Style::Plain, &story));
    lines.push(StyledLine::default());
    let head_line =
        |head: [&str; 3]| StyledLine::columns(Style::Plain, "", |column| (Style::Strong, head[column].to_owned()));
    lines.extend(heads.map(head_line));
    lines
}

/// One character for each invoice.
pub(super) fn strips(progress: &Progress, symbols: Symbols) -> Vec<StyledLine> {
    let legend = format!("{} once  2 twice  ? held", symbols.once);
    let mut lines = Vec::new();
    for start in (0..progress.payments()).step_by(STRIP) {
        let label = if start == 0 { legend.as_str() } else { "" };
        let mut line = StyledLine::indented(Style::Plain, "", MARGIN).padded(Style::Faint, label, LABEL);
        for column in &progress.columns {
            let statuses = column.statuses.iter().skip(start).take(STRIP);
            let mut width = 0;
            for status in statuses {
                let (style, symbol) = match status {
                    PaymentStatus::Pending => (Style::Faint, symbols.pending),
                    PaymentStatus::ChargedOnce | PaymentStatus::FoundByProbe | PaymentStatus::PaidAfterProbe => {
                        (Style::Good, symbols.once)
                    }
                    PaymentStatus::ChargedTwice => (Style::Bad, '2'),
                    PaymentStatus::Held => (Style::Held, '?'),
                };
                line = line.then(style, symbol);
                width += 1;
            }
            line = line.then(Style::Plain, " ".repeat(COLUMN - width));
        }
        lines.push(line);
    }
    lines
}

/// How a payment that met a fault ended in each world.
pub(super) fn row(progress: &Progress, row: &FaultRow) -> StyledLine {
    StyledLine::columns(Style::Plain, &row_label(&row.payment, Some(row.fault)), |column| {
        let (style, text) = match progress.columns[column].statuses[row.number] {
            PaymentStatus::Pending => (Style::Faint, ""),
            PaymentStatus::ChargedOnce => (Style::Good, "charged once"),
            PaymentStatus::FoundByProbe => (Style::Good, "found by probe"),
            PaymentStatus::PaidAfterProbe => (Style::Good, "paid after probe"),
            PaymentStatus::ChargedTwice => (Style::Bad, "charged twice"),
            PaymentStatus::Held => (Style::Held, "held for you"),
        };
        (style, text.to_owned())
    })
}

fn row_label(payment: &Payment, fault: Option<Fault>) -> String {
    format!("{} {}  {}", payment.invoice, payment.method.label(), fault.map(Fault::label).unwrap_or_default())
}

/// What the agents are doing now.
pub(super) fn activity(progress: &Progress) -> StyledLine {
    let label = progress.now.as_ref().map(|(payment, fault)| row_label(payment, *fault)).unwrap_or_default();
    StyledLine::columns(Style::Plain, &label, |column| {
        let (style, text) = match progress.columns[column].activity {
            Activity::Idle => (Style::Faint, ""),
            Activity::Paying => (Style::Faint, "paying"),
            Activity::Retrying => (Style::Plain, "retrying"),
            Activity::Killed => (Style::Bad, "kill -9"),
            Activity::Restarted => (Style::Plain, "restarted"),
            Activity::Probing => (Style::Held, "asks provider"),
            Activity::Paid => (Style::Faint, "paid"),
            Activity::Held => (Style::Held, "held"),
        };
        (style, text.to_owned())
    })
}

/// The totals.
pub(super) fn totals(progress: &Progress, symbols: Symbols) -> Vec<StyledLine> {
    let background = |label: &str, count_of: &dyn Fn(&Column) -> usize| {
        StyledLine::columns(Style::Faint, label, |column| {
            (Style::Faint, format!("{:>3}", count_of(&progress.columns[column])))
        })
    };
    let counted = |label: &str, style: Style, statuses: &[PaymentStatus]| {
        StyledLine::columns(Style::Strong, label, |column| {
            let count = progress.columns[column].count(statuses);
            (if count == 0 { Style::Plain } else { style }, format!("{count:>3}"))
        })
    };
    // Without a ledger, no payment can be held or probed.
    let with_ledger = |label: &str, style: Style, statuses: &[PaymentStatus]| {
        StyledLine::columns(Style::Strong, label, |column| match &progress.columns[column] {
            column if column.world == World::WithoutOnceward => (Style::Faint, format!("{:>3}", symbols.none)),
            column if column.count(statuses) == 0 => (Style::Plain, format!("{:>3}", 0)),
            column => (style, format!("{:>3}", column.count(statuses))),
        })
    };
    let rule: String = std::iter::repeat_n(symbols.rule, WIDTH - MARGIN).collect();
    vec![
        StyledLine::indented(Style::Faint, rule, MARGIN),
        background("agent killed", &|column| column.kills),
        background("agent retried", &|column| column.retries),
        counted("charged once", Style::Good, &PaymentStatus::PAID),
        with_ledger("  of these, after a probe", Style::Good, &PaymentStatus::PROBED),
        counted("charged twice", Style::Bad, &[PaymentStatus::ChargedTwice]),
        with_ledger("held for you", Style::Held, &[PaymentStatus::Held]),
        StyledLine::columns(Style::Strong, "charged too much, EUR", |column| {
            let cents = progress.columns[column].overcharged_cents;
            (if cents == 0 { Style::Plain } else { Style::Bad }, money(cents))
        }),
    ]
}

/// Euros with cents, aligned with the counts above; a plain 0 for nothing.
fn money(cents: u64) -> String {
    match cents {
        0 => format!("{:>3}", 0),
        cents => format!("{:>3}.{:02}", cents / 100, cents % 100),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::plan::Plan;

    fn progress() -> Progress {
        let mut progress = Progress::new(7, &Plan::new(7, 24));
        progress.columns[0].statuses[0] = PaymentStatus::ChargedTwice;
        progress.columns[0].overcharged_cents = 123_450;
        progress.columns[2].activity = Activity::Probing;
        progress
    }

    #[test]
    fn no_line_is_wider_than_the_narrowest_terminal() {
        let payment = Plan::new(7, 24).payment(0);
        for symbols in [Symbols::UNICODE, Symbols::ASCII] {
            for status in [PaymentStatus::Held, PaymentStatus::FoundByProbe, PaymentStatus::PaidAfterProbe] {
                let mut progress = progress();
                progress.columns[2].statuses[0] = status;
                progress.now = Some((payment.clone(), Some(Fault::RequestLost)));
                let row = FaultRow { number: 0, payment: payment.clone(), fault: Fault::AgentKilled };
                let lines = [
                    header(&progress, symbols),
                    strips(&progress, symbols),
                    vec![super::row(&progress, &row), activity(&progress)],
                    totals(&progress, symbols),
                ];
                for line in lines.concat() {
                    let text = line.render(false);
                    assert!(text.chars().count() <= 79, "{text}");
                }
            }
        }
    }

    #[test]
    fn a_command_is_broken_between_its_options() {
        let pieces =
            ["onceward resolve", "--store a.db", "--tenant demo-no-keys", "--operation bank_transfer", "--happened"];
        let lines = command(&pieces.map(str::to_owned));
        let text: Vec<String> = lines.iter().map(|line| line.render(false)).collect();
        assert_eq!(
            text,
            [
                "       onceward resolve --store a.db --tenant demo-no-keys \\",
                "         --operation bank_transfer --happened"
            ]
        );
    }

    #[test]
    fn colours_are_left_out_when_they_are_not_wanted() {
        let line = StyledLine::indented(Style::Bad, "charged twice", 2);
        assert_eq!(line.render(false), "  charged twice");
        assert_eq!(line.render(true), "  \x1b[1;31mcharged twice\x1b[0m");
    }
}
